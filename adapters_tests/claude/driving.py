"""A Claude Code that does what a test says, and a sink that remembers: for tests of the driver without the real CLI.

The fake is a real process, started through CLAUDE_CODE_EXECUTABLE, that passes its input to the test and writes what the test
tells it to. So every order of frames, deaths included, can be played.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream, TaskGroup

from adapters.acp.framing import LineDecoder, encode
from adapters.acp.schema import TextBlock
from adapters.claude.runtime import ClaudeRuntime
from adapters.claude.session import ClaudeSession
from adapters.core.runtime import Event, SessionSetup

_BOUND = 15.0
"""Seconds after which a test that waits has failed."""

_PROGRAM = """#!{python}
import json, os, signal, socket, sys, threading

test = socket.socket(socket.AF_UNIX)
test.connect({address!r})
told = {{"argv": sys.argv[1:], "pid": os.getpid(), "env": dict(os.environ)}}
test.sendall(json.dumps(told).encode() + b"\\n")

def pass_on():
    for line in sys.stdin.buffer:
        test.sendall(line)
    test.sendall(b'{{"type":"eof"}}\\n')

threading.Thread(target=pass_on, daemon=True).start()
for line in test.makefile("rb"):
    order = json.loads(line)
    if "out" in order:
        sys.stdout.buffer.write(order["out"].encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    if "err" in order:
        sys.stderr.write(order["err"])
        sys.stderr.flush()
    if order.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        test.sendall(b'{{"type":"deaf"}}\\n')
    if "exit" in order:
        os._exit(order["exit"])
os._exit(9)
"""


class Sink:
    """Remembers the events of a session. With `open` unset it is a client that does not read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.open = anyio.Event()
        self.open.set()
        self.stuck = anyio.Event()
        """The session waits for this client."""
        self._more = anyio.Event()

    def deliver(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    async def writable(self) -> None:
        if not self.open.is_set():
            self.stuck.set()
        await self.open.wait()

    async def changed(self) -> None:
        """Wait for the next event."""
        await self._more.wait()

    def of(self, *kinds: type[Any]) -> list[Any]:
        """The events of these kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, kind: type[Any], count: int = 1) -> Any:
        """The `count`-th event of a kind."""
        with anyio.fail_after(_BOUND):
            while len(self.of(kind)) < count:
                await self.changed()
        return self.of(kind)[count - 1]


@dataclass
class Fake:
    """One fake process."""

    stream: SocketStream
    argv: Sequence[str]
    env: Mapping[str, str]
    pid: int
    frames: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False
    initialize: bool = True
    """Answer `initialize`."""
    polite: bool = True
    """End at the end of the input."""
    commands: Sequence[Mapping[str, Any]] = ()
    _more: anyio.Event = field(default_factory=anyio.Event)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)
    _taken: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def session_id(self) -> str:
        return next(word.partition("=")[2] for word in self.argv if word.startswith(("--session-id=", "--resume=")))

    @property
    def resumed(self) -> bool:
        return any(word.startswith("--resume=") for word in self.argv)

    async def order(self, **order: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with self._sending:
                await self.stream.send(encode(order))

    async def say(self, *frames: Mapping[str, Any]) -> None:
        """Write frames to stdout."""
        await self.order(out=b"".join(encode(frame) for frame in frames).decode())

    async def exit(self, code: int = 0) -> None:
        await self.order(exit=code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def hears(self, kind: str) -> dict[str, Any]:
        """The next frame of a kind: "user", "control_response", or the subtype of a control request."""
        with anyio.fail_after(_BOUND):
            while True:
                known = [frame for frame in self.frames if _kind(frame) == kind]
                if len(known) > self._taken.get(kind, 0):
                    self._taken[kind] = self._taken.get(kind, 0) + 1
                    return known[self._taken[kind] - 1]
                await self._more.wait()

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

    async def run(self, tasks: TaskGroup, data: bytes) -> None:
        decoder = LineDecoder()
        while not self.ended:
            for line in decoder.feed(data):
                assert isinstance(line, bytes)
                frame = json.loads(line)
                if _kind(frame) == "initialize" and self.initialize:
                    tasks.start_soon(lambda frame=frame: self.answers(frame, commands=self.commands))
                if frame.get("type") == "eof" and self.polite:
                    tasks.start_soon(self.exit)
                self.frames.append(frame)
            try:
                self._tell()
                data = await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.ended = True
        self._tell()

    def _tell(self) -> None:
        self._more.set()
        self._more = anyio.Event()


def _kind(frame: Mapping[str, Any]) -> str:
    if frame.get("type") == "control_request":
        return frame["request"]["subtype"]
    return frame.get("type", "")


class Rig:
    """A runtime whose Claude Codes are fakes, in a home of its own."""

    def __init__(self, home: Path, tasks: TaskGroup, prepare: Callable[[Fake], None] | None) -> None:
        self.home = home
        self.cwd = home / "My Company - x"
        self.cwd.mkdir()
        self.config = home / "config"
        self.state = home / "state"
        program = home / "claude"
        program.write_text(_PROGRAM.format(python=sys.executable, address=str(home / "fake.sock")))
        program.chmod(0o755)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ACP_ADAPTERS_STATE_DIR": str(self.state),
            "CLAUDE_CODE_EXECUTABLE": str(program),
        }
        self.tasks = tasks
        self.runtime = ClaudeRuntime(tasks, self.environ)
        self.fakes: list[Fake] = []
        self.prepare = prepare or (lambda _fake: None)
        self._more = anyio.Event()

    async def accept(self, stream: SocketStream) -> None:
        async with stream:
            buffer = b""
            try:
                while b"\n" not in buffer:
                    buffer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return  # ended before it had said a word
            first, _, rest = buffer.partition(b"\n")
            told = json.loads(first)
            fake = Fake(stream, told["argv"], told["env"], told["pid"])
            self.prepare(fake)
            self.fakes.append(fake)
            self._more.set()
            self._more = anyio.Event()
            await fake.run(self.tasks, rest)

    async def fake(self, number: int = 1) -> Fake:
        """The `number`-th process that was started."""
        with anyio.fail_after(_BOUND):
            while len(self.fakes) < number:
                await self._more.wait()
        return self.fakes[number - 1]

    def setup(self, *servers: Any) -> SessionSetup:
        return SessionSetup(str(self.cwd), (), servers)

    async def new(self) -> tuple[ClaudeSession, Fake, Sink]:
        """A new session, its process and its sink."""
        sink = Sink()
        session = await self.runtime.new_session(self.setup(), sink)
        return session, await self.fake(len(self.fakes)), sink

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


def text(text: str = "hi") -> list[TextBlock]:
    """A prompt."""
    return [TextBlock(text=text)]


@asynccontextmanager
async def rig(home: Path, prepare: Callable[[Fake], None] | None = None) -> AsyncIterator[Rig]:
    """A rig whose sessions are closed at the end. What fails inside is raised: nothing here swallows it."""
    async with await anyio.create_unix_listener(home / "fake.sock") as listener:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                made = Rig(home, tasks, prepare)
                tasks.start_soon(listener.serve, made.accept)
                try:
                    yield made
                finally:
                    with anyio.CancelScope(shield=True):
                        await made.runtime.aclose()
                tasks.cancel_scope.cancel()
