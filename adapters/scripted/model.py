"""The scripted model that every runtime can talk to: one server, one script, all dialects. Owns nothing but that list."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from adapters.scripted.messages import MessagesDialect
from adapters.scripted.responses import ResponsesDialect
from adapters.scripted.script import Script
from adapters.scripted.server import ScriptedServer


class ScriptedModel(ScriptedServer):
    """A scripted model for Claude Code and Codex: `async with ScriptedModel(script) as model: ...`."""

    def __init__(self, script: Script | None = None, *, port: int = 0) -> None:
        super().__init__([MessagesDialect(), ResponsesDialect()], script, port=port)


async def serve(script: Script, port: int = 0, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
    """Serve a script until cancelled; reports the port once it accepts connections. Raises `OSError` if it is taken."""
    await ScriptedModel(script, port=port).serve(task_status=task_status)
