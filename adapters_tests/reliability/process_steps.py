"""Steps around the agent as a process: where its stderr goes, its reaper, tools that do not want to end.

Owns how each is done.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Tool
from adapters_tests.reliability.steps import Steps

_RESPAWNED = 3.0
"""Seconds in which an agent may have another reaper when its own was killed."""

_LIVES = 6.0
"""Seconds between two kills: an agent that loses them faster waits longer and longer with the next."""

_GONE = 5.0
"""Seconds after the orderly end of an agent in which nothing of it is left."""

_DAEMON = "setsid -f sh -c 'trap \"\" TERM; touch {}; while [ ! -e {} ]; do sleep 0.1; done' </dev/null >/dev/null 2>&1"

_STUBBORN = (
    "(trap '' TERM INT HUP; touch {}; while [ ! -e {} ]; do sleep 0.1; done)",
    "setsid sh -c 'touch {}; while [ ! -e {} ]; do sleep 0.1; done' & wait",
    _DAEMON,
)
"""Tools that ignore a signal, leave their group, or both."""

_STDERR = ("2>&-", "2>/dev/full", "2>unread", "2>/dev/null")
"""Where the stderr of an agent goes, as a shell says it."""


class ProcessSteps(Steps):
    """The steps, by name."""

    reaper_killed = -math.inf

    # --- stderr --------------------------------------------------------------------------------------------------------

    def odd_stderr(self) -> Sequence[str]:
        """The command of an agent whose stderr is closed, full, or read by nobody."""
        pipe = self.rig.root / "unread"
        if not pipe.exists():
            os.mkfifo(pipe)
            reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
            self._stack.callback(os.close, reader)
            with suppress(BlockingIOError):
                while True:
                    os.write(reader, b"." * 4096)
        line = f'exec "$@" {self.random.choice(_STDERR)}'
        return ["sh", "-c", line, "sh", *self.rig.runtime.command]

    async def garbage(self) -> None:
        """Lines that are no messages: each is worth a line in the log."""
        for line in self.random.sample((b"no json", b"[]", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'"text"'), 2):
            await self.link.client.send_line(line)

    # --- the reaper --------------------------------------------------------------------------------------------------

    def reapers(self) -> list[int]:
        """The reapers of the present agent: they carry no home, so they are found by their parent."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
                if parent == self.link.process.pid and b"reaper_main.py" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    async def kill_reaper(self) -> None:
        """And nothing else: the agent has another one, at once unless it has lost one a moment ago."""
        if time.monotonic() - self.reaper_killed < _LIVES:
            return
        self._kill_reapers()
        await wait_for(lambda: bool(self.reapers()), _RESPAWNED, "another reaper")

    def _kill_reapers(self) -> None:
        self.reaper_killed = time.monotonic()
        for pid in self.reapers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def stubborn_tool(self) -> None:
        """A tool that runs until it is released, whatever signals it gets, and whoever dies."""
        await self._stubborn(self.random.choice(_STUBBORN))

    async def daemon(self) -> None:
        """Not random: it has left everything that a signal to its parents would reach."""
        await self._stubborn(_DAEMON)

    async def _stubborn(self, shell: str) -> None:
        await self._settle()
        made = self._new()
        name = f"stubborn{len(self.submissions)}"
        made.tool = Tool(self.rig.project / f"{name}.started", self.rig.project / f"{name}.go")
        command = shell.format(f"{name}.started", f"{name}.go")
        self.rig.answer(made.text, Answer((Shell(command),)), say("Done, or not."))
        await self._send(made)
        await self.answered()
        if isinstance(made.calls[-1].outcome, dict):  # else its runtime had just been killed
            self._answer_everything()
            with suppress(AssertionError):  # Codex ends what a command has left, perhaps before it has begun
                await made.tool.started(3)

    async def kill_without_reaper(self) -> None:
        """Not random: the agent is killed some time after its reaper."""
        killed = set(self.reapers())
        self._kill_reapers()
        with suppress(AssertionError):
            await wait_for(lambda: bool(set(self.reapers()) - killed), _RESPAWNED, "another reaper")
        self.link.process.kill()
        await self.link.process.wait()
        await self._require_nothing()
        await self._next_agent()

    async def nothing_left(self) -> None:
        """The agent ends in order or is killed, with its reaper dead or not: nothing that it has started lives on."""
        how = self.random.choice(("end", "end without", "kill", "kill with another"))
        if how == "end without":
            self._kill_reapers()
        elif how == "kill with another":
            await self.kill_reaper()
        if how.startswith("kill") and self.reapers():
            self.link.process.kill()  # that leaves it all to the reaper
        await self.link.process.end()
        await self._require_nothing()
        await self._next_agent()

    async def _require_nothing(self) -> None:
        with suppress(AssertionError):
            await self.rig.all_gone(_GONE)
        if left := self.rig.processes():
            words = [" ".join(proc.command)[:100] for proc in left]
            self.faults.append(f"left behind by an agent that has ended: {words}")
            for proc in left:
                proc.kill()
