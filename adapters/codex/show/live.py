"""Codex's notifications as session updates, live; and stored items as the same updates, in a replay (REPLAY-2..7).

Owns what is open on the client's screen: messages that stream, tool calls that run. Knows no prompt of ours (the core shows
those) and of a turn only its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.acp.schema import (
    AgentMessage,
    AgentMessageChunk,
    AgentThought,
    AgentThoughtChunk,
    CompactionUpdate,
    ContentItem,
    Notice,
    PlanEntry,
    PlanItems,
    PlanUpdate,
    SessionInfoUpdate,
    SessionUpdate,
    TextBlock,
    ToolCallContentChunk,
    ToolCallUpdate,
    UsageUpdate,
    UserMessage,
)
from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.codex.server.signals import COMPACTION, MODEL_OUTPUT, USER_MESSAGE, client_id_of, item_of
from adapters.codex.show.content import from_input
from adapters.codex.show.items import file_changes, spoken_text, status_of, thought_text, tool_call, was_killed
from adapters.codex.show.overwritten import carried
from adapters.driver.tool_text import fenced, one_line

PLAN_ID: Final = "plan"
"""The one plan of a session (PLAN-2)."""

_MOST_STREAMED: Final = 256 * 1024
"""Characters of one command's output that are streamed; its end brings the whole."""

_PLAN_STATUSES: Final = {"pending": "pending", "inProgress": "in_progress", "completed": "completed"}
_SPEECH: Final = frozenset({"agentMessage", "plan", "exitedReviewMode"})

_Fields = Mapping[str, Any]
_Updates = Iterator[SessionUpdate]


@dataclass(slots=True)
class _Message:
    """A message or thought that streams."""

    turn_id: str
    thought: bool
    parts: list[str] = field(default_factory=list[str])
    part: int = 0
    """Of a thought: the summary part that streams."""
    raw: bool = False
    """Of a thought: raw reasoning streams, no summary."""


@dataclass(slots=True)
class _Call:
    """A tool call or compaction that runs."""

    turn_id: str
    item: _Fields
    pending: str = ""
    """Output that is no whole line yet."""
    streamed: int = 0


