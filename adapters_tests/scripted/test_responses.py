"""The scripted model as a Responses API, asked over the wire: the form of answers and failures."""

import json
from typing import Any

import pytest

from adapters.scripted import (
    Answer,
    Block,
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
)
from adapters_tests.scripted.wire import Reply, ask, connect

pytestmark = pytest.mark.anyio


async def answered(answer: Answer, *, streaming: bool = True) -> Reply:
    prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    async with ScriptedModel(Script((Rule((answer,), exact="go"),))) as model:
        body = {"model": "m", "stream": streaming, "input": [prompt]}
        reply = await ask(model.port, body, path="/v1/responses")
        assert model.prompts_seen() == ["go"]
        return reply


BLOCKS: list[tuple[Block, dict[str, Any], dict[str, Any], str]] = [
    (
        Text("one two", Spread(deltas=3)),
        {"type": "message", "role": "assistant"},
        {"content": [{"type": "output_text", "text": "one two", "annotations": []}]},
        "response.output_text.delta",
    ),
    (
        Thinking("h", Spread(repeat=2)),
        {"type": "reasoning"},
        {"summary": [{"type": "summary_text", "text": "hh"}]},
        "response.reasoning_summary_text.delta",
    ),
    (
        ToolUse("t", {"a": 1}, id="c", deltas=2, namespace="mcp__x"),
        {"type": "function_call", "name": "t", "call_id": "c", "namespace": "mcp__x"},
        {"arguments": '{"a": 1}'},
        "response.function_call_arguments.delta",
    ),
    (
        ToolUse("apply_patch", "free text", id="c", deltas=2),
        {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c"},
        {"input": "free text"},
        "response.custom_tool_call_input.delta",
    ),
    (
        Shell("ls"),
        {"type": "function_call", "name": "exec_command"},
        {"arguments": '{"cmd": "ls", "yield_time_ms": 30000}'},
        "response.function_call_arguments.delta",
    ),
]


@pytest.mark.parametrize(("block", "fixed", "grown", "name"), BLOCKS, ids=[entry[1]["type"] for entry in BLOCKS])
async def test_a_block_is_an_item_that_grows(
    block: Block, fixed: dict[str, Any], grown: dict[str, Any], name: str
) -> None:
    events = (await answered(Answer((Text("before"), block)))).events
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    mine = [event for event in events if event.get("output_index") == 1]
    assert mine[0]["type"] == "response.output_item.added"
    assert mine[-1]["type"] == "response.output_item.done"
    begun, done = mine[0]["item"], mine[-1]["item"]
    assert done.items() >= {**fixed, **grown}.items()
    assert begun == {**done, **{key: type(value)() for key, value in grown.items()}}
    deltas = [event for event in mine if event["type"] == name]
    assert {event["item_id"] for event in deltas} == {done["id"]}
    text = "".join(event["delta"] for event in deltas)
    assert text in json.dumps(grown) or text in grown.values()
    assert len(deltas) == {"one two": 3, "hh": 2}.get(text, 1 if isinstance(block, Shell) else 2)
    assert events[-1]["response"]["output"][1] == done


GATED: list[Block] = [
    Text("one two", Spread(deltas=2, gate="g", gate_after=1)),
    Thinking("h", Spread(gate="g", gate_after=1)),
    Shell("ls", gate="g"),
    ToolUse("apply_patch", "", gate="g"),
]


@pytest.mark.parametrize("block", GATED, ids=["between deltas", "after all", "before all", "without deltas"])
async def test_a_gate_holds_a_block(block: Block) -> None:
    async with ScriptedModel(Script(default=(Answer((block,)),))) as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.post("/v1/responses", {"stream": True, "input": []})
            await model.gate("g").wait_arrival()
            model.gate("g").release()
            reply = await wire.reply()
        assert reply.events[-1]["type"] == "response.completed"
        assert model.gate("g").arrivals == 1


async def test_usage_and_ids() -> None:
    events = (await answered(Answer((Text("x"),), usage=Usage(7, 5, 3)))).events
    assert events[0]["response"]["id"] == events[-1]["response"]["id"]
    usage = events[-1]["response"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (7, 5, 12)
    assert usage["input_tokens_details"] == {"cached_tokens": 3}


@pytest.mark.parametrize(
    ("stop_reason", "reason"), [("max_tokens", "max_output_tokens"), ("refusal", "content_filter"), ("end_turn", None)]
)
async def test_an_answer_cut_short_is_incomplete(stop_reason: str, reason: str | None) -> None:
    last = (await answered(Answer((Text("x"),), stop_reason=stop_reason))).events[-1]
    assert last["type"] == ("response.completed" if reason is None else "response.incomplete")
    assert last["response"]["incomplete_details"] == (None if reason is None else {"reason": reason})


async def test_an_answer_in_one_piece() -> None:
    reply = await answered(Answer((Text("x"), Shell("ls"))), streaming=False)
    assert [item["type"] for item in reply.json["output"]] == ["message", "function_call"]
    assert reply.json["status"] == "completed"
    assert reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (HttpFailure(401), {"type": "invalid_request_error", "code": "invalid_api_key"}),
        (HttpFailure(429), {"type": "rate_limit_error", "code": "rate_limit_exceeded"}),
        (HttpFailure(503), {"type": "server_error", "code": None}),
        (HttpFailure(400, "context_length_exceeded", "long"), {"type": "context_length_exceeded"}),
    ],
)
async def test_an_http_failure(failure: HttpFailure, error: dict[str, Any]) -> None:
    reply = await answered(Answer(failure=failure))
    assert reply.status == failure.status
    assert reply.json["error"].items() >= {**error, "message": failure.message}.items()


@pytest.mark.parametrize(
    ("kind", "code"), [("overloaded_error", "server_is_overloaded"), ("insufficient_quota", "insufficient_quota")]
)
async def test_a_stream_failure_is_a_failed_response(kind: str, code: str) -> None:
    events = (await answered(Answer((Text("x"),), stream_failure=StreamFailure(kind, "no", after_events=2)))).events
    assert [event["type"] for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.failed",
    ]
    assert events[-1]["response"]["error"] == {"code": code, "message": "no"}


async def test_other_calls_of_the_api_are_unknown() -> None:
    async with ScriptedModel() as model:
        assert (await ask(model.port, {}, path="/v1/models")).status == 404
        assert (await ask(model.port, {}, path="/v1/responses")).status == 400
