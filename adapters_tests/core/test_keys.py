"""The seven traces and the edge cases of the key, on the core with the scripted runtime; counted from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, AuthRequired, InternalError
from adapters.client.calls import PromptCall
from adapters.client.record import ConnectionLostError
from adapters.core.memory_runtime import Store
from adapters.core.port import PromptLiveOnly, ReadyChanged
from adapters.core.submissions import derived_id
from adapters_tests.core.rig import CWD, outcome, rig

pytestmark = pytest.mark.anyio


def text(blocks: Sequence[Any]) -> str:
    return blocks[0].text


async def failure(call: PromptCall, *, inserted: bool | None = False) -> AcpError:
    error = await outcome(call.message_id())
    assert isinstance(error, AcpError), error
    assert isinstance(error.data, dict)
    assert error.data["inserted"] is inserted
    return error


@pytest.mark.parametrize("pair", ["memory", "pipes"])
async def test_trace_1_retry_on_the_same_connection(pair: str) -> None:
    """Trace 1, KEY-12, KEY-13, KEY-15: one submission, one user message, one idle; the answer is the id and nothing else."""
    async with rig(automatic=True, pair=pair) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        first = await client.prompt(session_id, "hello", key="K")
        message_id = await first.message_id()
        assert message_id == derived_id(session_id, "K")
        await client.wait_state(session_id, "idle", 0)
        mark = client.record.mark
        second = await client.prompt(session_id, "hello", key="K")
        assert await second.result() == {"messageId": message_id}
        assert [m for m in client.record.since(mark, sent=False) if m.method] == []
        assert len(runtime.submitted) == 1
        assert client.view(session_id).user_message_ids() == [message_id]
        assert runtime.lookups <= 2


async def test_trace_2_resume_on_a_new_connection_while_running_and_idle() -> None:
    """Trace 2, KEY-41, RESUME-4: the state snapshot comes before the response; no second work."""
    async with rig() as r:
        first = await r.connect()
        session_id, runtime = await r.session(first)
        call = await first.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        message_id = runtime.submitted[0][0]
        runtime.take(message_id)
        runtime.insert(message_id)
        assert await call.message_id() == message_id
        second = await r.connect()
        await second.resume(session_id, CWD, replay=True)
        assert second.view(session_id).state == "running"
        assert second.view(session_id).user_message_ids() == [message_id]
        again = await second.prompt(session_id, "hello", key="K", request_id=1000)
        assert await again.message_id() == message_id
        runtime.end()
        await second.wait_state(session_id, "idle", 0)
        again = await second.prompt(session_id, "hello", key="K")
        assert await again.message_id() == message_id
        assert len(runtime.submitted) == 1


@pytest.mark.parametrize("replay", [True, False])
async def test_trace_3_after_a_restart(replay: bool) -> None:
    """Trace 3, KEY-42, E10: the stored session is the record."""
    store = Store()
    async with rig(store) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        message_id, blocks = runtime.submitted[0]
        runtime.stored.messages.append(("user", message_id, blocks))  # and the process dies before it tells anybody
    async with rig(store) as r:
        client = await r.connect()
        await client.resume(session_id, CWD, replay=replay)
        assert await (await client.prompt(session_id, "hello", key="K")).message_id() == message_id
        assert client.view(session_id).user_message_ids() == ([message_id] if replay else [])
        assert r.runtime.sessions[session_id].submitted == []
    assert store.sessions[session_id].user_ids() == [message_id]


async def test_trace_4_while_held() -> None:
    """Trace 4, E1, E36, E44, PROMPT-19: 100 attempts share one queue place and one outcome; nothing is shown before."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.held = True
        calls = [await client.prompt(session_id, "hello", key="K") for _ in range(100)]
        await client.list()
        assert not any(call.done for call in calls)
        assert client.view(session_id).user_message_ids() == []
        runtime.held = False
        runtime.deliver(ReadyChanged())
        await runtime.until(lambda: bool(runtime.submitted))
        assert not any(call.done for call in calls)
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        ids = {await call.message_id() for call in calls}
        assert ids == {derived_id(session_id, "K")}
        assert len(runtime.submitted) == 1


