"""Waiting for a condition that others make true: they tell of each change, and who waits checks again."""

from __future__ import annotations

from collections.abc import Callable

import anyio


class Changed:
    """All of it belongs to one event loop. A change that nobody waits for costs nothing and is not remembered."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Something changed: wake all who wait now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Return at the next change."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    async def until(self, done: Callable[[], bool], bound: float | None = None) -> bool:
        """Wait until `done()` is true, checking after each change. Returns its last value; gives up after `bound` seconds."""
        with anyio.move_on_after(bound) as scope:
            # A change in every round of the loop would keep the cancellation out: so it is asked for, too.
            while not (done() or scope.cancel_called):
                await self.wait()
        return done()

    async def require(self, done: Callable[[], bool], bound: float) -> None:
        """The same. Raises `TimeoutError` when it gives up."""
        if not await self.until(done, bound):
            raise TimeoutError
