"""Edge cases of the key that one running agent can show."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import anyio
import pytest

from adapters.acp.errors import AcpError, RequestCancelled, ResourceNotFound
from adapters.acp.framing import encode
from adapters_tests.e2e.rig import Link, Rig, Tool, id_or_none
from adapters_tests.e2e.runtimes import Deviation

pytestmark = pytest.mark.anyio

INSIDE = pytest.mark.parametrize("inside", [False, True], ids=["held-by-us", "in-the-runtimes-queue"])
"""A prompt behind a running tool is withdrawn before or after the runtime has it."""


def prompt_line(request_id: int | str, session: str, text: str, key: str) -> bytes:
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key}
    return encode({"jsonrpc": "2.0", "id": request_id, "method": "session/prompt", "params": params})


async def with_tool(link: Link, text: str) -> tuple[str, Tool, str]:
    """A session whose work sits in a tool; gives the session, the tool, and the id of the tool's prompt."""
    session = await link.new()
    tool = link.rig.tool(f"Tool of {text}")
    work = await link.prompt(session, f"Tool of {text}", f"tool of {text}"[:255])
    await tool.started()
    return session, tool, await work.message_id()


async def ends(link: Link, session: str, since: int) -> None:
    await link.client.wait_state(session, "idle", since=since)


async def test_two_attempts_in_one_write_are_one_insertion(shared: Link, text: str) -> None:
    """E1, KEY-10: nothing lies between the two lines."""
    session = await shared.new()
    shared.rig.keys.add("e1-two-attempts")
    lines = [prompt_line(request_id, session, text, "e1-two-attempts") for request_id in ("e1-a", "e1-b")]
    first = await shared.client.send_line(b"".join(lines).rstrip(b"\n"), expecting="e1-a")
    second = await shared.client.send_line(b"", expecting="e1-b")
    results = [await first.result(), await second.result()]
    await ends(shared, session, first.mark)
    assert results[0] == results[1]
    assert shared.rig.stored_ids(session) == [results[0]["messageId"]]
    assert shared.rig.model.calls(text) == 1


async def test_a_hundred_attempts_while_held_are_all_answered(shared: Link, text: str) -> None:
    """E44, KEY-17."""
    session, tool, work_id = await with_tool(shared, text)
    calls = [await shared.prompt(session, text, "e44-a-hundred") for _ in range(100)]
    tool.release()
    ids = {await call.message_id() for call in calls}
    await ends(shared, session, calls[0].mark)
    assert len(ids) == 1
    assert shared.rig.stored_ids(session) == [work_id, *ids]


@INSIDE
async def test_cancelling_the_second_attempt_withdraws_for_both(shared: Link, text: str, inside: bool) -> None:
    """E6, KEY-18, RCAN-5."""
    session, tool, work_id = await with_tool(shared, text)
    calls = [await shared.prompt(session, text, "e6-two-attempts") for _ in range(2)]
    if inside:
        await shared.rig.queued(session)
    await shared.client.cancel_request(calls[1].request_id)
    assert [(await shared.error(call)).code for call in calls] == [-32800, -32800]
    tool.release()
    await ends(shared, session, calls[0].mark)
    assert shared.rig.stored_ids(session) == [work_id]
    assert shared.rig.model.calls(text) == 0


@pytest.mark.parametrize("seed", range(4))
async def test_a_cancel_that_races_with_the_insertion_is_answered_by_what_happened(
    shared: Link, text: str, seed: int
) -> None:
    """E7, E8, KEY-18, KEY-19, KEY-21, PROMPT-23, ERR-5: an error only if nothing is stored; then the retry inserts."""
    random = Random(f"{text}{seed}")
    session = await shared.new()
    for number in range(4):
        prompt, key = f"{text} {number}", f"e7-{seed}-{number}-key"
        call = await shared.prompt(session, prompt, key)
        await anyio.sleep(random.uniform(0, 0.2))
        await shared.client.cancel_request(call.request_id)
        again = await shared.prompt(session, prompt, key)
        first = await id_or_none(call, -32800)
        second = await again.message_id()
        assert first in (None, second)
        await shared.ended(session, second)
        assert shared.rig.stored_ids(session).count(second) == 1
    shown = shared.client.view(session).user_message_ids()
    assert shown == shared.rig.stored_ids(session)
    await shared.turn(session, f"{text} end")
    assert [shared.rig.model.in_conversation(f"{text} {number}") for number in range(4)] == [1] * 4


