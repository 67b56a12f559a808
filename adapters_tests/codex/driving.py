"""An app-server that does what a test says: for tests of the driver without the real Codex.

The fake is a real process, started through CODEX_PATH, that passes its input to the test and writes what the test tells it to. So
every order of messages, deaths included, can be played. What a test does not care about is answered as Codex would.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from anyio.abc import SocketStream, TaskGroup

from adapters.acp.framing import LineDecoder, encode
from adapters.acp.schema import TextBlock, dump
from adapters.codex.runtime import CodexRuntime
from adapters.codex.session import CodexSession
from adapters.core.runtime import Event, Output, SessionSetup

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
    test.sendall(b'{{"method":"eof"}}\\n')

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
        test.sendall(b'{{"method":"deaf"}}\\n')
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
        self._more = anyio.Event()

    def deliver(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    async def writable(self) -> None:
        await self.open.wait()

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
                await self._more.wait()
        return self.of(kind)[count - 1]


Handler = Callable[["Fake", Mapping[str, Any]], Mapping[str, Any] | None]
"""Answers a request: params -> result. None leaves it to the test."""


@dataclass
class Stored:
    """What outlives a fake process: stored items per thread, oldest first, and the threads that have a file."""

    items: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    legacy: set[str] = field(default_factory=set[str])
    turns: dict[str, str] = field(default_factory=dict[str, str])
    """Turn -> status, where it is not "completed"."""

    def add(self, thread: str, item: Mapping[str, Any], turn: str = "N", started: int = 0) -> None:
        """Store an item."""
        entry = {"turnId": turn, "item": dict(item), "startedAtMs": started, "completedAtMs": started}
        self.items.setdefault(thread, []).append(entry)


def _listed(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any]:
    rows = fake.store.items.get(params["threadId"], [])
    if params.get("sortDirection") == "desc":
        return {"data": rows[::-1][:100], "nextCursor": None}
    start = int(params.get("cursor") or 0)
    end = start + fake.page
    return {"data": rows[start:end], "nextCursor": str(end) if end < len(rows) else None}


def _thread(fake: Fake, thread: str) -> dict[str, Any]:
    mode = "legacy" if thread in fake.store.legacy else "paginated"
    return {"thread": {"id": thread, "historyMode": mode, "path": str(fake.rollout)}, "model": "m"}


def _started(fake: Fake, _params: Mapping[str, Any]) -> dict[str, Any]:
    return _thread(fake, str(uuid4()))


def _resumed(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any] | None:
    if params["threadId"] not in fake.store.items:
        raise RefusedError(f"no rollout found for thread id {params['threadId']}")
    return _thread(fake, params["threadId"])


def _injected(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any]:
    fake.store.items.setdefault(params["threadId"], [])
    return {}


def _read(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any]:
    turns: dict[str, list[Any]] = {}
    for row in fake.store.items.get(params["threadId"], []):
        turns.setdefault(row["turnId"], []).append(row["item"])
    return {"thread": {"turns": [{"id": turn, "items": items} for turn, items in turns.items()]}}


class RefusedError(Exception):
    """A handler refuses."""


_ANSWERS: dict[str, Handler] = {
    "initialize": lambda _fake, _params: {"userAgent": "acp-adapters/0.163.0 (fake)"},
    "thread/start": _started,
    "thread/resume": _resumed,
    "thread/inject_items": _injected,
    "thread/loaded/list": lambda _fake, _params: {"data": []},
    "thread/items/list": _listed,
    "thread/read": _read,
    "thread/turns/list": lambda fake, _params: {
        "data": [{"id": turn, "status": status} for turn, status in fake.store.turns.items()]
    },
    "thread/unsubscribe": lambda _fake, _params: {"status": "unsubscribed"},
    "thread/archive": lambda _fake, _params: {},
    "thread/unarchive": lambda _fake, _params: {},
    "thread/delete": lambda _fake, _params: {},
    "thread/backgroundTerminals/clean": lambda _fake, _params: {},
    "thread/backgroundTerminals/terminate": lambda _fake, _params: {"terminated": True},
}


@dataclass
class Fake:
    """One fake app-server."""

    stream: SocketStream
    pid: int
    argv: list[str]
    env: Mapping[str, str]
    store: Stored
    rollout: Path
    answers: dict[str, Handler] = field(default_factory=lambda: dict(_ANSWERS))
    """By method; take one out to answer yourself."""
    page: int = 100
    polite: bool = True
    """End at the end of the input."""
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False
    _asked: int = 0
    _taken: dict[str, int] = field(default_factory=dict[str, int])
    _more: anyio.Event = field(default_factory=anyio.Event)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)

    async def order(self, **order: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with self._sending:
                await self.stream.send(encode(order))

    async def say(self, *messages: Mapping[str, Any]) -> None:
        """Write messages to stdout, in one piece."""
        await self.order(out=b"".join(encode(message) for message in messages).decode())

    async def tell(self, thread: str, *notes: tuple[str, Mapping[str, Any]]) -> None:
        """Notifications about a thread, in one piece."""
        await self.say(*({"method": method, "params": {"threadId": thread, **params}} for method, params in notes))

    async def exit(self, code: int = 0) -> None:
        await self.order(exit=code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Everything heard of a method."""
        return [message for message in self.heard if message.get("method") == method]

    async def hears(self, method: str) -> dict[str, Any]:
        """The next message of a method."""
        with anyio.fail_after(BOUND):
            while len(self.requests(method)) <= self._taken.get(method, 0):
                await self._more.wait()
        self._taken[method] = self._taken.get(method, 0) + 1
        return self.requests(method)[self._taken[method] - 1]

    async def answer(self, request: Mapping[str, Any], **result: Any) -> None:
        await self.say({"id": request["id"], "result": result})

    async def refuse(self, request: Mapping[str, Any], message: str, code: int = -32600, data: Any = None) -> None:
        await self.say({"id": request["id"], "error": {"code": code, "message": message, "data": data}})

    async def ask(self, method: str, **params: Any) -> int:
        """A request of the server; gives its id."""
        self._asked += 1
        await self.say({"id": self._asked - 1, "method": method, "params": params})
        return self._asked - 1

    async def hears_answer(self, request_id: int) -> dict[str, Any]:
        """What was answered to a request of the server."""
        with anyio.fail_after(BOUND):
            while not (found := [m for m in self.heard if "method" not in m and m.get("id") == request_id]):
                await self._more.wait()
        return found[0]

    # --- what Codex does with a prompt -----------------------------------------------------------------------------------

    async def accept(self, turn: str = "N", method: str = "turn/start") -> dict[str, Any]:
        """Accept the next prompt into a turn; gives its params."""
        request = await self.hears(method)
        named = {"turnId": turn} if method == "turn/steer" else {"turn": {"id": turn}}
        await self.answer(request, **named)
        return request["params"]

    async def insert(self, params: Mapping[str, Any], turn: str = "N") -> None:
        """Insert a prompt: store it, report it."""
        thread = params["threadId"]
        item = user(params["clientUserMessageId"])
        self.store.add(thread, item, turn)
        await self.tell(thread, opened(item, turn), closed(item, turn))

    async def take(self, turn: str = "N") -> dict[str, Any]:
        """Accept the next prompt and insert it in a new turn."""
        params = await self.accept(turn)
        await self.tell(params["threadId"], began(turn))
        await self.insert(params, turn)
        return params

    async def run(self, tasks: TaskGroup, data: bytes) -> None:
        decoder = LineDecoder()
        while not self.ended:
            for line in decoder.feed(data):
                assert isinstance(line, bytes)
                message = json.loads(line)
                handler = self.answers.get(message.get("method", ""))
                if handler and "id" in message:
                    tasks.start_soon(self._handle, handler, message)
                if message.get("method") == "eof" and self.polite:
                    tasks.start_soon(self.exit)
                self.heard.append(message)
            try:
                self._tell()
                data = await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.ended = True
        self._tell()

    async def _handle(self, handler: Handler, message: Mapping[str, Any]) -> None:
        try:
            result = handler(self, message["params"])
        except RefusedError as refused:
            await self.refuse(message, str(refused))
        else:
            if result is not None:
                await self.answer(message, **result)

    def _tell(self) -> None:
        self._more.set()
        self._more = anyio.Event()


