"""The client over an in-memory transport against a tiny agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError, ResourceNotFound
from adapters.client import permissions
from adapters.client.calls import MalformedAnswerError
from adapters.client.client import Client
from adapters.client.permissions import Question
from adapters.client.record import ConnectionLostError
from adapters_tests.client.fake_agent import FakeAgent, running

pytestmark = pytest.mark.anyio

OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


async def test_methods_send_their_params_and_give_their_results() -> None:
    """SETUP-10, LIST-3: an empty cursor is not the end of a list."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        assert (await client.initialize())["protocolVersion"] == 2
        session = await client.new("/w", mcpServers=[])
        assert client.view(session).commands == [{"name": "c"}]
        await client.resume(session, "/w", replay=True)
        assert [row["sessionId"] for row in await client.list("/w")] == ["a", "b"]
        await client.set_option(session, "mode", "auto")
        await client.set_option(session, "fast", value=True)
        await client.cancel(session)
        await client.close(session)
        await client.delete(session)
    sent = [(message["method"], message["params"]) for message in agent.received]
    assert sent[1:] == [
        ("session/new", {"cwd": "/w", "mcpServers": []}),
        ("session/resume", {"sessionId": "s1", "cwd": "/w", "replayFrom": {"type": "start"}}),
        ("session/list", {"cwd": "/w"}),
        ("session/list", {"cwd": "/w", "cursor": ""}),
        ("session/set_config_option", {"sessionId": "s1", "configId": "mode", "type": "id", "value": "auto"}),
        ("session/set_config_option", {"sessionId": "s1", "configId": "fast", "type": "boolean", "value": True}),
        ("session/cancel", {"sessionId": "s1"}),
        ("session/close", {"sessionId": "s1"}),
        ("session/delete", {"sessionId": "s1"}),
    ]
    ids = [message["id"] for message in agent.received if "id" in message]
    assert len(set(ids)) == len(ids)
    assert client.faults == []


async def test_a_prompt_carries_its_key_and_its_answer_can_be_awaited_twice() -> None:
    """KEY-1, PROMPT-3."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        call = await client.prompt("s1", "hello", key="k")
        assert (await call.message_id(), await call.message_id()) == ("m1", "m1")
        unkeyed = await client.prompt("s1", [{"type": "text", "text": "x"}], request_id="mine")
        assert await unkeyed.message_id() == "m2"
    assert agent.received[0]["params"] == {
        "sessionId": "s1",
        "prompt": [{"type": "text", "text": "hello"}],
        "idempotencyKey": "k",
    }
    assert "idempotencyKey" not in agent.received[1]["params"]
    assert agent.received[1]["id"] == "mine"
    assert call.answered_at is not None
    assert call.mark < call.answered_at


async def test_errors_are_raised_with_their_code_and_data() -> None:
    """ERR-1."""
    agent = FakeAgent()
    agent.errors = [ResourceNotFound("s1").to_wire(), {"code": 12345, "message": "new", "data": None}, {"code": "odd"}]
    async with running(agent) as transport, Client(transport) as client:
        codes: list[int] = []
        for _ in range(2):
            call = await client.prompt("s1", "x")
            with pytest.raises(AcpError) as caught:
                await call.message_id()
            codes.append(caught.value.code)
        assert codes == [-32002, 12345]
        odd = await client.prompt("s1", "x")
        with pytest.raises(MalformedAnswerError):
            await odd.message_id()


async def test_what_may_be_sent_again_follows_the_retry_classes() -> None:
    """The method audit: reads and repeats as they are, prompts with their key only, the rest not at all."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        calls = {name: await client.request(name) for name in ("session/list", "session/new", "initialize", "_mine")}
        keyed, unkeyed = await client.prompt("s1", "x", key="k"), await client.prompt("s1", "x")
    assert {name: call.may_resend for name, call in calls.items()} == {
        "session/list": True,
        "session/new": True,
        "initialize": False,
        "_mine": False,
    }
    assert (keyed.may_resend, unkeyed.may_resend) == (True, False)


async def test_a_lost_connection_ends_open_calls_and_waits_with_an_unknown_outcome() -> None:
    """STDIO-11: a request pending at the end of the agent has an unknown outcome, not an error."""
    agent = FakeAgent()
    agent.hold = True
    async with running(agent) as transport, Client(transport) as client:
        call = await client.prompt("s1", "x", key="k")
        await agent.wait_for(lambda message: message["method"] == "session/prompt")
        assert agent.transport is not None
        await agent.transport.aclose()
        with pytest.raises(ConnectionLostError):
            await call.message_id()
        with pytest.raises(ConnectionLostError):
            await client.wait_state("s1", "idle", since=0)
        late = await client.request("session/list")
        with pytest.raises(ConnectionLostError):
            await late.result()


