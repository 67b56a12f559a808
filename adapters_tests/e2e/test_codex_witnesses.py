"""Where Codex's databases and the files of a thread differ, or a file cannot be had: nothing is said that nobody knows."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, is_update
from adapters_tests.e2e.runtimes import CODEX
from adapters_tests.e2e.stored import codex_rollouts
from adapters_tests.e2e.test_codex import another_host, replayed, their_turn

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session"),
]

HISTORY = "thread_history_1.sqlite"
LOCKS = "thread-writer-locks"


@contextmanager
def unwritable(rig: Rig) -> Iterator[None]:
    """Codex can read the database and not write to it, as when it belongs to somebody else or its disk is full."""
    writes = [(table, what) for table in ("thread_items", "thread_turns") for what in ("INSERT", "UPDATE")]
    with closing(sqlite3.connect(rig.root / "codex" / HISTORY, isolation_level=None)) as database:
        for table, what in writes:
            refuse = "BEGIN SELECT RAISE(ABORT, 'attempt to write a readonly database'); END"
            database.execute(f"CREATE TRIGGER no_{table}_{what} BEFORE {what} ON {table} {refuse}")
        yield
        for table, what in writes:
            database.execute(f"DROP TRIGGER no_{table}_{what}")


def remove(rig: Rig, database: str) -> None:
    for file in (rig.root / "codex").glob(f"{database}*"):
        file.unlink()


def notices(link: Link, session: str, since: int = 0) -> list[str]:
    return [
        str(update["title"]) for update in link.client.updates(session, since) if update["sessionUpdate"] == "notice"
    ]


async def revert(rig: Rig, session: str, turns: int = 1) -> None:
    """Another program takes the last turns back."""
    async with another_host(rig) as host:
        await host.ask("thread/resume", threadId=session, excludeTurns=True)
        listed: list[Any] = (await host.ask("thread/turns/list", threadId=session))["data"]
        await host.ask("thread/revert", threadId=session, beforeTurnId=listed[turns - 1]["id"])


async def is_unclear(link: Link, session: str, text: str, key: str) -> str:
    """A prompt is neither answered nor sent; gives the error's text."""
    calls = link.rig.model.total_calls
    error = await link.error(await link.prompt(session, text, key), inserted=None)
    assert link.rig.model.total_calls == calls
    return error.message


# --- databases -----------------------------------------------------------------------------------------------------------


async def test_a_database_that_cannot_be_written(rig: Rig, text: str) -> None:
    """ADP-6: Codex lists what it had before, without an error; the file knows better. What is in no witness can be sent."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} 0", "in-the-database-1")
    with unwritable(rig):
        async with rig.agent() as link:
            await link.resume(session)
            first = await link.turn(session, f"{text} 1", "not-in-the-database-1")
        async with rig.agent() as link:
            assert first not in await replayed(link, session)
            assert "2 messages are missing in this history" in notices(link, session)
            assert "databases" in await is_unclear(link, session, f"{text} 1", "not-in-the-database-1")
            await link.turn(session, f"{text} 2", "not-in-the-database-2")
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, f"{text} 1", "not-in-the-database-1")).message_id() == first
    assert rig.stored_ids(session).count(first) == 1


@pytest.mark.parametrize("gone", [HISTORY, ""], ids=["history", "all"])
async def test_a_reverted_thread_without_its_database(rig: Rig, text: str, gone: str) -> None:
    """ADP-6, REPLAY-2: Codex lists the newest file only; what older ones hold is neither unused nor hidden."""
    async with rig.agent() as link:
        session = await link.new()
        for number in (1, 2, 3):
            await link.turn(session, f"{text} {number}", f"kept-or-not-key-{number}")
    await revert(rig, session)
    async with rig.agent() as link:
        await link.resume(session)
        last = await link.turn(session, f"{text} 4", "kept-or-not-key-4")
    if gone:
        remove(rig, gone)
    else:
        for database in (rig.root / "codex").glob("*.sqlite*"):
            database.unlink()
    async with rig.agent() as link:
        assert await replayed(link, session) == [last]
        assert notices(link, session) == ["4 messages are missing in this history"]
        assert await (await link.prompt(session, f"{text} 4", "kept-or-not-key-4")).message_id() == last
        for number in (1, 2):
            await is_unclear(link, session, f"{text} {number}", f"kept-or-not-key-{number}")
        third = await link.turn(session, f"{text} 3", "kept-or-not-key-3")
    assert rig.stored_ids(session).count(third) == 2  # what was taken back stays in its old file


async def test_a_fork_without_the_database(rig: Rig, text: str) -> None:
    """REPLAY-2: what it inherits is missing in Codex's list, and the user is told."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, text, "key-before-the-fork")
    async with another_host(rig) as host:
        fork = (await host.ask("thread/fork", threadId=session))["thread"]["id"]
        host.thread = fork
        await their_turn(host, f"{text} forked")
    remove(rig, HISTORY)
    async with rig.agent() as link:
        assert len(await replayed(link, fork)) == 1
        assert notices(link, fork) == ["2 messages are missing in this history"]
        own = await link.turn(fork, f"{text} own", "key-before-the-fork")
        assert await (await link.prompt(fork, f"{text} own", "key-before-the-fork")).message_id() == own