@pytest.mark.parametrize("error", [AuthRequired(), InternalError("no"), None])
async def test_trace_5_after_an_error(error: AcpError | None) -> None:
    """Trace 5, KEY-14, KEY-21, E33, E35: every attempt gets the error, then the key is unused."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        first = await client.prompt(session_id, "hello", key="K")
        second = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.fail(runtime.submitted[0][0], error)
        code = -32800 if error is None else error.code
        assert [(await failure(call)).code for call in (first, second)] == [code, code]
        third = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.insert(runtime.submitted[1][0])
        assert await third.message_id() == derived_id(session_id, "K")


async def test_trace_6_the_same_key_in_another_session() -> None:
    """Trace 6, KEY-40, KEY-32, E23: also when the other session holds a copy of the message."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        one, _ = await r.session(client)
        two, other = await r.session(client)
        first = await (await client.prompt(one, "hello", key="K")).message_id()
        other.stored.messages.extend(r.runtime.sessions[one].stored.messages)
        second = await (await client.prompt(two, "hello", key="K")).message_id()
        assert first != second
        assert len(other.submitted) == 1


async def test_trace_7_inserted_during_active_work() -> None:
    """Trace 7, PROMPT-16, STATE-4, E22: steered into a running turn; one idle; known afterwards and after a restart."""
    store = Store()
    async with rig(store) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        await client.prompt(session_id, "first", key="K1")
        await runtime.until(lambda: len(runtime.submitted) == 1)
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        steered = await client.prompt(session_id, "second", key="K2")
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.insert(runtime.submitted[1][0])
        message_id = await steered.message_id()
        assert await (await client.prompt(session_id, "second", key="K2")).message_id() == message_id
        runtime.end()
        await client.wait_state(session_id, "idle", 0)
        states = [u["state"] for u in client.updates(session_id) if u["sessionUpdate"] == "state_update"]
        assert states == ["running", "idle"]
    async with rig(store) as r:
        client = await r.connect()
        await client.resume(session_id, CWD)
        assert await (await client.prompt(session_id, "second", key="K2")).message_id() == message_id
        assert r.runtime.sessions[session_id].submitted == []


async def test_two_connections_share_a_pending_prompt_even_with_equal_request_ids() -> None:
    """E2, KEY-17, RCAN-4."""
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        await two.resume(session_id, CWD)
        first = await one.prompt(session_id, "hello", key="K", request_id=77)
        second = await two.prompt(session_id, "hello", key="K", request_id=77)
        await runtime.until(lambda: bool(runtime.submitted))
        await two.list()
        runtime.insert(runtime.submitted[0][0])
        assert await first.message_id() == await second.message_id()
        assert len(runtime.submitted) == 1


async def test_a_prompt_stays_when_its_connection_ends_and_another_waits() -> None:
    """E3, E4, E11, STDIO-13: the policy is keep."""
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        await two.resume(session_id, CWD)
        lost = await one.prompt(session_id, "hello", key="K")
        second = await two.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        await one._transport.aclose()
        assert isinstance(await outcome(lost.message_id()), ConnectionLostError)
        runtime.insert(runtime.submitted[0][0])
        assert await second.message_id() == derived_id(session_id, "K")
        third = await r.connect()
        await third.resume(session_id, CWD)
        assert await (await third.prompt(session_id, "hello", key="K")).message_id() == derived_id(session_id, "K")
        assert len(runtime.submitted) == 1


