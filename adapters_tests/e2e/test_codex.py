"""What only Codex has: threads of other hosts, its lock, its one process, steers, compactions, its approvals and sub-agents."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.client.view import SessionView
from adapters.core.server_keys import spelled
from adapters.scripted.home import isolated_codex_home
from adapters.scripted.script import Answer, Shell, Text, Thinking, ToolUse, Usage, say
from adapters_tests.e2e.asked import Asked, choosing, refusing
from adapters_tests.e2e.mcp_servers import program
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, id_or_none, is_update
from adapters_tests.e2e.runtimes import CODEX, codex_binary
from adapters_tests.scripted.codex_server import Codex, text_input

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session"),
]


FULL = Usage(input_tokens=300_000)
"""More than the context of a model that Codex does not know: it compacts before it asks again."""


@asynccontextmanager
async def another_host(rig: Rig) -> AsyncIterator[Codex]:
    """An app-server of the user's own in the same home, as an editor starts it."""
    async with Codex.started([codex_binary(), "app-server"], rig.env, rig.project) as host:
        client = {"name": "another", "title": "another", "version": "0"}
        await host.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        await host.send(method="initialized")
        yield host


async def their_turn(host: Codex, text: str, message_id: str | None = None) -> str:
    """A turn by the other host in its thread; gives the turn's id."""
    named = {} if message_id is None else {"clientUserMessageId": message_id}
    started = await host.ask("turn/start", threadId=host.thread, input=[text_input(text)], **named)
    turn = str(started["turn"]["id"])
    await host.ended(turn)
    return turn


async def replayed(link: Link, session: str) -> list[str]:
    """The ids of the user messages that a replay shows, in order."""
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    return link.user_messages(session, mark)


# --- threads of other hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_thread_that_another_host_made(rig: Rig, text: str, mode: str) -> None:
    """D4, D12, ADP-4, REPLAY-2: both history modes; listed, replayed, continued, and its keys are known after a restart."""
    async with another_host(rig) as host:
        thread = await host.ask("thread/start", cwd=str(rig.project), historyMode=mode)
        host.thread = session = thread["thread"]["id"]
        await their_turn(host, f"{text} theirs", "an-id-of-theirs")
        await their_turn(host, f"{text} without an id")
    async with rig.agent() as link:
        [row] = await link.client.list(str(rig.project))
        assert row["sessionId"] == session
        before = await replayed(link, session)
        assert (len(before), before[0]) == (2, "an-id-of-theirs")
        first = await link.turn(session, f"{text} ours", "key-in-their-thread")
        assert await (await link.prompt(session, f"{text} ours", "key-in-their-thread")).message_id() == first
        assert await replayed(link, session) == [*before, first]
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, f"{text} ours", "key-in-their-thread")).message_id() == first
        await link.turn(session, f"{text} end")
    assert rig.stored_ids(session).count(first) == 1
    for part in ("theirs", "without an id", "ours"):
        assert rig.model.in_conversation(f"{text} {part}") == 1


