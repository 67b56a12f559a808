"""One holder per active session among all agents (D6). Owns the lock files; knows no process of a runtime.

The lock lies beside what it guards: in `acp-adapters` in Claude Code's own folder, which all agents that reach the sessions
share, whatever their HOME, state folder or container. Claude Code reads no such name and does not clean it up (2.1.332). A second
one lies in the state folder: it guards the files there, and keeps out agents of version 0.1.0, which know only that one.

A lock is `flock` on a file, so the kernel gives it back whatever ends the holder; links to the folder and bind mounts lead to the
same file. The file's text (the holder's pid, start time, pid namespace and host) is for messages only. Files are removed with the
lock; a waiter that got the lock on a removed file tries again. Children do not inherit it: Python opens files close-on-exec.

Anybody may remove the file or its folder while the lock is held. Nobody is told; the holder looks before each prompt:

    what is at the path       it means                              what the holder does
    ------------------------  ------------------------------------  ----------------------------------------------------------
    the file that it locked   held                                  goes on
    nothing, or another file  lost: others were free to come, work  locks the path again, ends what a dead agent left, and reads
    that nobody has locked    and go                                the session before it goes on
    a file locked by another  taken                                 refuses prompts until the other one is gone

Who comes meanwhile finds the path free. It sees the holder by its Claude Code (`orphans.find_rival`), unless that is in another
container: then a prompt that the holder has handed over and that is not stored yet can be inserted by both.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from adapters.acp.errors import InternalError
from adapters.acp.shapes import as_count, as_mapping, as_text
from adapters.core.file_calls import StuckError, in_thread, read_file, stat
from adapters.driver import procfs

_GIVE_BACK_BOUND: Final = 1.0
_LONGEST: Final = 4096
_TRY_EVERY: Final = 0.05
"""Seconds between two tries while another holder may be going away."""


@dataclass(eq=False, slots=True)
class SessionLock:
    """A held lock. Give it back with `release`."""

    path: Path
    _descriptor: int

    def is_in_place(self) -> bool:
        """Whether others meet it: the path still leads to the locked file. Blocks. Raises `OSError` where nobody can say."""
        try:
            return _is_at(self.path, self._descriptor)
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give it back, once; later calls do nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):
                if self.is_in_place():  # else it is the file of another holder
                    self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(slots=True)
class SessionLocks:
    """All locks of an active session. Give them back with `release`."""

    held: Sequence[SessionLock]

    def are_in_place(self) -> bool:
        """Whether others meet every one of them. Blocks. Raises `OSError` where nobody can say."""
        return all(lock.is_in_place() for lock in self.held)

    async def take_again(self, folders: Sequence[Path], session_id: str) -> None:
        """Lock in these folders, keeping what is in place there. Raises as `lock_session`; then the lost ones stay lost."""
        kept: list[SessionLock] = []
        for lock in self.held:
            with suppress(OSError):  # locking there says why
                kept += [lock] if await in_thread(lock.is_in_place) else []
        there = {lock.path.parent for lock in kept}
        fresh = await lock_in_all([folder for folder in folders if folder not in there], session_id, bound=0)
        lost = [lock for lock in self.held if lock not in kept]
        self.held = [*kept, *fresh.held]
        await give_back(SessionLocks(lost))

    def release(self) -> None:
        """Give them back, once; later calls do nothing."""
        for lock in self.held:
            lock.release()


async def lock_in_all(folders: Sequence[Path], session_id: str, *, bound: float) -> SessionLocks:
    """Lock a session in each of these folders, or in none. Takes and raises what `lock_session` does."""
    held: list[SessionLock] = []
    try:
        for folder in folders:
            held.append(await lock_session(folder, session_id, bound=bound))  # noqa: PERF401 - those before a failure are kept
    except BaseException:
        SessionLocks(held).release()
        raise
    return SessionLocks(held)


async def lock_session(folder: Path, session_id: str, *, bound: float) -> SessionLock:
    """Lock a session, waiting up to `bound` seconds for a holder that is going away.

    `session_id` must be usable as a file name. Raises `InternalError` that names the holder, or the file that cannot be used.
    """
    path = folder / f"{session_id}.lock"
    deadline = anyio.current_time() + bound
    while True:
        try:
            lock = await in_thread(partial(_try, path), undo=_give_back)
        except OSError as error:
            raise InternalError(
                f"The lock file {path} cannot be used ({error.strerror}): make it writable, then try again."
            ) from None
        if lock:
            return lock
        if anyio.current_time() >= deadline:
            raise await in_thread(partial(_held, session_id, path))
        await anyio.sleep(_TRY_EVERY)


async def give_back(lock: SessionLock | SessionLocks) -> None:
    """Give it back, whatever ends the caller; a file system that does not answer gets a second."""
    with anyio.move_on_after(_GIVE_BACK_BOUND, shield=True), suppress(StuckError):
        await in_thread(lock.release)


def _give_back(lock: SessionLock | None) -> None:
    if lock:
        lock.release()


def _try(path: Path) -> SessionLock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, descriptor):
            with suppress(OSError):  # a full disk costs the next one the holder's name, nobody the lock
                os.truncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(_ourselves()).encode(), 0)
            return SessionLock(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    there, ours = stat(path), os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _ourselves() -> dict[str, object]:
    pid = os.getpid()
    start, namespace = procfs.start_time(pid), procfs.pid_namespace(pid)
    return {"pid": pid, "start": start, "namespace": namespace, "host": socket.gethostname()}


def _held(session_id: str, path: Path) -> InternalError:
    """The error that names the holder: by its pid only where that is one of ours."""
    holder = as_mapping(None)
    with suppress(OSError, ValueError):
        holder = as_mapping(json.loads(read_file(path, _LONGEST)))
    pid, host = as_count(holder.get("pid")), as_text(holder.get("host"))
    here = as_text(holder.get("namespace")) == procfs.pid_namespace(os.getpid()) and host == socket.gethostname()
    if not pid:
        who, data = "another process", None
    elif "namespace" not in holder or here:  # agents of version 0.1.0 write neither
        who, data = f"process {pid}" + (" (this agent)" if pid == os.getpid() else ""), {"pid": pid}
    else:
        who, data = f"an agent in another container or on another machine ({host}, process {pid} there)", {"host": host}
    return _active_in(session_id, who, data)


def rival_error(session_id: str, pid: int) -> InternalError:
    """Another agent works on the session although its lock file is gone."""
    return _active_in(session_id, f"process {pid}", {"pid": pid})


def _active_in(session_id: str, who: str, holder: object) -> InternalError:
    text = f"Session {session_id} is active in {who}: close it there, or end that process, then resume it again."
    return InternalError(text, {"holder": holder} if holder else None)
