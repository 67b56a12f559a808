"""Ends of turns as stop reasons and errors; the infos are those that were seen from Codex 0.163.0."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.codex.outcomes import outcome_of
from adapters.codex.server.signals import TurnEnded
from adapters.driver.endings import Outcome


def failed(message: str, info: Any = "other", status: str = "failed") -> TurnEnded:
    return TurnEnded("N", status, {"message": message, "codexErrorInfo": info, "additionalDetails": None})


@pytest.mark.parametrize(
    ("ended", "interrupting", "expected"),
    [
        (TurnEnded("N", "completed"), False, Outcome("end_turn")),
        (TurnEnded("N", "completed"), True, Outcome("end_turn")),
        (TurnEnded("N", "later"), False, Outcome("end_turn")),
        (TurnEnded("N", "interrupted"), True, Outcome("cancelled", interrupted=True)),
        (TurnEnded("N", "interrupted"), False, Outcome("cancelled", interrupted=True)),
        (failed("x", status="interrupted"), True, Outcome("cancelled", interrupted=True)),
        (failed("Incomplete response returned, reason: max_output_tokens"), False, Outcome("max_tokens")),
        (
            failed("stream disconnected before completion: Incomplete response returned, reason: content_filter"),
            False,
            Outcome("refusal"),
        ),
    ],
)
def test_ends_that_are_no_errors(ended: TurnEnded, interrupting: bool, expected: Outcome) -> None:
    """STOP-1, STOP-3, D11."""
    assert outcome_of(ended, interrupting=interrupting) == expected


@pytest.mark.parametrize(
    ("info", "code", "category", "status"),
    [
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, -32000, "authentication_failed", 401),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, -32000, "authentication_failed", 403),
        ("unauthorized", -32000, "authentication_failed", None),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, -32603, "rate_limit", 429),
        ({"httpConnectionFailed": {"httpStatusCode": 503}}, -32603, "overloaded", 503),
        ({"responseStreamDisconnected": {"httpStatusCode": 502}}, -32603, "server_error", 502),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, -32603, "connection", None),
        ("internalServerError", -32603, "server_error", None),
        ("usageLimitExceeded", -32603, "usage_limit", None),
        ("rateLimitExceeded", -32603, "rate_limit", None),
        ("contextWindowExceeded", -32603, "context_window", None),
        ("serverOverloaded", -32603, "overloaded", None),
        ("somethingNew", -32603, "other", None),
        ({"somethingNew": 7}, -32603, "other", None),
        ({}, -32603, "other", None),
        (None, -32603, "other", None),
    ],
)
def test_failures(info: Any, code: int, category: str, status: int | None) -> None:
    """D9, STOP-5, known faults: 401 is -32000; limits and overload are told apart."""
    outcome = outcome_of(failed("it says so", info), interrupting=False)
    assert outcome.stop_reason == "error"
    assert outcome.error is not None
    assert outcome.error["code"] == code
    assert outcome.error["message"].startswith("it says so")
    assert outcome.error["data"] == {"category": category, **({"status": status} if status else {})}


def test_a_failure_while_interrupting_is_told_as_it_is() -> None:
    """The core makes "cancelled" of it, because it asked for the interrupt (STOP-1)."""
    assert outcome_of(failed("boom"), interrupting=True).stop_reason == "error"


def test_codex_stops_for_its_own_reasons() -> None:
    """STOP-2: that is no cancellation."""
    ended = failed("Too many denials", "tooManyDenials", status="interrupted")
    assert outcome_of(ended, interrupting=False).stop_reason == "error"


def test_a_body_as_message_is_read() -> None:
    """400: Codex passes the body on."""
    outcome = outcome_of(failed('{"error": {"message": "bad thing", "code": null}}'), interrupting=False)
    assert outcome.error is not None
    assert outcome.error["message"] == "bad thing"
    for odd in ("{", '{"error": 7}', "[" * 5000):
        assert outcome_of(failed(odd), interrupting=False).stop_reason == "error"


def test_a_key_that_is_not_set_is_a_missing_login() -> None:
    """AUTH-5: Codex has no name of its own for it. Its words and ours are two sentences."""
    outcome = outcome_of(failed("Missing environment variable: `MY_KEY`", "other"), interrupting=False)
    assert outcome.error is not None
    assert outcome.error["code"] == -32000
    assert outcome.error["message"].startswith("Missing environment variable: `MY_KEY`. Codex is not logged in")


def test_an_error_without_a_word() -> None:
    """D9: a person always gets a sentence."""
    outcome = outcome_of(TurnEnded("N", "failed", {}), interrupting=False)
    assert outcome.error is not None
    assert outcome.error["message"]