async def test_a_key_given_by_another_host_is_known(rig: Rig, text: str) -> None:
    """KEY-45, ADP-5: what counts is the id in the store, whoever put it there."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "a-key-of-both")
    async with another_host(rig) as host:
        await host.ask("thread/resume", threadId=session, excludeTurns=True)
        host.thread = session
        await their_turn(host, f"{text} in between")
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, text, "a-key-of-both")).message_id() == first
        await link.turn(session, f"{text} end")
    assert [message.text for message in rig.stored(session)] == [text, f"{text} in between", f"{text} end"]


async def test_a_thread_of_the_command_line(rig: Rig, text: str) -> None:
    """`codex exec`: its turns are replayed, and it can go on with ours."""
    command = [codex_binary(), "exec", "--skip-git-repo-check", f"{text} exec"]
    await anyio.run_process(command, env=rig.env, cwd=rig.project)
    async with rig.agent() as link:
        [row] = await link.client.list(str(rig.project))
        session = row["sessionId"]
        before = await replayed(link, session)
        assert len(before) == 1
        first = await link.turn(session, text, "key-in-a-thread-of-exec")
        await link.client.close(session)
    status, printed = await rig.user_turn(session, f"{text} exec again")
    assert status == 0, printed
    async with rig.agent() as link:
        shown = await replayed(link, session)
        assert shown[:2] == [*before, first]
        assert len(shown) == 3
        assert await (await link.prompt(session, text, "key-in-a-thread-of-exec")).message_id() == first
        await link.turn(session, f"{text} end")
    for part in (f"{text} exec", text, f"{text} exec again"):
        assert rig.model.in_conversation(part) == 1


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_fork(rig: Rig, text: str, compacted: bool) -> None:
    """Trace 6, E23, E24: a fork holds copies of the ids; a key is unused in it, and used in it once."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "one-key-in-a-fork")
        if compacted:
            await link.turn(session, "/compact")
    async with another_host(rig) as host:
        fork = (await host.ask("thread/fork", threadId=session))["thread"]["id"]
    async with rig.agent() as link:
        assert await replayed(link, fork) == [first]
        second = await link.turn(fork, text, "one-key-in-a-fork")
        assert second != first
        assert await (await link.prompt(fork, text, "one-key-in-a-fork")).message_id() == second
    async with rig.agent() as link:
        assert await replayed(link, fork) == [first, second]
        await link.resume(session)
        assert await (await link.prompt(fork, text, "one-key-in-a-fork")).message_id() == second
        assert await (await link.prompt(session, text, "one-key-in-a-fork")).message_id() == first
    assert rig.stored_ids(session) == [first]
    assert rig.stored_ids(fork) == [second]


async def test_a_reverted_thread(rig: Rig, text: str) -> None:
    """E46: what was taken back may be sent again; what is left stays known. The old file keeps both: it is no record."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "reverted-1-the-key")
        second = await link.turn(session, f"{text} 2", "reverted-2-the-key")
    async with another_host(rig) as host:
        await host.ask("thread/resume", threadId=session, excludeTurns=True)
        turns = (await host.ask("thread/turns/list", threadId=session))["data"]
        await host.ask("thread/revert", threadId=session, beforeTurnId=turns[0]["id"])
    async with rig.agent() as link:
        assert await replayed(link, session) == [first]
        assert await (await link.prompt(session, f"{text} 1", "reverted-1-the-key")).message_id() == first
        assert await link.turn(session, f"{text} 2", "reverted-2-the-key") == second
        assert await replayed(link, session) == [first, second]
        await link.turn(session, f"{text} end")
    assert rig.model.in_conversation(f"{text} 2") == 1


async def test_an_archived_thread(rig: Rig, text: str) -> None:
    """Whoever resumes it wants to work on it; its keys are known."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "key-in-the-archive")
    async with another_host(rig) as host:
        await host.ask("thread/archive", threadId=session)
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, text, "key-in-the-archive")).message_id() == first


async def test_a_title_shows_what_the_user_wrote(rig: Rig, text: str) -> None:
    """LIST-4: Codex shows the first prompt as one text; what stands there for files is ours and is left out again."""
    link_block = {"type": "resource_link", "name": "a.py", "uri": "file:///x/a.py"}
    resource = {"uri": "file:///x/b.py", "mimeType": "text/x-python", "text": "x = 1\n" * 5000}
    looks_written = '<resource_link name="a.py" uri="file:///x/a.py"/>'
    prompts: dict[str, Any] = {
        f"{text} 1": [link_block, {"type": "text", "text": f"{text} 1"}],
        f"{text} 2": [{"type": "resource", "resource": resource}, {"type": "text", "text": f"{text} 2"}],
        "b.py, a.py": [{"type": "resource", "resource": resource}, link_block],
        looks_written: [{"type": "text", "text": looks_written}],
    }
    async with rig.agent() as link:
        for prompt in prompts.values():
            await link.turn(await link.new(), prompt)
        assert {row["title"] for row in await link.client.list(str(rig.project))} == set(prompts)


# --- one holder --------------------------------------------------------------------------------------------------------------


