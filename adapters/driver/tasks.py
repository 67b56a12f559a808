"""The tasks of one session of a driver, and waits in them: for a condition, checked after each change, with a bound.

Owns the session's task group. Knows nothing of the work that its tasks do.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskStatus

from adapters.changed import Changed
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

__all__ = [
    "Tasks",
]


class Tasks:
    """`run` must run beside it, in a task group that outlives the session."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Changed()
        self._end = anyio.Event()
        self._ended = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the tasks until `end`."""
        try:
            async with anyio.create_task_group() as self._group:
                task_status.started()
                await self._end.wait()
                self._group.cancel_scope.cancel()
        finally:
            self._ended.set()

    @property
    def ending(self) -> bool:
        """Whether `end` was called."""
        return self._end.is_set()

    @property
    def ended(self) -> bool:
        """Whether no task is left."""
        return self._ended.is_set()

    def end(self) -> None:
        """Cancel all tasks."""
        self._end.set()

    async def wait_ended(self) -> None:
        """Return once no task is left."""
        await self._ended.wait()

    def start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task. Its failure is logged and takes no other task with it."""
        self._group.start_soon(self._guard, work, *args)

    async def _guard(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await work(*args)
        except Exception as error:  # noqa: BLE001 - logged by kind: the text can hold what a user wrote
            _log.warning(
                LogEvent(
                    "error in a session's task",
                    session=self._name,
                    task=getattr(work, "__name__", "?"),
                    error=type(error).__name__,
                )
            )

    def changed(self) -> None:
        """Something changed: whoever waits looks again."""
        self._changed.notify()

    async def until(self, done: Callable[[], bool], bound: float | None = None) -> bool:
        """Wait until `done()` is true, checking after each `changed()`: see `Changed.until`."""
        return await self._changed.until(done, bound)