async def test_cancel_after_the_insertion_changes_nothing(shared: Link, text: str) -> None:
    """KEY-19, RCAN-3, RCAN-5: success, and the work goes on."""
    session = await shared.new()
    gate = shared.rig.hold_model(text)
    call = await shared.prompt(session, text, "key-19-inserted")
    message_id = await call.message_id()
    await shared.client.cancel_request(call.request_id)
    retry = await shared.prompt(session, text, "key-19-inserted")
    await shared.client.cancel_request(retry.request_id)
    assert await retry.message_id() == message_id
    await gate.wait_arrival()
    gate.release()
    assert (await shared.client.wait_state(session, "idle", since=call.mark))["stopReason"] == "end_turn"


@INSIDE
async def test_a_withdrawn_id_is_taken_when_it_comes_back(shared: Link, text: str, inside: bool) -> None:
    """E5, E52, KEY-21: the runtime would never run a withdrawn id again in its process; the prompt must not hang."""
    session, tool, work_id = await with_tool(shared, text)
    first = await shared.prompt(session, text, "e52-comes-back")
    if inside:
        await shared.rig.queued(session)
    await shared.client.cancel_request(first.request_id)
    assert (await shared.error(first)).code == -32800
    tool.release()
    await ends(shared, session, first.mark)
    message_id = await shared.turn(session, text, "e52-comes-back")
    assert shared.rig.stored_ids(session) == [work_id, message_id]
    assert shared.rig.model.calls(text) == 1
    assert shared.rig.model.in_conversation(f"Tool of {text}") == 1


@INSIDE
async def test_withdrawn_and_sent_again_while_the_tool_still_runs(shared: Link, text: str, inside: bool) -> None:
    """E5, E8, E52: cancelled and resent in the same turn; inserted once, and the turn before it ends in order."""
    session, tool, work_id = await with_tool(shared, text)
    first = await shared.prompt(session, text, "e8-at-once-again")
    if inside:
        await shared.rig.queued(session)
    await shared.client.cancel_request(first.request_id)
    second = await shared.prompt(session, text, "e8-at-once-again")
    assert (await shared.error(first)).code == -32800
    tool.release()
    message_id = await second.message_id()
    await shared.client.wait_update(session, lambda u: u.get("state") == "idle", since=second.mark)
    await shared.turn(session, f"After {text}")
    stored = shared.rig.stored_ids(session)
    assert stored[:2] == [work_id, message_id]
    assert stored.count(message_id) == 1
    assert shared.rig.model.calls(text) == 1


async def test_held_prompts_of_different_keys_keep_their_order(shared: Link, text: str) -> None:
    """PROMPT-16, ADP-7, E38: in the order received, each with its own content and id, retries do not reorder them."""
    session, tool, work_id = await with_tool(shared, text)
    calls = [await shared.prompt(session, f"{text} {number}", f"order-{number}-key") for number in range(3)]
    retries = [await shared.prompt(session, f"{text} {number}", f"order-{number}-key") for number in (2, 0)]
    other = await shared.prompt(session, "Another text under a held key", "order-1-key")
    tool.release()
    ids = [await call.message_id() for call in calls]
    assert [await call.message_id() for call in retries] == [ids[2], ids[0]]
    assert await id_or_none(other, -32602) in (None, ids[1])  # KEY-16 allows either
    await shared.turn(session, f"After {text}")
    stored = shared.rig.stored(session)
    assert [message.message_id for message in stored[:4]] == [work_id, *ids]
    assert [message.text for message in stored[1:4]] == [f"{text} {number}" for number in range(3)]
    assert [shared.rig.model.calls(f"{text} {number}") for number in range(3)] == [1, 1, 1]
    assert shared.user_messages(session)[:4] == [work_id, *ids]


async def test_a_recorded_key_with_another_prompt_inserts_nothing(shared: Link, text: str) -> None:
    """E37, KEY-15, KEY-16: the first id or -32602, and the key stays the first prompt's."""
    session = await shared.new()
    first = await shared.turn(session, text, "e37-recorded")
    other = await shared.prompt(session, f"Other {text}", "e37-recorded")
    assert await id_or_none(other, -32602) in (None, first)
    assert await (await shared.prompt(session, text, "e37-recorded")).message_id() == first
    assert shared.rig.stored_ids(session) == [first]
    assert shared.rig.model.calls(f"Other {text}") == 0


async def test_a_recorded_key_is_answered_at_once_while_other_work_runs(shared: Link, text: str) -> None:
    """E12, E27, KEY-12, KEY-13: it waits for no work and causes none."""
    session = await shared.new()
    first = await shared.turn(session, text, "e27-recorded")
    gate = shared.rig.hold_model(f"Busy {text}")
    busy = await shared.prompt(session, f"Busy {text}", "e27-busy-key")
    await gate.wait_arrival()
    assert await (await shared.prompt(session, text, "e27-recorded")).message_id(2) == first
    gate.release()
    await ends(shared, session, busy.mark)
    assert shared.states(session) == ["running", "idle:end_turn", "running", "idle:end_turn"]
    assert shared.rig.model.calls(text) == 1