async def test_a_thread_that_another_host_holds(rig: Rig, text: str) -> None:
    """D6: refused within a bound, naming the process; nothing is lost, and its death frees the thread at once."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "key-of-a-held-thread")
    async with another_host(rig) as host, rig.agent() as link:
        await host.ask("thread/resume", threadId=session, excludeTurns=True)
        with pytest.raises(AcpError) as caught:
            await link.resume(session)
        assert f"process {host.process.pid}" in caught.value.message
        with pytest.raises(AcpError) as caught:
            await link.client.delete(session)
        assert "open" in caught.value.message
        host.process.kill()
        await host.process.wait()
        await link.resume(session)
        assert await (await link.prompt(session, text, "key-of-a-held-thread")).message_id() == first
    assert rig.stored_ids(session) == [first]


async def test_a_closed_session_is_free_while_others_go_on(rig: Rig, text: str) -> None:
    """CLOSE-6, D6: the one process lives on, and gives the thread back all the same."""
    tool = rig.tool(f"{text} works")
    async with rig.agent() as link:
        session, working = await link.new(), await link.new()
        first = await link.turn(session, text, "given-back-at-close")
        work = await link.prompt(working, f"{text} works")
        await tool.started()
        await link.client.close(session)
        status, printed = await rig.user_turn(session, f"{text} own")
        assert status == 0, printed
        mark = link.client.record.mark
        await link.resume(session)
        assert await (await link.prompt(session, text, "given-back-at-close")).message_id() == first
        await link.client.close(session)
        assert not any(u.get("state") == "idle" for u in link.client.updates(working, mark))
        tool.release()
        await link.client.wait_state(working, "idle", since=work.mark)
        assert link.states(working) == ["running", "idle:end_turn"]
    assert [message.text for message in rig.stored(session)] == [text, f"{text} own"]


async def test_closing_does_not_change_the_order_of_the_list(rig: Rig, text: str) -> None:
    """LIST-2: newest work first; that a session was closed is no work."""
    async with rig.agent() as link:
        sessions = [await link.new() for _ in range(3)]
        for session in sessions:
            await link.turn(session, text)
            await anyio.sleep(1.1)  # Codex orders its list by seconds
        await link.client.close(sessions[0])
        assert [row["sessionId"] for row in await link.client.list()] == sessions[::-1]


async def test_a_session_that_was_never_prompted_survives_its_process(rig: Rig, text: str) -> None:
    """D7: Codex keeps such a thread in memory only; here it is made durable, and leaves nothing behind when it is closed."""
    async with rig.agent() as link:
        session, other = await link.new(), await link.new()
        rig.runtime_of(session).kill()
        first = await link.turn(session, text, "first-after-a-death")
        assert await (await link.prompt(session, text, "first-after-a-death")).message_id() == first
        await link.client.close(other)
        assert [row["sessionId"] for row in await link.client.list()] == [session]
    assert rig.stored_ids(session) == [first]


async def test_a_death_is_told_to_every_session(rig: Rig, text: str) -> None:
    """D7: one process holds them all; each session's work ends once, and each goes on."""
    gates = [rig.hold_model(f"{text} {number}") for number in range(3)]
    async with rig.agent() as link:
        sessions = [await link.new() for _ in gates]
        ids = [
            await (await link.prompt(session, f"{text} {number}", f"told-of-a-death-{number}")).message_id()
            for number, session in enumerate(sessions)
        ]
        for gate in gates:
            await gate.wait_arrival()
        rig.runtime_of(sessions[0]).kill()
        for session in sessions:
            assert (await link.client.wait_state(session, "idle"))["stopReason"] == "error"
        for gate in gates:
            gate.release()
        for number, session in enumerate(sessions):
            retry = await link.prompt(session, f"{text} {number}", f"told-of-a-death-{number}")
            assert await retry.message_id() == ids[number]
            after = await link.turn(session, f"{text} after")
            assert rig.stored_ids(session) == [ids[number], after]
            assert link.states(session) == ["running", "idle:error", "running", "idle:end_turn"]
        assert len(rig.runtimes()) == 1


# --- the end of a turn -------------------------------------------------------------------------------------------------------

_AT_THE_END = 60
"""Prompts that come as a turn ends. Measured: with one in twenty Codex inserts it and does not ask the model (0.163.0)."""


