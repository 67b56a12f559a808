"""Failures and stops: the model's errors, cancelled work, odd answers. Success after the insertion, the truth in the state."""

from __future__ import annotations

import pytest

from adapters.client.view import SessionView
from adapters.scripted.script import Answer, HttpFailure, Shell, Spread, StreamFailure, Text, say
from adapters_tests.e2e.rig import Link, Rig, id_or_none
from adapters_tests.e2e.runtimes import Deviation

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("status", "code"), [(401, -32000), (403, None), (404, None), (429, None), (500, None), (529, None)]
)
async def test_an_error_of_the_model_ends_the_work_and_keeps_the_key(
    rig: Rig, text: str, status: int, code: int | None
) -> None:
    """AUTH-5, PROMPT-10, STOP-3, STOP-5, E34, KEY-22: the prompt is inserted, idle tells the error, the retry runs nothing."""
    rig.fail(text, status, "by the script")
    async with rig.agent(CLAUDE_CODE_MAX_RETRIES="1") as link:
        session = await link.new()
        call = await link.prompt(session, text, "model-error-key")
        message_id = await call.message_id()
        idle = await link.client.wait_state(session, "idle", since=call.mark)
        assert idle["stopReason"] == "error"
        assert idle["error"]["message"]
        if code is not None:
            assert idle["error"]["code"] == code
        calls = rig.model.total_calls
        assert await (await link.prompt(session, text, "model-error-key")).message_id() == message_id
        assert rig.model.total_calls == calls
        assert link.states(session) == ["running", "idle:error"]
        assert rig.stored_ids(session) == [message_id]
        await link.turn(session, f"After {text}")
        assert link.states(session)[-1] == "idle:end_turn"


async def test_an_error_after_a_tool_call_does_not_run_the_tool_again(shared: Link, text: str) -> None:
    """E34, KEY-13, KEY-22, STOP-4: the client that resends on errors gets the old id, and the side effect stays single."""
    log = shared.rig.project / "once.log"
    shared.rig.answer(
        text,
        Answer((Shell(f"echo ran >> '{log}'"),)),
        Answer(failure=HttpFailure(403, message="after the tool")),
    )
    session = await shared.new()
    call = await shared.prompt(session, text, "after-the-tool-key")
    message_id = await call.message_id()
    idle = await shared.client.wait_state(session, "idle", since=call.mark)
    assert idle["stopReason"] == "error"
    for _ in range(3):
        assert await (await shared.prompt(session, text, "after-the-tool-key")).message_id() == message_id
    assert log.read_text() == "ran\n"
    assert shared.rig.stored_ids(session) == [message_id]


async def test_work_that_recovers_by_itself_is_no_failure(shared: Link, text: str) -> None:
    """STOP-6: a retry by the runtime is a notice at most; one idle, end_turn."""
    shared.rig.fail(text, 500, "only once", times=1)
    session = await shared.new()
    await shared.turn(session, text)
    assert shared.states(session) == ["running", "idle:end_turn"]
    assert shared.rig.model.calls(text) == 1


async def test_a_stream_that_breaks_in_the_middle(shared: Link, text: str) -> None:
    """UPD-5, REPLAY-2: the runtime asks again; nothing is shown twice under one id, and a replay shows the same."""
    broken = StreamFailure(after_events=4, times=1)
    shared.rig.answer(text, Answer((Text("Whole after all.", Spread(deltas=8)),), stream_failure=broken))
    session = await shared.new()
    call = await shared.prompt(session, text)
    await call.message_id()
    await shared.client.wait_state(session, "idle", since=call.mark)
    live = shared.client.view(session).snapshot()
    mark = shared.client.record.mark
    await shared.resume(session, replay=True)
    assert SessionView.of(shared.client.updates(session, mark)).snapshot() == live
    assert shared.client.view(session).snapshot() == live
    shown = "".join(item.text for item in shared.client.view(session).items("agent"))
    assert shown.count("Whole after all.") == 1


async def test_a_refusal_and_a_token_limit_are_told(shared: Link, text: str) -> None:
    """STOP-1, STOP-2, STATE-3: the work ends with one idle and a v2 stop reason."""
    for reason in ("refusal", "max_tokens"):
        shared.rig.answer(f"{text} {reason}", Answer((Text("Half of"),), stop_reason=reason))
        session = await shared.new()
        await shared.turn(session, f"{text} {reason}")
        assert shared.states(session)[0] == "running"
        assert shared.states(session)[-1] in ("idle:end_turn", f"idle:{reason}")
        assert len(shared.states(session)) == 2


