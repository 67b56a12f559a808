"""Params of every method, by method (SETUP-*, PROMPT-*, CFG-*, PERM-*, ELIC-*). Owns what is malformed; knows no results."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, Tag, model_validator
from pydantic_core import PydanticCustomError

from adapters.acp.content import PromptBlock
from adapters.acp.model import OPEN, AbsolutePath, NullableItems, Optional, Other, Raw, Text, Wire, by_tag
from adapters.acp.options import McpServer
from adapters.acp.tools import ToolCall
from adapters.acp.updates import SessionNotification

IdempotencyKey = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255)]
"""1 to 255 Unicode code points, no lone surrogates, untouched otherwise (KEY-3..6, E15..E19)."""

# --- client to agent -------------------------------------------------------------------------------------------------


class Login(Wire):
    """`auth/login`."""

    method_id: Text


class Logout(Wire):
    """`auth/logout`."""


class _Roots(Wire):
    cwd: AbsolutePath
    additional_directories: NullableItems[AbsolutePath] = Field(default_factory=list[str])
    """Beside `cwd`; the complete list (SETUP-7)."""
    mcp_servers: NullableItems[McpServer] = Field(default_factory=list[McpServer])
    """The complete list; one malformed entry is an error for the whole request (SETUP-3)."""


class NewSession(_Roots):
    """`session/new`."""


class ReplayFromStart(Wire):
    """Replay everything retained."""

    type: Literal["start"] = "start"


class ResumeSession(_Roots):
    """`session/resume`. A replay cursor of any other form is malformed (RESUME-3)."""

    session_id: Text
    replay_from: Annotated[Annotated[ReplayFromStart, Tag("<start>")], by_tag("type", "start", other=False)] | None = (
        None
    )


class ForkSession(_Roots):
    """`session/fork` (unstable)."""

    session_id: Text


class ListSessions(Wire):
    """`session/list`. Both fields are strict; an empty cursor is a cursor (LIST-2..4)."""

    cwd: AbsolutePath | None = None
    cursor: Text | None = None


class CloseSession(Wire):
    """`session/close`."""

    session_id: Text


class DeleteSession(Wire):
    """`session/delete`."""

    session_id: Text


class CancelSession(Wire):
    """`session/cancel` (notification)."""

    session_id: Text


class SetConfigOption(Wire):
    """`session/set_config_option`: `id` carries a string, `boolean` a boolean (CFG-4, CFG-5)."""

    session_id: Text
    config_id: Text
    type: Literal["id", "boolean"]
    value: Raw
    """A `str` or a `bool`, as `type` says."""

    @model_validator(mode="after")
    def _value_of_its_type(self) -> Self:
        if not isinstance(self.value, str if self.type == "id" else bool):
            wanted = "a string" if self.type == "id" else "true or false"
            raise PydanticCustomError("member", f"value must be {wanted} where type is {self.type}")
        return self


class Prompt(Wire):
    """`session/prompt`."""

    session_id: Text
    prompt: Annotated[list[PromptBlock], Field(min_length=1)]
    idempotency_key: IdempotencyKey | None = None
    """None: no key, whether absent or null (KEY-2)."""


class CancelToolCall(Wire):
    """`tool_call/cancel`."""

    session_id: Text
    tool_call_id: Text


class CancelTerminal(Wire):
    """`terminal/cancel`."""

    session_id: Text
    terminal_id: Text


# --- agent to client -------------------------------------------------------------------------------------------------


class ToolCallSubject(Wire):
    """Permission for a tool call; the client applies `tool_call` as an update (PERM-1)."""

    type: Literal["tool_call"] = "tool_call"
    tool_call: ToolCall


class CommandSubject(Wire):
    """Permission for a command in an absolute folder."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text
    tool_call_id: Optional[Text] = None
    terminal_id: Optional[Text] = None


class OtherSubject(Other):
    """A subject of a type this package does not know."""

    type: Text


class PermissionOption(Wire):
    """One choice; `option_id` is unique in its request."""

    option_id: Text
    name: Text
    kind: Annotated[Literal["allow_once", "allow_always", "reject_once", "reject_always"], OPEN]


class RequestPermission(Wire):
    """`session/request_permission`."""

    session_id: Text
    title: Text
    description: Optional[Text] = None
    subject: (
        Annotated[
            Annotated[ToolCallSubject, Tag("<tool_call>")]
            | Annotated[CommandSubject, Tag("<command>")]
            | Annotated[OtherSubject, Tag("<other>")],
            by_tag("type", "tool_call", "command"),
        ]
        | None
    ) = None
    options: Annotated[list[PermissionOption], Field(min_length=1)]


class CreateElicitation(Wire):
    """`elicitation/create`. `requested_schema` is passed on as it is; the scope is a session or a pending request."""

    message: Text
    mode: Text
    session_id: Text | None = None
    tool_call_id: Optional[Text] = None
    request_id: Annotated[int, Field(strict=True)] | Text | None = None
    requested_schema: dict[str, Raw] | None = None
    elicitation_id: Text | None = None
    url: Text | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.session_id is None) == (self.request_id is None):
            raise PydanticCustomError("member", "one of sessionId and requestId must be given")
        if self.mode == "form" and self.requested_schema is None:
            raise PydanticCustomError("member", "requestedSchema must be an object where mode is form")
        if self.mode == "url" and (self.elicitation_id is None or self.url is None):
            raise PydanticCustomError("member", "elicitationId and url must be strings where mode is url")
        return self


class CompleteElicitation(Wire):
    """`elicitation/complete` (notification)."""

    elicitation_id: Text


PARAMS: Mapping[str, type[BaseModel]] = {
    "auth/login": Login,
    "auth/logout": Logout,
    "session/new": NewSession,
    "session/resume": ResumeSession,
    "session/fork": ForkSession,
    "session/list": ListSessions,
    "session/close": CloseSession,
    "session/delete": DeleteSession,
    "session/prompt": Prompt,
    "session/cancel": CancelSession,
    "session/set_config_option": SetConfigOption,
    "tool_call/cancel": CancelToolCall,
    "terminal/cancel": CancelTerminal,
    "session/request_permission": RequestPermission,
    "session/update": SessionNotification,
    "elicitation/create": CreateElicitation,
    "elicitation/complete": CompleteElicitation,
}
"""Method -> model of its params. `initialize` is read by `handshake`, `$/cancel_request` by `rpc`."""
