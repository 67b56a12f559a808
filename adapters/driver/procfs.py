"""Processes as /proc shows them: identity, descendants, environment. Only reads. Without /proc every answer is empty.

A process is named by its pid and its start time together, because pids are reused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "Process",
    "available",
    "command_line",
    "everybody",
    "family",
    "has_variable",
    "is_ending",
    "look",
    "pid_namespace",
    "start_time",
    "variable",
]

_PROC: Final = Path("/proc")
_STATE, _PARENT, _GROUP, _START = 0, 1, 2, 19
"""Places in /proc/PID/stat behind the name in parentheses."""
_LOCK_FIELDS: Final = 6  # "1: FLOCK ADVISORY WRITE 11670 fe:00:2179474 0 EOF"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was alive when looked at. `start`: clock ticks since boot."""

    pid: int
    start: int
    parent: int
    group: int

    @property
    def alive(self) -> bool:
        """Whether it still is; a zombie is not."""
        return start_time(self.pid) == self.start


def available() -> bool:
    """Whether processes can be looked at here."""
    return look(os.getpid()) is not None


def look(pid: int) -> Process | None:
    """The process, None when it is gone or a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()
    if len(fields) <= _START or fields[_STATE] in (b"Z", b"X", b"x"):
        return None
    return Process(pid, int(fields[_START]), int(fields[_PARENT]), int(fields[_GROUP]))


def is_ending(pid: int) -> bool:
    """Whether it is gone, or has given up its memory on the way there: for some milliseconds it still looks alive."""
    try:
        return (_PROC / str(pid) / "statm").read_bytes().startswith(b"0 ")
    except OSError:
        return True


def start_time(pid: int) -> int | None:
    """When the process started, None when it is gone, a zombie, or there is no /proc."""
    process = look(pid)
    return process.start if process else None


def everybody() -> Iterator[Process]:
    """All living processes that can be seen."""
    try:
        names = [entry.name for entry in os.scandir(_PROC)]
    except OSError:
        return
    for name in names:
        if name.isdigit() and (process := look(int(name))):
            yield process


def pid_namespace(pid: int) -> str:
    """The namespace in which pids of this process mean something; empty when that is not told."""
    try:
        return os.readlink(_PROC / str(pid) / "ns" / "pid")  # noqa: PTH115 - it leads to no path
    except OSError:
        return ""


def family(pid: int) -> list[Process]:
    """The living descendants of a process, children first; itself not included."""
    children: dict[int, list[Process]] = {}
    for process in everybody():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [pid]
    while parents:
        below = children.get(parents.pop(), [])
        found += below
        parents += [process.pid for process in below]
    return found


def command_line(pid: int) -> list[bytes]:
    """The arguments, program name first; empty when it cannot be read."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether the process was started with this in its environment; False when that cannot be read (not ours)."""
    return variable(pid, name) == value


def variable(pid: int, name: str) -> str | None:
    """The value of a variable in the process's environment; None without it, or when it cannot be read (another user's)."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    start = f"{name}=".encode()
    return next(
        (os.fsdecode(entry[len(start) :]) for entry in environment.split(b"\0") if entry.startswith(start)),
        None,
    )


def lock_holders(inode: int) -> list[int]:
    """The pids of the processes that hold a lock on a file with this inode number, of any file system."""
    try:
        rows = [line.split() for line in (_PROC / "locks").read_bytes().splitlines()]
    except OSError:
        return []
    return [
        int(row[4])
        for row in rows
        if len(row) >= _LOCK_FIELDS and row[5].rpartition(b":")[2] == b"%d" % inode and row[4].isdigit()
    ]
