"""`session/update`: one model per variant (UPD-*, STATE-*, PLAN-*, NOTE-*, COMP-*). Owns their shape, not their order."""

from typing import Annotated, Literal, Self

from pydantic import Field, Tag, model_validator

from adapters.acp.content import ContentBlock
from adapters.acp.model import (
    OPEN,
    Bare,
    Int,
    Items,
    Number,
    Optional,
    OptionalItems,
    Other,
    Raw,
    Text,
    Uint,
    Wire,
    by_tag,
)
from adapters.acp.options import CommandEntry, ConfigOption
from adapters.acp.tools import Terminal, ToolCall, ToolCallContent

StopReason = Annotated[Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "error"], OPEN]

# --- messages ------------------------------------------------------------------------------------------------------


class _Message(Wire):
    message_id: Text
    content: OptionalItems[ContentBlock] = None
    """Replaces everything; absent: only `_meta` changes; `[]` or null: empty (UPD-2, REPLAY-4)."""


class _Chunk(Wire):
    message_id: Text
    content: ContentBlock
    """Exactly one block (UPD-4)."""


class UserMessage(_Message):
    """A user message as a whole."""

    session_update: Literal["user_message"] = "user_message"


class UserMessageChunk(_Chunk):
    """A block appended to a user message."""

    session_update: Literal["user_message_chunk"] = "user_message_chunk"


class AgentMessage(_Message):
    """An agent message as a whole."""

    session_update: Literal["agent_message"] = "agent_message"


class AgentMessageChunk(_Chunk):
    """A block appended to an agent message."""

    session_update: Literal["agent_message_chunk"] = "agent_message_chunk"


class AgentThought(_Message):
    """A thought as a whole."""

    session_update: Literal["agent_thought"] = "agent_thought"


class AgentThoughtChunk(_Chunk):
    """A block appended to a thought."""

    session_update: Literal["agent_thought_chunk"] = "agent_thought_chunk"


# --- state -----------------------------------------------------------------------------------------------------------


class BackgroundTerminal(Wire):
    """A terminal that runs in the background."""

    type: Literal["terminal"] = "terminal"
    terminal_id: Text


class BackgroundToolCall(Wire):
    """A tool call that runs in the background."""

    type: Literal["tool_call"] = "tool_call"
    tool_call_id: Text


class OtherBackground(Other):
    """Background work of a type this package does not know."""

    type: Text


BackgroundWork = Annotated[
    Annotated[BackgroundTerminal, Tag("<terminal>")]
    | Annotated[BackgroundToolCall, Tag("<tool_call>")]
    | Annotated[OtherBackground, Tag("<other>")],
    by_tag("type", "terminal", "tool_call"),
]


class ErrorInfo(Bare):
    """Why work ended: a JSON-RPC error as data (STOP-5)."""

    code: Int
    message: Text
    data: Raw = None


class StateUpdate(Wire):
    """The whole foreground state (STATE-*)."""

    session_update: Literal["state_update"] = "state_update"
    state: Annotated[Literal["running", "requires_action", "idle"], OPEN]
    background: Optional[list[BackgroundWork]] = None
    stop_reason: Optional[StopReason] = None
    error: Optional[ErrorInfo] = None

    @model_validator(mode="after")
    def _only_where_they_belong(self) -> Self:
        """`stopReason` belongs to idle, `error` to the stop reason "error"; elsewhere they are unknown fields (STOP-3)."""
        if self.state != "idle":
            self._drop("stop_reason")
        if self.stop_reason != "error":
            self._drop("error")
        return self

    def _drop(self, name: str) -> None:
        vars(self)[name] = None
        self.__pydantic_fields_set__.discard(name)


# --- tools and terminals ---------------------------------------------------------------------------------------------


class ToolCallUpdate(ToolCall):
    """Creates or patches a tool call (TOOL-1)."""

    session_update: Literal["tool_call_update"] = "tool_call_update"


class ToolCallContentChunk(Wire):
    """An item appended to a tool call's content."""

    session_update: Literal["tool_call_content_chunk"] = "tool_call_content_chunk"
    tool_call_id: Text
    content: ToolCallContent


class TerminalUpdate(Terminal):
    """Creates or patches a terminal (TERM-2)."""

    session_update: Literal["terminal_update"] = "terminal_update"


class TerminalOutputChunk(Wire):
    """Bytes appended to a terminal's output, base64 of the chunk alone (TERM-3)."""

    session_update: Literal["terminal_output_chunk"] = "terminal_output_chunk"
    terminal_id: Text
    data: Text


# --- plans, lists, usage, notices, compaction --------------------------------------------------------------------------


class PlanEntry(Wire):
    """One step of a plan."""

    content: Text
    priority: Annotated[Literal["high", "medium", "low"], OPEN]
    status: Annotated[Literal["pending", "in_progress", "completed", "cancelled"], OPEN]


