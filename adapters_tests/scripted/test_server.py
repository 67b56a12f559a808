"""What a script makes of a call: steps, faults, gates, counting. Over real HTTP, without a runtime."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.scripted import (
    Answer,
    Drop,
    GateOpening,
    HttpFailure,
    Rule,
    Script,
    ScriptedModel,
    Shell,
    Spread,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    Usage,
    say,
    serve,
)
from adapters_tests.scripted.wire import Reply, ask, connect, conversation

pytestmark = pytest.mark.anyio


def one(**answer: Any) -> Script:
    return Script(default=(Answer((Text("hello"),), **answer),))


async def test_the_default_script_answers_anything_and_repeats_nothing() -> None:
    async with ScriptedModel() as model:
        text = (await ask(model.port, conversation("my secret"))).text
        assert text
        assert "secret" not in text
        assert "/" not in text


async def test_the_stream_is_complete_and_ids_are_unique() -> None:
    blocks = (Thinking("hm"), Text("hi"), ToolUse("Bash", {"command": "ls"}), Shell("pwd"))
    async with ScriptedModel(Script(default=(Answer(blocks, usage=Usage(7, 8, 9)),))) as model:
        replies = [await ask(model.port, conversation("p")) for _ in range(2)]
        events = replies[0].events
        assert [event["type"] for event in events if not event["type"].startswith("content_block")] == [
            "message_start",
            "message_delta",
            "message_stop",
        ]
        start = events[0]["message"]
        assert (start["model"], start["role"], start["content"]) == ("m", "assistant", [])
        assert (start["usage"]["input_tokens"], start["usage"]["cache_read_input_tokens"]) == (7, 9)
        assert (events[-2]["delta"]["stop_reason"], events[-2]["usage"]["output_tokens"]) == ("tool_use", 8)
        assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1, 2, 3]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert [delta["type"] for delta in deltas[:3]] == ["thinking_delta", "signature_delta", "text_delta"]
        assert [json.loads(delta["partial_json"]) for delta in deltas[3:]] == [{"command": "ls"}, {"command": "pwd"}]
        ids = [reply.events[0]["message"]["id"] for reply in replies]
        tools = [
            event["content_block"]["id"]
            for reply in replies
            for event in reply.events
            if event.get("content_block", {}).get("id")
        ]
        assert len({*ids, *tools}) == 2 + 4


async def test_an_answer_in_one_piece_holds_the_same() -> None:
    blocks = (Thinking("hm"), Text("ab", Spread(repeat=2)), ToolUse("Bash", {"command": "ls"}, id="t1"))
    async with ScriptedModel(Script(default=(Answer(blocks),))) as model:
        message = (await ask(model.port, conversation("p", streaming=False))).json
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
        assert message["content"][1]["text"] == "abab"
        assert message["content"][2]["id"] == "t1"
        assert message["stop_reason"] == "tool_use"
        assert not model.records[0].asked.streaming


async def test_steps_follow_the_answers_and_end_in_after_steps() -> None:
    script = Script((Rule((Answer((Shell("ls"),)), say("second")), exact="p"),), after_steps=say("beyond"))
    tool = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    messages: list[Any] = [{"role": "user", "content": "p"}]
    texts: list[str] = []
    async with ScriptedModel(script) as model:
        for _ in range(3):
            texts.append((await ask(model.port, {"stream": True, "messages": messages})).text)
            messages += [tool, result]
        assert texts == ["", "second", "beyond"]
        assert [call.step for call in model.records] == [0, 1, 2]
        assert model.calls("p") == 1
        assert model.total_calls == 3


FOLDED = "The user sent a new message while you were working:\n{}\n\nThis is how Claude Code surfaces messages the user sends."


@pytest.mark.parametrize("joins", [True, False])
async def test_a_prompt_in_a_running_turn_starts_its_own_steps_unless_it_joins(joins: bool) -> None:
    rules = (Rule((Answer((Shell("ls"),)), say("goes on")), exact="p"), Rule((say("own"),), exact="q", joins=joins))
    messages = [
        {"role": "user", "content": "p"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": FOLDED.format("q")}],
        },
    ]
    async with ScriptedModel(Script(rules)) as model:
        reply = await ask(model.port, {"stream": True, "messages": messages})
        assert reply.text == ("goes on" if joins else "own")
        assert model.calls("q") == 1
        assert (await ask(model.port, conversation("q"))).text == "own"


@pytest.mark.parametrize(
    ("spread", "count"),
    [
        (Spread(), 1),
        (Spread(repeat=500), 500),
        (Spread(deltas=3), 3),
        (Spread(delta_size=2), 4),
        (Spread(repeat=2, deltas=5), 5),
    ],
)
async def test_text_is_cut_as_told(spread: Spread, count: int) -> None:
    async with ScriptedModel(Script(default=(Answer((Text("abc\ud83dxyz", spread),)),))) as model:
        reply = await ask(model.port, conversation("p"))
        assert reply.text == "abc\ud83dxyz" * spread.repeat
        assert sum(event["type"] == "content_block_delta" for event in reply.events) == count


async def test_tool_inputs_are_cut_as_told() -> None:
    async with ScriptedModel(Script(default=(Answer((ToolUse("Bash", {"command": "ls"}, deltas=4),)),))) as model:
        reply = await ask(model.port, conversation("p"))
        parts = [event["delta"]["partial_json"] for event in reply.events if event["type"] == "content_block_delta"]
        assert len(parts) == 4
        assert json.loads("".join(parts)) == {"command": "ls"}


async def test_delays_hold_the_answer_and_every_delta() -> None:
    answer = Answer((Text("ab", Spread(delta_size=1)),), delay=0.05, delta_delay=0.05)
    async with ScriptedModel(Script(default=(answer,))) as model:
        start = time.monotonic()
        assert (await ask(model.port, conversation("p"))).text == "ab"
        assert time.monotonic() - start >= 0.15


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "authentication_error"), (429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error")],
)
async def test_an_http_failure_carries_the_usual_type(status: int, kind: str) -> None:
    async with ScriptedModel(one(failure=HttpFailure(status, message="no", retry_after=1.5))) as model:
        reply = await ask(model.port, conversation("p"))
        assert (reply.status, reply.headers["retry-after"]) == (status, "1.5")
        assert reply.json == {"type": "error", "error": {"type": kind, "message": "no"}}


async def test_a_failure_ends_after_its_times_and_retries_are_not_counted() -> None:
    async with ScriptedModel(one(failure=HttpFailure(500, times=2))) as model:
        replies = [await ask(model.port, conversation("p")) for _ in range(5)]
        assert [reply.status for reply in replies] == [500, 500, 200, 500, 500]
        assert [call.attempt for call in model.records] == [1, 2, 3, 1, 2]
        assert [call.retry for call in model.records] == [False, True, True, False, True]
        assert [call.outcome for call in model.records] == ["failed", "failed", "answered", "failed", "failed"]
        assert model.calls("p") == 2, "the fourth call had no failure before it: the model was asked again"


async def test_an_error_in_the_stream() -> None:
    async with ScriptedModel(one(stream_failure=StreamFailure("overloaded_error", "later", after_events=3))) as model:
        reply = await ask(model.port, conversation("p"))
        assert len(reply.events) == 4
        assert reply.events[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
        assert (await ask(model.port, conversation("p", streaming=False))).json["content"][0]["text"] == "hello"
        assert model.records[1].fallback


@pytest.mark.parametrize("count", [0, 1, 4])
async def test_a_stream_is_cut_after_events(count: int) -> None:
    async with ScriptedModel(one(drop=Drop(after_events=count, times=1))) as model:
        reply = await ask(model.port, conversation("p"))
        assert not reply.complete
        assert len(reply.events) == count
        assert (await ask(model.port, conversation("p"))).complete
        assert [call.outcome for call in model.records] == ["failed", "answered"]


async def test_a_stream_is_cut_after_bytes() -> None:
    async with ScriptedModel(one(drop=Drop(after_bytes=450))) as model:
        reply = await ask(model.port, conversation("p"))
        assert (reply.complete, len(reply.body)) == (False, 450)


async def test_a_cut_connection_takes_no_other_request() -> None:
    async with ScriptedModel(one(drop=Drop(after_events=0))) as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.post("/v1/messages", conversation("p"))
            await wire.head()
            assert await wire.rest() == b""


@asynccontextmanager
async def held(model: ScriptedModel, arrivals: int = 1) -> AsyncIterator[list[Reply]]:
    """A call that waits at gate "g"; leaving waits for its reply."""
    replies: list[Reply] = []

    async def run() -> None:
        replies.append(await ask(model.port, conversation("p")))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await model.gate("g").wait_arrival(arrivals, seconds=10)
        assert replies == []
        yield replies


async def test_a_gate_holds_an_answer_until_it_is_released() -> None:
    async with ScriptedModel(one(gate="g")) as model:
        async with held(model) as replies:
            assert model.records[0].outcome == "open"
            model.gate("g").release()
        assert replies[0].text == "hello"
        assert (await ask(model.port, conversation("p"))).text == "hello"
        assert model.gate("g").arrivals == 2


async def test_a_gate_between_deltas_lets_the_first_ones_through() -> None:
    script = Script(default=(Answer((Text("abcd", Spread(deltas=4, gate="g", gate_after=2)),)),))
    async with ScriptedModel(script) as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.post("/v1/messages", conversation("p"))
            await model.gate("g").wait_arrival()
            await wire.head()
            got = b""
            while b'"b"' not in got:
                got += await wire.reader.receive()
            assert b'"c"' not in got
            model.gate("g").release()
            assert b"message_stop" in await read_until(wire.reader, b"message_stop")


async def read_until(reader: Any, end: bytes) -> bytes:
    got = b""
    with anyio.fail_after(10):
        while end not in got:
            got += await reader.receive()
    return got


async def test_a_closed_gate_holds_again() -> None:
    async with ScriptedModel(one(gate="g")) as model:
        model.gate("g").release()
        await ask(model.port, conversation("p"))
        model.gate("g").close()
        async with held(model, 2):
            model.gate("g").release()


async def test_a_file_opens_a_gate(tmp_path: Path) -> None:
    file = tmp_path / "go"
    script = Script(default=(Answer((Text("x"),), gate="g"),), gates={"g": GateOpening(file=str(file))})
    async with ScriptedModel(script) as model:
        async with held(model) as replies:
            await anyio.Path(file).touch()
        assert replies[0].text == "x"


async def test_the_clock_opens_a_gate() -> None:
    script = Script(default=(Answer((Text("x"),), gate="g"),), gates={"g": GateOpening(seconds=0.05)})
    async with ScriptedModel(script) as model:
        start = time.monotonic()
        assert (await ask(model.port, conversation("p"))).text == "x"
        assert time.monotonic() - start >= 0.05


async def test_gates_and_counts_over_http() -> None:
    async with ScriptedModel(one(gate="g")) as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.send(b"GET /__gates/g HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await wire.reply()).json == {"gate": "g", "open": False, "arrivals": 0}
            await wire.post("/__gates/g", b"")
            assert (await wire.reply()).json["open"]
            await wire.post("/v1/messages", conversation("p"))
            await wire.reply()
            await wire.send(b"GET /__calls HTTP/1.1\r\nhost: x\r\n\r\n")
            counts = (await wire.reply()).json
        assert (counts["total"], counts["prompts"]) == (1, {"p": 1})
        assert counts["calls"][0]["outcome"] == "answered"


async def test_tokens_are_counted_roughly_and_are_no_model_call() -> None:
    async with ScriptedModel() as model:
        few = (await ask(model.port, conversation("p"), path="/v1/messages/count_tokens?beta=true")).json[
            "input_tokens"
        ]
        many = (await ask(model.port, conversation("p" * 400), path="/v1/messages/count_tokens")).json["input_tokens"]
        assert many - few in (99, 100)
        assert model.total_calls == 0


async def test_a_wait_is_bounded() -> None:
    async with ScriptedModel() as model:
        with pytest.raises(TimeoutError):
            await model.wait_calls(1, seconds=0.01)
        with pytest.raises(TimeoutError):
            await model.wait_prompt("p", seconds=0.01)
        with pytest.raises(TimeoutError):
            await model.wait_ended(1, seconds=0.01)
        with pytest.raises(TimeoutError):
            await model.gate("g").wait_arrival(seconds=0.01)


async def test_waits_end_when_the_call_comes() -> None:
    async with ScriptedModel() as model, anyio.create_task_group() as group:
        group.start_soon(ask, model.port, conversation("p"))
        await model.wait_prompt("p", seconds=10)
        await model.wait_calls(1, seconds=10)
        await model.wait_ended(1, seconds=10)


async def test_an_error_in_the_block_leaves_as_itself() -> None:
    with pytest.raises(KeyError):
        async with ScriptedModel():
            raise KeyError


async def test_a_taken_port_is_an_os_error() -> None:
    async with ScriptedModel() as model:
        with pytest.raises(OSError):  # noqa: PT011 - the number differs between systems
            async with ScriptedModel(port=model.port):
                pass


async def test_a_model_that_is_not_started_has_no_port() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        _ = ScriptedModel().base_url


async def test_serve_reports_its_port() -> None:
    async with anyio.create_task_group() as group:
        port = await group.start(serve, Script())
        assert (await ask(port, conversation("p"))).text
        group.cancel_scope.cancel()


async def test_bodies_are_kept_for_the_last_calls_only() -> None:
    async with ScriptedModel() as model:
        for number in range(6):
            await ask(model.port, conversation(f"p{number}"))
        assert [bool(call.body) for call in model.records] == [False, False, True, True, True, True]