# --- items and notes ---------------------------------------------------------------------------------------------------


def user(message_id: str | None, text: str = "hi") -> dict[str, Any]:
    content = [{"type": "text", "text": text, "text_elements": []}]
    return {"type": "userMessage", "id": f"item-of-{message_id}", "clientId": message_id, "content": content}


def said(text: str, item_id: str = "m1") -> dict[str, Any]:
    return {"type": "agentMessage", "id": item_id, "text": text}


def command(item_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {
        "type": "commandExecution",
        "id": item_id,
        "command": "/bin/sh -c ls",
        "cwd": "/",
        "processId": "77",
        "status": "inProgress",
        "commandActions": [],
        **fields,
    }


def began(turn: str = "N") -> tuple[str, dict[str, Any]]:
    return "turn/started", {"turn": {"id": turn, "status": "inProgress"}}


def over(turn: str = "N", status: str = "completed", error: Any = None) -> tuple[str, dict[str, Any]]:
    return "turn/completed", {"turn": {"id": turn, "status": status, "error": error, "items": []}}


def opened(item: Mapping[str, Any], turn: str = "N") -> tuple[str, dict[str, Any]]:
    return "item/started", {"item": item, "turnId": turn}


def closed(item: Mapping[str, Any], turn: str = "N") -> tuple[str, dict[str, Any]]:
    return "item/completed", {"item": item, "turnId": turn}


def text(value: str = "hi") -> list[TextBlock]:
    """A prompt."""
    return [TextBlock(text=value)]


# --- the rig -----------------------------------------------------------------------------------------------------------


class Rig:
    """A runtime whose app-servers are fakes, in a home of its own."""

    def __init__(self, home: Path, tasks: TaskGroup, prepare: Callable[[Fake], None] | None) -> None:
        self.home = home
        self.cwd = home / "My Company - x"
        self.cwd.mkdir()
        program = home / "codex"
        program.write_text(_PROGRAM.format(python=sys.executable, address=str(home / "fake.sock")))
        program.chmod(0o755)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(home / "codex-home"),
            "CODEX_PATH": str(program),
        }
        self.tasks = tasks
        self.store = Stored()
        self.fakes: list[Fake] = []
        self.prepare = prepare or (lambda _fake: None)
        self._more = anyio.Event()
        self.runtime = CodexRuntime(tasks, self.environ)

    async def accept(self, stream: SocketStream) -> None:
        async with stream:
            buffer = b""
            while b"\n" not in buffer:
                buffer += await stream.receive()
            first, _, rest = buffer.partition(b"\n")
            told = json.loads(first)
            fake = Fake(stream, told["pid"], told["argv"], told["env"], self.store, self.home / "rollout.jsonl")
            self.prepare(fake)
            self.fakes.append(fake)
            self._more.set()
            self._more = anyio.Event()
            await fake.run(self.tasks, rest)

    async def fake(self, number: int = 1) -> Fake:
        """The `number`-th process that was started."""
        with anyio.fail_after(BOUND):
            while len(self.fakes) < number:
                await self._more.wait()
        return self.fakes[number - 1]

    def setup(self, *servers: Any, roots: tuple[str, ...] = ()) -> SessionSetup:
        return SessionSetup(str(self.cwd), roots, servers)

    async def new(self, *servers: Any) -> tuple[CodexSession, Fake, Sink]:
        """A new session, the app-server and its sink."""
        sink = Sink()
        session = await self.runtime.new_session(self.setup(*servers), sink)
        return session, await self.fake(len(self.fakes)), sink

    async def open(self, session_id: str) -> tuple[CodexSession, Fake, Sink]:
        """A stored session made active."""
        sink = Sink()
        session = await self.runtime.open_session(session_id, self.setup(), sink)
        return session, await self.fake(len(self.fakes)), sink


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