async def test_a_new_sessions_first_keyed_prompt_and_its_retry(shared: Link, text: str) -> None:
    """E53, ADP-4: a new session has nothing to read."""
    session = await shared.new()
    key = str(uuid.uuid4())
    calls = [await shared.prompt(session, text, key) for _ in range(2)]
    assert await calls[0].message_id() == await calls[1].message_id()
    await ends(shared, session, calls[0].mark)


@pytest.mark.parametrize("how", ["cancel", "close", "delete"])
async def test_stopping_the_session_answers_all_attempts_of_a_held_prompt(shared: Link, text: str, how: str) -> None:
    """KEY-20, KEY-21, CANCEL-4, CLOSE-4, E13, E26: -32800 to each; after a resume the key is unused."""
    stop: dict[str, Callable[[str], Awaitable[None]]] = {
        "cancel": shared.client.cancel,
        "close": shared.client.close,
        "delete": shared.client.delete,
    }
    session, tool, work_id = await with_tool(shared, text)
    calls = [await shared.prompt(session, text, "e13-the-held-key") for _ in range(2)]
    other = await shared.prompt(session, f"Other {text}")
    mark = shared.client.record.mark
    await stop[how](session)
    assert [(await shared.error(call)).code for call in (*calls, other)] == [-32800] * 3
    if how == "delete":
        assert shared.rig.stored_ids(session) == []
        with pytest.raises(AcpError) as caught:
            await shared.resume(session)
        assert caught.value.code == -32002
        return
    await ends(shared, session, mark)
    assert shared.states(session)[-1] == "idle:cancelled"
    if how == "close":
        await shared.resume(session)
    message_id = await shared.turn(session, text, "e13-the-held-key")
    tool.release()
    assert shared.rig.stored_ids(session) == [work_id, message_id]
    assert shared.rig.model.calls(text) == 1


async def test_a_closed_session_is_not_active_and_knows_its_keys_again_when_resumed(shared: Link, text: str) -> None:
    """E14, E25, ERR-1, PROMPT-15: activity is checked before the key."""
    session = await shared.new()
    first = await shared.turn(session, text, "e14-the-key")
    await shared.client.close(session)
    closed = await shared.error(await shared.prompt(session, text, "e14-the-key"))
    assert closed.code == -32002
    assert closed.data["sessionId"] == session
    await shared.resume(session)
    assert await (await shared.prompt(session, text, "e14-the-key")).message_id() == first
    await shared.client.delete(session)
    assert (await shared.error(await shared.prompt(session, text, "e14-the-key"))).code == -32002
    assert shared.rig.model.calls(text) == 1


async def test_resume_and_prompt_in_one_write(shared: Link, text: str) -> None:
    """E49: not active yet, or it waits; never inserted twice."""
    session = await shared.new()
    first = await shared.turn(session, text, "e49-pipelined")
    await shared.client.close(session)
    resume = encode(
        {
            "jsonrpc": "2.0",
            "id": "e49-r",
            "method": "session/resume",
            "params": {"sessionId": session, "cwd": str(shared.rig.project)},
        }
    )
    lines = resume + prompt_line("e49-p", session, text, "e49-pipelined")
    resumed = await shared.client.send_line(lines.rstrip(b"\n"), expecting="e49-r")
    prompted = await shared.client.send_line(b"", expecting="e49-p")
    await resumed.result()
    with suppress(ResourceNotFound):
        assert (await prompted.result())["messageId"] == first
    assert await (await shared.prompt(session, text, "e49-pipelined")).message_id() == first
    assert shared.rig.stored_ids(session) == [first]


async def test_a_key_from_before_a_compaction_is_known(shared: Link, text: str) -> None:
    """E27, E28, E31, KEY-47, ADP-5: in the same process, and after the session is read again.

    A compaction that is not stored (NO_COMMANDS) is forgotten with the session: another one, under another id.
    """
    session = await shared.new()
    first = await shared.turn(session, text, "e28-before-it")
    compact = await shared.turn(session, "/compact", "e28-the-compaction")
    assert await (await shared.prompt(session, text, "e28-before-it")).message_id() == first
    await shared.client.close(session)
    await shared.resume(session)
    assert await (await shared.prompt(session, text, "e28-before-it")).message_id() == first
    again = await (await shared.prompt(session, "/compact", "e28-the-compaction")).message_id()
    assert (again == compact) is not shared.rig.deviates(Deviation.NO_COMMANDS)
    after = await shared.turn(session, f"After {text}", "e28-after-it")
    assert shared.rig.stored_ids(session).count(first) == 1
    assert shared.rig.stored_ids(session)[-1] == after
    assert shared.rig.model.calls(text) == 1


