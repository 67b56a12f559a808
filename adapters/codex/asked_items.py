"""The items that Codex may ask about: commands and file changes of running turns, those of sub-agents included.

A question about a file change names only its item, and a client sees no item of a sub-agent. So the items are recorded here as
they begin, whether they are shown or not. Owns when they are forgotten. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from adapters.acp.shapes import as_text
from adapters.codex.server.signals import item_of, thread_of
from adapters.codex.show.overwritten import carried

_KINDS: Final = frozenset({"commandExecution", "fileChange", "mcpToolCall"})
_MOST_THREADS: Final = 200
"""Threads whose end was not heard; beyond that the oldest are forgotten."""

_Items = Mapping[str, Mapping[str, Any]]


class AskedItems:
    """The items of all threads of one app-server."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, Mapping[str, Any]]] = {}

    def of(self, thread_id: str) -> _Items:
        """The items of a thread's running turn that a question can be about, in order: item id -> item."""
        return self._threads.get(thread_id, {})

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a notification of Codex."""
        match method:
            case "item/started" if item_of(params).get("type") in _KINDS:
                item = item_of(params)
                self._threads.setdefault(thread_of(params), {})[as_text(item.get("id"))] = item
                if len(self._threads) > _MOST_THREADS:
                    del self._threads[next(iter(self._threads))]
            case "item/completed":
                self._change(params, as_text(item_of(params).get("id")), status=item_of(params).get("status"))
            case "item/fileChange/patchUpdated":
                item_id = as_text(params.get("itemId"))
                before = self.of(thread_of(params)).get(item_id, {}).get("changes")
                self._change(params, item_id, changes=carried(params.get("changes"), before))
            case "turn/completed" | "thread/closed":
                self._threads.pop(thread_of(params), None)
            case _:
                pass

    def clear(self) -> None:
        """The process is gone."""
        self._threads.clear()

    def _change(self, params: Mapping[str, Any], item_id: str, **fields: Any) -> None:
        items = self._threads.get(thread_of(params), {})
        if item_id in items:
            items[item_id] = {**items[item_id], **fields}
