"""What Claude Code's stream-json frames mean for the driver, as typed signals; and the frames that the driver writes.

Owns Claude Code's names for turns, storage and control. Knows no state and no process. `show.live` reads the frames that carry
output. Unknown frames give no signal (D11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.stored.transcript import message_ids_of

# --- signals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """`command_lifecycle`: what became of a prompt. `state`: queued, started, completed, cancelled."""

    message_id: str
    state: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """`system/init`: a turn begins. `message_ids` is empty for a turn that nobody's prompt asked for."""

    message_ids: frozenset[str] = frozenset()
    servers: tuple[tuple[str, str], ...] = ()
    """Name and status of each MCP server: connected, pending, failed, needs-auth, disabled."""


@dataclass(frozen=True, slots=True)
class Echo:
    """The CLI repeats a prompt: at its first output, and also when it skips a known id. Proves nothing."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Stored:
    """`transcript_mirror`: these entries were appended to the stored session."""

    path: str
    """The file."""
    session_id: str
    """Whose it is, by its name."""
    message_ids: frozenset[str]
    entry_uuids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Blocked:
    """A UserPromptSubmit hook refused the prompt that was just started; it is not stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class Spoke:
    """The model, or the CLI in its place, answered in the main conversation."""

    error: str | None = None
    """The category of a failed call: authentication_failed, rate_limit, server_error, ..."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """`rate_limit_event`: until when (Unix seconds) the account may not go on; None lifts it."""

    resets_at: float | None


@dataclass(frozen=True, slots=True)
class CommandsListed:
    """`commands_changed`: the whole list anew, as after an MCP server has connected."""

    listed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Strayed:
    """`conversation_reset`: the process goes on in another session and another file."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`result`: the one end of a turn."""

    message_ids: frozenset[str] = frozenset()
    subtype: str = "success"
    is_error: bool = False
    terminal_reason: str = ""
    stop_reason: str = ""
    text: str = ""
    status: int | None = None
    """The HTTP status of the failed model call."""


@dataclass(frozen=True, slots=True)
class AskedPermission:
    """`can_use_tool`: the CLI waits for an answer."""

    request_id: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskedOther:
    """A control request that this host does not serve."""

    request_id: str
    subtype: str


@dataclass(frozen=True, slots=True)
class AskWithdrawn:
    """`control_cancel_request`: the CLI no longer waits."""

    request_id: str


Signal = (
    Lifecycle
    | TurnBegan
    | Echo
    | Stored
    | Blocked
    | Spoke
    | LimitReached
    | CommandsListed
    | Strayed
    | TurnEnded
    | AskedPermission
    | AskedOther
    | AskWithdrawn
)


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """`control_response`: the CLI's answer to a control request. `error` is None for success."""

    request_id: str
    payload: Mapping[str, Any]
    error: str | None


# --- reading -------------------------------------------------------------------------------------------------------


def signal_of(frame: Mapping[str, Any]) -> Signal | None:
    """The frame as a signal for the driver; None for output, unknown frames and malformed frames."""
    read = _READERS.get(as_text(frame.get("type")))
    return read(frame) if read else None


def control_answer_of(frame: Mapping[str, Any]) -> ControlAnswer | None:
    """The answer in a `control_response`, also in the echo of one of our own: match it by its id."""
    if frame.get("type") != "control_response":
        return None
    response = as_mapping(frame.get("response"))
    error = None
    if response.get("subtype") != "success":
        error = as_text(response.get("error")) or as_text(response.get("error_code")) or "refused"
    return ControlAnswer(as_text(response.get("request_id")), as_mapping(response.get("response")), error)


def kind_of(frame: Mapping[str, Any]) -> str:
    """`type` or `type/subtype`, for logs."""
    subtype = as_text(frame.get("subtype")) or as_text(as_mapping(frame.get("request")).get("subtype"))
    return "/".join(filter(None, (as_text(frame.get("type")) or "untyped", subtype)))


def _lifecycle(frame: Mapping[str, Any]) -> Signal | None:
    message_id, state = as_text(frame.get("command_uuid")), as_text(frame.get("state"))
    return Lifecycle(message_id, state) if message_id and state else None


def _system(frame: Mapping[str, Any]) -> Signal | None:
    match frame.get("subtype"):
        case "init":
            servers = tuple(
                (as_text(server.get("name")), as_text(server.get("status")))
                for server in map(as_mapping, as_list(frame.get("mcp_servers")))
            )
            return TurnBegan(_ids(frame), servers)
        case "commands_changed":
            return CommandsListed(frame)
        case "informational":
            outcome = as_mapping(frame.get("prompt_submit_outcome"))
            if outcome.get("kind") == "blocked_by_hook" and not outcome.get("prompt_kept"):
                return Blocked(as_text(outcome.get("reason")))
            return None
        case _:
            return None


