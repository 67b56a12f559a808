"""reaper.py, reaper_main.py: nothing with the mark of an agent outlives it, and nothing else is touched."""

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

from adapters import reaper as module
from adapters.claude.cli.program import AGENT
from adapters.claude.cli.program import MARK as SESSION_MARK
from adapters.reaper import MARK, Reaper
from adapters_tests.e2e.processes import wait_for

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are found through /proc"),
]

DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
PLAIN = "echo ready; exec sleep 300"
DETACHED = "setsid -f sh -c 'echo ready; exec sleep 300'"
DEAF_TO = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""What a reaper ignores."""
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
    """Processes with this mark, reapers not included."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" else []
        except OSError:
            continue
    return found


def reapers(mark: str) -> list[int]:
    """The reapers of this mark."""
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


@asynccontextmanager
async def watched(keeper: Reaper, mark: str) -> AsyncIterator[int]:
    """The keeper as an agent runs it, with a reaper that is set up (its pid); the agent ends in order at the end."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.watch)
        yield await next_reaper(mark)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        await keeper.end()


async def next_reaper(mark: str, after: int = 0) -> int:
    """The reaper that is not the one `after`, when it has set up its signals."""

    def is_set_up() -> bool:
        found = [pid for pid in reapers(mark) if pid != after]
        return bool(found) and ignored(Path(f"/proc/{found[0]}/status")) >= DEAF_TO

    await wait_for(is_set_up, 10, "a reaper is set up")
    [pid] = reapers(mark)
    return pid


@pytest.mark.parametrize("command", [PLAIN, DEAF, DETACHED, UNMARKED_CHILD])
@pytest.mark.parametrize("how", ["in order", "reaper killed", "reaper stopped", "death", "death after a loss"])
async def test_what_carries_the_mark_goes_with_the_agent(command: str, how: str) -> None:
    """D6: tools that ignore signals, left their group, or cleared their environment, whatever became of the reaper."""
    keeper = Reaper()
    environ = keeper.environment({})
    mark = f"{MARK}={environ[MARK]}"
    async with started(PLAIN, {MARK: "another agent"}) as other, started(command, environ) as process:
        async with watched(keeper, mark) as first:
            reaper = first
            if how == "reaper killed":
                os.kill(reaper, signal.SIGKILL)
            elif how == "reaper stopped":
                os.kill(reaper, signal.SIGSTOP)
            elif how == "death after a loss":
                os.kill(reaper, signal.SIGKILL)
                reaper = await next_reaper(mark, reaper)
            if how.startswith("death"):
                for number in DEAF_TO:  # what a client does to its group is not for it
                    os.kill(reaper, number)
                await wait_for(lambda: keeper._process is not None, 10, "the agent has it")
                assert keeper._process is not None
                assert keeper._process.stdin is not None
                await keeper._process.stdin.aclose()
                await wait_for(lambda: not living(mark), 10, "all gone")
        assert living(mark) == []
        with anyio.fail_after(10):
            await process.wait()
        assert other.returncode is None
    await wait_for(lambda: not reapers(mark), 5, "the reaper is gone")


async def test_it_costs_nothing_where_nothing_is_left() -> None:
    keeper = Reaper()
    mark = f"{MARK}={keeper.environment({})[MARK]}"
    async with watched(keeper, mark):
        assert len(reapers(mark)) == 1
    assert reapers(mark) == []
    await keeper.end()


@pytest.mark.parametrize("interpreter", ["", "/no/such/python", "/bin/false"])
async def test_an_agent_without_a_reaper_ends_what_is_left_itself(
    interpreter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No interpreter, or one that cannot start: it is tried again, but not in a loop."""
    monkeypatch.setattr(sys, "executable", interpreter)
    keeper = Reaper()
    environ = keeper.environment({})
    async with started(DEAF, environ):
        with anyio.move_on_after(0.5):
            await keeper.watch()
        await keeper.end()
        assert living(f"{MARK}={environ[MARK]}") == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) in (range(2, 5) if interpreter else range(1))
    assert all(line.startswith("acp-adapters: reaper lost another_in=") for line in lines)


async def test_the_agent_ends_what_is_left_also_where_nothing_was_started_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end before `watch` ran; no /proc is no error either."""
    await Reaper().end()
    monkeypatch.setattr(module, "_can_look", lambda: False)
    keeper = Reaper()
    await keeper.watch()
    await keeper.end()
    assert keeper._process is None


def test_agents_have_marks_of_their_own() -> None:
    assert Reaper().environment({"A": "1"}) != Reaper().environment({"A": "1"})
    assert Reaper().environment({"A": "1"}).items() > {"A": "1"}.items()
    assert module.MARK.isidentifier()


def test_no_driver_puts_something_else_where_the_mark_stands() -> None:
    """Else the reaper does not find what the driver has started."""
    assert len({MARK, AGENT, SESSION_MARK}) == len((MARK, AGENT, SESSION_MARK))
