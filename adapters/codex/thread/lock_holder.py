"""Who holds a thread: Codex locks a file per thread and does not write down who it is. The system knows (Linux only).

Owns where Codex keeps its locks (0.163.0). Takes no lock and changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from adapters.driver import procfs


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a thread, and the one that started it (for an app-server: an agent or an editor)."""

    pid: int
    parent: int


def holder_of(home: Path, thread_id: str) -> Holder | None:
    """The process that holds a thread of this `CODEX_HOME`; None when nobody does or the system does not tell."""
    try:
        inode = (home / "thread-writer-locks" / f"{thread_id}.lock").stat().st_ino
    except (OSError, ValueError):
        return None
    for pid in procfs.lock_holders(inode):
        if pid != os.getpid():
            process = procfs.look(pid)
            return Holder(pid, process.parent if process else 0)
    return None
