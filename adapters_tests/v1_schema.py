"""A judge of what an agent sends on a v1 connection: the models of the Python SDK, closed.

The SDK ignores fields that it does not know. Here they are faults: what a model reads is written again, and has to be what was
sent. What only clients get that say they know it, and the SDK does not know, has a model here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import acp.schema as sdk
from pydantic import BaseModel, Field, TypeAdapter

RESULTS: dict[str, type[BaseModel]] = {
    "initialize": sdk.InitializeResponse,
    "session/new": sdk.NewSessionResponse,
    "session/load": sdk.LoadSessionResponse,
    "session/resume": sdk.ResumeSessionResponse,
    "session/list": sdk.ListSessionsResponse,
    "session/close": sdk.CloseSessionResponse,
    "session/delete": sdk.DeleteSessionResponse,
    "session/prompt": sdk.PromptResponse,
}


class Notice(BaseModel):
    session_update: Annotated[Literal["notice"], Field(alias="sessionUpdate")]
    severity: Literal["info", "warning", "error"]
    title: Annotated[str, Field(min_length=1)]
    description: str | None = None


class CompactionUpdate(BaseModel):
    session_update: Annotated[Literal["compaction_update"], Field(alias="sessionUpdate")]
    compaction_id: Annotated[str, Field(alias="compactionId")]
    status: Literal["in_progress", "completed", "failed", "cancelled"]
    summary: list[sdk.TextContentBlock] | None = None
    error: str | None = None


class CompactionSummaryChunk(BaseModel):
    session_update: Annotated[Literal["compaction_summary_chunk"], Field(alias="sessionUpdate")]
    compaction_id: Annotated[str, Field(alias="compactionId")]
    content: sdk.TextContentBlock


DECLARED: dict[str, type[BaseModel]] = {
    "notice": Notice,
    "compaction_update": CompactionUpdate,
    "compaction_summary_chunk": CompactionSummaryChunk,
}
"""Updates that only a client gets that declares them."""

_UPDATE: TypeAdapter[Any] = TypeAdapter(sdk.SessionNotification.model_fields["update"].rebuild_annotation())


class NotVersionOneError(AssertionError):
    """Something that a v1 client cannot read, or that v1 does not have."""


def closed(model: type[BaseModel] | TypeAdapter[Any], value: Any) -> None:
    """Valid, and nothing in it that the model does not have."""
    adapter = model if isinstance(model, TypeAdapter) else TypeAdapter[Any](model)
    read = adapter.validate_python(value)
    written = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if written != value:
        raise NotVersionOneError(f"sent: {value}\nread: {written}")


def validate_update(update: Any) -> None:
    """One update of `session/update`."""
    kind = update.get("sessionUpdate")
    closed(DECLARED.get(kind, _UPDATE), update)


def validate_sent(message: Any, answered: str | None = None) -> None:
    """One message of the agent. `answered`: the method of the request that it answers."""
    assert message["jsonrpc"] == "2.0"
    match message:
        case {"method": "session/update", "params": {"sessionId": str(), "update": update, **rest}}:
            assert not rest
            validate_update(update)
        case {"method": "session/request_permission", "params": params}:
            closed(sdk.RequestPermissionRequest, params)
        case {"method": "$/cancel_request", "params": params}:
            closed(sdk.CancelRequestNotification, params)
        case {"error": error}:
            assert set(error) <= {"code", "message", "data"}
            assert (type(error["code"]), type(error["message"])) == (int, str)
        case {"result": result}:
            assert answered is not None, "an answer to nothing"
            closed(RESULTS[answered], result)
        case _:
            raise NotVersionOneError(f"unknown: {message}")
