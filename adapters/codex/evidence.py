"""What the stored thread says about a message: the answer of a look-up, or the fate of a sent prompt (D2, D4, D7).

Owns how often and how long the agent looks before it answers, and the error texts for "unknown". `thread.history` says what the
witnesses are and what they say together.
"""

from __future__ import annotations

import anyio

from adapters.acp.errors import AcpError, InternalError
from adapters.codex.bounds import Bounds
from adapters.codex.server.process import AppServer, Gone, RequestFailed
from adapters.codex.thread import requests
from adapters.codex.thread.loaded import Thread
from adapters.codex.turn_types import Open
from adapters.codex.turns import Turns
from adapters.driver.tasks import Tasks


class Evidence:
    """Looks into one thread."""

    def __init__(self, thread: Thread, turns: Turns, tasks: Tasks, bounds: Bounds) -> None:
        self._thread = thread
        self._history = thread.history
        self._turns = turns
        self._tasks = tasks
        self._bounds = bounds

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored thread holds it: read once, then known from events. Raises `AcpError` where it is unclear (ADP-6).

        A process that dies over it is replaced once (D7).
        """
        for last in (False, True):
            try:
                found = await self._asked(message_id)
            except RequestFailed as failed:
                if last or not isinstance(failed, Gone):
                    raise requests.failed_error("The stored session cannot be read", failed) from None
            else:
                if found is None and self._history.unread:
                    raise _unclear(f"a file of this session cannot be read ({self._history.unread}). Make it readable")
                if found is None:
                    raise _unclear(
                        "Codex's database and the files of this session disagree. Make the databases in "
                        f"{self._history.home} writable, or bring back the ones that belong to these files"
                    )
                return found
        raise AssertionError  # the last try returns or raises

    async def _asked(self, message_id: str) -> bool | None:
        if not await self._thread.is_locked():
            await self._thread.lock_again()
        for looks in range(self._bounds.looks, 0, -1):
            await self._history.refresh(await self._thread.load())
            found = self._history.holds(message_id)
            if found is not None or looks == 1 or self._history.unread:
                return found
            self._history.doubt()
            await anyio.sleep(self._bounds.look_again)
        raise AssertionError  # the last look returns

    async def look_up(self, submission: Open) -> bool | None:
        """Whether the stored thread holds a prompt whose turn or process ended without reporting it; None: unknown.

        Where the process lives on, the message may still be on its way.
        """
        for _ in range(self._bounds.looks):
            try:
                before = self._thread.server
                server = await self._thread.load()
                await self._history.refresh(server)
                found = self._history.holds(submission.message_id)
                if found is False and before is server:
                    found = await self._appears(server, submission)
                if found is not None:
                    return found
                self._history.doubt()
            except (AcpError, RequestFailed):
                pass
            await anyio.sleep(self._bounds.look_again)
        return None

    async def _appears(self, server: AppServer, submission: Open) -> bool | None:
        deadline = anyio.current_time() + self._bounds.look
        while True:
            found = await self._history.holds_lately(server, submission.message_id)
            if found or anyio.current_time() >= deadline or self._turns.open is not submission:
                return found
            await self._tasks.until(lambda: self._turns.open is not submission, self._bounds.look_again)

    async def confirm(self, submission: Open) -> bool:
        """Whether the thread's file comes to hold a message that Codex reports as complete: a report is no storage (D2)."""
        deadline = anyio.current_time() + self._bounds.confirm
        while self._turns.open is submission:
            if await self._history.is_in_file(submission.message_id):
                return True
            if anyio.current_time() >= deadline:
                break
            await anyio.sleep(self._bounds.confirm_again)
        return False


def _unclear(why: str) -> AcpError:
    """Stored, and to be answered? Not stored, and to be sent? Nobody may guess."""
    text = f"This prompt was not sent, because it may be stored already: {why}, then send the prompt again with the same key."
    return InternalError(text, {"category": "store", "inserted": None})
