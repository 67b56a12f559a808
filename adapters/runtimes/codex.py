"""Codex as a plug-in. All methods import what they need when they are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from adapters.codex.server.shared import Host
    from adapters.core.front import Prepare
    from adapters.core.port import Features, Runtime
    from adapters.plugins import Check
    from adapters.scripted.script import Block, Script
    from adapters.scripted.server import ScriptedServer


class CodexPlugin:
    """See `adapters.plugins.Plugin`."""

    title = "Codex"

    def missing(self, environ: Mapping[str, str]) -> str | None:
        """See `Plugin`."""
        from adapters.codex.server.program import find_codex, missing_text

        return missing_text(environ) if find_codex(environ) is None else None

    def check_folder(self, environ: Mapping[str, str]) -> None:
        """See `Plugin`."""
        from adapters.codex.server.home_dir import require_codex_home

        require_codex_home(environ)

    def features(self) -> Features:
        """See `Plugin`."""
        from adapters.codex.server.program import FEATURES

        return FEATURES

    def driver(self, tasks: TaskGroup, environ: Mapping[str, str]) -> tuple[Callable[[], Runtime], Prepare | None]:
        """See `Plugin`. The app-server serves all sessions, so it starts while our models are imported."""
        hosts: list[Host] = []

        async def prepare(begun: Callable[[], None]) -> None:
            from adapters.codex.server.shared import Host

            hosts.append(Host(tasks, environ))
            await hosts[0].prepare(begun)

        def load() -> Runtime:
            from adapters.codex.runtime import CodexRuntime

            return CodexRuntime(tasks, environ, *hosts)

        return load, prepare

    def doctor(self, environ: Mapping[str, str]) -> Sequence[Check]:
        """See `Plugin`."""
        from adapters.runtimes.codex_checks import check_codex

        return check_codex(environ)

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        """See `Plugin`."""
        from adapters.codex.server.program import EXECUTABLE, find_codex
        from adapters.scripted.home import isolated_codex_home

        found = find_codex(os.environ)
        chosen = {} if found is None else {EXECUTABLE: str(found.path)}
        return {**isolated_codex_home(home, base_url), **chosen}

    def model(self, script: Script) -> ScriptedServer:
        """See `Plugin`."""
        from adapters.scripted.model import ScriptedModel

        return ScriptedModel(script)

    def asking(self, command: str) -> tuple[Block, Sequence[str]]:
        """See `Plugin`."""
        from adapters.scripted.script import ToolUse

        wanted = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "for the check"}
        return ToolUse("exec_command", wanted), ("workspace-write", "read-only")


PLUGIN: Final = CodexPlugin()
