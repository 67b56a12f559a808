"""The seven traces of the key's specification, with the real runtime."""

from __future__ import annotations

import pytest

from adapters.client import permissions
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, unanswered

pytestmark = pytest.mark.anyio


async def test_trace_1_a_retry_on_the_same_connection(shared: Link, text: str) -> None:
    """KEY-12, KEY-13, KEY-15: trace 1. One submission, one message, one idle; the retry changes nothing."""
    session = await shared.new()
    first = await shared.turn(session, text, "trace-1-the-key")
    mark = shared.client.record.mark
    retry = await shared.prompt(session, text, "trace-1-the-key")
    assert await retry.result() == {"messageId": first}
    await shared.client.list()
    assert list(shared.client.updates(session, mark)) == []
    assert shared.states(session) == ["running", "idle:end_turn"]
    assert shared.user_messages(session) == [first]
    assert shared.rig.stored_ids(session) == [first]
    assert shared.rig.model.calls(text) == 1


@pytest.mark.parametrize("replay", [False, True], ids=["plain", "replay"])
async def test_trace_2_after_a_resume_on_a_new_connection(rig: Rig, text: str, replay: bool) -> None:
    """KEY-41, KEY-42, RESUME-4: trace 2. The connection ends, the next one resumes and asks again."""
    async with rig.agent() as link:
        session = await link.new()
        await link.prompt(session, "Another one before it.", "trace-2-another")
        call = await link.prompt(session, text, "trace-2-the-key")
        first = await call.message_id()  # and lost
    async with rig.agent() as link:
        await link.resume(session, replay=replay)
        mark = link.client.record.mark
        assert link.client.view(session).state == "idle"
        if replay:
            assert link.client.view(session).user_message_ids()[-1:] == [first]
        retry = await link.prompt(session, text, "trace-2-the-key")
        assert await retry.message_id() == first
        assert list(link.client.updates(session, mark)) == []
    assert rig.stored_ids(session).count(first) == 1
    assert rig.model.calls(text) <= 1  # 0 when the end of the connection stopped the turn before its model call


async def test_trace_2_while_the_work_is_running(shared: Link, text: str) -> None:
    """KEY-12, RESUME-5, REPLAY-8: trace 2, resumed again on the connection while the work runs."""
    session = await shared.new()
    gate = shared.rig.hold_model(text)
    call = await shared.prompt(session, text, "trace-2-running")
    first = await call.message_id()
    await gate.wait_arrival()
    mark = shared.client.record.mark
    await shared.resume(session, replay=True)
    assert shared.client.view(session).state == "running"
    assert shared.user_messages(session, mark) == [first]
    assert await (await shared.prompt(session, text, "trace-2-running")).message_id() == first
    gate.release()
    await shared.client.wait_state(session, "idle", since=mark)
    assert shared.states(session) == ["running", "idle:end_turn"]
    assert shared.rig.stored_ids(session) == [first]
    assert shared.rig.model.calls(text) == 1


@pytest.mark.parametrize("replay", [False, True], ids=["plain", "replay"])
@pytest.mark.parametrize("moment", ["in the turn", "idle"])
async def test_trace_3_after_a_restart_of_the_agent(rig: Rig, text: str, moment: str, replay: bool) -> None:
    """KEY-42, KEY-46, E10: trace 3. SIGKILL after the message was stored; the next agent knows the key."""
    gate = rig.hold_model(text)
    async with rig.agent() as link:
        session = await link.new()
        call = await link.prompt(session, text, "trace-3-the-key")
        first = await call.message_id()
        await gate.wait_arrival()
        if moment == "idle":
            gate.release()
            await link.client.wait_state(session, "idle", since=call.mark)
        link.process.kill()
        await link.process.wait()
    gate.release()
    async with rig.agent() as link:
        await link.resume(session, replay=replay)
        mark = link.client.record.mark
        retry = await link.prompt(session, text, "trace-3-the-key")
        assert await retry.message_id() == first
        assert list(link.client.updates(session, mark)) == []
        if replay:
            assert link.client.view(session).user_message_ids() == [first]
        after = await link.turn(session, f"After {text}", "trace-3-after")
        assert rig.model.in_conversation(text) == 1
    assert rig.stored_ids(session) == [first, after]
    assert rig.model.calls(text) == 1


