"""A runtime's program that does what a test says, and a sink that remembers: for tests of a driver without its real runtime.

The fake is a real process that passes its input to the test and writes what the test tells it to. So every order of messages,
deaths included, can be played. What a message means is in the `driving` of each driver's tests.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import anyio
from anyio.abc import SocketStream, TaskGroup

from adapters.acp.framing import LineDecoder, encode
from adapters.acp.schema import TextBlock, dump
from adapters.core.port import Event, Output, SessionSetup
from adapters.scripted.home import work_folder

BOUND = 15.0
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
    test.sendall(b'{{"fake":"eof"}}\\n')

threading.Thread(target=pass_on, daemon=True).start()
for line in test.makefile("rb"):
    order = json.loads(line)
    if "out" in order:
        sys.stdout.buffer.write(order["out"].encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
    if "err" in order:
        sys.stderr.write(order["err"])
        sys.stderr.flush()
    if order.get("close"):
        os.close(1)
    if order.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        test.sendall(b'{{"fake":"deaf"}}\\n')
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

    @property
    def updates(self) -> list[dict[str, Any]]:
        """What clients would be sent."""
        return [dump(event.update) for event in self.of(Output)]

    async def until(self, kind: type[Any], count: int = 1) -> Any:
        """The `count`-th event of a kind."""
        with anyio.fail_after(BOUND):
            while len(self.of(kind)) < count:
                await self.changed()
        return self.of(kind)[count - 1]


class FakeProgram:
    """One fake process."""

    def __init__(self, stream: SocketStream, told: Mapping[str, Any]) -> None:
        self.stream = stream
        self.argv: Sequence[str] = told["argv"]
        self.env: Mapping[str, str] = told["env"]
        self.pid: int = told["pid"]
        self.heard: list[dict[str, Any]] = []
        """Everything it was sent."""
        self.ended = False
        self.polite = True
        """End at the end of the input."""
        self._taken: dict[str, int] = {}
        self._more = anyio.Event()
        self._sending = anyio.Lock()

    def kind(self, message: Mapping[str, Any]) -> str:
        """What `hears` calls this message."""
        raise NotImplementedError

    def receive(self, message: dict[str, Any], tasks: TaskGroup) -> None:
        """Do what every process does with a message."""

    async def order(self, **order: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with self._sending:
                await self.stream.send(encode(order))

    async def say(self, *messages: Mapping[str, Any]) -> None:
        """Write messages to stdout, in one piece."""
        await self.order(out=b"".join(encode(message) for message in messages).decode())

    async def exit(self, code: int = 0) -> None:
        await self.order(exit=code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def heard_of(self, kind: str) -> list[dict[str, Any]]:
        """Everything heard of a kind; "eof" and "deaf" are words of the fake's own."""
        return [message for message in self.heard if (message.get("fake") or self.kind(message)) == kind]

    async def hears(self, kind: str) -> dict[str, Any]:
        """The next message of a kind."""
        number = self._taken[kind] = self._taken.get(kind, 0) + 1
        await self.until(lambda: len(self.heard_of(kind)) >= number)
        return self.heard_of(kind)[number - 1]

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until what it heard makes it true."""
        with anyio.fail_after(BOUND):
            while not done():
                await self._more.wait()

    async def run(self, tasks: TaskGroup, data: bytes) -> None:
        """Take what it is sent, until it is gone."""
        decoder = LineDecoder()
        while not self.ended:
            for line in decoder.feed(data):
                assert isinstance(line, bytes)
                message = json.loads(line)
                if "fake" not in message:
                    self.receive(message, tasks)
                elif message["fake"] == "eof" and self.polite:
                    tasks.start_soon(self.exit)
                self.heard.append(message)
            try:
                self._tell()
                data = await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.ended = True
        self._tell()

    def _tell(self) -> None:
        self._more.set()
        self._more = anyio.Event()


class _Runtime(Protocol):
    async def aclose(self) -> None: ...


F = TypeVar("F", bound=FakeProgram)


class FakeRig(Generic[F]):
    """A home in which a runtime's program is a fake. A driver's rig adds its runtime."""

    runtime: _Runtime

    def __init__(self, home: Path, tasks: TaskGroup, prepare: Callable[[F], None] | None) -> None:
        self.home = home
        self.cwd = work_folder(home / "My Company - x")
        self.program = home / "program"
        self.program.write_text(_PROGRAM.format(python=sys.executable, address=str(home / "fake.sock")))
        self.program.chmod(0o755)
        self.tasks = tasks
        self.fakes: list[F] = []
        self.prepare = prepare or (lambda _fake: None)
        self._more = anyio.Event()

    def make(self, stream: SocketStream, told: Mapping[str, Any]) -> F:
        """A process that has just been started; `told` is what it says of itself."""
        raise NotImplementedError

    async def accept(self, stream: SocketStream) -> None:
        async with stream:
            buffer = b""
            try:
                while b"\n" not in buffer:
                    buffer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return  # ended before it had said a word
            first, _, rest = buffer.partition(b"\n")
            fake = self.make(stream, json.loads(first))
            self.prepare(fake)
            self.fakes.append(fake)
            self._more.set()
            self._more = anyio.Event()
            await fake.run(self.tasks, rest)

    async def fake(self, number: int = 1) -> F:
        """The `number`-th process that was started."""
        with anyio.fail_after(BOUND):
            while len(self.fakes) < number:
                await self._more.wait()
        return self.fakes[number - 1]

    def setup(self, *servers: Any, roots: tuple[str, ...] = ()) -> SessionSetup:
        return SessionSetup(str(self.cwd), roots, servers)


R = TypeVar("R", bound=FakeRig[Any])


@asynccontextmanager
async def open_rig(home: Path, make: Callable[[TaskGroup], R]) -> AsyncIterator[R]:
    """A rig whose sessions are closed at the end. What fails inside is raised: nothing here swallows it."""
    async with await anyio.create_unix_listener(home / "fake.sock") as listener:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                made = make(tasks)
                tasks.start_soon(listener.serve, made.accept)
                try:
                    yield made
                finally:
                    with anyio.CancelScope(shield=True):
                        await made.runtime.aclose()
                tasks.cancel_scope.cancel()


def text(value: str = "hi") -> list[TextBlock]:
    """A prompt."""
    return [TextBlock(text=value)]
