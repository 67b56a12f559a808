"""Closing one of several sessions of Codex frees its thread and loses nothing; threads left half-way in the archive come back."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CODEX
from adapters_tests.e2e.stored import codex_rollouts
from adapters_tests.e2e.test_codex import another_host
from adapters_tests.e2e.test_codex_witnesses import revert

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session"),
]

STATE = "state_5.sqlite"
MOMENTS_MS = (0, 2, 4, 7, 10, 14, 19, 25, 32, 40, 60, 120)


@contextmanager
def state_of(rig: Rig) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(rig.root / "codex" / STATE, isolation_level=None)) as database:
        yield database


async def two_sessions(link: Link, text: str) -> tuple[str, str]:
    sessions = await link.new(), await link.new()
    for number, session in enumerate(sessions):
        await link.turn(session, f"{text} {number}", f"key-{number}-of-two")
    return sessions


async def are_there(rig: Rig, *sessions: str) -> None:
    """Both are listed and can be resumed, and nothing of them is archived."""
    async with rig.agent() as link:
        assert {row["sessionId"] for row in await link.client.list(str(rig.project))} >= set(sessions)
        for session in sessions:
            await link.resume(session)
    assert all(codex_rollouts(rig.root, session) for session in sessions)


async def test_a_closed_session_is_the_users_at_once(rig: Rig, text: str) -> None:
    """D6, CLOSE-6: another session of the agent goes on meanwhile."""
    async with rig.agent() as link:
        first, second = await two_sessions(link, text)
        await link.client.close(first)
        status, printed = await rig.user_turn(first, f"{text} by the user")
        assert status == 0, printed
        await link.turn(second, f"{text} goes on", "key-that-goes-on")
        await link.resume(first)
        known = await (await link.prompt(first, f"{text} 0", "key-0-of-two")).message_id()
        assert known in rig.stored_ids(first)
    assert len(rig.stored(first)) == 2


@pytest.mark.parametrize("how", ["close", "end"])
async def test_sessions_are_there_after_a_kill_at_any_moment(rig: Rig, text: str, how: str) -> None:
    """CLOSE-6: nothing in the store is changed for a close, so there is no moment at which a kill could lose a session."""
    async with rig.agent() as link:
        sessions = await two_sessions(link, text)
    for moment in MOMENTS_MS:
        async with rig.agent() as link:
            for session in sessions:
                await link.resume(session)
            async with anyio.create_task_group() as tasks:
                if how == "close":
                    tasks.start_soon(_closed_or_not, link, sessions[0])
                else:
                    tasks.start_soon(link.process.transport.aclose)
                await anyio.sleep(moment / 1000)
                for victim in rig.processes():
                    victim.kill(signal.SIGKILL)
            await link.process.wait()
        await wait_for(lambda: not rig.processes(), 5, "everything is gone")
    await are_there(rig, *sessions)
    for number, session in enumerate(sessions):
        assert len(rig.stored(session)) == 1, f"session {number}"


async def _closed_or_not(link: Link, session: str) -> None:
    try:
        await link.client.close(session)
    except Exception:  # noqa: BLE001 - it is killed meanwhile
        return


@pytest.mark.parametrize("how", ["close", "end"])
async def test_sessions_are_there_after_a_close_while_the_database_is_locked(rig: Rig, text: str, how: str) -> None:
    """CLOSE-6, D7: another process holds Codex's own database for a while; the close is bounded and loses nothing."""
    async with rig.agent() as link:
        first, second = await two_sessions(link, text)
        with state_of(rig) as database:
            database.execute("BEGIN IMMEDIATE")
            if how == "close":
                with anyio.fail_after(6):
                    await link.client.close(first)
            else:
                await link.process.end()
            database.execute("ROLLBACK")
    await are_there(rig, first, second)


@pytest.mark.parametrize("left", ["moved", "noted", "unnoted", "half"])
async def test_a_thread_that_was_left_half_way_in_the_archive(rig: Rig, text: str, left: str) -> None:
    """Its files were moved and the database was not told, or the other way round, or one of two files was moved."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "key-1-left-half-way")
        await link.turn(session, f"{text} 2", "key-2-left-half-way")
    if left == "half":
        await revert(rig, session)
    home = rig.root / "codex"
    archive = home / "archived_sessions"
    archive.mkdir(exist_ok=True)
    files = codex_rollouts(rig.root, session)
    if left in ("moved", "half"):
        shutil.move(files[-1], archive)
    else:
        with state_of(rig) as database:
            path = str(archive / files[0].name) if left == "noted" else str(files[0])
            change = "UPDATE threads SET archived = 1, archived_at = 1, rollout_path = ? WHERE id = ?"
            database.execute(change, (path, session))
    async with rig.agent() as link:
        assert [row["sessionId"] for row in await link.client.list(str(rig.project))] == [session]
        await link.resume(session)
        assert await (await link.prompt(session, f"{text} 1", "key-1-left-half-way")).message_id() == first
        await link.turn(session, f"{text} 3", "key-3-left-half-way")
    assert list(archive.iterdir()) == []
    await are_there(rig, session)


async def test_what_the_user_has_archived_stays_there(rig: Rig, text: str) -> None:
    """It is not listed, whatever else is in the archive."""
    async with rig.agent() as link:
        theirs, lost = await two_sessions(link, text)
    async with another_host(rig) as host:
        await host.ask("thread/archive", threadId=theirs)
    [file] = codex_rollouts(rig.root, lost)
    shutil.move(file, rig.root / "codex" / "archived_sessions")
    async with rig.agent() as link:
        assert [row["sessionId"] for row in await link.client.list(str(rig.project))] == [lost]
        assert [row["sessionId"] for row in await link.client.list(str(Path(rig.project).parent))] == []