def _user(frame: Mapping[str, Any]) -> Signal | None:
    message_id = as_text(frame.get("uuid"))
    return Echo(message_id) if frame.get("isReplay") is True and message_id else None


def _assistant(frame: Mapping[str, Any]) -> Signal | None:
    if frame.get("parent_tool_use_id"):
        return None
    return Spoke(as_text(frame.get("error")) or None)


def _rate_limit(frame: Mapping[str, Any]) -> Signal:
    info = as_mapping(frame.get("rate_limit_info"))
    resets_at = info.get("resetsAt")
    if info.get("status") == "rejected" and isinstance(resets_at, (int, float)) and not isinstance(resets_at, bool):
        return LimitReached(float(resets_at))
    return LimitReached(None)


def _result(frame: Mapping[str, Any]) -> Signal:
    status = frame.get("api_error_status")
    errors = [text for text in map(as_text, as_list(frame.get("errors"))) if text]
    return TurnEnded(
        message_ids=_ids(frame),
        subtype=as_text(frame.get("subtype")),
        is_error=frame.get("is_error") is True,
        terminal_reason=as_text(frame.get("terminal_reason")),
        stop_reason=as_text(frame.get("stop_reason")),
        text=as_text(frame.get("result")) or "\n".join(errors),
        status=status if isinstance(status, int) else None,
    )


def _mirror(frame: Mapping[str, Any]) -> Signal:
    path = as_text(frame.get("filePath"))
    file_name = path.replace("\\", "/").rsplit("/", 1)[-1]
    message_ids: set[str] = set()
    entry_uuids: set[str] = set()
    for entry in map(as_mapping, as_list(frame.get("entries"))):
        message_ids |= message_ids_of(entry)
        if uuid := as_text(entry.get("uuid")):
            entry_uuids.add(uuid)
    return Stored(path, file_name.removesuffix(".jsonl"), frozenset(message_ids), frozenset(entry_uuids))


def _control_request(frame: Mapping[str, Any]) -> Signal | None:
    request_id, request = as_text(frame.get("request_id")), as_mapping(frame.get("request"))
    if not request_id:
        return None
    subtype = as_text(request.get("subtype"))
    return AskedPermission(request_id, request) if subtype == "can_use_tool" else AskedOther(request_id, subtype)


def _reset(_frame: Mapping[str, Any]) -> Signal:
    return Strayed()


def _control_cancel(frame: Mapping[str, Any]) -> Signal | None:
    request_id = as_text(frame.get("request_id"))
    return AskWithdrawn(request_id) if request_id else None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Signal | None]]] = {
    "command_lifecycle": _lifecycle,
    "system": _system,
    "user": _user,
    "assistant": _assistant,
    "result": _result,
    "rate_limit_event": _rate_limit,
    "conversation_reset": _reset,
    "transcript_mirror": _mirror,
    "control_request": _control_request,
    "control_cancel_request": _control_cancel,
}


SILENT: Final = frozenset(
    {
        "auth_status",
        "control_response",
        "keep_alive",
        "prompt_suggestion",
        "stream_event",
        "tool_progress",
        "tool_use_summary",
    }
)
"""Known types that say nothing to the driver."""


def is_known(frame: Mapping[str, Any]) -> bool:
    """Whether this kind of frame is known, so that nothing may be missed by passing it over."""
    kind = as_text(frame.get("type"))
    return kind in _READERS or kind in SILENT


def _ids(frame: Mapping[str, Any]) -> frozenset[str]:
    """The prompts a turn belongs to: the list, or the older single field."""
    return frozenset(_id_list(frame))


def _id_list(frame: Mapping[str, Any]) -> Iterator[str]:
    for value in (*as_list(frame.get("user_message_uuids")), frame.get("user_message_uuid")):
        if text := as_text(value):
            yield text


# --- writing -------------------------------------------------------------------------------------------------------


def user_frame(message_id: str, content: str | Sequence[Mapping[str, Any]], *, literal: bool) -> dict[str, Any]:
    """A prompt under our id. `literal`: text that looks like a slash command is none."""
    frame: dict[str, Any] = {
        "type": "user",
        "uuid": message_id,
        "session_id": "",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": content if isinstance(content, str) else list(content)},
    }
    if literal:
        frame["client_composed"] = True
    return frame


def control_request(subtype: str, **params: Any) -> tuple[str, dict[str, Any]]:
    """A control request under a fresh id, and that id."""
    request_id = f"acp-{uuid4()}"
    return request_id, {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **params}}


def control_success(request_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Our answer to a control request of the CLI."""
    response = {"subtype": "success", "request_id": request_id, "response": payload}
    return {"type": "control_response", "response": response}


def control_error(request_id: str, text: str) -> dict[str, Any]:
    """Our refusal of a control request of the CLI."""
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": text}}
