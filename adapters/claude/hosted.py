"""A thing with tasks of its own and with waiting that is always bounded. Owns how its tasks start, fail and end; knows no more.

Tasks live in a task group that the object's own `host` task opens and closes, so that no scope is left in another task than it
was entered in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from adapters.log import log


class Hosted:
    """Base of such a thing. `name` is for the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: TaskGroup | None = None
        self._changed: anyio.Event | None = None
        self._end = anyio.Event()
        self._ended = anyio.Event()

    async def host(self, *, task_status: TaskStatus[None]) -> None:
        """Own the tasks until `_leave`. Run it in a task group that outlives the object."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                await self._end.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._ended.set()

    async def _leave(self) -> None:
        """Cancel what still runs, and wait until it is over."""
        self._end.set()
        await self._ended.wait()

    def _start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        assert self._tasks is not None  # noqa: S101 - hosted before anything is started
        self._tasks.start_soon(self._guard, work, *args)

    async def _guard(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """A failure of one task must not take the others with it."""
        try:
            await work(*args)
        except Exception as error:  # noqa: BLE001 - logged by kind: the text can hold what a user wrote
            log("error in a task", of=self._name, task=getattr(work, "__name__", "?"), error=type(error).__name__)

    def _notify(self) -> None:
        """Something has changed: whoever waits looks again."""
        if self._changed:
            self._changed.set()
            self._changed = None

    async def _until(self, done: Callable[[], bool], bound: float) -> bool:
        """Wait until it is true after some `_notify`, for `bound` seconds at most; whether it is."""
        with anyio.move_on_after(bound):
            while not done():
                self._changed = self._changed or anyio.Event()
                await self._changed.wait()
        return done()
