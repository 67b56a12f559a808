"""Tool calls as v1 shows them (V1-UPD-2, V1-UPD-3): what a client was told of each, and its content in v1's words.

Owns the content of a call between updates: v1 has no pieces of it, so each piece sends all of it again, within a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from adapters.acp.fences import fenced, inside
from adapters.acp.v1 import closed, diffs
from adapters.acp.v1.closed import Wire
from adapters.acp.v1.terminal_text import readable

UNNAMED: Final = "Tool call"
"""The title of a call that nobody has named yet: v1 wants one at once."""
_FREE: Final = 64 * 1024
_FACTOR: Final = 3
"""Content that grows is sent again while all that was sent of it is at most `_FACTOR` times what there is, and `_FREE` more."""


class _Block:
    """A code block that grows; joined only when it is sent, so that a long stream stays linear."""

    __slots__ = ("language", "parts")

    def __init__(self, text: str, language: str) -> None:
        self.parts = [text]
        self.language = language

    def item(self) -> Wire:
        return _text_item(fenced("\n".join(self.parts), self.language))


class ToolCall:
    """One call, and what a client holds of it."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.title = UNNAMED
        self.told = False
        """`tool_call` was sent."""
        self.title_due = False
        """A question shows another title."""
        self.content_due = False
        """Content has changed that was not sent."""
        self.final = False
        self.announced: str | None = None
        """A terminal that the client was told of, before the call has one."""
        self.known: Wire = {}
        """What a question about it says of it, where the question itself does not: kind, input, locations."""
        self.released = False
        """Its content is sent and not kept any more."""
        self._source: Any = []
        """The whole content as it came last; None: something was added to it."""
        self._items: list[Wire | _Block] = []
        self._size = 0
        self._sent = 0

    def replace(self, content: Any) -> None:
        """The whole content, as v2 has it."""
        if content == self._source or (self.released and any(_names_terminal(item) for item in content)):
            return
        self.released = False
        self._source = content
        self._items, self._size, self._sent = [], 0, 0
        for item in cast("list[Any]", content or []):
            self._add(item, joins=False)
        self.content_due = True

    def append(self, item: Any) -> bool:
        """One more item; whether it should be sent now. Code blocks that follow each other become one."""
        if self.released:
            return False
        self._source = None
        self._add(item, joins=True)
        self.content_due = True
        return self._sent + self._size <= _FACTOR * self._size + _FREE

    def release(self) -> Sequence[str]:
        """Keep no content of a call that is over: a session may be long. The terminals that it named."""
        named = self.terminals()
        self.released, self._items, self._source = True, [], None
        return named

    def learn(self, news: Mapping[str, Any]) -> None:
        """What an update says."""
        self.title = news.get("title") or self.title
        if "status" in news:
            self.final = news["status"] in ("completed", "failed")
        if self.final:
            self.known = {}
        else:
            self.known |= {name: news[name] for name in _ASKED if name in news}

    def terminals(self) -> list[str]:
        """The terminals that its content names, by their v2 ids."""
        return [item["terminalId"] for item in self._items if isinstance(item, dict) and item["type"] == "terminal"]

    def content(self, terminal: Callable[[str], Wire | None]) -> list[Wire]:
        """The content to send now. `terminal`: the item that stands for a terminal, None for nothing."""
        self.content_due = False
        self._sent += self._size
        shown: list[Wire] = []
        for item in self._items:
            wire = item.item() if isinstance(item, _Block) else item
            stands = terminal(wire["terminalId"]) if wire["type"] == "terminal" else wire
            if stands is not None:
                shown.append(stands)
        return shown

    def _add(self, item: Any, *, joins: bool) -> None:
        for shown in _content(item):
            text: str | None = shown["content"].get("text") if shown["type"] == "content" else None
            self._size += 64 if text is None else len(text)
            block = inside(text) if text is not None else None
            last = self._items[-1] if self._items and joins else None
            if block is None:
                self._items.append(shown)
            elif isinstance(last, _Block) and last.language == block[1]:
                last.parts.append(block[0])
            else:
                self._items.append(_Block(*block))


_ASKED: Final = ("kind", "rawInput", "locations")


def fields(source: Mapping[str, Any]) -> Wire:
    """The fields of a call that v1 has, without its content."""
    shown = closed.only(source, "title", "rawInput", "rawOutput")
    kind, status = source.get("kind"), source.get("status")
    if isinstance(kind, str):
        shown["kind"] = kind if kind in closed.TOOL_KINDS else closed.OTHER_KIND
    if isinstance(status, str) and status in closed.TOOL_STATUSES:
        shown["status"] = closed.TOOL_STATUSES[status]
    if "locations" in source:
        shown["locations"] = [closed.only(entry, "path", "line") for entry in source["locations"] or ()]
    return shown


def text_item(text: str) -> Wire:
    """Text as content of a call, without control characters."""
    return _text_item(readable(text))


def _names_terminal(item: Any) -> bool:
    return isinstance(item, dict) and cast(Wire, item).get("type") == "terminal"


def _text_item(text: str) -> Wire:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _content(source: Any) -> list[Wire]:
    """One content item of v2 in v1's words: one, several (a diff of several hunks), or none (a type that v1 does not have)."""
    item = cast(Wire, source) if isinstance(source, dict) else {}
    match item.get("type"):
        case "content":
            block = closed.block(item.get("content"))
            if block is not None and block["type"] == "text":
                block["text"] = readable(block["text"])
            return [] if block is None else [{"type": "content", "content": block}]
        case "diff":
            return diffs.content(item)
        case "terminal" if isinstance(item.get("terminalId"), str):
            return [{"type": "terminal", "terminalId": item["terminalId"]}]
        case _:
            return []
