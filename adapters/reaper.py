"""The agent's side of its reaper: the mark that every process of the agent carries, and the reaper's start and end.

Nothing that an agent started may outlive it (D6), also not a tool that ignores signals or has left its process group. A killed
agent cannot end anything, so a small program (`reaper_main.py`) waits beside it. An agent that ends in order ends its processes
itself; it does so even if its reaper was killed, stopped or never started.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import ModuleType
from typing import Final

import anyio
from anyio.abc import Process

from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

MARK: Final = "ACP_ADAPTERS_AGENT"
"""The variable in the environment of everything that the agent starts. Its value is random and means nothing."""

_PROGRAM: Final = str(Path(__file__).with_name("reaper_main.py"))

_END_BOUND: Final = 1.5
"""Seconds in which the agent ends what is left (4 ms, where nothing is)."""
_REAP_BOUND: Final = 1.0
"""Seconds from KILL to the reaper's exit."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 60.0
"""Seconds before another reaper, where the last ones did not live: doubled each time. A first loss waits for nothing."""
_LIVES: Final = 5.0
"""Seconds after which a reaper counts as one that lived."""


class Reaper:
    """A mark and the reaper that watches over it. Somebody runs `watch`, from before or soon after the first marked process."""

    def __init__(self) -> None:
        self._value = os.urandom(16).hex()
        self._process: Process | None = None

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment with the mark in it."""
        return {**environ, MARK: self._value}

    async def watch(self) -> None:
        """Keep a reaper until this is cancelled: start one, and another when it is lost. Returns at once without /proc."""
        if not sys.executable or not _can_look():
            return
        _program()  # for the end, when an update may have taken the file away
        pause = 0.0
        while True:
            began = anyio.current_time()
            lost = await self._run()
            if anyio.current_time() - began > _LIVES:
                pause = 0.0
            _log.warning(LogEvent("reaper lost", another_in=f"{pause:g} s", **lost))
            await anyio.sleep(pause)
            pause = min(max(_FIRST_PAUSE, pause * 2), _LONGEST_PAUSE)

    async def _run(self) -> dict[str, object]:
        """Run one reaper until it is gone. Returns why it is gone."""
        command = [sys.executable, "-I", "-S", _PROGRAM, f"{MARK}={self._value}"]
        try:
            with anyio.CancelScope(shield=True):
                self._process = await anyio.open_process(
                    command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, cwd="/", env={}, start_new_session=True
                )
        except (
            OSError,
            RuntimeError,
        ) as error:  # no memory, process or thread is to be had, or no interpreter any more
            return {"reason": f"it cannot be started: {getattr(error, 'strerror', None) or error}"}
        process = self._process
        assert process is not None  # noqa: S101 - a shielded scope swallows nothing
        status = await process.wait()
        await process.aclose()
        self._process = None
        return {"status": status}

    async def end(self) -> None:
        """The agent ends in order: whatever still carries the mark is ended now, and the reaper. Returns within bounds."""
        process, self._process = self._process, None
        with anyio.CancelScope(shield=True):
            nothing_left = await self._end_marked()
            if process is None:
                return
            if nothing_left:
                with suppress(ProcessLookupError):
                    process.kill()  # it may be stopped
            with anyio.move_on_after(_REAP_BOUND):
                if process.stdin is not None:
                    await process.stdin.aclose()  # what is left is for the reaper, which goes on without us
                if nothing_left:
                    await process.wait()

    async def _end_marked(self) -> bool:
        """End what carries the mark, within a bound; whether nothing is left."""
        if not _can_look():
            return True
        reaper_main = _program()
        with anyio.move_on_after(_END_BOUND), suppress(OSError):
            for _ in reaper_main.end(f"{MARK}={self._value}".encode(), grace=0):
                await anyio.sleep(reaper_main.LOOK_EVERY)
            return True
        return False


def _program() -> ModuleType:
    from adapters import reaper_main  # noqa: PLC0415 - the start does not pay for it

    return reaper_main


def _can_look() -> bool:
    return os.path.exists("/proc/self/environ")  # noqa: PTH110 - nothing to wait for
