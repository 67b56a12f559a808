"""A program that runs beside an agent and ends what the agent leaves running, however the agent ends (D6).

Owns the search for processes by a mark in their environment, and how they are ended. Started by `reaper.py` as a program of its
own, without site packages: it imports nothing but the standard library, so that it costs 10 ms and 8 MB. Therefore it reads /proc
itself, not through `driver/procfs.py`. Linux only.

    python -I -S reaper_main.py NAME=VALUE

The program waits for the end of its standard input: then the agent is dead. Runtimes notice that themselves and get a moment to
store their data. Then the program sends TERM, waits a moment, and sends KILL to every process with the mark and to their
descendants. An agent that ends in order does the same itself, without the moment, and ends its reaper last.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

DEATH_GRACE = 0.5
"""Seconds in which runtimes end by themselves when their agent has died (Codex 0.07 s; Claude Code stores within 0.3 s)."""
TERM_BOUND = 0.5
"""Seconds from TERM to KILL."""
KILL_BOUND = 3.0
"""Seconds in which KILL is repeated, for what is started meanwhile."""
LOOK_EVERY = 0.02
"""Seconds between two looks."""

_Key = tuple[int, bytes]
"""A process by its pid and its start time: pids come back."""


def marked(mark: bytes) -> set[_Key]:
    """The living processes whose environment holds the mark, and their descendants; this one is not among them."""
    parents: dict[int, tuple[int, bytes]] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - see _read
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError, ValueError, IndexError):
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            parents[int(name)] = int(fields[1]), fields[19]
            if mark in _read(f"/proc/{name}/environ").split(b"\0"):
                found.add(int(name))
    grown = True
    while grown:
        below = {pid for pid, (parent, _) in parents.items() if parent in found} - found
        found |= below
        grown = bool(below)
    return {(pid, parents[pid][1]) for pid in found}


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib alone would double the start-up time
        return file.read()


def end(mark: bytes, *, grace: float) -> Iterator[None]:
    """End them all: one step until none is left, or until the bounds are over. The caller waits `LOOK_EVERY` after each.

    Raises `OSError` when it cannot look.
    """
    steps = ((None, grace), (signal.SIGTERM, TERM_BOUND), (signal.SIGKILL, KILL_BOUND))
    for number, bound in steps:
        asked: set[_Key] = set()
        deadline = time.monotonic() + bound
        while left := marked(mark):
            if number is not None:
                for pid, _ in left - asked:
                    with suppress(OSError):
                        os.kill(pid, number)
                asked |= left
            if time.monotonic() > deadline:
                break
            yield
        if not left:
            return


def main() -> None:
    """Wait for the end of the agent, whatever signals its client sends to its group, and end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(0, 1)
    for _ in end(os.fsencode(sys.argv[1]), grace=DEATH_GRACE):
        time.sleep(LOOK_EVERY)


if __name__ == "__main__":
    main()
