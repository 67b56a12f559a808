"""File calls with a bound. A dead network mount blocks its caller for ever, and no signal helps.

Owns the threads that do file work, and the bound on each single call. The work as a whole may be long. `stat`, `scan` and
`open_file` name the place that they use. If a call does not return, its place counts as stuck until it does. Another caller that
wants the place gets an error at once, so one bad place costs one thread. Knows no file of any runtime.

Nothing waits for such a thread: neither a cancellation nor the end of the process (`adapters.stdio_server.leave`).
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import stat as modes
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Final, Generic, TypeVar

import anyio

__all__ = [
    "StuckError",
    "in_thread",
    "in_thread_without",
    "open_file",
    "read_file",
    "real_path",
    "scan",
    "stat",
]

BOUND: Final = 5.0
"""Seconds for one call. A disk that was asleep takes as long."""

_BLOCK: Final = 1024 * 1024
"""Bytes per read: large enough that the system calls do not count, small enough to keep memory flat."""

_ROUNDS: Final = 2
"""Of the bound: after a stop of the whole process one may pass before the thread can run."""

_AGAIN: Final = 4
"""Tries of work that can do without what is stuck: each finds one more place."""

T = TypeVar("T")


class StuckError(TimeoutError):
    """A place does not answer. It is an `OSError`, so code that can skip an unreadable file can skip this one."""

    def __init__(self, place: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"{place} does not answer", place)


async def in_thread(call: Callable[[], T], *, undo: Callable[[T], None] | None = None) -> T:
    """Do blocking work in a thread. Returns and raises what `call` does.

    Raises `StuckError` when one of its calls takes more than `BOUND` seconds. A cancellation leaves the work to its thread, as
    this error does; `undo` is then called with what it came to.
    """
    work = _Work(call, undo)
    work.start()
    try:
        seen, silent = -1, 0
        while silent < _ROUNDS:
            with anyio.move_on_after(BOUND / _ROUNDS):
                await work.over.wait()
                return work.outcome()
            silent = silent + 1 if work.calls == seen else 0
            seen = work.calls
    except BaseException:
        work.abandon()
        raise
    if place := work.abandon(stuck=True):
        raise StuckError(place)
    return work.outcome()


async def in_thread_without(call: Callable[[], T]) -> T:
    """As `in_thread`, for work that can skip a stuck place: the work starts again, and the stuck place fails at once.

    `call` must be able to run beside an earlier run of itself.
    """
    for _ in range(_AGAIN - 1):
        with suppress(StuckError):
            return await in_thread(call)
    return await in_thread(call)


# --- threads ---------------------------------------------------------------------------------------------------------


class _Work(Generic[T]):
    """One piece of work in a thread, and who has let go of the other first."""

    def __init__(self, call: Callable[[], T], undo: Callable[[T], None] | None) -> None:
        self.over = anyio.Event()
        self.place = ""
        self.calls = 0
        """While it grows, the work goes on."""
        self._call, self._undo = call, undo
        self._result: list[T] = []
        self._error: Exception | None = None
        self._stuck = ""
        self._lock = threading.Lock()
        self._done = self._abandoned = False

    def start(self) -> None:
        """Hand it to a thread that is idle, or to a new one."""
        loop = asyncio.get_running_loop()
        worker = _idle.pop() if _idle else _Worker()
        worker.take(lambda: self._run(worker, loop))

    def _run(self, worker: _Worker, loop: asyncio.AbstractEventLoop) -> None:
        _local.work = self
        try:
            self._result.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised by `outcome`
            self._error = error
        _local.work = None
        with self._lock:
            self._done = True
            _stuck_places.discard(self._stuck)
            abandoned = self._abandoned
        if abandoned:
            self._take_back()
        _idle.append(worker)
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(self.over.set)

    def outcome(self) -> T:
        """The result of the work. Call it only when the work is over."""
        if self._error:
            raise self._error
        return self._result[0]

    def abandon(self, *, stuck: bool = False) -> str:
        """Leave it to its thread; gives the place where that is, empty when the work is over."""
        with self._lock:
            done, self._abandoned = self._done, not self._done
            if not done and stuck:
                self._stuck = self.place
                _stuck_places.add(self.place)
        if done and not stuck:
            self._take_back()
        return "" if done else self.place or "the file system"

    def _take_back(self) -> None:
        if self._undo and self._result:
            self._undo(self._result[0])


class _Worker:
    """A thread that does one piece of work after the other. A daemon: it keeps no process alive."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._loop, name="file calls", daemon=True).start()

    def take(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def _loop(self) -> None:
        while True:
            self._queue.get()()


class _Local(threading.local):
    work: _Work[Any] | None = None


_local: Final = _Local()
_idle: Final[list[_Worker]] = []
_stuck_places: Final[set[str]] = set()


# --- calls -----------------------------------------------------------------------------------------------------------


def _before(place: str) -> None:
    """Note where the thread goes. Raises `StuckError` where another one is stuck."""
    if place in _stuck_places:
        raise StuckError(place)
    if work := _local.work:
        work.place = place
        work.calls += 1


def stat(path: str | Path, *, follow: bool = True) -> os.stat_result:
    """`os.stat` of a path. A call that is stuck makes its whole folder count as stuck. Raises `OSError`."""
    _before(os.path.dirname(path))  # noqa: PTH120 - a list looks at thousands
    return os.stat(path, follow_symlinks=follow)  # noqa: PTH116


def real_path(path: str | Path) -> str:
    """The path with every link followed, as far as it exists."""
    _before(os.fspath(path))
    return os.path.realpath(path)


def scan(folder: str | Path) -> list[os.DirEntry[str]]:
    """The entries of a folder. Raises `OSError`."""
    _before(os.fspath(folder))
    with os.scandir(folder) as entries:
        return list(entries)


def open_file(path: str | Path, block: int = _BLOCK) -> BinaryIO:
    """Open a regular file for reading, `block` bytes at a time. Raises `OSError`, also for anything that is not a file."""
    name = os.fspath(path)
    _before(os.path.dirname(name))  # noqa: PTH120
    _before(name)
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if modes.S_ISREG(mode):
        return io.BufferedReader(_Watched(descriptor, name), block)
    os.close(descriptor)
    if modes.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, "it is not a file", name)


def read_file(path: str | Path, most: int = -1) -> bytes:
    """The content of a small file, cut after `most` bytes if that is given. Raises `OSError`."""
    with open_file(path) as file:
        return file.read(most)


class _Watched(io.FileIO):
    """A file whose every read is a call of its own."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "rb")
        self._path = name

    def readinto(self, buffer: Any, /) -> int | None:
        _before(self._path)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        _before(self._path)
        return super().readall()