async def test_a_failure_after_the_insertion_is_no_error_response(shared: Link, text: str) -> None:
    """E34, KEY-22, PROMPT-10, STOP-3: success, idle with an error; the retry gets the id and runs nothing."""
    session = await shared.new()
    shared.rig.fail(text, 403, "forbidden by the script")
    call = await shared.prompt(session, text, "e34-fails-later")
    message_id = await call.message_id()
    idle = await shared.client.wait_state(session, "idle", since=call.mark)
    assert idle["stopReason"] == "error"
    assert isinstance(idle["error"]["code"], int)
    calls = shared.rig.model.total_calls
    assert await (await shared.prompt(session, text, "e34-fails-later")).message_id() == message_id
    assert shared.rig.model.total_calls == calls
    assert shared.states(session) == ["running", "idle:error"]
    assert shared.rig.stored_ids(session) == [message_id]


async def test_prompts_around_the_end_of_a_turn_are_neither_lost_nor_refused(shared: Link, text: str) -> None:
    """PROMPT-16, KEY-10, STATE-2: never "busy", never swallowed by a turn that just ended; each once, in order."""
    random = Random(text)
    session = await shared.new()
    ids: list[str] = []
    for number in range(12):
        first = await shared.prompt(session, f"{text} a{number}", f"end-race-a-{number}")
        await shared.client.wait_update(
            session, lambda u: u["sessionUpdate"] == "agent_message_chunk", since=first.mark
        )
        await anyio.sleep(random.uniform(0, 0.03))
        second = await shared.prompt(session, f"{text} b{number}", f"end-race-b-{number}")
        ids += [await first.message_id(), await second.message_id()]
        await shared.ended(session, ids[-1])
    assert shared.rig.stored_ids(session) == ids == shared.user_messages(session)
    assert [shared.rig.model.calls(f"{text} b{number}") for number in range(12)] == [1] * 12


async def test_three_prompts_without_waiting_keep_their_order(shared: Link, text: str) -> None:
    """PROMPT-5, PROMPT-16: distinct ids, the order of sending."""
    session = await shared.new()
    calls = [await shared.prompt(session, f"{text} {number}", f"without-waiting-{number}") for number in range(3)]
    ids = [await call.message_id() for call in calls]
    await shared.ended(session, ids[-1])
    assert len(set(ids)) == 3
    assert shared.rig.stored_ids(session) == ids == shared.user_messages(session)


async def test_a_resume_that_is_cancelled_in_its_replay_leaves_no_half_knowledge(shared: Link, text: str) -> None:
    """E48, RESUME-7: the keys are read completely or not at all."""
    session = await shared.new()
    first = await shared.turn(session, f"{text} first", "e48-first-key")
    last = await shared.turn(session, f"{text} last", "e48-last-key")
    await shared.client.close(session)
    params = {"sessionId": session, "cwd": str(shared.rig.project), "replayFrom": {"type": "start"}}
    call = await shared.client.request("session/resume", params)
    await shared.client.cancel_request(call.request_id)
    with suppress(RequestCancelled):
        await call.result()
    await shared.resume(session)
    assert await (await shared.prompt(session, f"{text} last", "e48-last-key")).message_id() == last
    assert await (await shared.prompt(session, f"{text} first", "e48-first-key")).message_id() == first
    assert shared.rig.stored_ids(session) == [first, last]


async def test_a_resume_that_is_cancelled_at_once_keeps_nobody_from_the_session(rig: Rig, text: str) -> None:
    """RESUME-7, D6: the runtime may be on its way by then; another agent can have the session all the same."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "before-the-cancelled-resume")
    async with rig.agent() as link, rig.agent() as other:
        await link.client.list()
        call = await link.client.request("session/resume", {"sessionId": session, "cwd": str(rig.project)})
        with pytest.raises(AcpError):
            await link.client.list("relative")  # answered at once: meanwhile the runtime was asked
        await link.client.cancel_request(call.request_id)
        with pytest.raises(AcpError):
            await call.result()
        await other.resume(session)
        assert await (await other.prompt(session, text, "before-the-cancelled-resume")).message_id() == first


async def test_many_sessions_at_once(shared: Link, text: str) -> None:
    """KEY-40, STDIO-10: opened, prompted with one key, and closed side by side."""
    ids: set[str] = set()

    async def one(number: int) -> None:
        session = await shared.new()
        await shared.turn(session, f"{text} start")
        call = await shared.prompt(session, f"{text} {number}", "the-same-key-everywhere")
        if number % 2:
            ids.add(await call.message_id())
        await shared.client.close(session)
        await shared.resume(session)
        message_id = await (await shared.prompt(session, f"{text} {number}", "the-same-key-everywhere")).message_id()
        ids.add(message_id)
        assert shared.rig.stored_ids(session).count(message_id) == 1
        await shared.client.close(session)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, number)
    assert len(ids) == 6