@pytest.mark.parametrize("named", [0, 1])
async def test_cancel_request_of_any_attempt_withdraws_a_held_prompt(named: int) -> None:
    """KEY-18, E5, E6, RCAN-5, PROMPT-17: both -32800, the runtime never sees it, and the retry inserts."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.held = True
        calls = [await client.prompt(session_id, "hello", key="K") for _ in range(2)]
        await client.list()
        await client.cancel_request(calls[named].request_id)
        errors = [await failure(call) for call in calls]
        assert [error.code for error in errors] == [-32800, -32800]
        assert [error.data["requestId"] for error in errors] == [call.request_id for call in calls]
        assert runtime.submitted == []
        runtime.held = False
        retry = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.insert(runtime.submitted[0][0])
        assert await retry.message_id() == derived_id(session_id, "K")


async def test_cancel_request_that_loses_against_the_insertion_tells_the_truth() -> None:
    """E7, KEY-19, PROMPT-23: no answer before the fate is known; inserted means success and the work goes on."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        await client.cancel_request(call.request_id)
        await runtime.until(lambda: runtime.withdrawals == [runtime.submitted[0][0]])
        late = await client.prompt(session_id, "hello", key="K")
        await client.list()
        assert not call.done
        assert not late.done
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        assert await call.message_id() == await late.message_id() == derived_id(session_id, "K")
        assert runtime.interrupts == 0


async def test_an_attempt_after_the_withdrawal_is_new_once_it_is_confirmed() -> None:
    """E8, E52: it joins no doomed prompt."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        await client.cancel_request(call.request_id)
        await runtime.until(lambda: bool(runtime.withdrawals))
        late = await client.prompt(session_id, "hello", key="K")
        await client.list()
        runtime.fail(runtime.submitted[0][0])
        assert (await failure(call)).code == -32800
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.insert(runtime.submitted[1][0])
        assert await late.message_id() == derived_id(session_id, "K")


async def test_a_cancel_during_the_look_up_waits_for_its_result() -> None:
    """D5, ADP-7: recorded, so it succeeds; other attempts join meanwhile."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        message_id = await (await client.prompt(session_id, "hello", key="K")).message_id()
    async with rig(store) as r:
        client = await r.connect()
        await client.resume(session_id, CWD)
        runtime = r.runtime.sessions[session_id]
        r.runtime.lookup_gate = anyio.Event()
        calls = [await client.prompt(session_id, "hello", key="K") for _ in range(2)]
        await runtime.until(lambda: runtime.lookups == 1)
        await client.cancel_request(calls[0].request_id)
        await client.list()
        assert not any(call.done for call in calls)
        r.runtime.lookup_gate.set()
        assert [await call.message_id() for call in calls] == [message_id, message_id]


async def test_a_failed_look_up_is_an_error_and_never_unused() -> None:
    """ADP-6, E43, ERR-5: and it does not claim that the message is not there, which an earlier attempt may have inserted."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        r.runtime.lookup_error = "the store cannot be read"
        first = await client.prompt(session_id, "hello", key="K")
        assert (await failure(first, inserted=None)).code == -32603
        assert runtime.submitted == []
        r.runtime.lookup_error = None
        second = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.insert(runtime.submitted[0][0])
        assert await second.message_id()


async def test_another_writer_is_seen_before_each_hand_over() -> None:
    """D4, ADP-14: stored by somebody else while the prompt was held."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.held = True
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: runtime.lookups >= 1)
        runtime.stored.messages.append(("user", derived_id(session_id, "K"), []))
        runtime.held = False
        runtime.deliver(ReadyChanged())
        assert await call.message_id() == derived_id(session_id, "K")
        assert runtime.submitted == []


@pytest.mark.parametrize(
    "key", ["", "k" * 256, 7, True, [], {}, 1.5, "\U0001f600" * 256], ids=lambda key: type(key).__name__
)
async def test_an_invalid_key_is_refused_before_any_side_effect(key: Any) -> None:
    """KEY-4, KEY-8, E15, E41."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        for target in (session_id, "unknown"):
            assert (await failure(await client.prompt(target, "hello", key=key))).code == -32602
        assert runtime.submitted == []
        assert runtime.lookups == 0


@pytest.mark.parametrize("key", ["k", "k" * 255, "\U0001f600" * 255, " ", "\0", "\n", "\u00e9", "e\u0301", "K"])
async def test_valid_keys_are_opaque(key: str) -> None:
    """KEY-3, KEY-5, E15, E17, E18, E19."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        ids = [
            await (await client.prompt(session_id, "hi", key=k)).message_id()
            for k in (key, key + "x"[: 255 - len(key)], key)
        ]
        assert ids[0] == ids[2] == derived_id(session_id, key)
        assert len(runtime.submitted) == len(set(ids))


