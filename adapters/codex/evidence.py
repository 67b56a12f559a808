"""What the stored thread says of a message: the answer to a look-up, and the fate of a prompt that nobody reported (D2, D4, D7).

Owns how often and how long is looked before an answer is given. Raises nothing where the answer may be "not known".
"""

from __future__ import annotations

from typing import Final

import anyio

from adapters.acp.errors import AcpError
from adapters.codex import threads
from adapters.codex.appserver import AppServer, Gone, RequestFailed
from adapters.codex.steps import Open
from adapters.codex.thread import Thread
from adapters.codex.turns import Turns
from adapters.core.tasks import Tasks

_LOOK_BOUND: Final = 0.5
"""Seconds for a message that may still be on its way into the store (measured: 10 to 50 ms)."""
_LOOK_EVERY: Final = 0.05
_LOOKS: Final = 3
"""Into the stored items, before it is said that they cannot be read."""
_CONFIRM_BOUND: Final = 2.0
"""Seconds for a legacy thread's file to hold a message that Codex reports as complete."""
_CONFIRM_EVERY: Final = 0.02


class Evidence:
    """Looks into one thread."""

    def __init__(self, thread: Thread, turns: Turns, tasks: Tasks) -> None:
        self._thread = thread
        self._history = thread.history
        self._turns = turns
        self._tasks = tasks

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored thread holds it: read once, then known from events. Raises `AcpError` (ADP-6).

        A process that dies over it is replaced once (D7).
        """
        try:
            try:
                await self._history.refresh(await self._thread.load())
            except Gone:
                await self._history.refresh(await self._thread.load())
        except RequestFailed as failed:
            raise threads.failed_error("The stored session cannot be read", failed) from None
        return message_id in self._history.ids

    async def look_up(self, submission: Open) -> bool | None:
        """Whether the stored thread holds a prompt whose turn or process ended without a word of it; None: not known.

        Where the process lives on, the message may still be on its way.
        """
        for _ in range(_LOOKS):
            try:
                before = self._thread.server
                server = await self._thread.load()
                lived_on = before is server
                await self._history.refresh(server)
                if submission.message_id in self._history.ids:
                    return True
                if lived_on and await self._appears(server, submission):
                    self._history.add(submission.message_id)
                    return True
            except (AcpError, RequestFailed):
                await anyio.sleep(_LOOK_EVERY)
            else:
                return False
        return None

    async def _appears(self, server: AppServer, submission: Open) -> bool:
        deadline = anyio.current_time() + _LOOK_BOUND
        while self._turns.open is submission:
            if await self._history.holds_lately(server, submission.message_id):
                return True
            if anyio.current_time() >= deadline:
                break
            await self._tasks.until(lambda: self._turns.open is not submission, _LOOK_EVERY)
        return False

    async def confirm(self, submission: Open) -> None:
        """Wait until a legacy thread's file holds it: there the report may come before the write (D2)."""
        deadline = anyio.current_time() + _CONFIRM_BOUND
        while self._turns.open is submission and anyio.current_time() < deadline:
            if await self._history.is_in_file(submission.message_id):
                return
            await anyio.sleep(_CONFIRM_EVERY)