class PlanItems(Wire):
    """All entries, each time (PLAN-1)."""

    type: Literal["items"] = "items"
    plan_id: Text
    entries: Items[PlanEntry]


class OtherPlan(Other):
    """A plan of a type this package does not know; `plan_id` is there in every type (PLAN-2)."""

    type: Text
    plan_id: Text


class PlanUpdate(Wire):
    """Replaces a plan whole."""

    session_update: Literal["plan_update"] = "plan_update"
    plan: Annotated[
        Annotated[PlanItems, Tag("<items>")] | Annotated[OtherPlan, Tag("<other>")], by_tag("type", "items")
    ]


class AvailableCommandsUpdate(Wire):
    """The complete list of commands (CMD-2)."""

    session_update: Literal["available_commands_update"] = "available_commands_update"
    available_commands: Items[CommandEntry]


class ConfigOptionUpdate(Wire):
    """The complete list of options (CFG-7)."""

    session_update: Literal["config_option_update"] = "config_option_update"
    config_options: Items[ConfigOption]


class SessionInfoUpdate(Wire):
    """A patch of title and time of last activity (RFC 3339) (INFO-1)."""

    session_update: Literal["session_info_update"] = "session_info_update"
    title: Optional[Text] = None
    updated_at: Optional[Text] = None


class Cost(Wire):
    """Cumulative for the session (USAGE-2)."""

    amount: Number
    currency: Text


class UsageUpdate(Wire):
    """Tokens in the context, and its size (USAGE-1)."""

    session_update: Literal["usage_update"] = "usage_update"
    used: Uint
    size: Uint
    cost: Optional[Cost] = None


class Notice(Wire):
    """A live event without identity; not replayed (NOTE-1, NOTE-2)."""

    session_update: Literal["notice"] = "notice"
    severity: Annotated[Literal["info", "warning", "error"], OPEN]
    title: Annotated[Text, Field(min_length=1)]
    description: Optional[Text] = None


class CompactionUpdate(Wire):
    """Creates or patches a compaction; `status` is there each time (COMP-1, COMP-3)."""

    session_update: Literal["compaction_update"] = "compaction_update"
    compaction_id: Text
    status: Annotated[Literal["in_progress", "completed", "failed", "cancelled"], OPEN]
    summary: OptionalItems[ContentBlock] = None
    error: Optional[Text] = None


class CompactionSummaryChunk(Wire):
    """A block appended to a compaction's summary."""

    session_update: Literal["compaction_summary_chunk"] = "compaction_summary_chunk"
    compaction_id: Text
    content: ContentBlock


class OtherUpdate(Other):
    """A variant this package does not know: an extension, an unstable one, or one of a later version."""

    session_update: Text


SessionUpdate = Annotated[
    Annotated[UserMessage, Tag("<user_message>")]
    | Annotated[UserMessageChunk, Tag("<user_message_chunk>")]
    | Annotated[AgentMessage, Tag("<agent_message>")]
    | Annotated[AgentMessageChunk, Tag("<agent_message_chunk>")]
    | Annotated[AgentThought, Tag("<agent_thought>")]
    | Annotated[AgentThoughtChunk, Tag("<agent_thought_chunk>")]
    | Annotated[StateUpdate, Tag("<state_update>")]
    | Annotated[ToolCallUpdate, Tag("<tool_call_update>")]
    | Annotated[ToolCallContentChunk, Tag("<tool_call_content_chunk>")]
    | Annotated[TerminalUpdate, Tag("<terminal_update>")]
    | Annotated[TerminalOutputChunk, Tag("<terminal_output_chunk>")]
    | Annotated[PlanUpdate, Tag("<plan_update>")]
    | Annotated[AvailableCommandsUpdate, Tag("<available_commands_update>")]
    | Annotated[ConfigOptionUpdate, Tag("<config_option_update>")]
    | Annotated[SessionInfoUpdate, Tag("<session_info_update>")]
    | Annotated[UsageUpdate, Tag("<usage_update>")]
    | Annotated[Notice, Tag("<notice>")]
    | Annotated[CompactionUpdate, Tag("<compaction_update>")]
    | Annotated[CompactionSummaryChunk, Tag("<compaction_summary_chunk>")]
    | Annotated[OtherUpdate, Tag("<other>")],
    by_tag(
        "sessionUpdate",
        "user_message",
        "user_message_chunk",
        "agent_message",
        "agent_message_chunk",
        "agent_thought",
        "agent_thought_chunk",
        "state_update",
        "tool_call_update",
        "tool_call_content_chunk",
        "terminal_update",
        "terminal_output_chunk",
        "plan_update",
        "available_commands_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
        "compaction_update",
        "compaction_summary_chunk",
    ),
]


class SessionNotification(Wire):
    """Params of `session/update`."""

    session_id: Text
    update: SessionUpdate
