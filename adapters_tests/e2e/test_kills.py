"""SIGKILL at many moments: of the agent, of the runtime, of both. What was answered stays; what is sent again comes once."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.client.calls import PromptCall
from adapters.client.record import ConnectionLostError
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import Deviation

pytestmark = pytest.mark.anyio

BOUNDARY_MS = (0, 3, 8, 16, 30, 45, 60, 80, 95, 105, 120, 140, 170, 200, 225, 250)
"""Milliseconds after the request: the runtime takes it in after 3..40, asks the model after 30..55, stores after 100..170."""


async def outcome(call: PromptCall) -> str | None:
    """The message id; None when the answer was lost or said that nothing was inserted."""
    try:
        return await call.message_id()
    except (ConnectionLostError, AcpError):
        return None


async def kill_agent(link: Link, *, runtimes: bool) -> None:
    """SIGKILL the agent, and with it the runtime if asked for, in one go; return when they are gone."""
    victims = link.rig.runtimes() if runtimes else []
    link.process.kill()
    for victim in victims:
        victim.kill()
    await link.process.wait()
    if runtimes:
        await wait_for(lambda: not link.rig.runtimes(), 5, "the killed runtime is gone")


async def test_a_prompt_sent_again_after_a_kill_at_any_moment_is_inserted_once(rig: Rig, text: str) -> None:
    """E9, E10, KEY-11, KEY-45, ADP-15, D2: kills on one session; every answer given before a kill still holds.

    Of the agent alone, or of everything: of two moments that are close to each other one is of each.
    """
    random = Random(text)
    ids: list[str] = []
    async with rig.agent() as link:
        session = await link.new()
        ids.append(await link.turn(session, f"{text} start", "kill-start-key"))
    before: PromptCall | None = None
    for number, offset in enumerate((*BOUNDARY_MS, None)):
        async with rig.agent() as link:
            await link.resume(session, replay=True)
            if before is not None:
                ids.append(await again(link, before))
                assert link.user_messages(session) == ids == rig.stored_ids(session), f"after kill {number - 1}"
            if offset is None:
                break
            before = await link.prompt(session, f"{text} {number}", f"kill-{number}-the-key")
            await anyio.sleep((offset + random.uniform(0, 2)) / 1000)
            await kill_agent(link, runtimes=number % 4 in (1, 2))
    async with rig.agent() as link:
        await link.resume(session)
        await link.turn(session, f"{text} end", "kill-end-key")
    seen = [rig.in_conversation(f"{text} {number}") for number in range(len(BOUNDARY_MS))]
    assert seen == [1] * len(BOUNDARY_MS), "every prompt is in the one conversation, once"


async def again(link: Link, before: PromptCall) -> str:
    """Send a prompt again on a successor that has resumed with replay; check it against what was answered before."""
    session, prompt = before.session_id, before.params["prompt"]
    first = await outcome(before)
    if first is not None:
        assert link.client.view(session).user_message_ids()[-1] == first
    retry = await link.prompt(session, prompt, before.key)
    second = await retry.message_id()
    assert first in (None, second)
    await link.client.wait_state(session, "idle")
    assert link.rig.model.calls(prompt[0]["text"]) <= (1 if first else 2)
    return second


async def test_what_was_answered_survives_a_kill_of_everything_at_that_moment(rig: Rig, text: str) -> None:
    """D2, PROMPT-2, PROMPT-9, KEY-45: an answer promises that the message is stored."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} start")
    for number in range(6):
        async with rig.agent() as link:
            await link.resume(session)
            call = await link.prompt(session, f"{text} {number}", f"answered-{number}")
            message_id = await call.message_id()
            await kill_agent(link, runtimes=True)
            assert rig.stored_ids(session)[-1] == message_id
    assert len(rig.stored(session)) == 7


async def test_a_kill_at_the_answer_of_a_prompt_taken_in_mid_turn(rig: Rig, text: str) -> None:
    """D2, KEY-47, trace 7: the same promise for a prompt that joins running work."""
    tool = rig.tool(f"Tool of {text}")
    async with rig.agent() as link:
        session = await link.new()
        await link.prompt(session, f"Tool of {text}", "folded-the-tool")
        await tool.started()
        call = await link.prompt(session, text, "folded-the-key")
        tool.release()
        message_id = await call.message_id()
        await kill_agent(link, runtimes=True)
    assert rig.stored_ids(session).count(message_id) == 1
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, text, "folded-the-key")).message_id() == message_id
        await link.turn(session, f"After {text}")
    assert rig.stored_ids(session).count(message_id) == 1
    assert rig.in_conversation(text) == 1
    assert rig.model.calls(text) <= 1


@pytest.mark.parametrize("offset", [0, 20, 60, 100, 150, 250])
async def test_a_kill_of_the_runtime_alone_is_decided_by_what_it_stored(shared: Link, text: str, offset: int) -> None:
    """D7, PROMPT-23, ERR-5: success if stored, an error if not; the session lives on with the next prompt."""
    session = await shared.new()
    first = await shared.turn(session, f"{text} start", f"runtime-start-{offset}")
    shared.rig.hold_model(text)
    runtime = shared.rig.runtime_of(session)
    call = await shared.prompt(session, text, f"runtime-kill-{offset}")
    await anyio.sleep(offset / 1000)
    runtime.kill()
    message_id = await outcome(call)
    stored = shared.rig.stored_ids(session)
    shared.rig.model.gate(shared.rig.last_gate).release()
    if message_id is not None:
        assert stored == [first, message_id]
        idle = await shared.client.wait_state(session, "idle", since=call.mark)
        # Killed before it had the prompt, the runtime is replaced for it: then the work is done as if nothing had been.
        assert idle["stopReason"] in (("error", "end_turn") if offset == 0 else ("error",))
    else:
        assert stored == [first]
        assert shared.client.view(session).user_message_ids() == [first]
    retry = await shared.prompt(session, text, f"runtime-kill-{offset}")
    second = await retry.message_id()
    assert message_id in (None, second)
    if message_id is None:
        await shared.client.wait_state(session, "idle", since=retry.mark)
    after = await shared.turn(session, f"After {text}")
    assert shared.rig.stored_ids(session) == [first, second, after]
    assert shared.rig.in_conversation(text) == 1


