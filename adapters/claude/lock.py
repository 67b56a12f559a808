"""One holder per active session among all agents of this user (D6). Owns the lock files; knows no process of a runtime.

A lock is `flock` on a file, so the kernel gives it back whatever ends the holder. The file's text (pid and start time of the
holder) is for messages only. Files are removed with the lock; a waiter that got the lock on a removed file tries again.
Children do not inherit it: Python opens files close-on-exec.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from adapters.acp.errors import InternalError
from adapters.claude import procfs
from adapters.core.shapes import as_count, as_mapping

_TRY_EVERY: Final = 0.05
"""Seconds between two tries while another holder may be going away."""


@dataclass(slots=True)
class SessionLock:
    """A held lock. Give it back with `release`."""

    path: Path
    _descriptor: int

    def release(self) -> None:
        """Give it back, once; later calls do nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


async def lock_session(folder: Path, session_id: str, *, bound: float) -> SessionLock:
    """Lock a session, waiting up to `bound` seconds for a holder that is going away.

    `session_id` must be usable as a file name. Raises `InternalError` that names the holder, or the file that cannot be used.
    """
    path = folder / f"{session_id}.lock"
    deadline = anyio.current_time() + bound
    while True:
        try:
            lock = _try(path)
        except OSError as error:
            raise InternalError(f"The lock file {path} cannot be used: {error.strerror}.") from None
        if lock:
            return lock
        if anyio.current_time() >= deadline:
            raise _held(session_id, path)
        await anyio.sleep(_TRY_EVERY)


def _try(path: Path) -> SessionLock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there, ours = os.stat(path), os.fstat(descriptor)  # noqa: PTH116 - beside fstat
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            holder = {"pid": os.getpid(), "start": procfs.start_time(os.getpid())}
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
            return SessionLock(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _held(session_id: str, path: Path) -> InternalError:
    pid = 0
    with suppress(OSError, ValueError):
        pid = as_count(as_mapping(json.loads(path.read_bytes())).get("pid"))
    who = f"process {pid}" if pid else "another process"
    here = " (this agent)" if pid == os.getpid() else ""
    text = f"Session {session_id} is active in {who}{here}: close it there, or end that process, then resume it again."
    return InternalError(text, {"holder": {"pid": pid}} if pid else None)
