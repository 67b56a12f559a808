"""Faults that users of other agents have reported, at their sharpest: a thousand times, in one tick, two hundred at once."""

from __future__ import annotations

import random

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.core import port
from adapters_tests.core.rig import CWD, outcome, rig
from adapters_tests.core.test_lifecycle import states

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("order", ["prompt first", "end first"])
async def test_a_prompt_in_the_tick_in_which_a_turn_ends(order: str) -> None:
    """F4, PROMPT-16, STATE-2: exactly one new turn, one running, one idle; the client can await it."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        first = await client.prompt(session_id, "first")
        await runtime.until(lambda: len(runtime.submitted) == 1)
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        await first.message_id()
        if order == "end first":
            runtime.end()
        second = await client.prompt(session_id, "second", key="the-second-key")
        if order == "prompt first":
            runtime.end()
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.take(runtime.submitted[1][0])
        runtime.insert(runtime.submitted[1][0])
        runtime.end()
        assert await second.message_id() == runtime.submitted[1][0]
        await client.wait_state(session_id, "idle")
        await client.list()
        assert states(client, session_id)[-4:] == [("running", None), ("idle", "end_turn")] * 2
        assert len(runtime.submitted) == 2


async def test_a_thousand_prompts_around_the_ends_of_turns() -> None:
    """F8, PROMPT-16, KEY-10: never refused as busy, never lost, in order; the ends come at any distance from the prompts."""
    dice = random.Random(8)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)

        async def work() -> None:
            done = 0
            while True:
                await runtime.until(lambda: len(runtime.submitted) > done, 20)  # noqa: B023 - awaited here
                message_id = runtime.submitted[done][0]
                for step in (runtime.take, runtime.insert):
                    step(message_id)
                    await pause()
                runtime.end()
                await pause()
                done += 1

        async def pause() -> None:
            for _ in range(dice.randrange(8)):
                await anyio.lowlevel.checkpoint()

        calls = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            for number in range(1000):
                calls.append(await client.prompt(session_id, f"p{number}", key=f"race-{number}"))
                await pause()
            ids = [await call.message_id() for call in calls]
            tasks.cancel_scope.cancel()
        assert ids == runtime.stored.user_ids()
        assert len(set(ids)) == 1000
        r.clients.clear()  # judging 5000 messages by the schema would take longer than all the rest
        assert [prompt[0].text for _, prompt in runtime.submitted] == [f"p{number}" for number in range(1000)]


async def test_two_hundred_sessions_opened_and_closed_at_random_moments(capsys: pytest.CaptureFixture[str]) -> None:
    """F37, CLOSE-2, RCAN-2, RPC-6: each request is answered once, nothing hangs, no task is ended from another one."""
    dice = random.Random(37)
    async with rig(automatic=True) as r:
        client = await r.connect()

        async def pause() -> None:
            for _ in range(dice.randrange(20)):
                await anyio.lowlevel.checkpoint()

        async def one(number: int) -> None:
            call = await client.request("session/new", {"cwd": CWD})
            await pause()
            if number % 3 == 0:
                await client.cancel_request(call.request_id)
            made = await outcome(call.result())
            if isinstance(made, AcpError):
                assert made.code == -32800
                return
            session_id = made["sessionId"]
            prompt = await client.prompt(session_id, "hi", key="the same everywhere")
            await pause()
            close = await client.request("session/close", {"sessionId": session_id})
            await pause()
            if number % 2:
                await client.cancel_request(close.request_id)
            resume = await client.request("session/resume", {"sessionId": session_id, "cwd": CWD})
            for request in (prompt, close, resume):
                answer = await outcome(request.result())
                assert not isinstance(answer, AcpError) or answer.code in {-32800, -32002}
            await client.close(session_id)

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
        await client.list()
        assert all(session.closed for session in r.runtime.sessions.values())
        r.clients.clear()  # as above
        assert r.server.agent._sessions == {}
        assert r.server.agent._members == {}
        assert r.server.agent._resuming == {}
    assert capsys.readouterr().err == ""


async def test_a_fresh_key_is_a_fresh_prompt_whatever_it_says() -> None:
    """F1, KEY-2, KEY-40: equal text under another key, or none, is never taken for a retry."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        ids = [
            await (await client.prompt(session_id, "again", key=key)).message_id()
            for key in ("a", "b", "a", None, None)
        ]
        assert ids[2] == ids[0]
        assert len(set(ids)) == 4
        assert len(runtime.submitted) == 4


async def test_nothing_is_asked_of_a_runtime_that_asks_after_its_work_was_stopped() -> None:
    """F19, CANCEL-6, PERM-2: a stopped turn whose permission requests fail one by one; each is refused at once, none is shown."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        await client.cancel(session_id)
        await runtime.until(lambda: runtime.interrupts == 1)
        options = [port.PermissionOption("yes", "Allow", "allow_once")]
        for number in range(20):
            runtime.deliver(port.PermissionRequested(f"q{number}", "May I?", options))
        await runtime.until(lambda: len(runtime.answers) == 20)
        assert {option for _, option in runtime.answers} == {None}
        runtime.end("error", interrupted=True)
        await client.wait_state(session_id, "idle")
        assert not [m for m in client.record.since(0, sent=False) if m.method == "session/request_permission"]
