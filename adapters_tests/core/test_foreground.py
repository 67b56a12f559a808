"""The foreground state as a table: every state with every signal."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.core.foreground import TRANSITIONS, Foreground, Report, Signal, State

RUNNING, IDLE, ACTION = State.RUNNING, State.IDLE, State.REQUIRES_ACTION


def at(state: State) -> Foreground:
    foreground = Foreground()
    if state is not IDLE:
        foreground.signal(Signal.STARTED)
    if state is ACTION:
        foreground.signal(Signal.BLOCKED)
    assert foreground.state is state
    return foreground


@pytest.mark.parametrize(
    ("state", "signal"), list(itertools.product(State, [s for s in Signal if s is not Signal.ENDED]))
)
def test_only_what_the_table_names_is_reported(state: State, signal: Signal) -> None:
    """STATE-1, STATE-6, STATE-7, STATE-8."""
    foreground = at(state)
    report = foreground.signal(signal)
    target = TRANSITIONS.get((state, signal))
    assert report == (None if target is None else Report(target))
    assert foreground.state is (target or state)


STOPS = [
    # stop_reason, interrupted, cancelling -> reported
    ("end_turn", False, False, "end_turn"),
    ("end_turn", False, True, "end_turn"),
    ("max_tokens", False, True, "max_tokens"),
    ("refusal", False, False, "refusal"),
    ("error", False, False, "error"),
    ("error", False, True, "cancelled"),
    ("error", True, False, "cancelled"),
    ("end_turn", True, False, "cancelled"),
    ("cancelled", False, True, "cancelled"),
]


@pytest.mark.parametrize(("stop_reason", "interrupted", "cancelling", "expected"), STOPS)
def test_the_stop_reason_of_ended_work(stop_reason: str, interrupted: bool, cancelling: bool, expected: str) -> None:
    """STOP-1, STOP-2, STOP-3, CANCEL-10: an error belongs to "error" only."""
    foreground = at(RUNNING)
    foreground.cancelling = cancelling
    error = {"code": -32603, "message": "x"}
    report = foreground.ended(stop_reason, error, interrupted=interrupted)
    assert report == Report(IDLE, expected, error if expected == "error" else None)
    assert foreground.snapshot == report
    assert not foreground.cancelling
    assert foreground.ended(stop_reason, error, interrupted=interrupted) is None


@given(st.lists(st.sampled_from([*Signal])))
def test_ends_never_outnumber_starts(signals: list[Signal]) -> None:
    """STATE-4, CANCEL-10: one idle per end of work."""
    foreground = Foreground()
    reports = [
        foreground.ended("end_turn", None, interrupted=False) if signal is Signal.ENDED else foreground.signal(signal)
        for signal in signals
    ]
    reported = [report.state for report in reports if report]
    assert all(first is not second for first, second in itertools.pairwise([IDLE, *reported]))
