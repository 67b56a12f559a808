"""guard.py, guardian.py: nothing with the mark of an agent outlives it, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from adapters import guard as module
from adapters.guard import MARK, Guard
from adapters_tests.e2e.processes import wait_for

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are found through /proc"),
]

DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
PLAIN = "echo ready; exec sleep 300"
DETACHED = "setsid -f sh -c 'echo ready; exec sleep 300'"
UNMARKED_CHILD = "env -i /bin/sleep 300 & echo ready; wait"


@asynccontextmanager
async def started(command: str, environ: Mapping[str, str]) -> AsyncIterator[Process]:
    """A shell command that has said that it is ready; killed at the end."""
    process = await anyio.open_process(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, stderr=None, env={**environ, "PATH": os.environ["PATH"]}
    )
    assert process.stdout
    async with process:
        with anyio.fail_after(10):
            assert await process.stdout.receive() == b"ready\n"
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


def living(mark: str) -> list[int]:
    """Processes with this mark, guardians not included."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" else []
        except OSError:
            continue
    return found


def guardians(mark: str) -> list[int]:
    """The guardians of this mark."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def ignored(status: Path) -> set[int]:
    """The signals that a process ignores."""
    [line] = [line for line in status.read_text().splitlines() if line.startswith("SigIgn:")]
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 32) if mask & 1 << number - 1}


@pytest.mark.parametrize("command", [PLAIN, DEAF, DETACHED, UNMARKED_CHILD])
@pytest.mark.parametrize("how", ["in order", "death"])
async def test_what_carries_the_mark_goes_with_the_agent(command: str, how: str) -> None:
    """D6: tools that ignore signals, left their group, or cleared their environment."""
    guard = Guard()
    environ = guard.environment({})
    mark = f"{MARK}={environ[MARK]}"
    async with started(PLAIN, {MARK: "another agent"}) as other, started(command, environ) as process:
        await guard.start()
        assert guard._process is not None
        if how == "in order":
            await guard.end()
        else:
            status = Path(f"/proc/{guard._process.pid}/status")
            await wait_for(
                lambda: ignored(status) >= {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}, 10, "it is set up"
            )
            for number in (
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
            ):  # what a client does to its group is not for it
                guard._process.send_signal(number)
            assert guard._process.stdin
            await guard._process.stdin.aclose()
            with anyio.fail_after(10):
                assert await guard._process.wait() == 0
        await wait_for(lambda: not living(mark), 0.5 if how == "death" else 5, "all gone")
        with anyio.fail_after(10):
            await process.wait()
        assert other.returncode is None
    await wait_for(lambda: not guardians(mark), 5, "the guardian is gone")


async def test_it_costs_nothing_where_nothing_is_left() -> None:
    guard = Guard()
    mark = f"{MARK}={guard.environment({})[MARK]}"
    await guard.start()
    await wait_for(lambda: len(guardians(mark)) == 1, 10, "it runs")
    await guard.end()
    assert guardians(mark) == []
    await guard.end()


async def test_an_agent_without_a_guardian_just_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """No /proc, no interpreter."""
    monkeypatch.setattr(sys, "executable", "")
    guard = Guard()
    await guard.start()
    await guard.end()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    await guard.start()
    await guard.end()
    assert guard._process is None


def test_agents_have_marks_of_their_own() -> None:
    assert Guard().environment({"A": "1"}) != Guard().environment({"A": "1"})
    assert Guard().environment({"A": "1"}).items() > {"A": "1"}.items()
    assert module.MARK.isidentifier()