async def test_what_happened_before_the_wait_counts_from_a_mark_on() -> None:
    """STATE-1, STATE-2: a wait neither misses a past update nor takes one of earlier work."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        await agent.update("s1", "state_update", state="running")
        await agent.update("s1", "state_update", state="idle", stopReason="end_turn")
        await client.wait_state("s1", "idle", since=0)
        assert (await client.wait_state("s1", "idle"))["stopReason"] == "end_turn"
        mark = client.record.mark
        with pytest.raises(TimeoutError):
            await client.wait_state("s1", "idle", since=mark, within=0.01)
        await agent.update("s1", "state_update", state="running")
        await agent.update("other", "state_update", state="idle")
        await agent.update("s1", "state_update", state="idle", stopReason="cancelled")
        assert (await client.wait_state("s1", "idle", since=mark))["stopReason"] == "cancelled"
        assert [update["state"] for update in client.updates("s1", mark)] == ["running", "idle"]
        assert client.view("s1").stop_reason == "cancelled"


async def test_the_record_holds_every_message_in_order_or_the_latest_ones() -> None:
    """STDIO-9: evidence is the order on the wire."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport, keep=3) as client:
        await client.initialize()
        await client.new("/w")
        kept = list(client.record.since(0))
        assert [message.index for message in kept] == [1, 2, 3]
        assert [message.sent for message in kept] == [False, True, False]
        assert [message.method for message in client.record.since(0, sent=True)] == ["session/new"]
        assert next(iter(client.record.since(3))).size > 10


async def test_cancelling_a_request_names_it_and_its_answer_still_comes() -> None:
    """RCAN-2."""
    agent = FakeAgent()
    agent.hold = True
    async with running(agent) as transport, Client(transport) as client:
        call = await client.prompt("s1", "x", key="k")
        await client.cancel_request(call.request_id)
        cancel = await agent.wait_for(lambda message: message["method"] == "$/cancel_request")
        assert cancel["params"] == {"requestId": call.request_id}
        assert not call.done
        await agent.send({"id": call.request_id, "error": {"code": -32800, "message": "cancelled"}})
        with pytest.raises(AcpError, match="cancelled"):
            await call.message_id()


async def test_lines_are_sent_as_they_are() -> None:
    """STDIO-6: a client that checks an agent can send anything."""
    ours, theirs = anyio.create_memory_object_stream[bytes](10), anyio.create_memory_object_stream[bytes](10)

    class Wire:
        async def receive(self) -> bytes:
            try:
                return await theirs[1].receive()
            except anyio.EndOfStream:
                return b""

        async def send(self, data: bytes) -> None:
            await ours[0].send(data)

        async def aclose(self) -> None:
            for stream in (*ours, *theirs):
                stream.close()

    async with Client(Wire()) as client:
        call = await client.send_line(b'{"id": "x"  , garbage', expecting="x")
        assert await ours[1].receive() == b'{"id": "x"  , garbage\n'
        await theirs[0].send(b'{"jsonrpc":"2.0","id":"x","result":{"a":1}}\n')
        assert await call.result() == {"a": 1}


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (permissions.reject, {"outcome": "selected", "optionId": "no"}),
        (permissions.allow, {"outcome": "selected", "optionId": "yes"}),
        (permissions.allow_always, {"outcome": "selected", "optionId": "ever"}),
    ],
)
async def test_policies_choose_among_the_options(policy: permissions.Policy, outcome: dict[str, Any]) -> None:
    """PERM-2."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport, policy=policy):
        await _ask(agent, 1)
        answer = await agent.wait_for(lambda message: message.get("id") == 1)
    assert answer["result"] == {"outcome": outcome}


async def test_nothing_offered_that_the_policy_wants_is_cancelled() -> None:
    """PERM-3."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport):
        await _ask(agent, 1, options=OPTIONS[:1])
        answer = await agent.wait_for(lambda message: message.get("id") == 1)
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}


async def test_a_policy_may_answer_nonsense_or_an_error() -> None:
    """PERM-3: what a broken client sends, for checks of an agent."""
    answers: dict[int | str, Mapping[str, Any] | AcpError] = {1: {"outcome": 7}, "2": InternalError("broken")}

    async def policy(question: Question) -> Mapping[str, Any] | AcpError:
        return answers[question.request_id]

    agent = FakeAgent()
    async with running(agent) as transport, Client(transport, policy=policy):
        await _ask(agent, 1)
        await _ask(agent, "2")
        odd = await agent.wait_for(lambda message: message.get("id") == 1)
        failed = await agent.wait_for(lambda message: message.get("id") == "2")
    assert odd["result"] == {"outcome": 7}
    assert failed["error"]["code"] == -32603


