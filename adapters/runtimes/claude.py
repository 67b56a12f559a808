"""Claude Code as a plug-in. All methods import what they need when they are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from adapters.core.front import Prepare
    from adapters.core.port import Features, Runtime
    from adapters.plugins import Check
    from adapters.scripted.script import Block, Script
    from adapters.scripted.server import ScriptedServer


class ClaudePlugin:
    """See `adapters.plugins.Plugin`."""

    title = "Claude Code"

    def missing(self, environ: Mapping[str, str]) -> str | None:
        """See `Plugin`."""
        from adapters.claude.cli.program import find_claude, missing_text

        return missing_text(environ) if find_claude(environ) is None else None

    def check_folder(self, environ: Mapping[str, str]) -> None:
        """See `Plugin`."""
        from adapters.claude.cli.config_dir import require_config_dir

        require_config_dir(environ)

    def features(self) -> Features:
        """See `Plugin`."""
        from adapters.claude.cli.program import FEATURES

        return FEATURES

    def driver(self, tasks: TaskGroup, environ: Mapping[str, str]) -> tuple[Callable[[], Runtime], Prepare | None]:
        """See `Plugin`. Nothing can begin before: a process belongs to one session."""

        def load() -> Runtime:
            from adapters.claude.runtime import ClaudeRuntime

            return ClaudeRuntime(tasks, environ)

        return load, None

    def doctor(self, environ: Mapping[str, str]) -> Sequence[Check]:
        """See `Plugin`."""
        from adapters.runtimes.claude_checks import check_claude

        return check_claude(environ)

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        """See `Plugin`."""
        from adapters.claude.cli.program import EXECUTABLE, find_claude
        from adapters.scripted.home import isolated_claude_home

        found = find_claude(os.environ)
        chosen = {} if found is None else {EXECUTABLE: str(found.path)}
        return {**isolated_claude_home(home, base_url), **chosen}

    def model(self, script: Script) -> ScriptedServer:
        """See `Plugin`."""
        from adapters.scripted.model import ScriptedModel

        return ScriptedModel(script)

    def asking(self, command: str) -> tuple[Block, Sequence[str]]:
        """See `Plugin`."""
        from adapters.scripted.script import Shell

        return Shell(command), ("default",)


PLUGIN: Final = ClaudePlugin()