async def test_a_prompt_that_comes_as_a_turn_ends_is_answered(shared: Link, text: str) -> None:
    """Known faults: inserted once, asked once, and idle only after that; whatever it meets, the old turn or none."""
    session, dice = await shared.new(), Random(1)
    spoken = is_update("agent_message_chunk")
    for number in range(_AT_THE_END):
        first = await shared.prompt(session, f"{text} first {number}")
        await shared.client.wait_update(session, spoken, since=first.mark)
        await anyio.sleep(dice.choice((0, 0, 0.002, 0.004, 0.008)))
        await shared.turn(session, f"{text} then {number}")
        assert shared.rig.model.calls(f"{text} then {number}") == 1
    stored = [message.text for message in shared.rig.stored(session)]
    assert stored == [f"{text} {which} {number}" for number in range(_AT_THE_END) for which in ("first", "then")]


# --- stopping ----------------------------------------------------------------------------------------------------------------


async def test_an_interrupt_ends_the_commands_of_its_turn_and_no_others(rig: Rig, text: str) -> None:
    """Trap 11, STOP-4: Codex would let them run on; a command that runs on from an earlier turn does."""
    earlier = "while [ ! -e earlier.go ]; do sleep 0.02; done; echo over"
    rig.answer(
        f"{text} earlier", Answer((ToolUse("exec_command", {"cmd": earlier, "yield_time_ms": 300}),)), say("On.")
    )
    tool = rig.tool(text)

    def running(word: str) -> bool:
        return any(word in part for proc in rig.processes() for part in proc.command)

    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} earlier")
        mark = link.client.record.mark
        await link.prompt(session, text)
        await tool.started()
        await link.tool_shown(session, mark)
        await link.client.cancel(session)
        await link.client.wait_state(session, "idle", since=mark)
        await wait_for(lambda: not running(tool.go_file.name), 5, "the command of the stopped turn has ended")
        assert running("earlier.go")
        calls = link.client.view(session).items("tool_call")
        assert [call.fields["status"] for call in calls] == ["in_progress", "cancelled"]
        (rig.project / "earlier.go").touch()
        ended = is_update("tool_call_update", toolCallId=calls[0].item_id, status="completed")
        await link.client.wait_update(session, ended)


async def test_a_command_that_nobody_was_told_of_is_ended_too(shared: Link, text: str) -> None:
    """Codex tells of a command up to 150 ms after its start; stopped before, it is never shown, and does not run on."""
    session = await shared.new()
    tool = shared.rig.tool(text)
    call = await shared.prompt(session, text)
    await tool.started()
    await shared.client.cancel(session)
    assert (await shared.client.wait_state(session, "idle", since=call.mark))["stopReason"] == "cancelled"
    go = tool.go_file.name
    await wait_for(
        lambda: not any(go in part for proc in shared.rig.processes() for part in proc.command), 5, "nothing runs on"
    )
    await shared.turn(session, f"After {text}")
    statuses = {item.fields["status"] for item in shared.client.view(session).items("tool_call")}
    assert statuses <= {"cancelled"}


async def test_a_steer_that_loses_against_an_interrupt_can_be_sent_again(shared: Link, text: str) -> None:
    """D5, E7, PROMPT-18, PROMPT-23: Codex drops it in silence; the answer is true, and the key unused."""
    random = Random(text)
    session = await shared.new()
    for number in range(8):
        prompt, key = f"{text} {number}", f"steer-or-interrupt-{number}"
        tool = shared.rig.tool(f"{prompt} tool")
        work = await shared.prompt(session, f"{prompt} tool")
        await tool.started()
        call = await shared.prompt(session, prompt, key)
        tool.release()
        await anyio.sleep(random.uniform(0, 0.25))
        await shared.client.cancel(session)
        first = await id_or_none(call, -32800)
        await shared.client.wait_state(session, "idle", since=work.mark)
        stored = shared.rig.stored(session)
        assert (first in [message.message_id for message in stored]) == (first is not None)
        assert first is not None or prompt not in [message.text for message in stored]
        second = await (await shared.prompt(session, prompt, key)).message_id()
        assert first in (None, second)
        if first is None:
            await shared.ended(session, second)
        assert shared.rig.stored_ids(session).count(second) == 1
    await shared.turn(session, f"{text} end")
    assert [shared.rig.model.in_conversation(f"{text} {number}") for number in range(8)] == [1] * 8
    assert shared.client.view(session).user_message_ids() == shared.rig.stored_ids(session)


