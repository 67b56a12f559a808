"""The agent's side of its guardian: the mark that every process of the agent carries, and the guardian's start and end.

Nothing that an agent started may outlive it (D6): tools that ignore signals, that left their process group, or whose runtime was
killed; and nobody is left to end them when the agent itself is killed. So a small program (`guardian.py`) waits beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final

import anyio
from anyio.abc import Process

from adapters.log import log

MARK: Final = "ACP_ADAPTERS_AGENT"
"""The variable in the environment of everything that the agent starts. Its value is random and means nothing."""

_END_BOUND: Final = 1.5
"""Seconds that the end of the agent waits for the guardian (6 ms, where nothing is left to be ended)."""


class Guard:
    """A mark and the guardian that watches over it. `start` it once, before or soon after the first process with the mark."""

    def __init__(self) -> None:
        self._value = os.urandom(16).hex()
        self._process: Process | None = None

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment with the mark in it."""
        return {**environ, MARK: self._value}

    async def start(self) -> None:
        """Start the guardian. Where that is not possible (no /proc) the agent does without."""
        program = Path(__file__).with_name("guardian.py")
        if not sys.executable or not all(map(os.path.exists, ("/proc/self/environ", program))):
            return
        command = [sys.executable, "-I", "-S", str(program), f"{MARK}={self._value}"]
        try:
            with anyio.CancelScope(shield=True):
                self._process = await anyio.open_process(
                    command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, cwd="/", env={}, start_new_session=True
                )
        except OSError as error:
            log("no guardian", reason=error.strerror)

    async def end(self) -> None:
        """The agent ends in order: whatever still carries the mark is ended now. Returns when it is gone, within a bound."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_BOUND):
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await process.stdin.send(b".")
            await process.stdin.aclose()
            await process.wait()
