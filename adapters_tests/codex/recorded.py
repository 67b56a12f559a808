"""The recorded scenarios of `fixtures/codex`, and what the driver's machinery makes of their lines and of what is stored.

`Live` does with the recorded lines what a session does with those of a process, without one: the same state machine, the same
pictures, the same choices. `Stored` answers the requests of `History` and `Replay` as the recorded app-server did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import anyio

from adapters.acp.errors import InternalError
from adapters.acp.schema import SessionUpdate, UserMessage, dump
from adapters.client.view import SessionView
from adapters.codex.questions import Ask, ask_of
from adapters.codex.server.process import AppServer
from adapters.codex.server.signals import (
    ItemClosed,
    ItemOpened,
    TurnEnded,
    TurnStarted,
    client_id_of,
    item_of,
    signal_of,
    thread_of,
)
from adapters.codex.show.content import from_input
from adapters.codex.show.live import Translator
from adapters.codex.show.overwritten import Overwritten
from adapters.codex.show.replay import Replay, ShownIds
from adapters.codex.thread.history import History
from adapters.codex.turn_types import Confirm, Effect, FinishItems, Look, Open, Reclaim
from adapters.codex.turns import Turns
from adapters.core import port

FIXTURES = Path(__file__).parents[2] / "fixtures" / "codex"
NAMES = sorted(path.name for path in FIXTURES.iterdir())
PAGE = 7
"""Items of one page of `Stored`: few, so that pages begin and end in the middle of turns."""

Json = dict[str, Any]


def json_lines(path: Path) -> list[Any]:
    """The values of a JSON lines file; only a newline ends a line."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


@dataclass(frozen=True)
class Scenario:
    """One recording."""

    name: str
    thread: str
    cwd: str
    legacy: bool
    prompts: Mapping[str, Any]
    """Message id -> user input, in the order in which they were sent."""
    lines: Sequence[Json]
    """``{"sent": message}`` and ``{"got": message}``."""
    rollout: Path
    stored: Mapping[str, Any]

    @property
    def got(self) -> list[Json]:
        """What the app-server wrote."""
        return [line["got"] for line in self.lines if "got" in line]

    @property
    def threads(self) -> list[str]:
        """The threads that were prompted: of a fork, the one it was made of comes first."""
        sent = [line["sent"] for line in self.lines if "sent" in line]
        return list(dict.fromkeys(m["params"]["threadId"] for m in sent if m.get("method") == "turn/start"))

    def notes(self, thread: str) -> list[Json]:
        """The params of the completed turns of a thread, in order."""
        return [
            message["params"]
            for message in self.got
            if message.get("method") == "turn/completed" and message["params"]["threadId"] == thread
        ]

    def replayed(self, shown_ids: ShownIds | None = None) -> list[SessionUpdate]:
        """What a client is told that resumes the session, here with what this process remembers of a legacy thread."""
        history = self.history()

        async def read() -> list[SessionUpdate]:
            replay = Replay(history, self.cwd, (), shown_ids or ShownIds(), Overwritten())
            return [update async for update in replay.updates(self.server())]

        return anyio.run(read)

    def ids(self) -> set[str]:
        """The message ids that Codex lists."""

        async def read() -> set[str]:
            entries = [entry async for page in self.history().pages(self.server()) for entry in page]
            return {message_id for entry in entries if (message_id := client_id_of(entry.item))}

        return anyio.run(read)

    def history(self) -> History:
        """The thread's, whose files were not recorded."""
        return History(self.thread, Path("nowhere"), legacy=self.legacy)

    def server(self) -> AppServer:
        """An app-server that has the thread loaded."""
        return cast("AppServer", Stored(self.stored))


@cache
def load(name: str) -> Scenario:
    """A recording by name."""
    folder = FIXTURES / name
    told = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
    return Scenario(
        name,
        told["thread"],
        told["cwd"],
        told["legacy"],
        {prompt["id"]: prompt["input"] for prompt in told["prompts"]},
        json_lines(folder / "lines.jsonl"),
        folder / "rollout.jsonl",
        json.loads((folder / "stored.json").read_text(encoding="utf-8")),
    )


@dataclass
class Answered:
    """A request on its way."""

    answer: Mapping[str, Any]

    async def result(self, bound: float) -> Mapping[str, Any]:
        assert bound > 0
        return self.answer


@dataclass
class Stored:
    """Answers what is asked of a stored thread, in small pages."""

    answers: Mapping[str, Any]

    async def request(self, method: str, params: Mapping[str, Any], *, bound: float) -> Mapping[str, Any]:
        return await self.begin(method, params).result(bound)

    def begin(self, method: str, params: Mapping[str, Any]) -> Answered:
        return Answered(self._answer(method, params))

    def _answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self.answers[method]
        if "data" not in answer:
            return answer
        assert answer["nextCursor"] is None, "the recording is one page"
        rows = answer["data"][::-1] if params.get("sortDirection") == "desc" else answer["data"]
        start = int(params.get("cursor") or 0)
        end = start + PAGE
        return {"data": rows[start:end], "nextCursor": str(end) if end < len(rows) else None}


