"""A runtime of another author, as small as it can be: a model, one shell tool, and sessions as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.plugins import OK, Check

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from adapters.core.port import Features, Runtime
    from adapters.scripted.script import Block, Script
    from adapters.scripted.server import ScriptedServer


class Parrot:
    title = "Parrot"

    def missing(self, environ: Mapping[str, str]) -> str | None:
        return None

    def check_folder(self, environ: Mapping[str, str]) -> None:
        pass

    def features(self) -> Features:
        from parrot.driver import FEATURES

        return FEATURES

    def driver(self, tasks: TaskGroup, environ: Mapping[str, str]) -> tuple[Callable[[], Runtime], None]:
        def load() -> Any:
            from parrot.driver import ParrotRuntime

            return ParrotRuntime(tasks, environ)

        return load, None

    def doctor(self, environ: Mapping[str, str]) -> Sequence[Check]:
        return [Check("program", OK, "it is a part of the agent")]

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        from adapters.scripted.home import base_environment

        return {**base_environment(home), "PARROT_HOME": str(home / "parrot"), "PARROT_MODEL": base_url}

    def model(self, script: Script) -> ScriptedServer:
        from adapters.scripted.model import ScriptedModel

        return ScriptedModel(script)

    def asking(self, command: str) -> tuple[Block, Sequence[str]]:
        from adapters.scripted.script import ToolUse

        return ToolUse("Bash", {"command": command, "ask": True}), ()


PLUGIN = Parrot()
