"""Processes as the system shows them (/proc): who lives in an isolated home, whatever its parent is now."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio


@dataclass(frozen=True, slots=True)
class Proc:
    """A live process: not a zombie."""

    pid: int
    parent: int
    command: tuple[str, ...]

    def kill(self, number: int = signal.SIGKILL) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def living_in(home: Path) -> list[Proc]:
    """The live processes whose environment names this folder, or one in it, as their home."""
    mark = re.compile(rb"(?:^|\0)HOME=" + re.escape(os.fsencode(home)) + rb"(?:/|\0|$)")
    found: list[Proc] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if not mark.search((entry / "environ").read_bytes()):
                continue
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            command = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            found.append(Proc(int(entry.name), int(parent), tuple(os.fsdecode(word) for word in command)))
    return found


async def wait_for(condition: Callable[[], bool], within: float, what: str) -> float:
    """Look every few milliseconds until the condition holds; gives the seconds it took. For files and processes only."""
    start = anyio.current_time()
    while not condition():
        if anyio.current_time() - start > within:
            raise AssertionError(f"not within {within} s: {what}")
        await anyio.sleep(0.005)
    return anyio.current_time() - start