@pytest.mark.parametrize("newer", ["databases", "files"])
async def test_databases_of_another_time_than_the_files(rig: Rig, text: str, newer: str) -> None:
    """ADP-6: a prompt in one of them only is not answered as known, and not sent."""
    home, other = rig.root / "codex", rig.root / "other time"
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "key-of-both-times")
    [file] = codex_rollouts(rig.root, session)
    shutil.copytree(home, other, symlinks=True, ignore=shutil.ignore_patterns("tmp", "*.sock"))
    async with rig.agent() as link:
        await link.resume(session)
        await link.turn(session, f"{text} 2", "key-of-one-time")
    if newer == "databases":
        shutil.copy2(other / file.relative_to(home), file)
    else:
        for database in [*home.glob(f"{HISTORY}*")]:
            database.unlink()
        for database in other.glob(f"{HISTORY}*"):
            shutil.copy2(database, home)
    shutil.rmtree(other)
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, f"{text} 1", "key-of-both-times")).message_id() == first
        if newer == "databases":
            await is_unclear(link, session, f"{text} 2", "key-of-one-time")
        else:  # Codex catches up with the file
            await (await link.prompt(session, f"{text} 2", "key-of-one-time")).message_id()
    assert rig.model.in_conversation(f"{text} 2") == 1


async def test_databases_from_before_a_revert(rig: Rig, text: str) -> None:
    """ADP-6, REPLAY-2: Codex loads the older state of the thread; what the newer file holds is neither unused nor hidden."""
    home, other = rig.root / "codex", rig.root / "other time"
    other.mkdir()
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "key-1-of-two-states")
        second = await link.turn(session, f"{text} 2", "key-2-of-two-states")
    for database in home.glob("*.sqlite*"):
        shutil.copy2(database, other)
    await revert(rig, session)
    async with rig.agent() as link:
        await link.resume(session)
        await link.turn(session, f"{text} 3", "key-3-of-two-states")
    for database in home.glob("*.sqlite*"):
        database.unlink()
    for database in other.iterdir():
        shutil.copy2(database, home)
    shutil.rmtree(other)
    async with rig.agent() as link:
        assert await replayed(link, session) == [first, second]
        assert notices(link, session) == ["2 messages are missing in this history"]
        assert await (await link.prompt(session, f"{text} 1", "key-1-of-two-states")).message_id() == first
        await is_unclear(link, session, f"{text} 3", "key-3-of-two-states")
    assert len([message for message in rig.stored(session) if message.text == f"{text} 3"]) == 1


# --- files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["compressed", "a pipe"])
async def test_a_file_of_the_thread_that_cannot_be_read(rig: Rig, text: str, how: str) -> None:
    """ADP-6: Codex opens the thread all the same; whether a key was used is not known."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} 1", "key-1-in-the-old-file")
        await link.turn(session, f"{text} 2", "key-2-in-the-old-file")
    await revert(rig, session)
    async with rig.agent() as link:
        await link.resume(session)
        third = await link.turn(session, f"{text} 3", "key-3-in-the-new-file")
    old, _ = codex_rollouts(rig.root, session)
    if how == "compressed":
        os.utime(old, (0, 0))
        async with another_host(rig) as host:
            await host.ask("rollout/compress")
            await wait_for(lambda: not old.exists(), 20, "Codex has compressed the file")
    else:
        archive = rig.root / "codex" / "archived_sessions"
        archive.mkdir(exist_ok=True)
        os.mkfifo(archive / old.name.replace("rollout-", "rollout-2"))
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, f"{text} 3", "key-3-in-the-new-file")).message_id() == third
        assert session in await is_unclear(link, session, f"{text} 2", "key-2-in-the-old-file")
        assert session in await is_unclear(link, session, f"{text} 4", "an-unused-key")


async def test_another_copy_of_the_file_that_holds_more(rig: Rig, text: str) -> None:
    """ADP-6: moved or synchronized files can be there twice, at two times."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} 1", "key-in-both-copies")
    [file] = codex_rollouts(rig.root, session)
    short = file.read_bytes()
    async with rig.agent() as link:
        await link.resume(session)
        await link.turn(session, f"{text} 2", "key-in-one-copy")
    archive = rig.root / "codex" / "archived_sessions"
    archive.mkdir(exist_ok=True)
    shutil.copy2(file, archive)
    file.write_bytes(short)
    remove(rig, HISTORY)
    async with rig.agent() as link:
        await link.resume(session)
        await is_unclear(link, session, f"{text} 2", "key-in-one-copy")
        await link.turn(session, f"{text} 3", "an-unused-key-3")