@dataclass
class Live:
    """One thread of a scenario as a session lives through it."""

    scenario: Scenario
    thread: str = ""
    updates: list[SessionUpdate] = field(default_factory=list[SessionUpdate])
    events: list[port.Event] = field(default_factory=list[port.Event])
    asks: list[tuple[Ask | Mapping[str, Any] | None, Any]] = field(
        default_factory=list[tuple[Ask | Mapping[str, Any] | None, Any]]
    )
    """What was asked, and what was answered."""
    shown_ids: ShownIds = field(default_factory=ShownIds)

    def __post_init__(self) -> None:
        self.thread = self.thread or self.scenario.thread
        self.turns = Turns()
        self.translator = Translator(self.scenario.cwd, is_ours=self.scenario.prompts.__contains__)
        self._requests: dict[int, Open] = {}
        self._open_asks: dict[int, Ask | Mapping[str, Any] | None] = {}
        for line in self.scenario.lines:
            if "sent" in line:
                self._sent(line["sent"])
            else:
                self._got(line["got"])
        if self.turns.working:  # the process was killed
            self._apply(self.turns.died(InternalError("Codex ended.")))

    def _sent(self, message: Json) -> None:
        params = message.get("params", {})
        if "method" not in message:
            self._answered(message)
        elif params.get("threadId") != self.thread:
            return
        elif message["method"] in ("turn/start", "turn/steer", "thread/compact/start"):
            compact = message["method"] == "thread/compact/start"
            submission = self.turns.submit(params.get("clientUserMessageId", "compact"), compact=compact)
            self.turns.sending(submission)
            self._requests[message["id"]] = submission
        elif message["method"] == "turn/interrupt":
            self._apply(self.turns.interrupt())

    def _got(self, message: Json) -> None:
        params = message.get("params", {})
        if "method" not in message:
            submission = self._requests.pop(message["id"], None)
            if submission:
                result = message["result"]
                self._apply(self.turns.accepted(submission, result.get("turnId") or result.get("turn", {}).get("id")))
        elif thread_of(params) != self.thread:
            return
        elif "id" in message:
            ask = ask_of(message["method"], params, self.translator.running_items, self.scenario.cwd)
            self._open_asks[message["id"]] = ask
            self.turns.asked(str(message["id"]), ask.item_id if isinstance(ask, Ask) else "")
            if isinstance(ask, Ask) and (call := self.translator.asked_call(ask.item_id, waits=not ask.item_runs)):
                self.updates.append(call)
        else:
            self._heard(message["method"], params)

    def _heard(self, method: str, params: Json) -> None:
        signal = signal_of(method, params)
        shows = lambda: self.updates.extend(self.translator.feed(method, params))  # noqa: E731 - twice, in two orders
        if isinstance(signal, ItemOpened | TurnStarted):
            self._apply(self.turns.take(signal))
            shows()
            return
        if isinstance(signal, TurnEnded):
            self.translator.turn_over(signal.turn_id, interrupted=signal.status == "interrupted")
        if isinstance(signal, ItemClosed) and self.scenario.legacy:
            self.shown_ids.add(signal.turn_id, item_of(params))
        shows()
        if signal:
            self._apply(self.turns.take(signal))

    def _answered(self, message: Json) -> None:
        ask = self._open_asks.pop(message["id"], None)
        if ask is None:
            return
        self.asks.append((ask, message["result"]))
        if isinstance(ask, Ask):
            chosen = next((option for option, answer in ask.answers.items() if answer == message["result"]), None)
            if chosen in ask.approvals:
                self.updates.extend(self.translator.running(ask.item_id))
        self._apply(self.turns.answered(str(message["id"])))

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Look(submission):
                    found = submission.message_id in self.scenario.ids()
                    self._apply(self.turns.looked(submission, found=found))
                case FinishItems(status, turn_id):
                    self.updates.extend(self.translator.finish(status, turn_id))
                case port.PromptTaken(message_id) if message_id in self.scenario.prompts:
                    content = from_input(self.scenario.prompts[message_id])
                    self.updates.append(UserMessage(message_id=message_id, content=content))
                    self.events.append(effect)
                case Confirm(submission):
                    stored = submission.message_id in self.scenario.ids()
                    self._apply(self.turns.confirmed(submission, stored=stored))
                case Reclaim():
                    pass
                case _:
                    self.events.append(cast("port.Event", effect))

    def of(self, *kinds: type[Any]) -> list[Any]:
        """The events of these kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]


def live_updates(scenario: Scenario) -> list[SessionUpdate]:
    """What clients were told; of a fork, also what it inherited."""
    return [update for thread in scenario.threads for update in Live(scenario, thread).updates]


def view(updates: Sequence[SessionUpdate]) -> SessionView:
    """The picture that these updates make."""
    return SessionView.of(dump(update) for update in updates)