async def test_null_is_no_key() -> None:
    """KEY-2, E39."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        ids: set[str] = set()
        for _ in range(2):
            params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}], "idempotencyKey": None}
            ids.add((await (await client.request("session/prompt", params)).result())["messageId"])
        assert len(ids) == 2
        assert len(runtime.submitted) == 2


async def test_a_lone_surrogate_key_is_refused() -> None:
    """E16."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "x"}], "idempotencyKey": "\ud800"}
        message = {"jsonrpc": "2.0", "id": 900, "method": "session/prompt", "params": params}
        line = json.dumps(message)
        error = await outcome((await client.send_line(line.encode(), expecting=900)).result())
        assert isinstance(error, AcpError)
        assert error.code in {-32602, -32700}
        assert runtime.submitted == []


async def test_live_only_commands_are_known_while_the_session_is_active() -> None:
    """E29, E31, E32, CMD-4, KEY-43: run once, same id, no output again; the lifecycle is whole."""
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        await two.resume(session_id, CWD)
        message_id = await (await one.prompt(session_id, "/status", key="K")).message_id()
        kinds = [(u["sessionUpdate"], u.get("state")) for u in one.updates(session_id)]
        assert kinds == [
            ("state_update", "running"),
            ("user_message", None),
            ("agent_message", None),
            ("state_update", "idle"),
        ]
        await one._transport.aclose()
        mark = two.record.mark
        assert await (await two.prompt(session_id, "/status", key="K")).message_id() == message_id
        assert list(two.updates(session_id, mark)) == []
        assert runtime.submitted == []
        assert message_id != derived_id(session_id, "K")


async def test_a_prompt_that_the_runtime_never_stores_has_an_id_of_its_own_each_time() -> None:
    """KEY-43, E30, PROMPT-5: known while the session is active; forgotten with it, it is another submission."""
    async with rig() as r:
        client = await r.connect()
        ids: list[str] = []
        session_id, runtime = await r.session(client)
        for _ in range(2):
            call = await client.prompt(session_id, "/compact", key="K")
            await runtime.until(lambda runtime=runtime: bool(runtime.submitted))
            runtime.deliver(PromptLiveOnly(runtime.submitted[0][0], by_design=True))
            ids.append(await call.message_id())
            assert await (await client.prompt(session_id, "/compact", key="K")).message_id() == ids[-1]
            assert len(runtime.submitted) == 1
            await client.close(session_id)
            await client.resume(session_id, CWD)
            runtime = r.runtime.sessions[session_id]
        assert len({*ids, derived_id(session_id, "K")}) == 3


@pytest.mark.parametrize(("first", "second"), [("/status", "hello"), ("hello", "/status")])
async def test_a_prompt_behind_a_withdrawn_one_is_what_it_is_itself(first: str, second: str) -> None:
    """E8, E38: a command answered here and a prompt for the runtime under one key, in either order."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        r.runtime.lookup_gate = anyio.Event()
        withdrawn = await client.prompt(session_id, first, key="K")
        await runtime.until(lambda: runtime.lookups == 1)
        await client.cancel_request(withdrawn.request_id)
        call = await client.prompt(session_id, second, key="K")
        await client.list()
        r.runtime.lookup_gate.set()
        assert (await failure(withdrawn)).code == -32800
        message_id = await call.message_id()
        sent = [text(blocks) for _, blocks in runtime.submitted]
        assert (sent, message_id == derived_id(session_id, "K")) == (
            ([second], True) if second == "hello" else ([], False)
        )


async def test_keys_never_appear_in_what_the_agent_says() -> None:
    """KEY-30, KEY-31."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        await (await client.prompt(session_id, "hi", key="SECRET-KEY-1")).message_id()
        await outcome((await client.prompt(session_id, [], key="SECRET-KEY-1")).message_id())
        await outcome((await client.prompt("nope", "hi", key="SECRET-KEY-1")).message_id())
        await client.list()
        said = [str(message.value) for message in client.record.since(0, sent=False)]
        assert not any("SECRET-KEY-1" in text for text in said)


