"""Which process holds a thread. Codex locks a file per thread and does not record the holder; the system knows it (Linux only).

Owns where Codex keeps its locks (0.163.0), and the look whether a file there is locked. Changes nothing.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from adapters.core import file_calls
from adapters.driver import procfs


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a thread, and the one that started it (for an app-server: an agent or an editor)."""

    pid: int
    parent: int


def _path(home: Path, thread_id: str) -> Path:
    return home / "thread-writer-locks" / f"{thread_id}.lock"


def lock_file(home: Path, thread_id: str) -> tuple[int, int] | None:
    """Which file (device, inode) others meet who want the thread; None where there is none or nobody can say. Blocks."""
    try:
        there = file_calls.stat(_path(home, thread_id))
    except OSError:
        return None
    return there.st_dev, there.st_ino


def is_taken(home: Path, thread_id: str) -> bool:
    """Whether somebody has locked the file that others meet. Blocks. For the moment of the look it is locked by us."""
    try:
        descriptor = os.open(_path(home, thread_id), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def holder_of(home: Path, thread_id: str) -> Holder | None:
    """The process that holds a thread of this `CODEX_HOME`; None when nobody does or the system does not tell."""
    try:
        inode = _path(home, thread_id).stat().st_ino
    except (OSError, ValueError):
        return None
    for pid in procfs.lock_holders(inode):
        if pid != os.getpid():
            process = procfs.look(pid)
            return Holder(pid, process.parent if process else 0)
    return None
