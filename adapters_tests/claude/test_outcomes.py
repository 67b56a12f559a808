"""How turns end: stop reasons, codes, categories (every row measured with 2.1.332 unless it says so)."""

import time
from typing import Any

import pytest

from adapters.claude.cli.frames import TurnEnded
from adapters.claude.outcomes import outcome_of
from adapters.driver.endings import Outcome


def outcome(
    category: str | None = None, resets_at: float | None = None, interrupting: bool = False, **fields: Any
) -> Outcome:
    return outcome_of(TurnEnded(**fields), category=category, resets_at=resets_at, interrupting=interrupting)


@pytest.mark.parametrize(
    ("fields", "stop_reason"),
    [
        ({"terminal_reason": "completed", "stop_reason": "end_turn"}, "end_turn"),
        ({"stop_reason": ""}, "end_turn"),  # a local command: no call, no reason
        ({"stop_reason": "max_tokens"}, "max_tokens"),
        ({"stop_reason": "refusal"}, "refusal"),
        ({"subtype": "error_max_turns", "is_error": True}, "max_turn_requests"),
    ],
)
def test_an_ordinary_end(fields: dict[str, Any], stop_reason: str) -> None:
    assert outcome(**fields) == Outcome(stop_reason)


@pytest.mark.parametrize("reason", ["aborted_streaming", "aborted_tools"])
@pytest.mark.parametrize("subtype", ["error_during_execution", "success"])
def test_an_interrupt_is_a_cancellation_whatever_the_subtype(reason: str, subtype: str) -> None:
    """STOP-1; a turn cut by another prompt even says success without error."""
    assert outcome(subtype=subtype, terminal_reason=reason) == Outcome("cancelled", interrupted=True)


def test_an_error_while_an_interrupt_runs_is_that_interrupt() -> None:
    """STOP-1."""
    fields: dict[str, Any] = {"subtype": "error_during_execution", "is_error": True}
    assert outcome(interrupting=True, **fields) == Outcome("cancelled", interrupted=True)
    assert outcome(**fields).stop_reason == "error"


@pytest.mark.parametrize(
    ("category", "status", "code", "expected", "advice"),
    [
        ("authentication_failed", 401, -32000, "authentication_failed", "claude auth login"),
        (None, 403, -32000, "authentication_failed", "claude auth login"),
        ("authentication_failed", None, -32000, "authentication_failed", "claude auth login"),  # no key at all
        ("rate_limit", 429, -32603, "rate_limit", "later"),
        ("server_error", 529, -32603, "overloaded", "overloaded"),
        ("server_error", 500, -32603, "server_error", "500"),
        ("model_not_found", 404, -32603, "model_not_found", "/model"),
        (None, None, -32603, "server_error", "500"),
    ],
)
def test_a_failed_call(category: str | None, status: int | None, code: int, expected: str, advice: str) -> None:
    """D9, STOP-5: 401 makes the client ask for a login; the others tell themselves apart."""
    ended = outcome(
        category=category, is_error=True, terminal_reason="api_error", text="API Error: 500 or so", status=status
    )
    assert ended.stop_reason == "error"
    assert ended.error is not None
    assert ended.error["code"] == code
    assert ended.error["data"]["category"] == expected
    assert advice in ended.error["message"]


def test_a_prompt_that_is_too_long_says_what_to_do() -> None:
    ended = outcome(is_error=True, terminal_reason="prompt_too_long", text="Prompt is too long")
    assert ended.error is not None
    assert ended.error["data"] == {"category": "prompt_too_long"}
    assert "/compact" in ended.error["message"]


def test_a_usage_limit_says_when_it_lifts() -> None:
    ended = outcome(category="rate_limit", resets_at=time.time() + 90, is_error=True, status=429)
    assert ended.error is not None
    assert 80 <= ended.error["data"]["retryAfter"] <= 90
    past = outcome(category="rate_limit", resets_at=time.time() - 90, is_error=True, status=429)
    assert past.error is not None
    assert "retryAfter" not in past.error["data"]


def test_an_unknown_failure_is_an_error_with_a_text() -> None:
    """D11."""
    ended = outcome(subtype="error_max_budget_usd", is_error=True)
    assert ended.error is not None
    assert ended.error["data"]["category"] == "max_budget_usd"
    assert ended.error["message"]
    assert outcome(subtype="novel").stop_reason == "error"


@pytest.mark.parametrize(
    ("text", "stop_reason"),
    [
        ("API Error: Claude's response exceeded the 128000 output token maximum.", "max_tokens"),
        ("API Error: The model has reached its context window limit.", "error"),
    ],
)
def test_a_limit_on_which_the_cli_gives_up(text: str, stop_reason: str) -> None:
    """STOP-1: after three more calls it ends with an error of its own."""
    ended = outcome(
        "max_output_tokens", is_error=True, terminal_reason="api_error", text=text, stop_reason="stop_sequence"
    )
    assert ended.stop_reason == stop_reason
    if ended.error is not None:
        assert ended.error["data"]["category"] == "prompt_too_long"
        assert "/compact" in ended.error["message"]


def test_a_refusal_on_which_the_cli_gives_up() -> None:
    ended = outcome(
        "invalid_request", is_error=True, terminal_reason="api_error", text="API Error", stop_reason="refusal"
    )
    assert ended == Outcome("refusal")


def test_a_prompt_that_is_too_long_is_told_so_whatever_the_failed_call_says() -> None:
    ended = outcome(
        "invalid_request", is_error=True, terminal_reason="prompt_too_long", text="Prompt is too long", status=400
    )
    assert ended.error is not None
    assert ended.error["data"] == {"category": "prompt_too_long", "status": 400}
