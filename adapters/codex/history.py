"""What a thread's stored history holds: the ids of its user messages, and the whole of it for a replay (ADP-4, ADP-5).

Owns the reading of stored items. A thread must be resumed in this process first: until then Codex lists what it happened to
have projected, or nothing, without an error (trap 2). Nobody else writes while it is loaded here (Codex's lock), so one
complete read and the events after it are the truth.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from adapters.codex.appserver import AppServer, Pending, Refused
from adapters.codex.frames import client_id_of
from adapters.codex.items import was_killed
from adapters.core.shapes import as_count, as_list, as_mapping, as_text

READ_BOUND: Final = 120.0
"""Seconds for one page, or for a whole legacy thread (measured: 0.5 s for 38 MB)."""

_PAGE: Final = 100
"""Items; Codex gives no more."""

_WINDOW: Final = 200
"""Items of one turn that are brought into the order of their beginnings. Codex stores an item where it ends."""

_TAIL: Final = 1024 * 1024
"""Bytes at the end of a thread's file that are searched for a message that was just stored."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored item."""

    turn_id: str
    item: Mapping[str, Any]
    started: int = 0
    """Milliseconds since the epoch; 0 where unknown."""


@dataclass
class History:
    """The stored history of one thread."""

    thread_id: str
    legacy: bool = False
    """Its items cannot be paged (`historyMode`): made by an older Codex."""
    path: str = ""
    """The thread's file. Never read as the record: forks and reverts only hold references."""
    unwritten: bool = False
    """It was made here and nothing was stored yet."""
    complete: bool = False
    """`ids` holds every stored message."""
    ids: set[str] = field(default_factory=set[str])

    def forget(self) -> None:
        """Somebody else may have written: the next look reads everything again, and nobody may take it for unwritten."""
        self.complete = self.unwritten = False
        self.ids.clear()

    def add(self, message_id: str) -> None:
        """A message was stored."""
        self.ids.add(message_id)
        self.unwritten = False

    async def refresh(self, server: AppServer) -> None:
        """Read all ids, once. Raises `RequestFailed`: then nothing is known (ADP-6)."""
        if self.complete:
            return
        found: set[str] = set()
        async for page in self.pages(server):
            found.update(filter(None, (client_id_of(entry.item) for entry in page)))
        self.ids |= found
        self.complete = True

    async def holds_lately(self, server: AppServer, message_id: str) -> bool:
        """Whether one of the newest items is this message: a look at the store itself. Raises `RequestFailed`."""
        if self.legacy:
            return any(message_id == client_id_of(entry.item) for entry in await self._whole(server))
        page, _ = await self._page(self._ask_page(server, None, "desc"))
        return any(message_id == client_id_of(entry.item) for entry in page)

    async def pages(self, server: AppServer) -> AsyncIterator[Sequence[Entry]]:
        """All stored items, oldest first. Raises `RequestFailed`."""
        if self.legacy:
            yield await self._whole(server)
            return
        asked: Pending | None = self._ask_page(server, None, "asc")
        while asked:
            page, cursor = await self._page(asked)
            asked = self._ask_page(server, cursor, "asc") if cursor else None  # read while this one is made use of
            yield page

    async def in_order(self, server: AppServer) -> AsyncIterator[Sequence[Entry]]:
        """All stored items as they began, in batches: the order in which they were shown live. Raises `RequestFailed`."""
        turn: list[Entry] = []
        async for page in self.pages(server):
            batch: list[Entry] = []
            for entry in page:
                if turn and (entry.turn_id != turn[-1].turn_id or len(turn) >= _WINDOW):
                    batch += _as_begun(turn)
                    turn = []
                turn.append(entry)
            if batch:
                yield batch
        if turn:
            yield _as_begun(turn)

    async def interrupted_turns(self, server: AppServer) -> frozenset[str]:
        """Ids of the turns that were interrupted. Raises `RequestFailed`."""
        found: set[str] = set()
        cursor: str | None = None
        while True:
            params = {"threadId": self.thread_id, "limit": _PAGE, "itemsView": "notLoaded"}
            answer = await server.request(
                "thread/turns/list", {**params, **({"cursor": cursor} if cursor else {})}, bound=READ_BOUND
            )
            for turn in map(as_mapping, as_list(answer.get("data"))):
                if turn.get("status") == "interrupted":
                    found.add(as_text(turn.get("id")))
            cursor = as_text(answer.get("nextCursor")) or None
            if cursor is None:
                return frozenset(found)

    async def is_in_file(self, message_id: str) -> bool:
        """Whether the end of the thread's file holds the message under this id: what a legacy history needs (D2)."""
        return await to_thread.run_sync(_tail_holds, self.path, message_id)

    def _ask_page(self, server: AppServer, cursor: str | None, direction: str) -> Pending:
        params = {"threadId": self.thread_id, "limit": _PAGE, "sortDirection": direction}
        return server.begin("thread/items/list", {**params, **({"cursor": cursor} if cursor else {})})

    async def _page(self, asked: Pending) -> tuple[Sequence[Entry], str | None]:
        try:
            answer = await asked.result(READ_BOUND)
        except Refused as refused:
            if self.unwritten and "not supported" in refused.message:
                return [], None  # a thread without a file says the same as a legacy one
            raise
        return list(map(_entry, as_list(answer.get("data")))), as_text(answer.get("nextCursor")) or None

    async def _whole(self, server: AppServer) -> Sequence[Entry]:
        answer = await server.request(
            "thread/read", {"threadId": self.thread_id, "includeTurns": True}, bound=READ_BOUND
        )
        thread = as_mapping(answer.get("thread"))
        return [entry for turn in as_list(thread.get("turns")) for entry in _turn_entries(as_mapping(turn))]


def needs_turns(entries: Sequence[Entry]) -> bool:
    """Whether it matters for these items which turns were interrupted."""
    return any(was_killed(entry.item) or entry.item.get("status") == "inProgress" for entry in entries)


def _as_begun(entries: list[Entry]) -> list[Entry]:
    """A plan is taken out of an agent message, which began first and ends last: they can have the same millisecond."""
    return sorted(entries, key=lambda entry: (entry.started, entry.item.get("type") == "plan"))


def _entry(row: Any) -> Entry:
    fields = as_mapping(row)
    return Entry(as_text(fields.get("turnId")), as_mapping(fields.get("item")), as_count(fields.get("startedAtMs")))


def _turn_entries(turn: Mapping[str, Any]) -> Iterator[Entry]:
    for item in as_list(turn.get("items")):
        yield Entry(as_text(turn.get("id")), as_mapping(item))


def _tail_holds(path: str, message_id: str) -> bool:
    """Raises nothing: a file that cannot be read holds nothing that could be relied on."""
    wanted = f'"client_id":"{message_id}"'.encode()
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            return any(wanted in line for line in file.read().split(b"\n")[:-1])
    except OSError:
        return False
