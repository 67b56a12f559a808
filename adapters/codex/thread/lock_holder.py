"""Who holds a thread: Codex locks a file per thread and does not write down who it is. The system knows (Linux only).

Owns where Codex keeps its locks (0.163.0). Takes no lock and changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_FIELDS: Final = 6  # "1: FLOCK ADVISORY WRITE 11670 fe:00:2179474 0 EOF"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a thread, and the one that started it (for an app-server: an agent or an editor)."""

    pid: int
    parent: int


def holder_of(home: Path, thread_id: str) -> Holder | None:
    """The process that holds a thread of this `CODEX_HOME`; None when nobody does or the system does not tell."""
    try:
        inode = (home / "thread-writer-locks" / f"{thread_id}.lock").stat().st_ino
        rows = [line.split() for line in _LOCKS.read_text().splitlines()]
    except (OSError, ValueError):
        return None
    for row in rows:
        if len(row) >= _FIELDS and row[5].rpartition(":")[2] == str(inode) and row[4].isdigit():
            pid = int(row[4])
            if pid != os.getpid():
                return Holder(pid, _parent(pid))
    return None


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