async def test_a_withdrawn_question_is_answered_cancelled_once() -> None:
    """PERM-6, RCAN-2."""
    waiting = anyio.Event()

    async def never(question: Question) -> None:
        del question
        waiting.set()
        await anyio.sleep_forever()

    agent = FakeAgent()
    async with running(agent) as transport, Client(transport, policy=never) as client:
        await _ask(agent, 5)
        await waiting.wait()
        for _ in range(2):
            await agent.send({"method": "$/cancel_request", "params": {"requestId": 5}})
        await agent.wait_for(lambda message: message.get("id") == 5)
        await client.initialize()
    answers = [message for message in agent.received if message.get("id") == 5 and "method" not in message]
    assert [answer["result"] for answer in answers] == [{"outcome": {"outcome": "cancelled"}}]


async def test_a_question_shows_its_tool_call_and_other_requests_are_refused() -> None:
    """PERM-1, ELIC-1, RPC-11."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        await _ask(agent, 1)
        await agent.send({"id": 2, "method": "elicitation/create", "params": {"mode": "form"}})
        await agent.send({"id": 3, "method": "fs/read_text_file", "params": {}})
        codes = [(await agent.wait_for(lambda m, i=i: m.get("id") == i))["error"]["code"] for i in (2, 3)]
        assert client.view("s1").items("tool_call")[0].fields["title"] == "rm"
    assert codes == [-32602, -32601]


@pytest.mark.parametrize(
    "message",
    [
        {"id": 99, "result": {}},
        {"id": [], "result": {}},
        {"method": "session/update"},
        {"method": "session/update", "params": {"sessionId": "s1"}},
        {"method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "user_message"}}},
        {"id": None, "method": "session/request_permission", "params": {}},
        {"id": 1, "method": "session/request_permission"},
        {"id": 1, "method": "session/request_permission", "params": {"options": OPTIONS}},
        {"id": 1, "method": "session/request_permission", "params": {"sessionId": "s1", "options": None}},
        {
            "id": 1,
            "method": "session/request_permission",
            "params": {"sessionId": "s1", "options": [{"optionId": "a"}]},
        },
    ],
)
async def test_what_breaks_the_protocol_is_a_fault_and_not_the_end(message: dict[str, Any]) -> None:
    """RPC-6, UPD-7."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        await client.initialize()
        await agent.send(message)
        await client.new("/w")
        assert len(client.faults) == 1


async def test_a_malformed_permission_request_is_refused() -> None:
    """PERM-1: no policy is asked, and the agent is not left waiting."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport):
        await agent.send({"id": "q", "method": "session/request_permission", "params": {"sessionId": "s1"}})
        answer = await agent.wait_for(lambda message: message.get("id") == "q")
    assert answer["error"]["code"] == -32602


async def test_a_second_answer_is_a_fault() -> None:
    """RPC-6."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        call = await client.prompt("s1", "x")
        await call.message_id()
        await agent.send({"id": call.request_id, "result": {"messageId": "other"}})
        await client.new("/w")
        assert client.faults == ["an answer to no open request"]
        assert await call.message_id() == "m1"


async def test_a_malformed_answer_fails_its_call() -> None:
    """RPC-7, PROMPT-3: `{}` and a result that is no object are not answers to a prompt."""
    agent = FakeAgent()
    agent.hold = True
    async with running(agent) as transport, Client(transport) as client:
        for result in ({}, 7, None):
            call = await client.prompt("s1", "x")
            await agent.wait_for(lambda message, i=call.request_id: message.get("id") == i)
            await agent.send({"id": call.request_id, "result": result})
            with pytest.raises(MalformedAnswerError):
                await call.message_id()


async def test_noise_on_the_wire_is_a_fault_and_the_next_message_is_read() -> None:
    """STDIO-1, STDIO-2."""
    agent = FakeAgent()
    async with running(agent) as transport, Client(transport) as client:
        await client.initialize()
        assert agent.transport is not None
        await agent.transport.send(b"Welcome back!\n\n[1]\n")
        await client.new("/w")
        assert len(client.faults) == 2


async def _ask(agent: FakeAgent, request_id: int | str, options: list[dict[str, Any]] = OPTIONS) -> None:
    call = {"toolCallId": "t", "title": "rm"}
    params = {
        "sessionId": "s1",
        "title": "Run?",
        "subject": {"type": "tool_call", "toolCall": call},
        "options": options,
    }
    await agent.send({"id": request_id, "method": "session/request_permission", "params": params})
