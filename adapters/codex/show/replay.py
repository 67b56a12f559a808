"""A stored thread as the updates that rebuild the client's view (REPLAY-2..7).

Owns the id under which each stored item is shown, and the notice for messages that the thread's files hold and Codex does not
list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from typing import Any

from adapters.acp.schema import Notice, SessionUpdate
from adapters.acp.shapes import as_list, as_text
from adapters.codex.server.process import AppServer
from adapters.codex.server.signals import COMPACTION, MODEL_OUTPUT, REASONING, client_id_of
from adapters.codex.show.items import SEEN_AT, reads_files
from adapters.codex.show.live import stored_item
from adapters.codex.show.overwritten import Overwritten
from adapters.codex.thread.history import Entry, History, needs_turns
from adapters.core.file_calls import in_thread_without


class ShownIds:
    """The ids under which items of a legacy thread were shown live, where its stored items get other ids.

    Codex numbers the items of a legacy history when it reads it ("item-1"); by turn and kind their order is the same.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], list[str]] = {}

    def add(self, turn_id: str, item: Mapping[str, Any]) -> None:
        """An item was shown. What a legacy history does not store, raw reasoning for one, takes no place (0.163.0)."""
        kind = as_text(item.get("type"))
        if kind == REASONING and not as_list(item.get("summary")):
            return
        if kind in MODEL_OUTPUT or kind == COMPACTION:
            self._shown.setdefault((turn_id, kind), []).append(as_text(item.get("id")))

    def find(self, turn_id: str, kind: str, place: int) -> str | None:
        """The id of the `place`-th item of this kind in the turn, None when it was not shown live."""
        shown = self._shown.get((turn_id, kind), ())
        return shown[place] if place < len(shown) else None


class Replay:
    """One replay."""

    def __init__(
        self, history: History, cwd: str, running: Collection[str], shown_ids: ShownIds, overwritten: Overwritten
    ) -> None:
        self._history = history
        self._overwritten = overwritten
        self._cwd = cwd
        self._running = frozenset(running)
        self._shown_ids = shown_ids
        self._messages: set[str] = set()
        self._places: dict[tuple[str, str], int] = {}

    async def updates(self, server: AppServer) -> AsyncIterator[SessionUpdate]:
        """Everything, in order, read as it is passed on. Raises `RequestFailed`."""
        interrupted: frozenset[str] | None = None
        listed: set[str] = set()
        parts = await self._history.parts()
        async for batch in self._history.in_order(server):
            listed.update(as_text(entry.item.get("id")) for entry in batch)
            if interrupted is None and needs_turns(batch):
                interrupted = await self._history.interrupted_turns(server)
            for entry in batch:
                translate = partial(
                    stored_item,
                    {**self._overwritten.known(entry.item), SEEN_AT: entry.started},
                    self._cwd,
                    interrupted=interrupted is not None and entry.turn_id in interrupted,
                    running=as_text(entry.item.get("id")) in self._running,
                    item_id=self._shown_id(entry),
                )
                for update in await in_thread_without(translate) if reads_files(entry.item) else translate():
                    yield update
        if missing := await self._history.missing(server, parts, listed):
            yield _incomplete(missing, self._history)

    def _shown_id(self, entry: Entry) -> str | None:
        """The id to show an item under, where that is not its own or its message's."""
        message_id = client_id_of(entry.item)
        if message_id is not None:
            if message_id in self._messages:  # another host has sent one id twice: these are two messages
                return as_text(entry.item.get("id")) or None
            self._messages.add(message_id)
            return None
        if not self._history.legacy:
            return None
        key = (entry.turn_id, as_text(entry.item.get("type")))
        place = self._places.get(key, 0)
        self._places[key] = place + 1
        return self._shown_ids.find(*key, place)


def _incomplete(missing: int, history: History) -> Notice:
    messages = "1 message is" if missing == 1 else f"{missing} messages are"
    return Notice(
        severity="warning",
        title=f"{messages} missing in this history",
        description=f"Codex's database lists less than the session's file holds ({history.path}). Make the databases in "
        f"{history.home} writable, or bring back the ones that belong to this file; then resume the session.",
    )