async def test_a_model_that_cannot_be_reached(rig: Rig, text: str) -> None:
    """Trap 12, STOP-6, CANCEL-1: Codex would wait for ever; the user is told, and a cancel works at once."""
    away = isolated_codex_home(rig.root / "away", "http://127.0.0.1:9")["CODEX_HOME"]
    async with rig.agent(CODEX_HOME=away) as link:
        session = await link.new()
        call = await link.prompt(session, text, "nobody-is-there")
        message_id = await call.message_id()
        await link.client.wait_update(session, is_update("notice"))
        await link.client.cancel(session)
        idle = await link.client.wait_state(session, "idle", since=call.mark, within=8)
        assert idle["stopReason"] == "cancelled"
        assert await (await link.prompt(session, text, "nobody-is-there")).message_id() == message_id


# --- compaction --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("withdrawn", ["", "session/cancel", "$/cancel_request"])
async def test_a_compaction_before_the_insertion(rig: Rig, text: str, withdrawn: str) -> None:
    """E7, E36, KEY-10, KEY-21: held while Codex compacts, inserted once after it; withdrawn meanwhile, the key is unused."""
    rig.answer(f"{text} long", Answer((Text("Long."),), usage=FULL))
    compaction = rig.model.script.compaction
    rig.model.script = replace(rig.model.script, compaction=replace(compaction, gate=text))
    gate = rig.model.gate(text)
    async with rig.agent() as link:
        session = await link.new()
        start = await link.turn(session, f"{text} long", "before-the-compaction")
        mark = link.client.record.mark
        calls = [await link.prompt(session, text, "behind-a-compaction") for _ in range(2)]
        await gate.wait_arrival()
        assert await (await link.prompt(session, f"{text} long", "before-the-compaction")).message_id() == start
        assert not any(call.done for call in calls)
        if withdrawn == "session/cancel":
            await link.client.cancel(session)
        elif withdrawn:
            await link.client.cancel_request(calls[0].request_id)
        else:
            gate.release()
        ids = [await id_or_none(call, -32800) for call in calls]
        assert ids[0] == ids[1]
        assert (ids[0] is None) == bool(withdrawn)
        assert rig.stored_ids(session) == [start, *filter(None, ids[:1])]
        await link.client.wait_state(session, "idle", since=mark)
        gate.release()
        rig.model.script = replace(rig.model.script, compaction=compaction)
        second = await (await link.prompt(session, text, "behind-a-compaction")).message_id()
        assert ids[0] in (None, second)
        await link.ended(session, second)
        after = await link.turn(session, f"After {text}")
        assert rig.stored_ids(session) == [start, second, after]
        shown = [item.fields["status"] for item in link.client.view(session).items("compaction")]
        assert shown == (["cancelled", "completed"] if withdrawn else ["completed"])
    assert rig.model.calls(text) == 1
    assert rig.model.in_conversation(text) == 1


async def test_compact_waits_for_the_end_of_the_turn(shared: Link, text: str) -> None:
    """COMP-1, KEY-43, E30: in mid-turn Codex would stop the turn for it. Its prompt is live-only; its retry runs nothing."""
    session = await shared.new()
    tool = shared.rig.tool(text)
    work = await shared.prompt(session, text)
    await tool.started()
    compact = await shared.prompt(session, "/compact", "compact-in-mid-turn")
    await shared.client.list()
    assert not compact.done
    tool.release()
    message_id = await compact.message_id()
    await shared.client.wait_update(session, is_update("compaction_update", status="completed"))
    await shared.ended(session, message_id)
    calls = shared.rig.model.total_calls
    assert await (await shared.prompt(session, "/compact", "compact-in-mid-turn")).message_id() == message_id
    assert shared.rig.model.total_calls == calls
    assert shared.states(session) == ["running", "idle:end_turn", "running", "idle:end_turn"]
    assert shared.rig.stored_ids(session) == [await work.message_id()]
    await shared.client.close(session)
    await shared.resume(session)
    assert await shared.turn(session, "/compact", "compact-in-mid-turn") != message_id


# --- questions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["accept_for_session", "accept_prefix"])
async def test_a_command_that_is_allowed_from_now_on(link: Link, asked: Asked, text: str, choice: str) -> None:
    """PERM-1, PERM-7: the command is shown; the second time nobody is asked."""
    path = link.rig.project / f"from-now-on-{choice}"
    link.rig.answer(text, Answer((link.rig.runtime.asking(f"touch '{path}'"),)), say("Touched."))
    asked.answer = choosing(choice)
    session = await link.new()
    await link.turn(session, text)
    path.unlink()
    await link.turn(session, text)
    assert path.exists()
    [question] = asked.questions
    assert choice in [option["optionId"] for option in question.options]
    assert str(path) in question.params["title"]
    assert question.params["subject"]["toolCall"]["rawInput"]["command"] == f"touch '{path}'"


