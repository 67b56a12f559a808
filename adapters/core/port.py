"""The port: what the core asks of a runtime, and the events a runtime answers with.

Owns the vocabulary between core and runtime drivers. Knows ACP's content blocks and updates, no runtime's frames.

The contract in short. The core hands a session one prompt at a time (`RuntimeSession.submit`); the driver answers it with
exactly one of `PromptInserted`, `PromptLiveOnly` or `PromptFailed`, whatever dies in between. Foreground work is bracketed
by `WorkStarted` and `WorkEnded`. Everything else a client should see travels as `Output`. Events of one session arrive in
the order in which they hold; a driver delivers none after its `close` has returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from adapters.acp.errors import AcpError
    from adapters.acp.schema import AvailableCommand, ContentBlock, SessionUpdate, ToolCallUpdate

__all__ = [
    "NOT_STORED",
    "CommandsChanged",
    "Event",
    "EventSink",
    "Features",
    "LocalReply",
    "Output",
    "PermissionOption",
    "PermissionRequested",
    "PermissionWithdrawn",
    "PromptFailed",
    "PromptInserted",
    "PromptLiveOnly",
    "PromptTaken",
    "ReadyChanged",
    "Runtime",
    "RuntimeSession",
    "SessionPage",
    "SessionSetup",
    "StoredSession",
    "WorkEnded",
    "WorkStarted",
]


NOT_STORED = "Resource not found: no such session is stored."
"""The text of `ResourceNotFound` for a session that is not stored."""


# --- what a session is opened with -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """Roots and servers of a session, as validated by the core: absolute existing folders, without links (SETUP-1, SETUP-7).

    A folder is what it is, not how it is spelled: a runtime stores it one way, and its sandbox may not follow links.
    """

    cwd: str
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[Any, ...] = ()
    """`adapters.acp.schema.McpServerStdio` / `McpServerHttp` values; the complete new list (RESUME-1)."""
    named: str = field(default="", compare=False)
    """How the client spells `cwd`: the user may have settings for that name. Empty when it does not matter."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One row of a session list (LIST-*)."""

    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None
    """RFC 3339, UTC."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of stored sessions, newest first; `next_cursor` None ends the list."""

    sessions: Sequence[StoredSession]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """What this runtime supports in prompts, sessions and servers. The core advertises and enforces it (INIT-*)."""

    image: bool = False
    audio: bool = False
    embedded_context: bool = False
    additional_directories: bool = False
    delete: bool = False
    mcp_stdio: bool = False
    mcp_http: bool = False


# --- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkStarted:
    """Foreground work began, prompted or not (STATE-1). Repeats while work runs are harmless."""


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """No foreground work is left; every update of it was delivered before (STATE-2).

    `stop_reason` is a v2 stop reason; `error` belongs to "error" only (STOP-3). The core replaces it by "cancelled" when it
    had asked for the interrupt that ended the work (STOP-1).
    """

    stop_reason: str = "end_turn"
    error: Mapping[str, Any] | None = None
    interrupted: bool = False
    """True when the runtime says that an interrupt ended this work."""


@dataclass(frozen=True, slots=True)
class PromptTaken:
    """The runtime began with the prompt: a client may see it from now on. Not proof of storage (D2)."""

    message_id: str


@dataclass(frozen=True, slots=True)
class PromptInserted:
    """The stored session holds the prompt under this id: evidence (PROMPT-9, D2). Ends the submission.

    Work that took the prompt in ends after this, or has ended between `PromptTaken` and this: a client may wait for it. Where
    the runtime is gone before it began, the driver says so by a `WorkStarted` and a `WorkEnded` with the error.
    """

    message_id: str


@dataclass(frozen=True, slots=True)
class PromptLiveOnly:
    """The runtime worked on the prompt but its store did not take it: inserted, not retained (KEY-43). Ends the submission."""

    message_id: str
    by_design: bool = False
    """The runtime never stores such prompts; otherwise the client is told that the store failed."""


@dataclass(frozen=True, slots=True)
class PromptFailed:
    """The prompt is not inserted and will not be (ERR-5): `error` says why, None that it was withdrawn. Ends the submission."""

    message_id: str
    error: AcpError | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """An update for the client, sent as it is."""

    update: SessionUpdate


@dataclass(frozen=True, slots=True)
class PermissionOption:
    """One choice. `kind`: allow_once, allow_always, reject_once, reject_always."""

    option_id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class PermissionRequested:
    """The runtime asks before it runs a tool. Answer with `RuntimeSession.answer_permission`, once."""

    request_id: str
    title: str
    options: Sequence[PermissionOption]
    tool_call: ToolCallUpdate | None = None
    description: str | None = None
    foreground: bool = True
    command: tuple[str, str] | None = None
    """The command that it is about and its folder, where no `tool_call` is: the whole text, every character of it seen."""


