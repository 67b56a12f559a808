"""The v2 messages as models: one place to import them from, and the readers that turn wire values into them.

Owns how a malformed value is reported: by the path of the field and what is wanted there, never by the value (RPC-15, KEY-30).
Importing this imports pydantic; the models are built at first use, and those of results are loaded then, too: an agent writes
results and reads next to none, and its client waits while it starts. See `model` for names, salvage marks and three-state fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from adapters.acp.content import (
    Annotations,
    AudioBlock,
    BlobResource,
    ContentBlock,
    Icon,
    ImageBlock,
    OtherBlock,
    PromptBlock,
    ResourceBlock,
    ResourceLinkBlock,
    TextBlock,
    TextResource,
)
from adapters.acp.errors import InvalidParams, InvalidResult, MethodNotFound
from adapters.acp.model import AbsolutePath, Bare, Other, Text, Wire, dump
from adapters.acp.options import (
    AvailableCommand,
    CommandEntry,
    CommandInput,
    ConfigBoolean,
    ConfigChoice,
    ConfigGroup,
    ConfigOption,
    ConfigSelect,
    EnvVariable,
    HttpHeader,
    McpServer,
    McpServerHttp,
    McpServerStdio,
)
from adapters.acp.requests import (
    PARAMS,
    CancelSession,
    CancelTerminal,
    CancelToolCall,
    CloseSession,
    CommandSubject,
    CompleteElicitation,
    CreateElicitation,
    DeleteSession,
    ForkSession,
    IdempotencyKey,
    ListSessions,
    Login,
    Logout,
    NewSession,
    PermissionOption,
    Prompt,
    ReplayFromStart,
    RequestPermission,
    ResumeSession,
    SetConfigOption,
    ToolCallSubject,
)
from adapters.acp.tools import (
    AddChange,
    CancelCapability,
    ContentItem,
    CopyChange,
    DeleteChange,
    DiffChange,
    DiffItem,
    DiffPatch,
    Marker,
    ModifyChange,
    MoveChange,
    TerminalExitStatus,
    TerminalItem,
    TerminalOutput,
    TerminalSize,
    ToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolKind,
    ToolStatus,
)
from adapters.acp.updates import (
    AgentMessage,
    AgentMessageChunk,
    AgentThought,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    BackgroundTerminal,
    BackgroundToolCall,
    BackgroundWork,
    CompactionSummaryChunk,
    CompactionUpdate,
    ConfigOptionUpdate,
    Cost,
    ErrorInfo,
    Notice,
    OtherUpdate,
    PlanEntry,
    PlanItems,
    PlanUpdate,
    SessionInfoUpdate,
    SessionNotification,
    SessionUpdate,
    StateUpdate,
    StopReason,
    TerminalOutputChunk,
    TerminalUpdate,
    ToolCallContentChunk,
    ToolCallUpdate,
    UsageUpdate,
    UserMessage,
    UserMessageChunk,
)

if TYPE_CHECKING:
    from adapters.acp.results import (
        RESULTS,
        AgentCapabilities,
        AuthMethod,
        AuthMethodAgent,
        AuthMethodTerminal,
        CancelledOutcome,
        ElicitationResult,
        Empty,
        Implementation,
        InitializeResult,
        ListSessionsResult,
        McpCapabilities,
        NewSessionResult,
        PermissionResult,
        PromptCapabilities,
        PromptResult,
        ResumeSessionResult,
        SelectedOutcome,
        SessionCapabilities,
        SessionInfo,
        SetConfigOptionResult,
    )

__all__ = [
    "PARAMS",
    "RESULTS",
    "AbsolutePath",
    "AddChange",
    "AgentCapabilities",
    "AgentMessage",
    "AgentMessageChunk",
    "AgentThought",
    "AgentThoughtChunk",
    "Annotations",
    "AudioBlock",
    "AuthMethod",
    "AuthMethodAgent",
    "AuthMethodTerminal",
    "AvailableCommand",
    "AvailableCommandsUpdate",
    "BackgroundTerminal",
    "BackgroundToolCall",
    "BackgroundWork",
    "Bare",
    "BlobResource",
    "CancelCapability",
    "CancelSession",
    "CancelTerminal",
    "CancelToolCall",
    "CancelledOutcome",
    "CloseSession",
    "CommandEntry",
    "CommandInput",
    "CommandSubject",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "CompleteElicitation",
    "ConfigBoolean",
    "ConfigChoice",
    "ConfigGroup",
    "ConfigOption",
    "ConfigOptionUpdate",
    "ConfigSelect",
    "ContentBlock",
    "ContentItem",
    "CopyChange",
    "Cost",
    "CreateElicitation",
    "DeleteChange",
    "DeleteSession",
    "DiffChange",
    "DiffItem",
    "DiffPatch",
    "ElicitationResult",
    "Empty",
    "EnvVariable",
    "ErrorInfo",
    "ForkSession",
    "HttpHeader",
    "Icon",
    "IdempotencyKey",
    "ImageBlock",
    "Implementation",
    "InitializeResult",
    "ListSessions",
    "ListSessionsResult",
    "Login",
    "Logout",
    "Marker",
    "McpCapabilities",
    "McpServer",
    "McpServerHttp",
    "McpServerStdio",
    "ModifyChange",
    "MoveChange",
    "NewSession",
    "NewSessionResult",
    "Notice",
    "Other",
    "OtherBlock",
    "OtherUpdate",
    "PermissionOption",
    "PermissionResult",
    "PlanEntry",
    "PlanItems",
    "PlanUpdate",
    "Prompt",
    "PromptBlock",
    "PromptCapabilities",
    "PromptResult",
    "ReplayFromStart",
    "RequestPermission",
    "ResourceBlock",
    "ResourceLinkBlock",
    "ResumeSession",
    "ResumeSessionResult",
    "SelectedOutcome",
    "SessionCapabilities",
    "SessionInfo",
    "SessionInfoUpdate",
    "SessionNotification",
    "SessionUpdate",
    "SetConfigOption",
    "SetConfigOptionResult",
    "StateUpdate",
    "StopReason",
    "TerminalExitStatus",
    "TerminalItem",
    "TerminalOutput",
    "TerminalOutputChunk",
    "TerminalSize",
    "TerminalUpdate",
    "Text",
    "TextBlock",
    "TextResource",
    "ToolCall",
    "ToolCallContent",
    "ToolCallContentChunk",
    "ToolCallLocation",
    "ToolCallSubject",
    "ToolCallUpdate",
    "ToolKind",
    "ToolStatus",
    "UsageUpdate",
    "UserMessage",
    "UserMessageChunk",
    "Wire",
    "describe",
    "dump",
    "parse_content",
    "parse_params",
    "parse_result",
    "parse_update",
    "selected_option",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adapters.acp import results  # noqa: PLC0415 - see the head of this file

    return getattr(results, name)


_BY_WIRE_NAME: Final[Mapping[str, Any]] = {"by_alias": True, "by_name": False}


def parse_params(method: str, params: Any) -> BaseModel:
    """The params of a request or notification as the model of its method; null and absent (None) are `{}` (RPC-9).

    Raises:
        InvalidParams: they are malformed; the message names the field and what is wanted.
        MethodNotFound: no model for this method.
    """
    model = PARAMS.get(method)
    if model is None:
        raise MethodNotFound(method)
    return _validated(model, {} if params is None else params, InvalidParams, "Invalid params")


def parse_result(method: str, result: Any) -> BaseModel:
    """The result of a request as the model of its method. Raises `InvalidResult`, or `MethodNotFound` without a model."""
    from adapters.acp.results import RESULTS  # noqa: PLC0415 - see the head of this file

    model = RESULTS.get(method)
    if model is None:
        raise MethodNotFound(method)
    return _validated(model, result, InvalidResult, "Malformed result")


def parse_update(update: Any) -> SessionUpdate:
    """The `update` member of a `session/update`. Raises `InvalidParams` for a malformed known variant (UPD-7)."""
    try:
        return _update_reader().validate_python(update, **_BY_WIRE_NAME)
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {describe(error, 'update')}.") from None


def parse_content(block: Any) -> ContentBlock:
    """One content block. Raises `InvalidParams` for a malformed block of a known type."""
    try:
        return _content_reader().validate_python(block, **_BY_WIRE_NAME)
    except ValidationError as error:
        raise InvalidParams(f"Invalid params: {describe(error, 'content')}.") from None


def selected_option(result: Any, offered: Collection[str]) -> str | None:
    """The option id that a permission answer chose, None for everything that is not such a choice.

    Not a choice: an error, a malformed result, another outcome, an id that was not offered (PERM-2, PERM-3, MAL-1). `result` is
    the outcome of the request as `rpc.OutgoingRequest` gives it.
    """
    from adapters.acp.results import PermissionResult, SelectedOutcome  # noqa: PLC0415 - see the head of this file

    try:
        outcome = PermissionResult.model_validate(result, **_BY_WIRE_NAME).outcome
    except ValidationError:
        return None
    return outcome.option_id if isinstance(outcome, SelectedOutcome) and outcome.option_id in offered else None


def describe(error: ValidationError, root: str = "") -> str:
    """The first fault: path of the field and what is wanted, without any value: ``prompt[0].text must be a string``."""
    fault = error.errors(include_url=False, include_input=False)[0]
    path = root
    for part in fault["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<"):
            path += f".{part}" if path else part
    if fault["type"] in ("tag", "member"):
        return f"{path}.{fault['msg']}" if path else fault["msg"]
    return f"{path or 'params'} {_wanted(fault)}"


_WANTED: Final[Mapping[str, str]] = {
    "missing": "is required",
    "absolute_path": "must be an absolute path",
    "path_encoding": f"has characters that file names cannot have here ({sys.getfilesystemencoding()})",
    "is_instance_of": "must be a string",
    "string_type": "must be a string",
    "string_unicode": "must hold whole Unicode characters",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length} characters",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be an array",
    "too_short": "must have at least {min_length} item",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": "must be {expected}",
}
"""Error type of pydantic -> what the field must be; in braces the limits that the model states."""


def _wanted(fault: ErrorDetails) -> str:
    return _WANTED.get(fault["type"], "is malformed").format(**fault.get("ctx", {}))


def _validated(model: type[BaseModel], value: Any, error_class: Callable[[str], Exception], prefix: str) -> BaseModel:
    try:
        return model.model_validate(value, **_BY_WIRE_NAME)
    except ValidationError as error:
        raise error_class(f"{prefix}: {describe(error)}.") from None


@cache
def _update_reader() -> TypeAdapter[SessionUpdate]:
    return TypeAdapter(SessionUpdate)


@cache
def _content_reader() -> TypeAdapter[ContentBlock]:
    return TypeAdapter(ContentBlock)