async def test_trace_4_while_held(shared: Link, text: str) -> None:
    """KEY-10, KEY-17, PROMPT-19: trace 4. The second attempt joins the held prompt; both get the one answer."""
    session = await shared.new()
    tool = shared.rig.tool(f"Tool of {text}")
    work = await shared.prompt(session, f"Tool of {text}", "trace-4-the-tool")
    await tool.started()
    calls = [await shared.prompt(session, text, "trace-4-the-key") for _ in range(2)]
    await shared.client.list()
    assert not any(call.done for call in calls)
    assert shared.user_messages(session) == [await work.message_id()]
    tool.release()
    ids = [await call.message_id() for call in calls]
    await wait_for(lambda: shared.rig.model.calls(text) > 0, 30, "the model is asked")
    await wait_for(lambda: shared.client.view(session).state == "idle", 30, "the work is over")
    assert len(set(ids)) == 1
    assert shared.rig.stored_ids(session) == [await work.message_id(), ids[0]]
    assert shared.rig.model.calls(text) == 1
    assert shared.states(session)[-1] == "idle:end_turn"


async def test_trace_5_after_an_error(shared: Link, text: str) -> None:
    """KEY-14, KEY-21, E5, E33: trace 5. A withdrawn attempt leaves the key unused; the next one inserts."""
    session = await shared.new()
    tool = shared.rig.tool(f"Tool of {text}")
    await shared.prompt(session, f"Tool of {text}", "trace-5-the-tool")
    await tool.started()
    first = await shared.prompt(session, text, "trace-5-the-key")
    await shared.client.cancel_request(first.request_id)
    assert (await shared.error(first)).code == -32800
    second = await shared.prompt(session, text, "trace-5-the-key")
    tool.release()
    message_id = await second.message_id()
    await wait_for(lambda: shared.rig.model.calls(text) > 0, 30, "the model is asked")
    await wait_for(lambda: shared.client.view(session).state == "idle", 30, "the work is over")
    assert shared.rig.stored_ids(session).count(message_id) == 1
    assert shared.rig.model.calls(text) == 1


async def test_trace_6_the_same_key_in_another_session(shared: Link, text: str) -> None:
    """KEY-40, KEY-32: trace 6."""
    sessions = [await shared.new(), await shared.new()]
    ids = [await shared.turn(session, text, "trace-6-the-key") for session in sessions]
    assert ids[0] != ids[1]
    assert [shared.rig.stored_ids(session) for session in sessions] == [[ids[0]], [ids[1]]]
    assert shared.rig.model.calls(text) == 2


async def test_trace_7_inserted_during_active_work(rig: Rig, text: str) -> None:
    """KEY-47, ADP-5, E22: trace 7. Taken in mid-turn, known on this connection and after a restart, never run again."""
    tool = rig.tool(f"Tool of {text}")
    async with rig.agent(permissions.allow) as link:
        session = await link.new()
        work = await link.prompt(session, f"Tool of {text}", "trace-7-the-tool")
        await tool.started()
        call = await link.prompt(session, text, "trace-7-the-key")
        tool.release()
        first = await call.message_id()
        await wait_for(lambda: rig.model.calls(text) > 0, 30, "the model is asked")
        await wait_for(lambda: link.client.view(session).state == "idle", 30, "the work is over")
        assert await (await link.prompt(session, text, "trace-7-the-key")).message_id() == first
        stored = [await work.message_id(), first]
        assert rig.stored_ids(session) == stored
        assert link.user_messages(session) == stored
        link.process.kill()
        await link.process.wait()
    async with rig.agent() as link:
        await link.resume(session, replay=True)
        mark = link.client.record.mark
        assert link.client.view(session).user_message_ids() == stored
        assert await (await link.prompt(session, text, "trace-7-the-key")).message_id() == first
        assert list(link.client.updates(session, mark)) == []
        assert unanswered(link) == []
    assert rig.stored_ids(session) == stored
    assert rig.model.calls(text) == 1
