"""Starts the agent under check, and ends it with everything that it started.

Owns the processes. Each start sets a mark in the environment, which children inherit. So what outlives a killed agent is found
(Linux; elsewhere only the agent's process group is ended).
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio

from adapters.acp.rpc import Transport
from adapters.client.process import start_agent

_MARK = "ACP_ADAPTERS_CHECK"
_PROC = Path("/proc")
_PROMPT_END = 1.9
"""Seconds in which an agent ends that hears the end of its input."""


class Running(Protocol):
    """A started agent: `adapters.client.process.AgentProcess`, or one in memory in tests."""

    @property
    def transport(self) -> Transport:
        """Its stdin and stdout."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit status once it has ended."""
        ...

    @property
    def stderr(self) -> str:
        """Its output on stderr."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        ...

    def kill(self) -> None:
        """SIGKILL: a crash of this process alone."""
        ...

    async def wait(self, within: float) -> int:
        """The exit status. Raises `TimeoutError`."""
        ...


class Launcher(Protocol):
    """How an agent is started, as often as the rules ask for."""

    def start(self) -> AbstractAsyncContextManager[Running]:
        """A fresh agent on the same home; ended in order on leaving. Raises `OSError` when it cannot be started."""
        ...

    def left(self, started: Running) -> list[str]:
        """The living processes that this agent started, one command line each."""
        ...

    def sweep(self, keep: Running | None = None) -> None:
        """Kill everything that any agent of this launcher left behind, but not what belongs to `keep`."""
        ...


class ProcessLauncher:
    """Starts a command with this environment in this folder."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._command, self._env, self._cwd = list(command), dict(env), cwd
        self._run = uuid.uuid4().hex
        self._marks: dict[int, str] = {}
        self._groups: dict[int, int] = {}
        self._deaf = False
        """One of them did not end when it was asked to: the others are not waited for."""

    @asynccontextmanager
    async def start(self) -> AsyncGenerator[Running]:
        """See `Launcher.start`."""
        mark = f"{self._run}.{len(self._groups)}"
        async with start_agent(self._command, env={**self._env, _MARK: mark}, cwd=str(self._cwd)) as process:
            self._marks[id(process)] = mark
            self._groups[id(process)] = process.pid
            try:
                yield process
            finally:
                if self._deaf:
                    process.kill()
                asked = time.monotonic()
        self._deaf = self._deaf or time.monotonic() - asked > _PROMPT_END

    def left(self, started: Running) -> list[str]:
        """See `Launcher.left`."""
        return [_command_line(pid) for pid in _marked(self._marks[id(started)])]

    def sweep(self, keep: Running | None = None) -> None:
        """See `Launcher.sweep`."""
        kept = set(_marked(self._marks[id(keep)])) if keep is not None else set[int]()
        for pid in _marked(self._run):
            if pid not in kept:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if not _PROC.is_dir():
            for started, group in self._groups.items():
                if started != id(keep):
                    with suppress(OSError):
                        os.killpg(group, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """Live processes whose environment carries this mark, or begins with it."""
    if not _PROC.is_dir():
        return []
    sought = f"{_MARK}={mark}".encode()
    exact = b"." in sought
    found: list[int] = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0")
                if any(word == sought or (not exact and word.startswith(sought)) for word in words):
                    found.append(int(entry.name))
    return found


def _command_line(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return str(pid)


async def gone(launcher: Launcher, started: Running, within: float) -> list[str]:
    """Wait until nothing of this agent lives, at most so many seconds; gives what still does."""
    with anyio.move_on_after(within):
        while launcher.left(started):  # noqa: ASYNC110 - the system announces no end of a grandchild
            await anyio.sleep(0.02)
    return launcher.left(started)
