"""What a session offers and is set up with: commands, config options, MCP servers (SETUP-4, CFG-*, CMD-*)."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from adapters.acp.model import (
    OPEN,
    AbsolutePath,
    Bool,
    NullableItems,
    Optional,
    Other,
    RequiredItems,
    Text,
    Wire,
    by_tag,
)

# --- commands ------------------------------------------------------------------------------------------------------


class CommandInput(Wire):
    """A command takes text behind its name; `hint` says what (CMD-1)."""

    type: Literal["text"] = "text"
    hint: Text


class OtherCommandInput(Other):
    """Input of a type this package does not know."""

    type: Text


class AvailableCommand(Wire):
    """A slash command; `name` has no slash and no white space (CMD-1)."""

    type: Literal["command"] = "command"
    name: Text
    description: Text
    input: Optional[
        Annotated[
            Annotated[CommandInput, Tag("<text>")] | Annotated[OtherCommandInput, Tag("<other>")],
            by_tag("type", "text"),
        ]
    ] = None


class OtherCommand(Other):
    """An entry of a type this package does not know."""

    type: Text
    name: Text
    description: Text


CommandEntry = Annotated[
    Annotated[AvailableCommand, Tag("<command>")] | Annotated[OtherCommand, Tag("<other>")], by_tag("type", "command")
]

# --- config options --------------------------------------------------------------------------------------------------

ConfigCategory = Annotated[Literal["mode", "model", "model_config", "thought_level"], OPEN]


class ConfigChoice(Wire):
    """One value of a select option."""

    value: Text
    name: Text
    description: Optional[Text] = None


class ConfigGroup(Wire):
    """Values under a heading."""

    group_id: Text
    name: Text
    options: RequiredItems[ConfigChoice]


class _ConfigOption(Wire):
    config_id: Text
    name: Text
    description: Optional[Text] = None
    category: Optional[ConfigCategory] = None


class ConfigSelect(_ConfigOption):
    """One of several values, flat or grouped, never mixed (CFG-2)."""

    type: Literal["select"] = "select"
    current_value: Text
    options: Annotated[list[ConfigChoice], Field(min_length=1)] | Annotated[list[ConfigGroup], Field(min_length=1)]


class ConfigBoolean(_ConfigOption):
    """On or off."""

    type: Literal["boolean"] = "boolean"
    current_value: Bool


class OtherConfigOption(Other):
    """An option of a type this package does not know."""

    type: Text
    config_id: Text
    name: Text
    description: Optional[Text] = None
    category: Optional[ConfigCategory] = None


ConfigOption = Annotated[
    Annotated[ConfigSelect, Tag("<select>")]
    | Annotated[ConfigBoolean, Tag("<boolean>")]
    | Annotated[OtherConfigOption, Tag("<other>")],
    by_tag("type", "select", "boolean"),
]

# --- MCP servers -----------------------------------------------------------------------------------------------------


class EnvVariable(Wire):
    """One variable; of two with one name the last wins (SETUP-5)."""

    name: Text
    value: Text


class HttpHeader(Wire):
    """One header."""

    name: Text
    value: Text


class McpServerStdio(Wire):
    """A server to be started; `command` is an absolute path (SETUP-4)."""

    type: Literal["stdio"] = "stdio"
    name: Text
    command: AbsolutePath
    args: NullableItems[Text] = Field(default_factory=list[Text])
    env: NullableItems[EnvVariable] = Field(default_factory=list[EnvVariable])


class McpServerHttp(Wire):
    """A server to be connected to."""

    type: Literal["http"] = "http"
    name: Text
    url: Text
    headers: NullableItems[HttpHeader] = Field(default_factory=list[HttpHeader])


McpServer = Annotated[
    Annotated[McpServerStdio, Tag("<stdio>")] | Annotated[McpServerHttp, Tag("<http>")],
    by_tag("type", "stdio", "http", other=False),
]
"""Unknown transports are malformed: a server must never be left out silently (SETUP-3, SETUP-4)."""