async def test_cancelling_streaming_work(shared: Link, text: str) -> None:
    """CANCEL-1, CANCEL-2, CANCEL-6, CANCEL-10, STOP-1: one idle: cancelled after all of its output; idle ones ignore it."""
    session = await shared.new()
    gate = shared.rig.hold_model(text)
    call = await shared.prompt(session, text, "cancelled-work-key")
    message_id = await call.message_id()
    await gate.wait_arrival()
    await shared.client.cancel(session)
    await shared.client.wait_state(session, "idle", since=call.mark)
    mark = shared.client.record.mark
    gate.release()
    for _ in range(2):
        await shared.client.cancel(session)
    await shared.client.cancel("no-such-session")  # ERR-6
    assert await (await shared.prompt(session, text, "cancelled-work-key")).message_id() == message_id
    assert list(shared.client.updates(session, mark)) == []
    await shared.turn(session, f"After {text}")
    assert shared.states(session) == ["running", "idle:cancelled", "running", "idle:end_turn"]


async def test_cancelling_a_running_tool_and_prompting_again_at_once(shared: Link, text: str) -> None:
    """CANCEL-5, CANCEL-9, PROMPT-18, STOP-4: the next prompt inherits nothing of the cancelled turn."""
    session = await shared.new()
    tool = shared.rig.tool(text)
    call = await shared.prompt(session, text)
    await tool.started()
    await shared.tool_shown(session)
    await shared.client.cancel(session)
    after = await shared.prompt(session, f"After {text}", "after-the-cancel")
    await after.message_id()
    await shared.client.wait_update(session, lambda u: u.get("stopReason") == "end_turn", since=call.mark)
    tool.release()
    assert shared.states(session) == ["running", "idle:cancelled", "running", "idle:end_turn"]
    [item] = shared.client.view(session).items("tool_call")
    assert item.fields["status"] == "cancelled"
    assert shared.rig.model.calls(f"After {text}") == 1


async def test_a_cancel_right_after_the_prompt(shared: Link, text: str) -> None:
    """CANCEL-4, PROMPT-23, ERR-5: -32800 and nothing stored, or success and idle: cancelled."""
    session = await shared.new()
    await shared.turn(session, f"{text} start")
    for number in range(3):
        call = await shared.prompt(session, f"{text} {number}", f"cancel-at-once-{number}")
        await shared.client.cancel(session)
        message_id = await id_or_none(call, -32800)
        if message_id is None:
            assert f"{text} {number}" not in [message.text for message in shared.rig.stored(session)]
        else:
            await shared.client.wait_state(session, "idle", since=call.mark)
            assert shared.rig.stored_ids(session)[-1] == message_id
    await shared.turn(session, f"{text} end")
    shown = shared.client.view(session).user_message_ids()
    assert shown == shared.rig.stored_ids(session)


async def test_output_is_shown_once_and_in_order(shared: Link, text: str) -> None:
    """UPD-2, UPD-3, STATE-2, PROMPT-4: many deltas, two text blocks, a tool between; nothing after idle."""
    long = "".join(f"word{number} " for number in range(200))
    shared.rig.answer(text, Answer((Text(long), Shell("echo between"))), say("The end."))
    session = await shared.new()
    call = await shared.prompt(session, text)
    await call.message_id()
    await shared.client.wait_state(session, "idle", since=call.mark)
    mark = shared.client.record.mark
    timeline = [(item.kind, item.text) for item in shared.client.view(session).items()]
    assert timeline == [("user", text), ("agent", long), ("tool_call", ""), ("agent", "The end.")]
    await shared.client.list()
    assert list(shared.client.updates(session, mark)) == []


async def test_big_and_odd_text_goes_through_unharmed(shared: Link, text: str) -> None:
    """STDIO-1, STDIO-5, PROMPT-20: a megabyte, U+2028, lone surrogates, NUL, in prompt and answer."""
    half = "" if shared.rig.deviates(Deviation.NO_HALF_PAIRS) else "\ud800"
    odd = f"\u2028\u0085 {half} \U0001f600 \u0000 \r\n tab\t end"
    shared.rig.answer(f"{text} odd", Answer((Text(odd.replace("\ud800", "")),)))
    session = await shared.new()
    big = f"{text} big ".ljust(shared.rig.runtime.most_text, "x")
    first = await shared.turn(session, big, "a-megabyte-of-text")
    assert await (await shared.prompt(session, big, "a-megabyte-of-text")).message_id() == first
    second = await shared.turn(session, f"{text} {odd}", "odd-characters-key")
    third = await shared.turn(session, f"{text} odd")
    assert shared.client.view(session).items("agent")[-1].text == odd.replace("\ud800", "")
    assert shared.rig.stored_ids(session) == [first, second, third]
    assert shared.client.view(session).user_message_ids() == [first, second, third]
    if shared.rig.deviates(Deviation.SHORT_TEXT):
        call = await shared.prompt(session, f"{big}x", "a-character-too-many")
        assert (await shared.error(call)).code == -32602
    if shared.rig.deviates(Deviation.NO_HALF_PAIRS):
        call = await shared.prompt(session, f"{text} \ud800", "half-a-pair-of-surrogates")
        assert (await shared.error(call)).code == -32602
    assert shared.rig.stored_ids(session) == [first, second, third]
