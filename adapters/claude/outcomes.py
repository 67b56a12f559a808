"""How a turn ended: Claude Code's `result` frames as stop reasons and errors with advice (STOP-*).

Owns the tables from Claude Code's words to codes, categories and advice. Knows no session. Reads the clock for `retryAfter`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from adapters.acp.errors import AuthRequired, InternalError
from adapters.claude.cli.frames import TurnEnded
from adapters.driver.endings import Outcome

_MODEL_STOPS = {"max_tokens": "max_tokens", "refusal": "refusal"}
"""The model's stop reason -> ours, where it is not simply the end of the turn."""

_GIVEN_UP = "max_output_tokens"
"""The category of the call with which the CLI gives up on a model that stops at a limit: it asks three times more before that."""

_FULL_WINDOW = "context window"
"""Claude Code's message if the limit was the context window; the category is the same."""

_LIMITS = {"error_max_turns": "max_turn_requests"}
"""The subtype of a result that is a limit rather than a failure."""

_CATEGORIES = {401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit", 529: "overloaded"}
"""HTTP status -> category, where the CLI names none, or only "server_error"."""

_ADVICE = {
    "authentication_failed": "Claude Code is not logged in or its key is refused: run `claude auth login`, or set "
    "ANTHROPIC_API_KEY, then send a new prompt.",
    "billing_error": "The Anthropic account cannot pay for this call; look at its billing page.",
    "rate_limit": "The usage limit is reached; try again later.",
    "overloaded": "The model service is overloaded; try again in a moment.",
    "model_not_found": "The model is not available to this account; choose another one with /model.",
    "prompt_too_long": "The conversation is too long for the model; use /compact or start a new session.",
}
"""Category -> what to do next."""

_LONGEST_TEXT = 2000  # characters of the CLI's own words in an error


def outcome_of(result: TurnEnded, *, category: str | None, resets_at: float | None, interrupting: bool) -> Outcome:
    """The outcome of a turn.

    `category`: of the last failed model call of the turn, None when the last one went well. `resets_at`: Unix seconds when
    the usage limit lifts, None when unknown. `interrupting`: we asked for an interrupt of this turn.
    `subtype: "success"` alone means nothing: `is_error` and `terminal_reason` do.
    """
    if result.terminal_reason.startswith("aborted"):
        return Outcome("cancelled", interrupted=True)
    if result.subtype in _LIMITS:
        return Outcome(_LIMITS[result.subtype])
    if not result.is_error and result.subtype in ("success", ""):
        return Outcome(_MODEL_STOPS.get(result.stop_reason, "end_turn"))
    if interrupting and result.subtype == "error_during_execution":
        return Outcome("cancelled", interrupted=True)
    if result.stop_reason == "refusal":
        return Outcome("refusal")
    if category == _GIVEN_UP:
        if _FULL_WINDOW not in result.text:
            return Outcome("max_tokens")
        category = "prompt_too_long"
    return Outcome("error", _error(result, category, resets_at))


def _error(result: TurnEnded, category: str | None, resets_at: float | None) -> Mapping[str, Any]:
    if result.terminal_reason in _ADVICE:
        category = result.terminal_reason  # it knows better than the failed call, which was just invalid
    if category is None or (category == "server_error" and result.status in _CATEGORIES):
        category = _CATEGORIES.get(result.status or 0, category)
    if category is None:
        ended = result.terminal_reason not in ("", "completed", "api_error")
        category = result.terminal_reason if ended else result.subtype.removeprefix("error_")
        category = "server_error" if category == "success" else category
    data: dict[str, Any] = {"category": category}
    if result.status is not None:
        data["status"] = result.status
    if category == "rate_limit" and resets_at is not None and (wait := round(resets_at - time.time())) > 0:
        data["retryAfter"] = wait
    said = result.text.strip()[:_LONGEST_TEXT]
    text = "\n".join(filter(None, (said, _ADVICE.get(category)))) or f"Claude Code stopped: {category}."
    error_class = AuthRequired if category in ("authentication_failed", "oauth_org_not_allowed") else InternalError
    return error_class(text, data).to_wire()