# --- reports -------------------------------------------------------------------------------------------------------------


async def test_a_file_that_was_replaced_takes_no_prompt(rig: Rig, text: str) -> None:
    """D2, KEY-43: Codex writes into the one that was removed and reports the prompt as complete. The client is told."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} 1", "key-before-the-copy")
        [file] = codex_rollouts(rig.root, session)
        shutil.copy2(file, f"{file}.copy")
        shutil.move(f"{file}.copy", file)
        mark = link.client.record.mark
        lost = await (await link.prompt(session, f"{text} 2", "key-after-the-copy")).message_id()
        await link.client.wait_update(
            session, is_update("notice", title="This message could not be stored"), since=mark
        )
        assert lost not in rig.stored_ids(session)
        assert await (await link.prompt(session, f"{text} 2", "key-after-the-copy")).message_id() == lost


async def test_a_home_that_takes_no_thread(rig: Rig, text: str) -> None:
    """D2, KEY-43: a store that cannot be written from the beginning."""
    (rig.root / "codex").mkdir(exist_ok=True)
    (rig.root / "codex" / "sessions").write_text("no folder")
    async with rig.agent() as link:
        session = await link.new()
        mark = link.client.record.mark
        await (await link.prompt(session, text, "key-without-a-folder")).message_id()
        await link.client.wait_update(
            session, is_update("notice", title="This message could not be stored"), since=mark
        )


async def test_a_thread_whose_lock_file_is_removed_is_locked_again(rig: Rig, text: str) -> None:
    """Not while it works: nothing is handed over then."""
    async with rig.agent() as link, rig.agent() as other:
        session = await link.new()
        first = await link.turn(session, text, "the-first-key")
        shutil.rmtree(rig.root / "codex" / LOCKS)
        second = await link.turn(session, f"{text} 2", "the-second-key")
        with pytest.raises(AcpError, match="has this session open"):
            await other.resume(session)
        tool = rig.tool(f"{text} 3")
        call = await link.prompt(session, f"{text} 3", "the-third-key")
        third = await call.message_id()
        await tool.started()
        shutil.rmtree(rig.root / "codex" / LOCKS)
        error = await link.error(await link.prompt(session, f"{text} 4", "the-fourth-key"), inserted=None)
        assert "was removed while it works" in error.message
        tool.release()
        await link.ended(session, third)
        fourth = await link.turn(session, f"{text} 4", "the-fourth-key")
        assert rig.stored_ids(session) == [first, second, third, fourth]


async def test_an_agent_whose_lock_file_was_removed_hands_nothing_over_beside_another(rig: Rig, text: str) -> None:
    """And leaves the other one its lock."""
    async with rig.agent() as link, rig.agent() as other:
        session = await link.new()
        first = await link.turn(session, text, "the-first-key")
        shutil.rmtree(rig.root / "codex" / LOCKS)
        await other.resume(session)
        second = await other.turn(session, f"{text} 2", "a-key-to-both")
        error = await link.error(await link.prompt(session, f"{text} 2", "a-key-to-both"), inserted=None)
        assert "has this session open" in error.message
        third = await other.turn(session, f"{text} 3", "the-third-key")
        await other.client.close(session)
        assert await (await link.prompt(session, f"{text} 2", "a-key-to-both")).message_id() == second
        with pytest.raises(AcpError, match="has this session open"):
            await other.resume(session)
        fourth = await link.turn(session, f"{text} 4", "the-fourth-key")
        assert rig.stored_ids(session) == [first, second, third, fourth]
