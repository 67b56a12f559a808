"""Live events of Claude Code that a user should see once, as notices (NOTE-1). They are not stored and not replayed.

Owns the table of frames that become notices, and their texts. Frames may have any shape (D11).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from adapters.acp.schema import Notice
from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.driver.tool_text import one_line

_Frame = Mapping[str, Any]

_ENDS = frozenset({"", "end_turn", "stop_sequence", "tool_use", "max_tokens", "refusal"})
"""The model's reasons to stop that the end of the work says itself."""

_SEVERITIES: Mapping[str, str] = {"error": "error", "warning": "warning"}


def notice_of(frame: _Frame) -> Notice | None:
    """The notice that a frame is worth, None for most."""
    kind = as_text(frame.get("type"))
    words = _NOTICES.get(as_text(frame.get("subtype")) if kind == "system" else kind)
    return words(frame) if words else None


def _notice(severity: str, title: str, description: str = "") -> Notice:
    if description:
        return Notice(severity=severity, title=title, description=description)  # pyright: ignore[reportArgumentType]
    return Notice(severity=severity, title=title)  # pyright: ignore[reportArgumentType]


def _retry(frame: _Frame) -> Notice:
    status = as_count(frame.get("error_status"))
    cause = f"HTTP {status}" if status else as_text(frame.get("error")) or "no answer"
    attempt, limit = as_count(frame.get("attempt")), as_count(frame.get("max_retries"))
    return _notice("warning", f"The model's API failed ({one_line(cause)}); retry {attempt} of {limit}.")


def _status(frame: _Frame) -> Notice | None:
    """A compaction takes a model call's time; its id is known only at its end, so its beginning is a notice."""
    if frame.get("status") == "compacting":
        return _notice("info", "Compacting the conversation.")
    if frame.get("compact_result") == "failed":
        reason = one_line(as_text(frame.get("compact_error")))
        return _notice("warning", "The conversation could not be compacted.", reason)
    return None


def _said(frame: _Frame) -> Notice | None:
    """The runtime's own words."""
    text = one_line(as_text(frame.get("content")))
    return _notice(_SEVERITIES.get(as_text(frame.get("level")), "info"), text) if text else None


def _other_model(frame: _Frame) -> Notice | None:
    text = one_line(as_text(frame.get("content")))
    return _notice("warning", text or "The model was replaced by another one.")


def _writes_lost(frame: _Frame) -> Notice | None:
    if "transcript" not in as_list(frame.get("lost")):
        return None
    code = one_line(as_text(frame.get("error_code"))) or "unknown error"
    return _notice("error", f"Parts of the session could not be saved ({code}): resuming it will miss them.")


def _rate_limit(frame: _Frame) -> Notice | None:
    limit = as_mapping(frame.get("rate_limit_info"))
    title = _LIMITS.get(as_text(limit.get("status")))
    if title is None:
        return None
    try:
        moment = datetime.fromtimestamp(as_count(limit.get("resetsAt")), UTC).isoformat(timespec="minutes")
    except (ValueError, OverflowError, OSError):
        moment = ""
    known = as_count(limit.get("resetsAt")) and moment
    return _notice("warning", title, f"The limit resets at {moment}." if known else "")


_LIMITS: Mapping[str, str] = {
    "allowed_warning": "The account's usage limit is nearly reached.",
    "rejected": "The account's usage limit is reached.",
}


def _stopped(frame: _Frame) -> Notice | None:
    """The turn ended in order, but for a reason that has no stop reason of its own."""
    reason = as_text(frame.get("stop_reason"))
    if frame.get("is_error") or reason in _ENDS or as_text(frame.get("terminal_reason")).startswith("aborted"):
        return None
    if reason == "pause_turn":
        return _notice("warning", "The model paused in the middle of its turn: send a prompt to continue.")
    return _notice("warning", f"The model stopped for a reason that this agent does not know: {one_line(reason)}.")


_NOTICES: Mapping[str, Callable[[_Frame], Notice | None]] = {
    "api_retry": _retry,
    "status": _status,
    "informational": _said,
    "model_fallback": _other_model,
    "model_refusal_fallback": _other_model,
    "session_writes_lost": _writes_lost,
    "rate_limit_event": _rate_limit,
    "result": _stopped,
}
"""`system` subtypes and frame types. Seen with 2.1.332: the first three and the last; the others by its own description."""