@dataclass(frozen=True, slots=True)
class PermissionWithdrawn:
    """The runtime no longer waits for this answer (RCAN-7)."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ReadyChanged:
    """`RuntimeSession.ready` may have become true: the core looks at its queue again."""


@dataclass(frozen=True, slots=True)
class CommandsChanged:
    """The complete new list of slash commands (CMD-2)."""

    commands: Sequence[AvailableCommand] = field(default_factory=tuple)


Event = (
    WorkStarted
    | WorkEnded
    | PromptTaken
    | PromptInserted
    | PromptLiveOnly
    | PromptFailed
    | Output
    | PermissionRequested
    | PermissionWithdrawn
    | ReadyChanged
    | CommandsChanged
)


class EventSink(Protocol):
    """Where a driver delivers a session's events: the core's session."""

    def deliver(self, event: Event) -> None:
        """Take one event; never blocks, never raises."""

    async def writable(self) -> None:
        """Return once the clients have room (a slow client must slow the runtime, not fill memory). Await before reading on."""


# --- the runtime ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalReply:
    """The answer of a command that never reaches the runtime (D8, CMD-4). `text` is Markdown."""

    text: str


class RuntimeSession(Protocol):
    """One session, active in this process. All methods are called from the core's event loop."""

    session_id: str
    commands: Sequence[AvailableCommand]

    async def started(self) -> None:
        """Return when the runtime is ready for prompts in this session. Raises `AcpError` that says why it does not start.

        A driver's `open_session` may return before that: history is replayed meanwhile. Until it has returned nobody sends
        a prompt, and `commands` may be empty. The core closes a session that did not come up.
        """
        ...

    @property
    def ready(self) -> bool:
        """Whether a prompt handed over now would be taken in soon and truthfully (D3). The core checks it before `submit`."""
        ...

    def local_reply(self, prompt: Sequence[ContentBlock]) -> LocalReply | None:
        """The answer to a prompt that this driver answers itself, None for prompts of the runtime."""
        ...

    def is_live_only(self, prompt: Sequence[ContentBlock]) -> bool:
        """Whether the runtime never stores such a prompt: its id must be used once only, so it is random (E30, PROMPT-5)."""
        ...

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored session holds this user message: a complete, current look (D4, ADP-4, ADP-5).

        Reads only what was appended since the last call. Raises `AcpError` (-32603) when the store cannot be read (ADP-6).
        Ends orphans of a crashed predecessor first (D6).
        """
        ...

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Hand the prompt to the runtime under this id. At most one submission is open at a time.

        The outcome comes as an event. A raised `AcpError` is the outcome "not inserted".
        """
        ...

    async def withdraw(self, message_id: str) -> None:
        """Ask that the open submission be taken back (D5). Returns when asked; the outcome comes as its one event."""
        ...

    async def interrupt(self) -> None:
        """Stop the foreground work. Returns when asked; `WorkEnded` follows within a bound of the driver (D7)."""
        ...

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Answer an open permission request; None means not approved (PERM-2, PERM-3). Unknown ids are ignored."""
        ...

    async def reconfigure(self, setup: SessionSetup) -> None:
        """The complete new roots and servers of this active session (RESUME-1); `setup.cwd` is unchanged.

        Takes effect at the next moment without work; never interrupts work or drops a submission (RESUME-5). The core calls it
        only with a setup that differs from the last one.
        """
        ...

    def replay(self) -> AsyncIterator[SessionUpdate]:
        """All retained history as updates that rebuild the client's view (REPLAY-2..7), from a complete read.

        Complete up to the moment of the call; live events that happen meanwhile follow it.
        """
        ...

    async def close(self) -> None:
        """End the runtime's work and free everything within a bound. Submissions still open end in their event first."""
        ...


class Runtime(Protocol):
    """One runtime, driving any number of sessions."""

    features: Features

    async def new_session(self, setup: SessionSetup, sink: EventSink) -> RuntimeSession:
        """Start a session under a fresh id. Raises `AcpError` with the reason when the runtime cannot start."""
        ...

    async def open_session(self, session_id: str, setup: SessionSetup, sink: EventSink) -> RuntimeSession:
        """Make a stored session active: it is this process's from now on, and can be replayed; see `RuntimeSession.started`.

        Raises `ResourceNotFound`, or an `AcpError` that names another holder (D6).
        """
        ...

    async def list_sessions(self, cwd: str | None, cursor: str | None) -> SessionPage:
        """Stored sessions, newest first. Raises `InvalidParams` for a cursor that is not ours (LIST-3)."""
        ...

    async def delete_session(self, session_id: str) -> None:
        """Remove a stored session; a missing one is success (DEL-2)."""
        ...

    async def aclose(self) -> None:
        """Free what the runtime holds beside its sessions."""
        ...
