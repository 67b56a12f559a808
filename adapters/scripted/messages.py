"""The scripted model as a Messages API, the one Claude Code talks to. Owns the wire form of answers.

How Claude Code writes its requests is in `messages_input.py`; the script and its timing are not known here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.scripted.calls import Asked
from adapters.scripted.messages_input import read_request, rough_tokens
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

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""HTTP status -> error type of the API; anything else is an `api_error`."""


class MessagesDialect:
    """The Messages API of scripted models."""

    path = "/v1/messages"

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        """Understand a request. Raises `BadRequest`."""
        return read_request(body, headers)

    def events(self, answer: Answer, asked: Asked) -> Iterator[Event | Hold]:
        """The answer as server-sent events."""
        message = _message(answer, asked)
        usage = {**message["usage"], "output_tokens": 1}
        yield _event("message_start", {"message": {**message, "content": [], "stop_reason": None, "usage": usage}})
        for index, block in enumerate(answer.blocks):
            yield from _block_events(index, block)
        delta = {"stop_reason": answer.final_stop_reason, "stop_sequence": None}
        yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": answer.usage.output_tokens}})
        yield _event("message_stop", {})

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """The answer in one piece."""
        content = [_content(block) for block in answer.blocks]
        return {**_message(answer, asked), "content": content, "stop_reason": answer.final_stop_reason}

    def failure(self, failure: HttpFailure) -> dict[str, Any]:
        """The body of an HTTP error."""
        return _error(failure.type or _ERROR_TYPES.get(failure.status, "api_error"), failure.message)

    def stream_failure(self, failure: StreamFailure) -> bytes:
        """The event that ends a stream in an error."""
        return _encode("error", _error(failure.type, failure.message))

    def headers(self) -> dict[str, str]:
        """A request id, as the API sends one."""
        return {"request-id": f"req_{secrets.token_hex(12)}"}

    def side_call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Token counting; a rough count, since nobody pays."""
        return {"input_tokens": rough_tokens(body)} if path == "/v1/messages/count_tokens" else None


def _message(answer: Answer, asked: Asked) -> dict[str, Any]:
    usage = {
        "input_tokens": answer.usage.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.usage.cached_input_tokens,
        "output_tokens": answer.usage.output_tokens,
    }
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _content(block: Block) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text * block.spread.repeat}
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking * block.spread.repeat, "signature": _signature()}
        case ToolUse() | Shell():
            return _tool(block)


def _tool(block: ToolUse | Shell) -> dict[str, Any]:
    fresh = f"toolu_{secrets.token_hex(12)}"
    if isinstance(block, Shell):
        return {"type": "tool_use", "id": fresh, "name": "Bash", "input": {"command": block.command}}
    given = {"input": block.input} if isinstance(block.input, str) else dict(block.input)
    return {"type": "tool_use", "id": block.id or fresh, "name": block.name, "input": given}


def _block_events(index: int, block: Block) -> Iterator[Event | Hold]:
    match block:
        case Text():
            start: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in block.spread.cut(block.text)]
            gate, gate_after = block.spread.gate, block.spread.gate_after
        case Thinking():
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in block.spread.cut(block.thinking)]
            deltas.append({"type": "signature_delta", "signature": _signature()})
            gate, gate_after = block.spread.gate, block.spread.gate_after
        case ToolUse() | Shell():
            tool = _tool(block)
            start = {**tool, "input": {}}
            count = block.deltas if isinstance(block, ToolUse) else 1
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in pieces(json.dumps(tool["input"]), count)
            ]
            gate, gate_after = block.gate, 0
    yield _event("content_block_start", {"index": index, "content_block": start})
    for number, delta in enumerate(deltas):
        if gate is not None and number == gate_after:
            yield Hold(gate)
        yield _event("content_block_delta", {"index": index, "delta": delta}, delta=True)
    if gate is not None and gate_after >= len(deltas):
        yield Hold(gate)
    yield _event("content_block_stop", {"index": index})


def _signature() -> str:
    return secrets.token_hex(16)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _event(name: str, fields: Mapping[str, Any], *, delta: bool = False) -> Event:
    return Event(_encode(name, {"type": name, **fields}), delta)


def _encode(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