class Translator:
    """The live picture of one thread."""

    def __init__(self, cwd: str, *, is_ours: Callable[[str], bool]) -> None:
        self._cwd = cwd
        self._is_ours = is_ours
        """Whether the core shows the user message of this id."""
        self._messages: dict[str, _Message] = {}
        self._calls: dict[str, _Call] = {}
        self._interrupted: set[str] = set()
        """Turns that were interrupted while calls of them ran."""
        self._last_notice = ""
        self._told: set[str] = set()
        self._readers: Mapping[str, Callable[[_Fields], _Updates]] = {
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "item/agentMessage/delta": self._said,
            "item/plan/delta": self._said,
            "item/reasoning/summaryTextDelta": self._summarised,
            "item/reasoning/textDelta": self._reasoned,
            "item/commandExecution/outputDelta": self._printed,
            "item/mcpToolCall/progress": self._progressed,
            "item/fileChange/patchUpdated": self._patched,
            "error": self._failed,
            "warning": self._warned,
            "reaperWarning": self._warned,
            "model/rerouted": self._rerouted,
            "turn/plan/updated": self._planned,
            "thread/tokenUsage/updated": self._used,
            "thread/name/updated": self._named,
        }

    @property
    def open_calls(self) -> frozenset[str]:
        """Ids of the calls that run, for a `replay` meanwhile."""
        return frozenset(self._calls)

    @property
    def running_items(self) -> Mapping[str, _Fields]:
        """The running items, foreground and background, in order: item id -> item."""
        return {item_id: call.item for item_id, call in self._calls.items()}

    def item(self, item_id: str) -> _Fields | None:
        """A running item, for a question about it."""
        call = self._calls.get(item_id)
        return call.item if call else None

    def feed(self, method: str, params: _Fields) -> list[SessionUpdate]:
        """The updates for a notification of this thread. Unknown notifications give none."""
        read = self._readers.get(method)
        return list(read(params)) if read else []

    def running(self, item_id: str) -> list[SessionUpdate]:
        """The update after a permission was given: the call runs (TOOL-10)."""
        if item_id not in self._calls:
            return []
        return [ToolCallUpdate(tool_call_id=item_id, status="in_progress")]

    def asked_call(self, item_id: str, *, waits: bool) -> ToolCallUpdate | None:
        """The call that a question is about, None when it is none of a running item. `waits`: for the answer."""
        item = self.item(item_id)
        return tool_call(item, self._cwd, status="pending" if waits else "in_progress") if item else None

    def turn_over(self, turn_id: str, *, interrupted: bool) -> None:
        """An unfinished message of an ended turn will never be completed; it stays as it was shown."""
        self._messages = {i: message for i, message in self._messages.items() if message.turn_id != turn_id}
        if interrupted and any(call.turn_id == turn_id for call in self._calls.values()):
            self._interrupted.add(turn_id)

    def finish(self, status: str, turn_id: str | None = None) -> list[SessionUpdate]:
        """Give the calls that run a final status ("failed" or "cancelled"), those of one turn or all of them."""
        updates: list[SessionUpdate] = []
        for item_id, call in list(self._calls.items()):
            if turn_id not in (None, call.turn_id):
                continue
            del self._calls[item_id]
            if call.item.get("type") == COMPACTION:
                updates.append(CompactionUpdate(compaction_id=item_id, status=status))  # pyright: ignore[reportArgumentType]
            else:
                updates.append(ToolCallUpdate(tool_call_id=item_id, status=status))  # pyright: ignore[reportArgumentType]
        return updates

    # --- items -----------------------------------------------------------------------------------------------------------

    def _item_started(self, params: _Fields) -> _Updates:
        item, turn_id = item_of(params), as_text(params.get("turnId"))
        item_id, kind = as_text(item.get("id")), as_text(item.get("type"))
        if kind == USER_MESSAGE or kind in MODEL_OUTPUT:
            yield from self._discard(turn_id)
        if kind in MODEL_OUTPUT:
            self._messages[item_id] = _Message(turn_id, thought=kind == "reasoning")
        elif kind == COMPACTION:
            self._calls[item_id] = _Call(turn_id, item)
            yield CompactionUpdate(compaction_id=item_id, status="in_progress")
        elif call := tool_call(item, self._cwd, status="in_progress"):
            self._calls[item_id] = _Call(turn_id, item)
            yield call

    def _item_completed(self, params: _Fields) -> _Updates:
        item, turn_id = item_of(params), as_text(params.get("turnId"))
        item_id = as_text(item.get("id"))
        call = self._calls.pop(item_id, None)
        if call and "changes" in call.item:
            item = {**item, "changes": carried(item.get("changes"), call.item["changes"])}
        message = self._messages.pop(item_id, None)
        client_id = client_id_of(item)
        if client_id is not None and self._is_ours(client_id):
            return
        streamed = "".join(message.parts) if message else ""
        if streamed and streamed == (thought_text(item) if item.get("type") == "reasoning" else spoken_text(item)):
            return
        yield from stored_item(item, self._cwd, interrupted=turn_id in self._interrupted)

    def _discard(self, turn_id: str) -> _Updates:
        """A model call was cut short: what it had said is thrown away, and is taken back here too."""
        for item_id, message in list(self._messages.items()):
            if message.turn_id == turn_id:
                del self._messages[item_id]
                if message.parts:
                    kind = AgentThought if message.thought else AgentMessage
                    yield kind(message_id=item_id, content=[])

    # --- streams ---------------------------------------------------------------------------------------------------------

    def _said(self, params: _Fields) -> _Updates:
        item_id, delta = as_text(params.get("itemId")), as_text(params.get("delta"))
        if delta:
            self._message(params, item_id, thought=False).parts.append(delta)
            yield AgentMessageChunk(message_id=item_id, content=TextBlock(text=delta))

    def _summarised(self, params: _Fields) -> _Updates:
        item_id, delta = as_text(params.get("itemId")), as_text(params.get("delta"))
        message = self._message(params, item_id, thought=True)
        if not delta:
            return
        if message.raw:  # the summary replaces raw reasoning
            message.raw = False
            message.parts.clear()
            yield AgentThought(message_id=item_id, content=[])
        index = as_count(params.get("summaryIndex"))
        if message.parts and index != message.part:
            delta = f"\n\n{delta}"
        message.part = index
        message.parts.append(delta)
        yield AgentThoughtChunk(message_id=item_id, content=TextBlock(text=delta))

    def _reasoned(self, params: _Fields) -> _Updates:
        item_id, delta = as_text(params.get("itemId")), as_text(params.get("delta"))
        message = self._message(params, item_id, thought=True)
        if delta and (message.raw or not message.parts):
            message.raw = True
            index = as_count(params.get("contentIndex"))
            if message.parts and index != message.part:
                delta = f"\n\n{delta}"
            message.part = index
            message.parts.append(delta)
            yield AgentThoughtChunk(message_id=item_id, content=TextBlock(text=delta))

    def _message(self, params: _Fields, item_id: str, *, thought: bool) -> _Message:
        return self._messages.setdefault(item_id, _Message(as_text(params.get("turnId")), thought=thought))

    def _printed(self, params: _Fields) -> _Updates:
        """Output of a running command, in whole lines, up to a bound: no more than that is kept or looked at."""
        item_id, delta = as_text(params.get("itemId")), as_text(params.get("delta"))
        call = self._calls.get(item_id)
        if call is None or call.streamed > _MOST_STREAMED:
            return
        whole, newline, rest = delta.rpartition("\n")
        if newline:
            text, call.pending = f"{call.pending}{whole}", rest
            call.streamed += len(text)
            shown = ContentItem(content=TextBlock(text=fenced(text)))
            yield ToolCallContentChunk(tool_call_id=item_id, content=shown)
        elif len(call.pending) + len(rest) > _MOST_STREAMED:
            call.streamed, call.pending = _MOST_STREAMED + 1, ""
        else:
            call.pending += rest

    def _progressed(self, params: _Fields) -> _Updates:
        item_id, message = as_text(params.get("itemId")), as_text(params.get("message"))
        if item_id in self._calls and message:
            shown = ContentItem(content=TextBlock(text=message))
            yield ToolCallContentChunk(tool_call_id=item_id, content=shown)

    def _patched(self, params: _Fields) -> _Updates:
        item_id = as_text(params.get("itemId"))
        if call := self._calls.get(item_id):
            changes = carried(params.get("changes"), call.item.get("changes"))
            call.item = {**call.item, "changes": changes}
            content = file_changes(changes, self._cwd)
            yield ToolCallUpdate(tool_call_id=item_id, content=list(content))

    # --- the rest --------------------------------------------------------------------------------------------------------

    def _failed(self, params: _Fields) -> _Updates:
        if params.get("willRetry") is not True:
            return  # the end of the turn says it
        yield from self._discard(as_text(params.get("turnId")))
        error = as_mapping(params.get("error"))
        title = one_line(as_text(error.get("message"))) or "The model call failed; trying again."
        details = as_text(error.get("additionalDetails"))
        if title + details != self._last_notice:  # while the network is away it says the same for ever
            self._last_notice = title + details
            yield _notice("warning", title, details)

    def _warned(self, params: _Fields) -> _Updates:
        title = one_line(as_text(params.get("message")))
        if title and title not in self._told:
            self._told.add(title)
            yield _notice("warning", title)

    def _rerouted(self, params: _Fields) -> _Updates:
        model = as_text(params.get("toModel"))
        if model:
            yield _notice("info", f"The model {one_line(model)} answers instead.")

    def _planned(self, params: _Fields) -> _Updates:
        entries: list[PlanEntry] = []
        for step in map(as_mapping, as_list(params.get("plan"))):
            status = _PLAN_STATUSES.get(as_text(step.get("status")), "pending")
            text = as_text(step.get("step"))
            entries.append(PlanEntry(content=text, priority="medium", status=status))  # pyright: ignore[reportArgumentType]
        yield PlanUpdate(plan=PlanItems(plan_id=PLAN_ID, entries=entries))

    def _used(self, params: _Fields) -> _Updates:
        usage = as_mapping(params.get("tokenUsage"))
        size = as_count(usage.get("modelContextWindow"))
        if size:
            yield UsageUpdate(used=as_count(as_mapping(usage.get("last")).get("totalTokens")), size=size)

    def _named(self, params: _Fields) -> _Updates:
        name = as_text(params.get("threadName")) or as_text(params.get("name"))
        if name:
            yield SessionInfoUpdate(title=name)


