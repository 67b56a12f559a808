"""What a thread's stored history holds: the ids of its user messages, and all of it for a replay (ADP-4, ADP-5).

Owns the reading of stored items, and what two witnesses together say about a message: Codex's lists, and the thread's own files
(`rollouts`). The thread must be resumed in this process first. Before that Codex lists whatever it has projected so far, or
nothing, without an error. Nobody else writes while the thread is loaded here (Codex's lock), so one complete read, and what the
file gets after it, are the truth.

    the lists   the files                                     the message is
    ----------  --------------------------------------------  ----------------------------------------------------------
    name it     hold it                                       stored
    do not      do not, or only where somebody has reverted   not stored
    name it     do not, or only where somebody has reverted   unclear: the database is older or newer than the files
    do not      hold it                                       unclear: the database could not be written, or is gone
    any         hold it where the thread does not lead to     unclear: Codex has loaded an older state of the thread
    do not      one cannot be read                            unclear
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread

from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.codex.server.process import AppServer, Pending, Refused, RequestFailed
from adapters.codex.server.signals import client_id_of
from adapters.codex.show.items import was_killed
from adapters.codex.thread import rollouts
from adapters.codex.thread.rollouts import Filed, Part, Tail, Unreadable, Where

_Found = TypeVar("_Found")

READ_BOUND: Final = 120.0
"""Seconds for one page, or for a whole legacy thread (measured: 0.5 s for 38 MB)."""

_PAGE: Final = 100
"""Items; Codex gives no more."""

_WINDOW: Final = 200
"""Items of one turn that are brought into the order of their beginnings. Codex stores an item where it ends."""

_AT_ONCE: Final = 256 * 1024
"""Bytes of a file that are read on the event loop: what Codex writes around a prompt, in 0.1 ms."""

_PROJECTED: Final = 0.2
"""Seconds for an item to come from the file into the lists (measured: a few milliseconds)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored item."""

    turn_id: str
    item: Mapping[str, Any]
    started: int = 0
    """Milliseconds since the epoch; 0 where unknown."""


@dataclass
class History:
    """The stored history of one thread of this `CODEX_HOME`."""

    thread_id: str
    home: Path
    legacy: bool = False
    """Its items cannot be paged (`historyMode`): made by an older Codex."""
    path: str = ""
    """The file that Codex has it loaded from, and writes to."""
    unwritten: bool = False
    """It was made here and nothing was stored yet."""
    complete: bool = False
    """The witnesses' answer for every stored message is known."""
    _listed: set[str] = field(default_factory=set[str])
    _filed: Filed = field(default_factory=Filed)
    _seen: set[str] = field(default_factory=set[str])
    """Messages that were seen in the file since then."""
    _tail: Tail = field(default_factory=Tail)

    def forget(self) -> None:
        """Another process may have written: the next look reads everything again, and the thread does not count as unwritten."""
        self.doubt()
        self.unwritten = False
        self._seen.clear()

    def doubt(self) -> None:
        """Something unread may be stored: the next look reads everything again."""
        self.complete = False

    async def refresh(self, server: AppServer) -> None:
        """Ask both witnesses, again as long as one is silent. Raises `RequestFailed`: then nothing is known (ADP-6)."""
        if self.complete:
            return
        failed: RequestFailed | None = None
        listed: set[str] = set()
        filed = Filed(unread="not asked")

        async def read_files() -> None:  # while Codex reads its database
            nonlocal filed
            try:
                filed = await self._from_files(rollouts.read, self.home, self.thread_id, self.path)
            except Unreadable as unreadable:  # not in time
                filed = Filed(unread=str(unreadable))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_files)
            try:
                async for page in self.pages(server):
                    listed.update(filter(None, (client_id_of(entry.item) for entry in page)))
            except RequestFailed as refused:
                failed = refused
                tasks.cancel_scope.cancel()
        if failed:
            raise failed
        self._listed, self._filed = listed, filed
        self.complete = not self.unread

    @property
    def unread(self) -> str:
        """Which file of the thread cannot be read, and why."""
        return self._filed.unread

    def holds(self, message_id: str) -> bool | None:
        """What the witnesses say after `refresh`: whether the thread holds the message; None where that is unclear."""
        if message_id in self._seen:
            return True
        where = self._filed.where(message_id)
        if message_id in self._listed:
            return True if where is Where.HELD else None
        if self.unread:
            return None
        return False if where in (Where.NOWHERE, Where.UNDONE) else None

    async def holds_lately(self, server: AppServer, message_id: str) -> bool | None:
        """As `holds`, of a message that was handed over: a look at the stores themselves. Raises `RequestFailed`."""
        if self.legacy:
            entries = await self._whole(server)
        else:
            entries, _ = await self._page(self._ask_page(server, None, "desc"))
        listed = any(message_id == client_id_of(entry.item) for entry in entries)
        return listed if listed is await self.is_in_file(message_id) else None

    def sending(self) -> None:
        """A prompt is handed over: what comes into the file from now on may be it."""
        self._tail.mark(self.path)

    def is_in_file_already(self, message_id: str) -> bool:
        """Whether the file holds the message that was handed over, as far as a glance can tell."""
        return self._see(message_id, self._tail.holds(self.path, message_id, _AT_ONCE))

    async def is_in_file(self, message_id: str) -> bool:
        """Whether the file holds the message that was handed over."""
        try:
            return self._see(message_id, await self._from_files(self._tail.holds, self.path, message_id))
        except Unreadable:
            return False

    def _see(self, message_id: str, found: bool | None) -> bool:
        if found:
            self._seen.add(message_id)
            self.unwritten = False
        return found is True

    async def parts(self) -> Sequence[Part]:
        """What the thread consists of at this moment, for `missing`; nothing where a file cannot be read."""
        try:
            return () if self.legacy else await self._from_files(rollouts.chain, self.home, self.thread_id, self.path)
        except Unreadable:
            return ()

    async def missing(self, server: AppServer, parts: Sequence[Part], shown: AbstractSet[str]) -> int:
        """How many messages the files hold, up to these parts, that are not among the items shown. Raises `RequestFailed`."""
        if not parts:
            return 0
        try:
            unlisted = await self._from_files(rollouts.missing, self.home, self.thread_id, parts, shown)
        except Unreadable:
            return 0
        if unlisted:  # the last ones may have been on their way into the lists
            await anyio.sleep(_PROJECTED)
            page, _ = await self._page(self._ask_page(server, None, "desc"))
            unlisted -= {as_text(entry.item.get("id")) for entry in page}
        return len(unlisted)

    async def _from_files(self, call: Callable[..., _Found], *args: object) -> _Found:
        """Off the event loop, and bounded: a file system can hang."""
        try:
            with anyio.fail_after(READ_BOUND):
                return await to_thread.run_sync(call, *args, abandon_on_cancel=True)
        except TimeoutError:
            raise Unreadable(f"{self.path} could not be read in time") from None

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
