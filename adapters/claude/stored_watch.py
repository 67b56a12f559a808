"""The stored session beside a running process: what it holds, and whether another process wrote to it (D2, D4, D6).

Owns when the file is read, one read at a time, and the comparison of what was read with what our process announced. Knows no
state of a prompt. `stored.transcript` says what counts as a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import anyio

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.schema import SessionUpdate
from adapters.claude.cli.frames import Stored
from adapters.claude.show.replay import replay
from adapters.claude.stored.session_files import Files
from adapters.claude.stored.transcript import Transcript
from adapters.core.file_calls import StuckError, in_thread, in_thread_without
from adapters.core.file_change import FileChange

_REPLAY_BATCH: Final = 64  # updates per visit to the worker thread
T = TypeVar("T")

_TRIES: Final = 3
_TRY_EVERY: Final = 0.1


class Store:
    """The messages of one session. `find` gives its files; it blocks and may raise `OSError`."""

    def __init__(self, session_id: str, find: Callable[[], Files]) -> None:
        self.session_id = session_id
        self._named = ""
        """The file that our process has named last."""
        self._find = find
        self._transcript = Transcript(find)
        self._reading = anyio.Lock()
        self._announced: set[str] = set()
        """Entries that our process announced and that were not read yet."""
        self._unexplained: set[str] = set()
        """Entries that were read and that our process did not announce (yet)."""
        self._given_up = False
        """A look was left to its thread: what came between the looks before and after it is not known."""

    @property
    def overtaken(self) -> bool:
        """Whether there are entries that our process knows nothing of, as far as was read."""
        return self._given_up or bool(self._unexplained)

    def holds(self, message_id: str) -> bool:
        """Whether the session held this user message at the last `refresh`."""
        return self._transcript.holds(message_id)

    async def look(self, message_id: str) -> bool:
        """Whether the session holds this user message now. Raises as `refresh`."""
        await self.refresh()
        return self.holds(message_id)

    def announced(self, signal: Stored) -> bool:
        """Our process has written; False when it was to another file."""
        if signal.session_id != self.session_id:
            return False
        if signal.path != self._named:
            self._named = signal.path
            self._transcript.name_file(signal.path)
        explained = self._unexplained & signal.entry_uuids
        self._unexplained -= explained
        self._announced |= signal.entry_uuids - explained
        return True

    async def mark(self) -> bool:
        """Note the present end: a process started after this knows all of it. Whether there is anything stored.

        Raises `InternalError` when the store cannot be looked into.
        """
        async with self._reading:
            try:
                stored = await self._look_with(lambda transcript: transcript.mark())
            except OSError as error:
                raise _unreadable(error) from None
            self._announced.clear()
            self._unexplained.clear()
            self._named = ""
            self._given_up = False
            return stored

    async def refresh(self) -> None:
        """Take in what was appended, all of it. Raises `InternalError` when it cannot be read: nothing is known (ADP-6)."""
        async with self._reading:
            try:
                fresh = await self._look_with(lambda transcript: transcript.refresh())
            except OSError as error:
                raise _unreadable(error) from None
            unannounced = fresh.new_entry_uuids - self._announced
            self._announced -= fresh.new_entry_uuids
            self._unexplained |= unannounced

    async def _look_with(self, look: Callable[[Transcript], T]) -> T:
        """Look in a thread. One that does not come back keeps its transcript, and a new one looks without what is stuck."""

        def again() -> T:
            transcript = self._transcript = Transcript(self._find)
            self._given_up = True
            if self._named:
                transcript.name_file(self._named)
            return look(transcript)

        transcript = self._transcript
        try:
            return await in_thread(lambda: look(transcript))
        except StuckError:
            return await in_thread_without(again)
        except anyio.get_cancelled_exc_class():
            self._transcript = Transcript(self._find)
            self._given_up = True
            raise

    async def turn_ended(self) -> None:
        """Catch up while there is time, so that the next prompt need not wait for it; that one reports a store it cannot read."""
        with suppress(AcpError):
            await self.refresh()

    async def holds_at_last(self, message_id: str) -> bool | None:
        """Whether the session holds the message, after its process has ended; None when it cannot be read."""
        for _ in range(_TRIES):
            try:
                return await self.look(message_id)
            except AcpError:
                await anyio.sleep(_TRY_EVERY)
        return None

    async def replay(
        self, cwd: str, running: Collection[str], known: Callable[[str], FileChange | None]
    ) -> AsyncIterator[SessionUpdate]:
        """All history, read as it is passed on; see `show.replay`. Raises `InternalError` when it cannot be read."""
        try:
            async with self._reading:
                path = await self._look_with(lambda transcript: transcript.path())
            if not path:
                return
            sent = 0
            for again in reversed(range(_TRIES)):
                updates = islice(replay(path, cwd, running, known), sent, None)
                try:
                    while batch := await in_thread(partial(_first, updates)):
                        for update in batch:
                            sent += 1
                            yield update
                    return
                except StuckError:  # a file that was edited, perhaps: the next time it is refused at once
                    if not again:
                        raise
        except OSError as error:
            raise _unreadable(error) from None


def _first(updates: Iterator[SessionUpdate]) -> list[SessionUpdate]:
    return list(islice(updates, _REPLAY_BATCH))


def _unreadable(error: OSError) -> InternalError:
    return InternalError(f"The stored session cannot be read: {error.strerror or type(error).__name__}.")