async def test_reject_and_stop(link: Link, asked: Asked, text: str) -> None:
    """PERM-2, STOP-1: Codex interrupts the turn; the command did not run, and the session goes on."""
    path = link.rig.project / "rejected-and-stopped"
    link.rig.answer(text, Answer((link.rig.runtime.asking(f"touch '{path}'"),)), say("Never said."))
    asked.answer = choosing("cancel")
    session = await link.new()
    call = await link.prompt(session, text)
    await call.message_id()
    idle = await link.client.wait_state(session, "idle", since=call.mark)
    assert idle["stopReason"] == "cancelled"
    assert not path.exists()
    await link.turn(session, f"After {text}")
    assert link.states(session)[-1] == "idle:end_turn"


@pytest.mark.parametrize("choice", ["accept", "decline"])
async def test_a_change_of_files_is_asked_about_with_its_diff(rig: Rig, asked: Asked, text: str, choice: str) -> None:
    """PERM-1, DIFF-1: where nothing may be written; what would be changed is shown before it is."""
    path = rig.project / "poem.txt"
    path.write_text("one\ntwo\n")
    patch = "*** Begin Patch\n*** Update File: poem.txt\n@@\n one\n-two\n+2\n*** End Patch"
    rig.answer(text, Answer((Shell(f"apply_patch <<'EOF'\n{patch}\nEOF"),)), say("Patched, or not."))
    asked.answer = choosing(choice)
    home = Path(isolated_codex_home(rig.root / "careful", rig.model.base_url)["CODEX_HOME"])
    config = (home / "config.toml").read_text()
    (home / "config.toml").write_text(config.replace('"workspace-write"', '"read-only"'))
    async with rig.agent(asked, CODEX_HOME=str(home)) as link:
        session = await link.new()
        await link.turn(session, text)
        [question] = asked.questions
        [diff] = [block for block in question.params["subject"]["toolCall"]["content"] if block["type"] == "diff"]
        assert [change["path"] for change in diff["changes"]] == [str(path)]
        assert "-two\n+2" in diff["patch"]["text"]
        assert path.read_text() == ("one\n2\n" if choice == "accept" else "one\ntwo\n")
        [call] = link.client.view(session).items("tool_call")
        assert (call.fields["kind"], call.fields["status"]) == (
            "edit",
            "completed" if choice == "accept" else "failed",
        )
        await link.replays_alike(session)


async def test_a_refused_command_is_missing_in_a_replay(link: Link, asked: Asked, text: str) -> None:
    """DECLINED_IS_NOT_STORED, REPLAY-2: everything else is alike; what ran after a yes is there."""
    refused, allowed = (link.rig.project / f"{name}-and-replayed" for name in ("refused", "allowed"))
    commands = [link.rig.runtime.asking(f"touch '{path}'") for path in (refused, allowed)]
    link.rig.answer(text, *(Answer((command,)) for command in commands), say("A pity."))
    session = await link.new()
    asked.answer = refusing("refused-and")
    await link.turn(session, text)
    live = link.client.view(session).snapshot()
    calls = [item.item_id for item in link.client.view(session).items("tool_call")]
    assert len(calls) == 2
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    replay = SessionView.of(link.client.updates(session, mark))
    assert [item.item_id for item in replay.items("tool_call")] == calls[1:]
    assert replay.snapshot() == [item for item in live if calls[0] not in str(item)]


BOX = program("""\
result = {"tools": [{"name": "open", "inputSchema": {"type": "object"}, "description": "open a box"}]}
    elif message["method"] == "tools/call":
        open(sys.argv[1], "a").write("opened\\n")
        result = {"content": [{"type": "text", "text": "a pearl"}]}\
""")


