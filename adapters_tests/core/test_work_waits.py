"""Which work a waiting attempt belongs to: every order of events, against a model in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.core.foreground import Report, State
from adapters.core.work_waits import CANCELLED, WorkWaits


class Waiting:
    """An attempt that notes how it was answered."""

    def __init__(self, *, until_work_ends: bool = True) -> None:
        self.until_work_ends = until_work_ends
        self.reports: list[Report] = []

    def on_cancel(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def inserted(self, message_id: str) -> None:
        raise NotImplementedError

    def failed(self, error: Exception | None) -> None:
        raise NotImplementedError

    def work_ended(self, report: Report) -> None:
        self.reports.append(report)


def idle(reason: str) -> Report:
    return Report(State.IDLE, reason)


def test_a_prompt_inserted_in_work_waits_for_its_end() -> None:
    waits, mine = WorkWaits(), Waiting()
    waits.taken("m")
    waits.inserted("m", [mine], working=True)
    waits.settled("m")
    assert waits
    assert mine in waits
    waits.ended(idle("refusal"))
    assert mine.reports == [idle("refusal")]
    assert not waits


def test_a_prompt_inserted_before_its_work_waits_for_that() -> None:
    waits, mine = WorkWaits(), Waiting()
    waits.inserted("m", [mine], working=False)
    waits.settled("m")
    assert mine in waits
    waits.started()
    waits.cancel_expected()
    assert mine.reports == []
    waits.ended(idle("end_turn"))
    assert mine.reports == [idle("end_turn")]


def test_proof_that_comes_after_the_end_of_the_work_brings_that_ends_report() -> None:
    waits, mine, later = WorkWaits(), Waiting(), Waiting()
    waits.taken("m")
    waits.ended(idle("max_tokens"))
    waits.inserted("m", [mine], working=False)
    assert mine.reports == [idle("max_tokens")]
    waits.settled("m")
    waits.inserted("n", [later], working=False)
    assert later.reports == []


def test_the_end_of_other_work_is_not_taken_for_it() -> None:
    waits, mine = WorkWaits(), Waiting()
    waits.taken("other")
    waits.ended(idle("end_turn"))
    waits.settled("other")
    waits.taken("m")
    waits.inserted("m", [mine], working=True)
    assert mine.reports == []
    waits.ended(idle("refusal"))
    assert mine.reports == [idle("refusal")]


def test_an_attempt_that_does_not_wait_is_left_alone() -> None:
    waits, other = WorkWaits(), Waiting(until_work_ends=False)
    waits.inserted("m", [other], working=True)
    assert not waits
    waits.ended(idle("end_turn"))
    assert other.reports == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancel_without_work_answers_only_what_has_not_begun(*, begun: bool) -> None:
    waits, mine = WorkWaits(), Waiting()
    waits.inserted("m", [mine], working=begun)
    waits.cancel_expected()
    assert mine.reports == ([] if begun else [CANCELLED])


class Life(RuleBasedStateMachine):
    """Prompts one after the other, as the core hands them over, and work that begins and ends at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = WorkWaits()
        self.working = False
        self.open: tuple[str, list[Waiting]] | None = None
        self.taken = False
        self.ended_since_taken: Report | None = None
        self.waiting: dict[Waiting, str] = {}
        """Who is owed an answer, and since when: before its work, or in it."""
        self.answered: dict[Waiting, Report] = {}
        self.all: list[Waiting] = []
        self.number = 0

    @precondition(lambda self: self.open is None)
    @rule(attempts=st.lists(st.booleans(), min_size=1, max_size=3))
    def hand_over(self, attempts: list[bool]) -> None:
        self.number += 1
        self.open = (f"m{self.number}", [Waiting(until_work_ends=waits) for waits in attempts])
        self.all += self.open[1]
        self.taken, self.ended_since_taken = False, None

    @precondition(lambda self: self.open is not None and not self.taken)
    @rule()
    def take(self) -> None:
        self._start()
        assert self.open
        self.waits.taken(self.open[0])
        self.taken = True

    @rule()
    def start(self) -> None:
        self._start()

    def _start(self) -> None:
        self.working = True
        self.waits.started()
        self.waiting = dict.fromkeys(self.waiting, "in it")

    @precondition(lambda self: self.working)
    @rule(reason=st.sampled_from(["end_turn", "refusal", "error"]))
    def end(self, reason: str) -> None:
        self.working = False
        report = idle(reason)
        self.waits.ended(report)
        self.answered |= dict.fromkeys(self.waiting, report)
        self.waiting.clear()
        if self.taken and self.ended_since_taken is None:
            self.ended_since_taken = report

    @precondition(lambda self: self.open is not None)
    @rule()
    def insert(self) -> None:
        assert self.open
        message_id, attempts = self.open
        self.waits.inserted(message_id, attempts, working=self.working)
        self.waits.settled(message_id)
        for attempt in attempts:
            if not attempt.until_work_ends:
                continue
            if self.ended_since_taken is not None:
                self.answered[attempt] = self.ended_since_taken
            else:
                self.waiting[attempt] = "in it" if self.working else "before"
        self.open, self.taken, self.ended_since_taken = None, False, None

    @precondition(lambda self: self.open is not None)
    @rule()
    def fail(self) -> None:
        assert self.open
        self.waits.settled(self.open[0])
        self.open, self.taken, self.ended_since_taken = None, False, None

    @precondition(lambda self: not self.working)
    @rule()
    def cancel(self) -> None:
        self.waits.cancel_expected()
        self.answered |= dict.fromkeys(self.waiting, CANCELLED)
        self.waiting.clear()

    @invariant()
    def everybody_is_answered_once_and_with_the_right_end(self) -> None:
        for attempt in self.all:
            expected = [self.answered[attempt]] if attempt in self.answered else []
            assert attempt.reports == expected
            assert (attempt in self.waits) == (attempt in self.waiting)
        assert bool(self.waits) == bool(self.waiting)

    def teardown(self) -> None:
        """A closed session owes nobody."""
        self.waits.ended(CANCELLED)
        for attempt in self.waiting:
            assert attempt.reports == [CANCELLED]
        assert not self.waits


TestLife = Life.TestCase


@given(st.lists(st.sampled_from(["started", "ended"]), max_size=6))
def test_work_of_nobody_answers_nobody(steps: list[Any]) -> None:
    waits = WorkWaits()
    for step in steps:
        waits.started() if step == "started" else waits.ended(idle("end_turn"))
    mine = Waiting()
    waits.taken("m")
    waits.inserted("m", [mine], working=True)
    assert mine.reports == []
