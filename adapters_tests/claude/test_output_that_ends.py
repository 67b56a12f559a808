"""Reported faults that only a fake Claude Code can show: it closes its output, goes silent, or leaves with a last word."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.acp.schema import AgentMessageChunk
from adapters.claude import session as driver
from adapters.core.port import Output, ReadyChanged, WorkEnded
from adapters_tests.claude.driving import A, B, Fake, Rig, Sink, entry, rig, text

pytestmark = pytest.mark.anyio


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def streaming(one: Rig) -> tuple[driver.ClaudeSession, Fake, Sink]:
    """A session whose work has streamed some text."""
    session, fake, sink = await one.working()
    events = (
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "The whole answer."}},
    )
    await fake.say(*({"type": "stream_event", "event": event} for event in events))
    await sink.until(Output)
    assert any(isinstance(event.update, AgentMessageChunk) for event in sink.of(Output))
    return session, fake, sink


async def next_prompt_runs(one: Rig, session: driver.ClaudeSession, sink: Sink) -> None:
    """The session lives on: another process takes the next prompt; the stored one is known."""
    with anyio.fail_after(15):
        while not session.ready:
            await sink.changed()
    assert await session.is_recorded(A)
    await session.submit(B, text())
    fake = await one.fake(2)
    assert fake.resumed
    assert (await fake.hears("user"))["uuid"] == B


async def test_output_that_is_closed_in_mid_turn_ends_the_work_at_once(one: Rig) -> None:
    """F17: although the process itself lives on; no spinner for ever."""
    session, fake, sink = await streaming(one)
    await fake.order(close=True)
    ended = await sink.until(WorkEnded)
    assert ended.stop_reason == "error"
    await next_prompt_runs(one, session, sink)


async def test_silence_is_no_end(one: Rig) -> None:
    """F17: the model may think for long; as long as the process lives, its work goes on, however often it is looked after."""
    one.bound(silence=0.02)
    _, fake, sink = await streaming(one)
    # Some twenty rounds. Nothing can be awaited: nobody looks after a stored prompt, and any word would end the silence.
    await anyio.sleep(0.5)
    assert sink.of(WorkEnded) == []
    await fake.result(A)
    assert (await sink.until(WorkEnded)).stop_reason == "end_turn"


async def test_a_runtime_that_leaves_at_its_limit_is_replaced_for_the_next_prompt(one: Rig) -> None:
    """F34: it says why and exits with 143; later prompts do not vanish."""
    session, fake, sink = await streaming(one)
    await fake.order(err="Claude usage limit reached. Your limit will reset at 3pm.\n")
    await fake.exit(143)
    ended = await sink.until(WorkEnded)
    assert ended.stop_reason == "error"
    assert "usage limit reached" in ended.error["message"]
    assert ended.error["data"]["exitCode"] == 143
    json.dumps(ended.error)
    await next_prompt_runs(one, session, sink)


async def test_a_runtime_that_leaves_between_two_prompts_costs_nothing(one: Rig) -> None:
    """F34: the next prompt starts another."""
    session, fake, sink = await streaming(one)
    await fake.result(A)
    await sink.until(WorkEnded)
    before = len(sink.of(ReadyChanged))
    await fake.exit(143)
    await sink.until(ReadyChanged, before + 1)  # its end is noticed
    await next_prompt_runs(one, session, sink)


async def test_a_long_history_gets_the_time_that_its_reading_takes(tmp_path: Path) -> None:
    """F26, RESUME-7: the bound of a start grows with the stored session; 250 MB on a busy machine are no failure."""

    def slow(fake: Fake) -> None:
        fake.initialize = False

    async with rig(tmp_path, slow) as one:
        stored = "aaaaaaaa-0000-4000-8000-00000000000c"
        one.store(stored, entry(A, "x" * 100_000))
        one.bound(initialize=0.1, history_per_second=1_000)  # some hundred seconds more for this file
        session = await one.runtime.open_session(stored, one.setup(), Sink())
        fake = await one.fake()
        request = await fake.hears("initialize")
        shown = [update async for update in session.replay()]
        assert [update.session_update for update in shown] == ["user_message"], "history waits for no process (F26)"
        with pytest.raises(InternalError, match="did not start"):  # it began later: the bound without history is over
            await one.runtime.new_session(one.setup(), Sink())
        assert not session.ready
        await fake.answers(request, commands=[])
        await session.started()
        assert session.ready