@pytest.mark.parametrize(("choice", "counts"), [("accept", (2, 2)), ("accept_session", (2, 1)), ("decline", (0, 2))])
async def test_a_tool_of_an_mcp_server_is_asked_about(
    link: Link, asked: Asked, text: str, choice: str, counts: tuple[int, int]
) -> None:
    """PERM-1, PERM-7, SETUP-6, TOOL-2: Codex asks by an elicitation; the call is shown, and its result."""
    log = link.rig.project / f"box-{choice}.log"
    log.touch()
    opened, questions = counts
    server = {"type": "stdio", "name": "My box", "command": sys.executable, "args": ["-c", BOX, str(log)], "env": []}
    link.rig.answer(
        text,
        Answer((ToolUse("open", {}, namespace=f"mcp__{spelled('My box').replace('-', '_')}"),)),
        say("Opened, or not."),
    )
    asked.answer = choosing(choice)
    session = await link.new(mcpServers=[server])
    for _ in range(2):
        await link.turn(session, text)
    assert log.read_text() == "opened\n" * opened
    assert len(asked.questions) == questions
    calls = link.client.view(session).items("tool_call")
    assert [call.fields["status"] for call in calls] == ["completed" if opened else "failed"] * 2
    assert [call.fields["title"] for call in calls] == ["My box: open"] * 2
    assert "My box" in asked.questions[0].params["title"]
    assert "accept_always" not in [option["optionId"] for option in asked.questions[0].params["options"]]
    assert asked.questions[0].params["subject"]["toolCall"]["toolCallId"] == calls[0].item_id
    await link.replays_alike(session)


async def test_a_sub_agent_asks_the_same_user(link: Link, asked: Asked, text: str) -> None:
    """PERM-1, REPLAY-2: its question reaches the user of its session; its words are no message of the conversation."""
    path = link.rig.project / "by-a-sub-agent"
    inner = f"Inner work of {text}"
    spawn = ToolUse("spawn_agent", {"message": inner}, namespace="multi_agent_v1")
    link.rig.answer(text, Answer((spawn,)), say("It has begun."))
    link.rig.answer(inner, Answer((link.rig.runtime.asking(f"touch '{path}'"),)), say("Inner result."))
    session = await link.new()
    message_id = await link.turn(session, text)
    await wait_for(path.exists, 20, "the sub-agent was allowed")
    assert str(path) in asked.questions[0].params["title"]
    assert asked.questions[0].session_id == session
    view = link.client.view(session)
    assert view.user_message_ids() == [message_id]
    assert "Inner result." not in [item.text for item in view.items("agent")]
    assert session in [row["sessionId"] for row in await link.client.list()]
    assert len(await link.client.list(str(link.rig.project))) == len(
        {row["sessionId"] for row in await link.client.list(str(link.rig.project))} & set(link.rig.sessions)
    ), "a sub-agent's thread is no session"


# --- the picture -------------------------------------------------------------------------------------------------------------


async def test_files_commands_and_thoughts_live_and_replayed(shared: Link, text: str) -> None:
    """REPLAY-2, TOOL-1, TOOL-5, DIFF-1, DIFF-3: kinds, locations, diffs, output, thoughts: alike."""
    path = shared.rig.project / "poem.txt"

    def patch(*lines: str) -> Answer:
        body = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
        return Answer((Shell(f"apply_patch <<'EOF'\n{body}\nEOF"),))

    steps = (
        patch("*** Add File: poem.txt", "+one", "+two"),
        Answer((Thinking("What is in it?"), Shell("cat poem.txt"))),
        patch("*** Update File: poem.txt", "@@", " one", "-two", "+2"),
        Answer((Shell("ls /no/such/folder"),)),
        say("Edited."),
    )
    shared.rig.answer(text, *steps)
    session = await shared.new()
    await shared.turn(session, text)
    assert path.read_text() == "one\n2\n"
    view = await shared.replays_alike(session)
    calls = view.items("tool_call")
    assert [(call.fields["kind"], call.fields["status"]) for call in calls] == [
        ("edit", "completed"),
        ("read", "completed"),
        ("edit", "completed"),
        ("search", "failed"),
    ]
    diffs = [block for call in calls for block in call.fields.get("content", ()) if block["type"] == "diff"]
    assert [change["operation"] for diff in diffs for change in diff["changes"]] == ["add", "modify"]
    assert [item.text for item in view.items("agent")] == ["Edited."]
    assert [item.text for item in view.items("thought")] == ["What is in it?"]
