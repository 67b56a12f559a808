"""A Claude Code that does what a test says: for tests of the driver without the real CLI.

The process, started through CLAUDE_CODE_EXECUTABLE, is `core/fake_program`; here is what its frames mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio.abc import SocketStream, TaskGroup

from adapters.acp.framing import encode
from adapters.claude.runtime import ClaudeRuntime
from adapters.claude.session import ClaudeSession
from adapters.core.port import PromptInserted
from adapters_tests.core.fake_program import FakeProgram, FakeRig, Sink, open_rig, text

__all__ = ["Sink", "text"]  # passed on to the tests, beside what is made here

A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
"""The first and the second prompt of a test."""


class Fake(FakeProgram):
    """One fake process."""

    initialize = True
    """Answer `initialize`."""
    commands: Sequence[Mapping[str, Any]] = ()

    @property
    def session_id(self) -> str:
        return next(word.partition("=")[2] for word in self.argv if word.startswith(("--session-id=", "--resume=")))

    @property
    def resumed(self) -> bool:
        return any(word.startswith("--resume=") for word in self.argv)

    def kind(self, message: Mapping[str, Any]) -> str:
        """The type of a frame; of a control request its subtype."""
        return message["request"]["subtype"] if message.get("type") == "control_request" else message.get("type", "")

    def receive(self, message: dict[str, Any], tasks: TaskGroup) -> None:
        if self.kind(message) == "initialize" and self.initialize:
            tasks.start_soon(lambda: self.answers(message, commands=self.commands))

    async def answers(self, request: Mapping[str, Any], **payload: Any) -> None:
        response = {"subtype": "success", "request_id": request["request_id"], "response": payload}
        await self.say({"type": "control_response", "response": response})

    async def lifecycle(self, message_id: str, *states: str) -> None:
        await self.say(*({"type": "command_lifecycle", "command_uuid": message_id, "state": state} for state in states))

    async def mirror(self, *entries: Mapping[str, Any]) -> None:
        path = f"/config/projects/-w/{self.session_id}.jsonl"
        await self.say({"type": "transcript_mirror", "filePath": path, "entries": entries})

    async def result(self, *message_ids: str, **fields: Any) -> None:
        ended = {"type": "result", "subtype": "success", "is_error": False, "user_message_uuids": message_ids}
        await self.say({**ended, **fields})

    async def takes(self, message_id: str) -> None:
        """Begin with a prompt as the CLI does."""
        await self.lifecycle(message_id, "queued", "started")
        await self.say({"type": "system", "subtype": "init", "user_message_uuids": [message_id]})


class Rig(FakeRig[Fake]):
    """A runtime whose Claude Codes are fakes, in a home of its own."""

    def __init__(self, home: Path, tasks: TaskGroup, prepare: Callable[[Fake], None] | None) -> None:
        super().__init__(home, tasks, prepare)
        self.config = home / "config"
        self.state = home / "state"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ACP_ADAPTERS_STATE_DIR": str(self.state),
            "CLAUDE_CODE_EXECUTABLE": str(self.program),
        }
        self.runtime = ClaudeRuntime(tasks, self.environ)

    def bound(self, **bounds: float) -> None:
        """Give what is opened from now on other bounds."""
        self.runtime.bounds = replace(self.runtime.bounds, **bounds)

    def make(self, stream: SocketStream, told: Mapping[str, Any]) -> Fake:
        return Fake(stream, told)

    async def new(self) -> tuple[ClaudeSession, Fake, Sink]:
        """A new session, its process and its sink."""
        sink = Sink()
        session = await self.runtime.new_session(self.setup(), sink)
        return session, await self.fake(len(self.fakes)), sink

    async def submitted(self) -> tuple[ClaudeSession, Fake, Sink]:
        """A new session whose process has heard A."""
        session, fake, sink = await self.new()
        await session.submit(A, text())
        await fake.hears("user")
        return session, fake, sink

    async def taken(self) -> tuple[ClaudeSession, Fake, Sink]:
        """A new session whose process has begun with A and not stored it."""
        session, fake, sink = await self.submitted()
        await fake.takes(A)
        return session, fake, sink

    async def working(self) -> tuple[ClaudeSession, Fake, Sink]:
        """A new session with A stored, whose turn runs."""
        session, fake, sink = await self.taken()
        self.store(session.session_id, entry(A))
        await fake.mirror(entry(A))
        await sink.until(PromptInserted)
        return session, fake, sink

    def file(self, session_id: str) -> Path:
        """Where the stored session is."""
        path = self.config / "projects" / "-w" / f"{session_id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, session_id: str, *entries: Mapping[str, Any]) -> None:
        """Append entries to the stored session."""
        with self.file(session_id).open("ab") as file:
            file.writelines(encode(entry) for entry in entries)


def entry(message_id: str, text: str = "hi") -> dict[str, Any]:
    """A stored prompt."""
    return {"type": "user", "uuid": message_id, "message": {"role": "user", "content": text}}


def rig(home: Path, prepare: Callable[[Fake], None] | None = None) -> AbstractAsyncContextManager[Rig]:
    """A rig whose sessions are closed at the end."""
    return open_rig(home, lambda tasks: Rig(home, tasks, prepare))
