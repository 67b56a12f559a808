"""What could outlive an agent: tools that ignore signals or leave their group, agents of clients that vanish, files."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from adapters.acp.stdio import StdioTransport
from adapters.client import permissions
from adapters.client.client import Client
from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.test_shutdown import KILLED_WITHIN, gone, stop

pytestmark = pytest.mark.anyio

STUBBORN = (
    "(trap '' TERM INT HUP; touch one; while :; do sleep 0.1; done) & "  # ignores signals
    "setsid sh -c 'touch two; exec sleep 300' & "  # in a session of its own
    "setsid -f sh -c 'trap \"\" TERM; touch three; exec sleep 300' & "  # nobody's child, and holds our pipe
    "touch four; wait"
)
"""A tool in four processes that do not want to end."""


@asynccontextmanager
async def stubborn(rig: Rig, text: str) -> AsyncIterator[Link]:
    """An agent in which that tool runs."""
    rig.answer(text, Answer((Shell(STUBBORN),)), say("Over."))
    files = [rig.project / name for name in ("one", "two", "three", "four")]
    async with rig.agent() as link:
        await link.prompt(await link.new(), text)
        await wait_for(lambda: all(file.exists() for file in files), 20, "the tool runs")
        yield link


@pytest.mark.parametrize("how", ["eof", "kill"])
async def test_tools_that_do_not_want_to_end(rig: Rig, text: str, how: str) -> None:
    """F35, STDIO-11, D6: they ignore signals, left their group and their parent, and hold pipes; they go with the agent."""
    async with stubborn(rig, text) as link:
        await stop(link, how)
        await gone(link, how)


@pytest.mark.parametrize("how", ["eof", "term", "kill"])
async def test_tools_that_do_not_want_to_end_when_the_reaper_was_killed(rig: Rig, text: str, how: str) -> None:
    """D6: an agent that ends in order needs none, at once or later; one that is killed has another."""
    async with stubborn(rig, text) as link:
        killed = reaper_of(link.process.pid)
        os.kill(killed, signal.SIGKILL)
        if how == "kill":
            await wait_for(lambda: reaper_of(link.process.pid) not in (0, killed), 10, "there is another one")
            await wait_for(lambda: "acp-adapters: reaper lost" in link.process.stderr, 5, "it is told")
        await stop(link, how)
        await gone(link, how)


@pytest.mark.parametrize("how", ["eof", "term"])
async def test_a_stopped_reaper_holds_up_no_end(rig: Rig, text: str, how: str) -> None:
    """D6: it is not waited for, and it goes too."""
    async with stubborn(rig, text) as link:
        stopped = reaper_of(link.process.pid)
        os.kill(stopped, signal.SIGSTOP)
        await stop(link, how)
        await gone(link, how)
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)


def reaper_of(agent: int) -> int:
    """The reaper of this agent, once it is a program of its own; 0 before."""
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            parent = (entry / "stat").read_text().rpartition(") ")[2].split()[1] if b"reaper_main.py" in command else ""
        except OSError:
            continue
        if parent == str(agent):
            return int(entry.name)
    return 0


@pytest.mark.parametrize("work", [False, True], ids=["idle", "working"])
async def test_a_client_that_vanishes_while_somebody_else_keeps_our_stdin_open(rig: Rig, text: str, work: bool) -> None:
    """F35, STDIO-11, STDIO-12: nobody can read what we say any more; that is the end, although stdin never ends."""
    process, from_agent, to_agent = await rig.agent_on_pipes()
    async with Client(StdioTransport(from_agent, to_agent), policy=permissions.allow) as client:
        await client.initialize()
        session = await client.new(str(rig.project))
        if work:
            tool = rig.tool(text)
            await client.prompt(session, text)
            await tool.started()
    os.close(from_agent)
    with anyio.fail_after(KILLED_WITHIN):
        assert await process.wait() == 0
    await rig.all_gone()
    os.close(to_agent)


async def test_an_agent_that_was_killed_leaves_nothing_that_the_next_one_keeps(rig: Rig, text: str) -> None:
    """D6: the files of a NEW session, which nobody may ever resume, go when another agent starts its first session."""
    state = rig.root / ".local" / "state" / "acp-adapters"
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, text)
        await stop(link, "kill")
        await gone(link, "kill")
    async with rig.agent() as link:
        await link.new()
        await wait_for(lambda: not list(state.rglob(f"*{session}*")), 20, "nothing of it is left")
    assert [path for path in state.rglob("*") if not path.is_dir()] == []
