"""An app-server that does what a test says: for tests of the driver without the real Codex.

The process, started through CODEX_PATH, is `core/fake_program`; here is what its messages mean. What a test does not care about
is answered as Codex would.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from anyio.abc import SocketStream, TaskGroup

from adapters.codex.bounds import Bounds
from adapters.codex.runtime import CodexRuntime
from adapters.codex.session import CodexSession
from adapters_tests.core.fake_program import BOUND, FakeProgram, FakeRig, Sink, open_rig, text

__all__ = ["BOUND", "Sink", "text"]  # passed on to the tests, beside what is made here

Handler = Callable[["Fake", Mapping[str, Any]], Mapping[str, Any] | None]
"""Answers a request: params -> result. None leaves it to the test."""


@dataclass
class Stored:
    """What outlives a fake process: stored items per thread, oldest first, and the threads that have a file."""

    home: Path
    items: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    legacy: set[str] = field(default_factory=set[str])
    turns: dict[str, str] = field(default_factory=dict[str, str])
    """Turn -> status, where it is not "completed"."""

    def add(self, thread: str, item: Mapping[str, Any], turn: str = "N", started: int = 0) -> None:
        """Store an item."""
        entry = {"turnId": turn, "item": dict(item), "startedAtMs": started, "completedAtMs": started}
        self.items.setdefault(thread, []).append(entry)
        if thread not in self.legacy:  # there the file may come last
            self.write(thread)

    def rollout(self, thread: str) -> Path:
        """The thread's file."""
        return self.home / "sessions" / f"rollout-2026-11-30T00-00-00-{thread}.jsonl"

    def write(self, thread: str) -> None:
        """Let the thread's file hold the user messages among its items."""
        file = self.rollout(thread)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(map(line_of, (entry["item"] for entry in self.items.get(thread, ())))))


def listed_of(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any]:
    rows = fake.store.items.get(params["threadId"], [])
    if params.get("sortDirection") == "desc":
        return {"data": rows[::-1][:100], "nextCursor": None}
    start = int(params.get("cursor") or 0)
    end = start + fake.page
    return {"data": rows[start:end], "nextCursor": str(end) if end < len(rows) else None}


def line_of(item: Mapping[str, Any]) -> str:
    """How a file holds an item."""
    stored = {"type": "UserMessage", "id": item["id"], "client_id": item["clientId"]} if "clientId" in item else {}
    return json.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": stored}}) + "\n"


def _thread(fake: Fake, thread: str) -> dict[str, Any]:
    fake.store.write(thread)
    mode = "legacy" if thread in fake.store.legacy else "paginated"
    return {"thread": {"id": thread, "historyMode": mode, "path": str(fake.store.rollout(thread))}, "model": "m"}


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
    "config/read": lambda _fake, _params: {"config": {"mcp_servers": {}}},
    "thread/start": _started,
    "thread/resume": _resumed,
    "thread/inject_items": _injected,
    "thread/loaded/list": lambda _fake, _params: {"data": []},
    "thread/items/list": listed_of,
    "thread/read": _read,
    "thread/turns/list": lambda fake, _params: {
        "data": [{"id": turn, "status": status} for turn, status in fake.store.turns.items()]
    },
    "thread/unsubscribe": lambda _fake, _params: {"status": "unsubscribed"},
    "thread/unarchive": lambda _fake, _params: {},
    "thread/delete": lambda _fake, _params: {},
    "thread/backgroundTerminals/clean": lambda _fake, _params: {},
    "thread/backgroundTerminals/terminate": lambda _fake, _params: {"terminated": True},
}


class Fake(FakeProgram):
    """One fake app-server."""

    page = 100

    def __init__(self, stream: SocketStream, told: Mapping[str, Any], store: Stored) -> None:
        super().__init__(stream, told)
        self.store = store
        self.answers: dict[str, Handler] = dict(_ANSWERS)
        """By method; take one out to answer yourself."""
        self._asked = 0

    def kind(self, message: Mapping[str, Any]) -> str:
        """The method."""
        return message.get("method", "")

    def receive(self, message: dict[str, Any], tasks: TaskGroup) -> None:
        handler = self.answers.get(message.get("method", ""))
        if handler and "id" in message:
            tasks.start_soon(self._handle, handler, message)

    async def tell(self, thread: str, *notes: tuple[str, Mapping[str, Any]]) -> None:
        """Notifications about a thread, in one piece. A user message is in the file before it is reported as complete."""
        for method, params in notes:
            if method == "item/completed" and "clientId" in params["item"] and thread not in self.store.legacy:
                with self.store.rollout(thread).open("a") as file:
                    file.write(line_of(params["item"]))
        await self.say(*({"method": method, "params": {"threadId": thread, **params}} for method, params in notes))

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Everything heard of a method."""
        return self.heard_of(method)

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

        def answers() -> list[dict[str, Any]]:
            return [m for m in self.heard if "method" not in m and m.get("id") == request_id]

        await self.until(lambda: bool(answers()))
        return answers()[0]

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

    async def _handle(self, handler: Handler, message: Mapping[str, Any]) -> None:
        try:
            result = handler(self, message["params"])
        except RefusedError as refused:
            await self.refuse(message, str(refused))
        else:
            if result is not None:
                await self.answer(message, **result)
                if message["method"] == "thread/unsubscribe":
                    await self.tell(message["params"]["threadId"], ("thread/closed", {}))


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


def asked(turn: str = "N") -> tuple[str, dict[str, Any]]:
    return "thread/tokenUsage/updated", {"turnId": turn, "tokenUsage": {}}


# --- the rig -----------------------------------------------------------------------------------------------------------


class Rig(FakeRig[Fake]):
    """A runtime whose app-servers are fakes, in a home of its own."""

    def __init__(self, home: Path, tasks: TaskGroup, prepare: Callable[[Fake], None] | None, bounds: Bounds) -> None:
        super().__init__(home, tasks, prepare)
        (home / "codex-home").mkdir(exist_ok=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(home / "codex-home"),
            "CODEX_PATH": str(self.program),
        }
        self.store = Stored(home / "codex-home")
        self.runtime = CodexRuntime(tasks, self.environ, bounds=bounds)

    def make(self, stream: SocketStream, told: Mapping[str, Any]) -> Fake:
        return Fake(stream, told, self.store)

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


def rig(home: Path, prepare: Callable[[Fake], None] | None = None, **bounds: float) -> AbstractAsyncContextManager[Rig]:
    """A rig whose sessions are closed at the end; `bounds` are other than the usual ones."""
    return open_rig(home, lambda tasks: Rig(home, tasks, prepare, Bounds(**bounds)))