async def test_a_runtime_killed_while_idle_is_replaced_for_the_next_prompt(shared: Link, text: str) -> None:
    """D7: the next prompt starts a new process on the session."""
    session = await shared.new()
    first = await shared.turn(session, text, "idle-kill-first")
    runtime = shared.rig.runtime_of(session)
    runtime.kill()
    await wait_for(lambda: runtime.pid not in [p.pid for p in shared.rig.runtimes()], 5, "the runtime is gone")
    assert await (await shared.prompt(session, text, "idle-kill-first")).message_id() == first
    second = await shared.turn(session, f"Second {text}", "idle-kill-second")
    assert shared.rig.stored_ids(session) == [first, second]
    assert shared.rig.in_conversation(text) == 1
    assert set(shared.states(session)) <= {"running", "idle:end_turn"}


async def test_a_held_prompt_in_a_runtime_that_dies_is_told_the_truth(shared: Link, text: str) -> None:
    """D7, PROMPT-17, PROMPT-23: a prompt that waits for a tool when the runtime is killed; then the key is unused."""
    session = await shared.new()
    tool = shared.rig.tool(f"Tool of {text}")
    work = await shared.prompt(session, f"Tool of {text}", "held-dies-the-tool")
    await tool.started()
    call = await shared.prompt(session, text, "held-dies-the-key")
    await shared.client.list()
    runtime = shared.rig.runtime_of(session)
    runtime.kill()
    tool.release()
    first = await outcome(call)
    second = await (await shared.prompt(session, text, "held-dies-the-key")).message_id()
    assert first in (None, second)
    await shared.turn(session, f"After {text}")
    assert shared.rig.stored_ids(session)[:2] == [await work.message_id(), second]
    assert shared.rig.stored_ids(session).count(second) == 1
    assert "idle:error" in shared.states(session)


async def test_an_orphan_that_still_works_is_ended_before_its_session_is_read(rig: Rig, text: str) -> None:
    """D6, ADP-15: the killed agent's runtime sits in a tool; the successor ends it, and one conversation is left."""
    tool = rig.tool(f"Tool of {text}")
    async with rig.agent() as link:
        session = await link.new()
        await link.prompt(session, f"Tool of {text}", "orphan-the-tool")
        await tool.started()
        call = await link.prompt(session, text, "orphan-the-key")
        await link.client.list()
        orphans = rig.runtimes()
        assert orphans
        link.process.kill()
        await link.process.wait()
        first = await outcome(call)
    assert first is None
    async with rig.agent() as link:
        await link.resume(session)
        second = await (await link.prompt(session, text, "orphan-the-key")).message_id()
        alive = {proc.pid for proc in rig.runtimes()}
        assert not alive & {orphan.pid for orphan in orphans}
        tool.release()
        await link.turn(session, f"After {text}")
    assert rig.stored_ids(session).count(second) == 1
    assert rig.model.calls(text) == 1
    assert rig.in_conversation(text) == 1


async def test_a_prompt_taken_in_mid_turn_retried_on_a_successor_at_once(rig: Rig, text: str) -> None:
    """E22, D6, KEY-42: the fold was answered, the agent is killed in the same turn, the retry must not run it again."""
    tool = rig.tool(f"Tool of {text}")
    gate = rig.hold_model(text)
    async with rig.agent() as link:
        session = await link.new()
        await link.prompt(session, f"Tool of {text}", "fold-the-tool")
        await tool.started()
        call = await link.prompt(session, text, "fold-the-key")
        tool.release()
        first = await call.message_id()
        await gate.wait_arrival()
        link.process.kill()
        await link.process.wait()
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, text, "fold-the-key")).message_id() == first
        gate.release()
        assert link.client.view(session).state == "idle"
        await link.turn(session, f"After {text}")
    assert rig.stored_ids(session).count(first) == 1
    assert rig.model.calls(text) == 1


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request"])
@pytest.mark.parametrize("delay", [0, 0.1, 0.3])
async def test_a_prompt_withdrawn_while_its_runtime_starts(rig: Rig, text: str, how: str, delay: float) -> None:
    """D5, D7, CANCEL-5, KEY-21: the prompts after it are served by the runtime that was starting; nothing waits for ever."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} start")
        if rig.deviates(Deviation.LOCKS_ITS_THREADS):
            killed = rig.runtime_of(session)  # nobody can write in between; a new one is needed all the same
            killed.kill()
            await wait_for(lambda: killed.pid not in [p.pid for p in rig.runtimes()], 5, "the runtime is gone")
        else:
            await link.user_turn(session, f"{text} own")  # our runtime is replaced for the next prompt
        call = await link.prompt(session, text, "withdrawn-at-a-start")
        await anyio.sleep(delay)
        if how == "session/cancel":
            await link.client.cancel(session)
        else:
            await link.client.cancel_request(call.request_id)
        first_answer = await outcome(call)
        after = await link.turn(session, f"After {text}")
        second = await (await link.prompt(session, text, "withdrawn-at-a-start")).message_id(15)
        assert first_answer in (None, second)
        stored = rig.stored_ids(session)
        assert stored[0] == first
        assert (stored.count(after), stored.count(second)) == (1, 1)
