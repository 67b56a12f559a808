"""Tool calls, diffs and display-only terminals (TOOL-*, DIFF-*, TERM-*). Knows no session and no message."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from adapters.acp.content import ContentBlock
from adapters.acp.model import OPEN, Int, Items, Optional, OptionalItems, Other, Raw, Text, Uint, Wire, by_tag

ToolKind = Annotated[
    Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"], OPEN
]
ToolStatus = Annotated[Literal["pending", "in_progress", "paused", "completed", "failed", "cancelled"], OPEN]
FileType = Annotated[Literal["text", "binary", "directory", "symlink"], OPEN]


class Marker(Wire):
    """An object that says by being there that something is supported."""


class CancelCapability(Wire):
    """What the client may do with a tool call or a terminal (TOOL-8, TERM-2)."""

    cancel: Optional[Marker] = None


# --- diffs ---------------------------------------------------------------------------------------------------------


class _Change(Wire):
    file_type: Optional[FileType] = None
    mime_type: Optional[Text] = None


class _PathChange(_Change):
    path: Text


class _PairChange(_PathChange):
    old_path: Text


class AddChange(_PathChange):
    """A new file. Paths of changes are absolute (DIFF-1)."""

    operation: Literal["add"] = "add"


class DeleteChange(_PathChange):
    """A file is gone."""

    operation: Literal["delete"] = "delete"


class ModifyChange(_PathChange):
    """A file has new content."""

    operation: Literal["modify"] = "modify"


class MoveChange(_PairChange):
    """A file has another path."""

    operation: Literal["move"] = "move"


class CopyChange(_PairChange):
    """A file has been copied."""

    operation: Literal["copy"] = "copy"


class OtherChange(Other):
    """An operation this package does not know."""

    operation: Text


DiffChange = Annotated[
    Annotated[AddChange, Tag("<add>")]
    | Annotated[DeleteChange, Tag("<delete>")]
    | Annotated[ModifyChange, Tag("<modify>")]
    | Annotated[MoveChange, Tag("<move>")]
    | Annotated[CopyChange, Tag("<copy>")]
    | Annotated[OtherChange, Tag("<other>")],
    by_tag("operation", "add", "delete", "modify", "move", "copy"),
]


class DiffPatch(Wire):
    """The changes as git prints them, with absolute paths and no prefixes (DIFF-3)."""

    format: Annotated[Literal["git_patch"], OPEN]
    text: Text


# --- content of a tool call --------------------------------------------------------------------------------------------


class ContentItem(Wire):
    """A content block. Note the nesting: `{type: "content", content: {type: "text", ...}}`."""

    type: Literal["content"] = "content"
    content: ContentBlock


class DiffItem(Wire):
    """File changes; `changes` is authoritative, `patch` says the same (DIFF-1, DIFF-2)."""

    type: Literal["diff"] = "diff"
    changes: Items[DiffChange]
    patch: Optional[DiffPatch] = None


class TerminalItem(Wire):
    """A reference to a terminal; it may come before or after the terminal's own updates (TERM-1)."""

    type: Literal["terminal"] = "terminal"
    terminal_id: Text


class OtherItem(Other):
    """Content of a type this package does not know."""

    type: Text


ToolCallContent = Annotated[
    Annotated[ContentItem, Tag("<content>")]
    | Annotated[DiffItem, Tag("<diff>")]
    | Annotated[TerminalItem, Tag("<terminal>")]
    | Annotated[OtherItem, Tag("<other>")],
    by_tag("type", "content", "diff", "terminal"),
]


class ToolCallLocation(Wire):
    """Where a tool works: an absolute path, a 1-based line (TOOL-7)."""

    path: Text
    line: Optional[Annotated[Uint, Field(ge=1)]] = None


class ToolCall(Wire):
    """A patch of a tool call: absent leaves a field as it is, null clears it, arrays replace whole (TOOL-1..4)."""

    tool_call_id: Text
    name: Optional[Text] = None
    title: Optional[Text] = None
    kind: Optional[ToolKind] = None
    status: Optional[ToolStatus] = None
    content: OptionalItems[ToolCallContent] = None
    locations: OptionalItems[ToolCallLocation] = None
    raw_input: Raw = None
    raw_output: Raw = None
    capabilities: Optional[CancelCapability] = None


# --- terminals ---------------------------------------------------------------------------------------------------------


class TerminalOutput(Wire):
    """All stored bytes of a terminal, base64."""

    data: Text


class TerminalExitStatus(Wire):
    """The terminal has exited; the exit code may be negative or unknown."""

    exit_code: Optional[Int] = None
    signal: Optional[Text] = None


class TerminalSize(Wire):
    """Cells, 1 to 65535 each."""

    cols: Annotated[Uint, Field(ge=1, le=65535)]
    rows: Annotated[Uint, Field(ge=1, le=65535)]


class Terminal(Wire):
    """A patch of a terminal (TERM-2)."""

    terminal_id: Text
    command: Optional[Text] = None
    cwd: Optional[Text] = None
    output: Optional[TerminalOutput] = None
    exit_status: Optional[TerminalExitStatus] = None
    size: Optional[TerminalSize] = None
    capabilities: Optional[CancelCapability] = None
