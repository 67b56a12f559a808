"""The tool calls of one conversation: which are open, and the updates that open, change and end them.

Owns the life of a call, the same for live frames and stored entries: announced (its name is known), started (its input is known),
ended (its result is known). An ended call is never opened again, so an entry that appears twice changes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapters.acp.schema import ContentItem, SessionUpdate, TextBlock, ToolCallUpdate
from adapters.acp.shapes import as_mapping, as_text
from adapters.claude.show.tool_results import finished_call, plan_of
from adapters.claude.show.tool_titles import tool_call
from adapters.core.file_change import FileChange
from adapters.driver.tool_text import one_line

_AGENTS = frozenset({"Agent", "Task"})


Changed = Callable[[str, Mapping[str, Any]], FileChange | None]
"""What an edit has changed, by its id and its structured result, where that is more, or less, than the result says."""


@dataclass(slots=True)
class _Open:
    name: str
    todos: Any = None
    """The input of a TodoWrite, which becomes the plan when it succeeds. Other inputs are not kept: they may be large."""


class ToolCalls:
    """Open calls by id. Ended ones are remembered by hash only: a session can have very many."""

    def __init__(self, cwd: str, changed: Changed = lambda _, __: None) -> None:
        self._cwd = cwd
        self._changed = changed
        self._open: dict[str, _Open] = {}
        self._ended: set[int] = set()

    @property
    def open(self) -> Collection[str]:
        """Ids of the calls without a result, in order."""
        return list(self._open)

    @property
    def waits_for_agent(self) -> bool:
        """Whether the model waits for a subagent; one that works on in the background has given its call a result at once."""
        return any(call.name in _AGENTS for call in self._open.values())

    def announced(self, tool_use_id: str, name: str) -> Iterator[SessionUpdate]:
        """The model began to write a call: its name is known, its input is still to come."""
        if not tool_use_id or tool_use_id in self._open or hash(tool_use_id) in self._ended:
            return
        self._open[tool_use_id] = _Open(name)
        yield tool_call(name, tool_use_id, {}, self._cwd, "pending")

    def started(self, tool_use_id: str, name: str, tool_input: Any) -> Iterator[SessionUpdate]:
        """The call is complete and runs from now on (or waits for a permission, which the permission request says)."""
        if not tool_use_id or hash(tool_use_id) in self._ended:
            return
        self._open[tool_use_id] = _Open(name, tool_input if name == "TodoWrite" else None)
        yield tool_call(name, tool_use_id, tool_input, self._cwd, "in_progress")

    def running(self, tool_use_id: str) -> Iterator[SessionUpdate]:
        """The call that waited for a permission runs."""
        if tool_use_id in self._open:
            yield ToolCallUpdate(tool_call_id=tool_use_id, status="in_progress")

    def progress(self, tool_use_id: str, text: str) -> Iterator[SessionUpdate]:
        """The current activity of an open call, in place of its content."""
        if tool_use_id in self._open and text:
            yield ToolCallUpdate(
                tool_call_id=tool_use_id, content=[ContentItem(content=TextBlock(text=one_line(text)))]
            )

    def ended(self, block: Mapping[str, Any], result: Any) -> Iterator[SessionUpdate]:
        """The result of a call: its tool_result block and the runtime's structured result."""
        tool_use_id = as_text(block.get("tool_use_id"))
        if not tool_use_id or hash(tool_use_id) in self._ended:
            return
        call = self._open.pop(tool_use_id, None)
        self._ended.add(hash(tool_use_id))
        name = call.name if call else ""
        change = None if block.get("is_error") else self._changed(tool_use_id, as_mapping(result))
        yield finished_call(name, block, result, self._cwd, change)
        plan = plan_of(name, block, result, call.todos if call else None)
        if plan is not None:
            yield plan

    def abandon(self, tool_use_id: str) -> Iterator[SessionUpdate]:
        """The call will never run: the model's answer that held it was discarded."""
        if self._open.pop(tool_use_id, None) is not None:
            self._ended.add(hash(tool_use_id))
            yield ToolCallUpdate(tool_call_id=tool_use_id, status="cancelled")

    def finish(self, status: str, still_running: Collection[str] = ()) -> Iterator[SessionUpdate]:
        """Give every open call a final status, except those that go on (REPLAY-7)."""
        for tool_use_id in self.open:
            if tool_use_id not in still_running:
                del self._open[tool_use_id]
                self._ended.add(hash(tool_use_id))
                yield ToolCallUpdate(tool_call_id=tool_use_id, status=status)  # pyright: ignore[reportArgumentType]