async def test_an_empty_or_unsupported_prompt_leaves_the_key_unused() -> None:
    """E40, PROMPT-13, PROMPT-14."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        for prompt in ([], [image], [{"type": "text", "text": "x"}, {"type": "_mine"}], [{"type": "text"}]):
            assert (await failure(await client.prompt(session_id, prompt, key="K"))).code == -32602
        assert runtime.submitted == []
        assert await (await client.prompt(session_id, "hi", key="K")).message_id()


async def test_a_different_prompt_under_the_same_key_is_a_retry() -> None:
    """KEY-16, E37, E38."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        first = await client.prompt(session_id, "one", key="K")
        second = await client.prompt(session_id, "two", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.insert(runtime.submitted[0][0])
        assert await first.message_id() == await second.message_id()
        third = await client.prompt(session_id, "three", key="K")
        assert await third.message_id() == await first.message_id()
        assert [text(blocks) for _, blocks in runtime.submitted] == ["one"]


async def test_inserted_then_failed_is_recorded_and_not_run_again() -> None:
    """E34, KEY-22, PROMPT-10."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        runtime.end("error", error={"code": -32603, "message": "the model failed"})
        idle = await client.wait_state(session_id, "idle", 0)
        assert idle["stopReason"] == "error"
        assert idle["error"]["message"] == "the model failed"
        assert await (await client.prompt(session_id, "hello", key="K")).message_id() == await call.message_id()
        assert len(runtime.submitted) == 1


async def test_what_was_shown_and_then_lost_is_taken_back() -> None:
    """D2: the runtime took it, died, and the store lacks it."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.take(runtime.submitted[0][0])
        runtime.fail(runtime.submitted[0][0], InternalError("The runtime ended."))
        runtime.end("error", error={"code": -32603, "message": "The runtime ended."})
        assert (await failure(call)).code == -32603
        await client.wait_state(session_id, "idle", 0)
        shown = [u["content"] for u in client.updates(session_id) if u["sessionUpdate"] == "user_message"]
        assert shown == [[{"type": "text", "text": "hello"}], []]


async def test_a_message_the_store_refused_is_known_while_the_session_is_active() -> None:
    """KEY-43, D2: live-only, with a notice."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.take(runtime.submitted[0][0])
        runtime.deliver(PromptLiveOnly(runtime.submitted[0][0]))
        message_id = await call.message_id()
        await client.wait_update(session_id, lambda u: u["sessionUpdate"] == "notice")
        assert await (await client.prompt(session_id, "hello", key="K")).message_id() == message_id
        assert len(runtime.submitted) == 1


async def test_prompts_are_handed_over_in_order_one_at_a_time() -> None:
    """D3, PROMPT-16, ADP-7: the next goes in when the one before is inserted; look-ups keep the order."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        calls = [await client.prompt(session_id, f"p{n}", key=f"K{n}" if n % 2 else None) for n in range(5)]
        for n in range(5):
            await runtime.until(lambda n=n: len(runtime.submitted) == n + 1)
            await client.list()
            assert len(runtime.submitted) == n + 1
            runtime.take(runtime.submitted[n][0])
            runtime.insert(runtime.submitted[n][0])
            await calls[n].message_id()
        assert [text(blocks) for _, blocks in runtime.submitted] == [f"p{n}" for n in range(5)]
        ids = [await call.message_id() for call in calls]
        assert client.view(session_id).user_message_ids() == ids
