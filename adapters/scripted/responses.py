"""The scripted model as a Responses API, the one Codex talks to. Owns the wire form of answers.

How Codex writes its requests is in `responses_input.py`; the script and its timing are not known here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.scripted.calls import Asked
from adapters.scripted.responses_input import read_request
from adapters.scripted.script import (
    Answer,
    Block,
    HttpFailure,
    Shell,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    pieces,
)
from adapters.scripted.server import Event, Hold

_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", None),
    404: ("invalid_request_error", None),
    413: ("invalid_request_error", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
"""HTTP status -> error type and code of the API; anything else is a `server_error`."""

_CODES = {
    "api_error": "server_error",
    "invalid_request_error": "invalid_prompt",
    "overloaded_error": "server_is_overloaded",
    "rate_limit_error": "rate_limit_exceeded",
}
"""Error types of the Messages API -> codes of a failed response, so that one script serves both; others stay."""

_INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
"""Stop reasons that this API reports as an incomplete response -> its reason."""

LONGEST_SHELL = 30_000
"""Milliseconds Codex waits for a command before it tells the model that it still runs: the most it allows (0.163.0)."""


class ResponsesDialect:
    """The Responses API of scripted models."""

    path = "/v1/responses"

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        """Understand a request. Raises `BadRequest`."""
        return read_request(body, headers)

    def events(self, answer: Answer, asked: Asked) -> Iterator[Event | Hold]:
        """The answer as server-sent events."""
        response = _response(answer, asked)
        yield _event("response.created", {"response": {**response, "status": "in_progress", "usage": None}})
        output = [_item(block) for block in answer.blocks]
        for index, (block, item) in enumerate(zip(answer.blocks, output, strict=True)):
            yield from _item_events(index, block, item)
        yield _event(f"response.{response['status']}", {"response": {**response, "output": output}})

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """The answer in one piece."""
        return {**_response(answer, asked), "output": [_item(block) for block in answer.blocks]}

    def failure(self, failure: HttpFailure) -> dict[str, Any]:
        """The body of an HTTP error."""
        kind, code = _ERRORS.get(failure.status, ("server_error", None))
        return {"error": {"message": failure.message, "type": failure.type or kind, "code": failure.type or code}}

    def stream_failure(self, failure: StreamFailure) -> bytes:
        """The event that ends a stream in an error."""
        error = {"code": _CODES.get(failure.type, failure.type), "message": failure.message}
        response = {"id": _fresh("resp"), "object": "response", "status": "failed", "error": error}
        return _event("response.failed", {"response": response}).data

    def headers(self) -> dict[str, str]:
        """A request id, as the API sends one."""
        return {"x-request-id": _fresh("req")}

    def side_call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Nothing: Codex makes no other calls."""
        del path, body
        return None


def _response(answer: Answer, asked: Asked) -> dict[str, Any]:
    usage = answer.usage
    reason = _INCOMPLETE.get(answer.final_stop_reason)
    return {
        "id": _fresh("resp"),
        "object": "response",
        "status": "completed" if reason is None else "incomplete",
        "model": asked.model,
        "output": [],
        "incomplete_details": None if reason is None else {"reason": reason},
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _item(block: Block) -> dict[str, Any]:
    """The finished output item of a block."""
    match block:
        case Text():
            content: list[Any] = [{"type": "output_text", "text": block.text * block.spread.repeat, "annotations": []}]
            return {"type": "message", "id": _fresh("msg"), "role": "assistant", "content": content}
        case Thinking():
            summary = [{"type": "summary_text", "text": block.thinking * block.spread.repeat}]
            return {"type": "reasoning", "id": _fresh("rs"), "summary": summary}
        case Shell():
            return _function_call("exec_command", {"cmd": block.command, "yield_time_ms": LONGEST_SHELL})
        case ToolUse(input=str() as text):
            call = {"type": "custom_tool_call", "id": _fresh("ctc"), "name": block.name, "input": text}
            return {**call, "call_id": block.id or _fresh("call")}
        case ToolUse():
            call = _function_call(block.name, block.input)
            namespace = {} if block.namespace is None else {"namespace": block.namespace}
            return {**call, "call_id": block.id or call["call_id"], **namespace}


def _function_call(name: str, arguments: object) -> dict[str, Any]:
    call = {"type": "function_call", "id": _fresh("fc"), "call_id": _fresh("call"), "name": name}
    return {**call, "arguments": json.dumps(arguments)}


def _item_events(index: int, block: Block, item: Mapping[str, Any]) -> Iterator[Event | Hold]:
    """The events of one block, `item` when it is finished."""
    place = {"item_id": item["id"], "output_index": index}
    empty: dict[str, Any] = {}
    match block:
        case Text():
            name, parts = "response.output_text.delta", block.spread.cut(block.text)
            empty["content"] = []
            gate, gate_after = block.spread.gate, block.spread.gate_after
            place["content_index"] = 0
        case Thinking():
            name, parts = "response.reasoning_summary_text.delta", block.spread.cut(block.thinking)
            empty["summary"] = []
            gate, gate_after = block.spread.gate, block.spread.gate_after
            place["summary_index"] = 0
        case ToolUse() | Shell():
            field, name = _INPUT[item["type"]]
            parts = pieces(item[field], block.deltas if isinstance(block, ToolUse) else 1)
            empty[field] = ""
            gate, gate_after = block.gate, 0
    yield _event("response.output_item.added", {"output_index": index, "item": {**item, **empty}})
    if isinstance(block, Thinking):
        part = {"type": "summary_text", "text": ""}
        yield _event("response.reasoning_summary_part.added", {**place, "part": part})
    for number, piece in enumerate(parts):
        if gate is not None and number == gate_after:
            yield Hold(gate)
        yield _event(name, {**place, "delta": piece}, delta=True)
    if gate is not None and gate_after >= len(parts):
        yield Hold(gate)
    yield _event("response.output_item.done", {"output_index": index, "item": item})


_INPUT = {
    "function_call": ("arguments", "response.function_call_arguments.delta"),
    "custom_tool_call": ("input", "response.custom_tool_call_input.delta"),
}
"""Type of a call -> the field of its input, and the event that streams it."""


def _fresh(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def _event(name: str, fields: Mapping[str, Any], *, delta: bool = False) -> Event:
    return Event(f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode(), delta)