def stored_item(
    item: _Fields, cwd: str, *, interrupted: bool = False, running: bool = False, item_id: str | None = None
) -> _Updates:
    """The whole picture of a complete item, nothing for items that show nothing.

    `interrupted`: its turn was. `running`: it goes on in this process; another one that is not complete died with its
    process (REPLAY-7). `item_id`: shown under this id instead of its own.
    """
    shown_id = item_id or as_text(item.get("id"))
    kind = as_text(item.get("type"))
    if kind == USER_MESSAGE:
        yield UserMessage(message_id=item_id or client_id_of(item) or shown_id, content=from_input(item.get("content")))
    elif kind in _SPEECH:
        if text := spoken_text(item):
            yield AgentMessage(message_id=shown_id, content=[TextBlock(text=text)])
    elif kind == "reasoning":
        if text := thought_text(item):
            yield AgentThought(message_id=shown_id, content=[TextBlock(text=text)])
    elif kind == COMPACTION:
        yield CompactionUpdate(compaction_id=shown_id, status="completed")
    else:
        status = status_of(item)
        if interrupted and was_killed(item):
            status = "cancelled"
        elif status == "in_progress" and not running:
            status = "cancelled" if interrupted else "failed"
        if call := tool_call(item, cwd, status=status):
            yield call


def samples() -> _Updates:
    """One update of each common kind: making and dumping them builds their models, 135 ms that no turn should wait for."""
    text = TextBlock(text="")
    shown = ContentItem(content=text)
    yield AgentMessageChunk(message_id="", content=text)
    yield AgentThoughtChunk(message_id="", content=text)
    yield AgentMessage(message_id="", content=[text])
    yield ToolCallUpdate(tool_call_id="", content=[shown])
    yield ToolCallContentChunk(tool_call_id="", content=shown)
    yield UsageUpdate(used=0, size=1)


def _notice(severity: str, title: str, description: str = "") -> Notice:
    if description:
        return Notice(severity=severity, title=title, description=description)  # pyright: ignore[reportArgumentType]
    return Notice(severity=severity, title=title)  # pyright: ignore[reportArgumentType]
