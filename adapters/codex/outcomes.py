"""How a turn ended: Codex's turn status and error as stop reasons and errors with advice (STOP-*).

Owns the table from Codex's words to codes, categories and advice. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from adapters.acp.errors import AuthRequired, InternalError
from adapters.acp.shapes import as_integer, as_mapping, as_text
from adapters.codex.server.signals import TurnEnded
from adapters.driver.endings import Outcome

_CATEGORIES: Final = {
    "unauthorized": "authentication_failed",
    "usageLimitExceeded": "usage_limit",
    "sessionBudgetExceeded": "usage_limit",
    "rateLimitExceeded": "rate_limit",
    "serverOverloaded": "overloaded",
    "flexUnavailable": "overloaded",
    "internalServerError": "server_error",
    "contextWindowExceeded": "context_window",
    "badRequest": "invalid_request",
    "cyberPolicy": "policy",
    "misalignmentPolicyViolation": "policy",
    "sandboxError": "sandbox",
    "tooManyDenials": "too_many_denials",
}
"""`codexErrorInfo` -> category."""

_STATUSES: Final = {
    401: "authentication_failed",
    403: "authentication_failed",
    404: "model_not_found",
    429: "rate_limit",
    503: "overloaded",
}
"""HTTP status, where the info carries one -> category. Others are "server_error"."""

_ADVICE: Final = {
    "authentication_failed": "Codex is not logged in or its key is refused: run `codex login` in a terminal, or correct "
    "the provider's key, then send a new prompt.",
    "usage_limit": "The usage limit of the account is reached; try again after it resets.",
    "rate_limit": "The model service limits the rate of requests; try again later.",
    "overloaded": "The model service is overloaded; try again in a moment.",
    "context_window": "Use /compact or start a new session.",
    "too_many_denials": "Too many requests were declined in this turn.",
}
"""Category -> what to do next."""

_INCOMPLETE: Final = "Incomplete response returned, reason: "
_STOPS: Final = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
"""Why the model's answer ended early, as Codex writes it (0.163.0) -> stop reason."""

_NO_KEY: Final = "Missing environment variable"
"""Codex's message, without a code of its own, when the variable with the provider's key is not set (0.163.0)."""

_LONGEST_TEXT: Final = 2000  # characters of Codex's own words in an error


def outcome_of(ended: TurnEnded, *, interrupting: bool) -> Outcome:
    """The outcome of a turn. `interrupting`: we asked for an interrupt of it.

    A turn that Codex interrupted for a reason of its own is an error, not a cancellation (STOP-2). An unknown status
    without an error is the end of the turn.
    """
    if ended.status == "interrupted" and (interrupting or not ended.error):
        return Outcome("cancelled", interrupted=True)
    if not ended.error and ended.status != "failed":
        return Outcome("end_turn")
    error = as_mapping(ended.error)
    _, found, reason = as_text(error.get("message")).rpartition(_INCOMPLETE)
    if found and reason.strip() in _STOPS:
        return Outcome(_STOPS[reason.strip()])
    return Outcome("error", error_of(error))


def error_of(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """A turn's error for the wire."""
    category, status = _category(error.get("codexErrorInfo"))
    if _NO_KEY in as_text(error.get("message")):
        category = "authentication_failed"
    data: dict[str, Any] = {"category": category}
    if status is not None:
        data["status"] = status
    said = _readable(as_text(error.get("message")).strip())[:_LONGEST_TEXT]
    advice = _ADVICE.get(category)
    if advice and said and said[-1] not in ".!?":
        said += "."
    text = " ".join(filter(None, (said, advice))) or "Codex stopped and gave no reason."
    error_class = AuthRequired if category == "authentication_failed" else InternalError
    return error_class(text, data).to_wire()


def _category(info: Any) -> tuple[str, int | None]:
    """Category and HTTP status of a `codexErrorInfo`: a name, or an object with one name and its fields."""
    if isinstance(info, str):
        return _CATEGORIES.get(info, "other"), None
    for name, fields in as_mapping(info).items():
        status = as_integer(as_mapping(fields).get("httpStatusCode"))
        if status is not None:
            return _STATUSES.get(status, "server_error"), status
        return _CATEGORIES.get(name, "connection" if "onnect" in name else "other"), None
    return "other", None


def _readable(message: str) -> str:
    """Codex passes the body of a refused request on as its message; the sentence in it is what a user can read."""
    if message.startswith("{"):
        try:
            inner = as_text(as_mapping(as_mapping(json.loads(message)).get("error")).get("message"))
        except (ValueError, RecursionError):
            return message
        return inner or message
    return message
