"""Results of every method, by method: what a client reads, and an agent where it asks. Knows no params."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, Field, Tag

from adapters.acp.model import (
    Bool,
    DefaultOnError,
    Int,
    Items,
    NullableItems,
    Number,
    Optional,
    Other,
    RequiredItems,
    SalvagedItems,
    Text,
    Wire,
    by_tag,
)
from adapters.acp.options import CommandEntry, ConfigOption, EnvVariable
from adapters.acp.tools import Marker

# --- initialize ------------------------------------------------------------------------------------------------------


class Implementation(Wire):
    """Who the agent is."""

    name: Text
    version: Text
    title: Optional[Text] = None


class PromptCapabilities(Wire):
    """Blocks that prompts may hold beside text and resource links."""

    image: Optional[Marker] = None
    audio: Optional[Marker] = None
    embedded_context: Optional[Marker] = None


class McpCapabilities(Wire):
    """Transports of MCP servers."""

    stdio: Optional[Marker] = None
    http: Optional[Marker] = None


class SessionCapabilities(Wire):
    """The session surface (INIT-11)."""

    prompt: Optional[PromptCapabilities] = None
    mcp: Optional[McpCapabilities] = None
    delete: Optional[Marker] = None
    additional_directories: Optional[Marker] = None


class AgentCapabilities(Wire):
    """What the agent advertises; an object means supported (INIT-9)."""

    session: Optional[SessionCapabilities] = None
    auth: Optional[Marker] = None


class AuthMethodAgent(Wire):
    """A login that the agent runs itself."""

    type: Literal["agent"] = "agent"
    method_id: Text
    name: Text
    description: Optional[Text] = None


class AuthMethodTerminal(Wire):
    """A login in a terminal: the agent's command with more arguments (AUTH-6)."""

    type: Literal["terminal"] = "terminal"
    method_id: Text
    name: Text
    description: Optional[Text] = None
    args: NullableItems[Text] = Field(default_factory=list[Text])
    env: NullableItems[EnvVariable] = Field(default_factory=list[EnvVariable])


class OtherAuthMethod(Other):
    """A login of a type this package does not know."""

    type: Text
    method_id: Text
    name: Text


AuthMethod = Annotated[
    Annotated[AuthMethodAgent, Tag("<agent>")]
    | Annotated[AuthMethodTerminal, Tag("<terminal>")]
    | Annotated[OtherAuthMethod, Tag("<other>")],
    by_tag("type", "agent", "terminal"),
]


class InitializeResult(Wire):
    """`initialize`."""

    protocol_version: Annotated[Int, Field(ge=0, le=65535)]
    info: Implementation
    capabilities: Annotated[AgentCapabilities, DefaultOnError()] = Field(default_factory=AgentCapabilities)
    auth_methods: SalvagedItems[AuthMethod] = Field(default_factory=list[AuthMethod])


# --- sessions --------------------------------------------------------------------------------------------------------


class Empty(Wire):
    """`{}`: it worked."""


class _Opened(Wire):
    config_options: SalvagedItems[ConfigOption] = Field(default_factory=list[ConfigOption])
    available_commands: SalvagedItems[CommandEntry] = Field(default_factory=list[CommandEntry])


class NewSessionResult(_Opened):
    """`session/new` and `session/fork`."""

    session_id: Text


class ResumeSessionResult(_Opened):
    """`session/resume`."""


class SessionInfo(Wire):
    """One row of a list; `updated_at` is RFC 3339."""

    session_id: Text
    cwd: Text
    additional_directories: NullableItems[Text] = Field(default_factory=list[str])
    title: Optional[Text] = None
    updated_at: Optional[Text] = None


class ListSessionsResult(Wire):
    """`session/list`; the list ends where `next_cursor` is None (LIST-3)."""

    sessions: RequiredItems[SessionInfo]
    next_cursor: Text | None = None


class SetConfigOptionResult(Wire):
    """`session/set_config_option`: the complete list (CFG-6)."""

    config_options: Items[ConfigOption]


class PromptResult(Wire):
    """`session/prompt`: the message is inserted under this id (PROMPT-3)."""

    message_id: Text


# --- the client's answers ----------------------------------------------------------------------------------------------


class SelectedOutcome(Wire):
    """The user chose."""

    outcome: Literal["selected"] = "selected"
    option_id: Text


class CancelledOutcome(Wire):
    """No option was chosen."""

    outcome: Literal["cancelled"] = "cancelled"


class OtherOutcome(Other):
    """An outcome this package does not know: never an approval (PERM-3)."""

    outcome: Text


class PermissionResult(Wire):
    """`session/request_permission`. Strict: salvage must not make an approval (MAL-1)."""

    outcome: Annotated[
        Annotated[SelectedOutcome, Tag("<selected>")]
        | Annotated[CancelledOutcome, Tag("<cancelled>")]
        | Annotated[OtherOutcome, Tag("<other>")],
        by_tag("outcome", "selected", "cancelled"),
    ]


ElicitationValue = Text | Bool | Annotated[int, Field(strict=True)] | Number | list[Text]


class ElicitationResult(Wire):
    """`elicitation/create`. An unknown action is a cancel (ELIC-3); `content` is strict and belongs to "accept"."""

    action: Text
    content: dict[str, ElicitationValue] | None = None


RESULTS: Mapping[str, type[BaseModel]] = {
    "initialize": InitializeResult,
    "auth/login": Empty,
    "auth/logout": Empty,
    "session/new": NewSessionResult,
    "session/fork": NewSessionResult,
    "session/resume": ResumeSessionResult,
    "session/list": ListSessionsResult,
    "session/close": Empty,
    "session/delete": Empty,
    "session/prompt": PromptResult,
    "session/set_config_option": SetConfigOptionResult,
    "tool_call/cancel": Empty,
    "terminal/cancel": Empty,
    "session/request_permission": PermissionResult,
    "elicitation/create": ElicitationResult,
}
"""Method -> model of its result."""
