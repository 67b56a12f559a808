"""The key record against a small model: whatever the order of events, one insertion per key and one answer per attempt."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.core.submissions import (
    NAMESPACE,
    Joined,
    Known,
    Opened,
    Settlement,
    State,
    Submission,
    Submissions,
    derived_id,
)

SESSION = "018f4e9a-7c1b-7a55-9f0e-2b6d3c1a0f44"
KEYS = st.sampled_from([None, "a", "b", "c"])


class KeyRecord(RuleBasedStateMachine):
    """KEY-10 to KEY-22, ADP-8: attempts, look-ups, hand-overs, insertions, failures, cancels and restarts in any order.

    The model is the world outside: what the store holds, which attempts were answered and how. It knows nothing of states.
    """

    @initialize()
    def start(self) -> None:
        self.stored: Counter[str] = Counter()
        self.answers: dict[int, str | None] = {}
        self.asked: dict[int, str | None] = {}
        self.lost: set[int] = set()
        self.behind: dict[int, set[int]] = {}
        self.count = 0
        self.restart()

    @rule()
    def restart(self) -> None:
        """The process dies: everything in memory is gone, its attempts are never answered."""
        self.lost |= set(self.asked) - set(self.answers)
        self.submissions: Submissions[int, int] = Submissions(SESSION)
        self.queue: list[Submission[int, int]] = []
        self.in_flight: Submission[int, int] | None = None
        self.known_recorded: set[str] = set()

    @rule(key=KEYS)
    def attempt(self, key: str | None) -> None:
        self.count += 1
        number = self.count
        self.asked[number] = key
        pending = {self.asked[n] for n in self.open_attempts() if n != number}
        decision = self.submissions.begin(number, number, key)
        if key is not None and key in self.known_recorded:
            assert decision == Known(derived_id(SESSION, key))
            self.answer(number, decision.message_id)
        elif key is not None and key in pending:
            assert isinstance(decision, Joined)
        else:
            assert isinstance(decision, Opened)
            assert decision.submission.state is (State.HELD if key is None else State.LOOKING)
            self.queue.append(decision.submission)

    @precondition(lambda self: any(s.state is State.LOOKING for s in self.queue))
    @rule(works=st.booleans())
    def look_up(self, works: bool) -> None:
        submission = next(s for s in self.queue if s.state is State.LOOKING)
        if not works:
            self.settle(self.submissions.failed(submission))
            return
        assert submission.key is not None
        wanted = self.submissions.lookup_id(submission)
        assert wanted is not None
        found = self.stored[wanted] > 0
        if found:
            self.known_recorded.add(submission.key)
        self.settle(self.submissions.looked_up(submission, recorded=found))

    @precondition(lambda self: self.in_flight is None and any(s.state is State.HELD for s in self.queue))
    @rule()
    def hand_over(self) -> None:
        submission = next(s for s in self.queue if s.state is State.HELD)
        assert not submission.doomed
        self.queue.remove(submission)
        self.submissions.submitted(submission)
        self.in_flight = submission

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def insert(self) -> None:
        """The runtime stores what it holds, whatever was asked meanwhile (KEY-19, E7)."""
        submission, self.in_flight = self.in_flight, None
        assert submission is not None
        self.stored[submission.message_id] += 1
        settlement = self.submissions.inserted(submission)
        assert settlement is not None
        assert settlement.message_id == submission.message_id
        if submission.key is not None:
            self.known_recorded.add(submission.key)
        self.settle(settlement)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def fail(self) -> None:
        submission, self.in_flight = self.in_flight, None
        assert submission is not None
        settlement = self.submissions.failed(submission)
        assert settlement is not None
        self.settle(settlement)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def die_after_storing(self) -> None:
        """E10: stored, and nobody was told."""
        assert self.in_flight is not None
        self.stored[self.in_flight.message_id] += 1
        self.restart()

    @precondition(lambda self: self.open_attempts())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """KEY-18: any attempt withdraws for all that are known now; nothing is answered before its fate is known."""
        number = data.draw(st.sampled_from(sorted(self.open_attempts())))
        submission = self.submissions.find(number)
        assert submission is not None
        before = submission.state
        settlement = self.submissions.cancel(submission)
        assert (settlement is not None) == (before is State.HELD)
        if settlement:
            assert settlement.message_id is None
        self.settle(settlement)

    def settle(self, settlement: Settlement[int, int] | None) -> None:
        if settlement is None:
            return
        if settlement.submission in self.queue:
            self.queue.remove(settlement.submission)
        for number in settlement.attempts:
            self.answer(number, settlement.message_id)
        if settlement.successor:
            assert settlement.message_id is None
            self.queue.append(settlement.successor)

    def answer(self, number: int, message_id: str | None) -> None:
        assert number not in self.answers, "KEY-17: exactly once"
        assert number not in self.lost
        self.answers[number] = message_id
        if message_id is not None:
            assert self.stored[message_id] == 1, "PROMPT-2: never before insertion"

    def open_attempts(self) -> set[int]:
        return set(self.asked) - set(self.answers) - self.lost

    @invariant()
    def one_insertion_per_key(self) -> None:
        """KEY-15 and the promise itself."""
        assert all(count == 1 for count in self.stored.values())

    @invariant()
    def every_answer_of_a_key_is_its_id(self) -> None:
        """KEY-12, KEY-17."""
        for number, message_id in self.answers.items():
            key = self.asked[number]
            if message_id is not None and key is not None:
                assert message_id == derived_id(SESSION, key)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        """KEY-11, KEY-21, E44: what waits is exactly what was asked and not answered."""
        waiting = {number for s in self.submissions.open for number in (*s.attempts, *(late for late, *_ in s.waiting))}
        assert waiting == self.open_attempts()

    @invariant()
    def at_most_one_pending_submission_per_key(self) -> None:
        keys = Counter(s.key for s in self.submissions.open if s.key is not None)
        assert all(count == 1 for count in keys.values())


KeyRecord.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestKeyRecord = KeyRecord.TestCase


def opened(submissions: Submissions[str, str], attempt: str, key: str | None) -> Submission[str, str]:
    decision = submissions.begin(attempt, attempt, key)
    assert isinstance(decision, Opened)
    return decision.submission


def test_the_derived_id_is_uuid5_of_the_sessions_uuid_and_the_key() -> None:
    """ADP-1, ADP-12: what any adapter that follows the RFD to the letter computes; frozen."""
    assert derived_id(SESSION, "key") == str(uuid.uuid5(uuid.UUID(SESSION), "key"))
    assert derived_id(SESSION, "key") == "db0e91b2-62be-57b3-849b-10b63ca1c267"
    assert derived_id("thread 1", "key") == str(uuid.uuid5(uuid.uuid5(uuid.UUID(str(NAMESPACE)), "thread 1"), "key"))


def test_other_spellings_of_a_uuid_are_other_sessions() -> None:
    """ADP-11, E21."""
    spellings = [SESSION, SESSION.upper(), "{" + SESSION + "}", "urn:uuid:" + SESSION, SESSION.replace("-", "")]
    assert len({derived_id(spelling, "k") for spelling in spellings}) == len(spellings)


def test_session_and_key_are_combined_injectively() -> None:
    """ADP-10, E20."""
    assert derived_id("a:b", "c") != derived_id("a", "b:c")
    assert derived_id("s", "1k") != derived_id("s1", "k")


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_keys_have_different_ids(first: str, second: str) -> None:
    """KEY-3, E17, E18, E19: opaque; no trimming, folding or normalizing."""
    try:
        ids = {derived_id(SESSION, first), derived_id(SESSION, second)}
    except UnicodeEncodeError:
        return
    assert len(ids) == len({first, second})


def test_a_lone_surrogate_in_a_key_is_an_error_not_a_replacement() -> None:
    """E16."""
    with pytest.raises(UnicodeEncodeError):
        Submissions[str, str](SESSION).begin("1", "p", "\ud800")


def test_an_attempt_behind_a_doomed_prompt_gets_the_id_if_it_turns_out_inserted() -> None:
    """E8, first half."""
    submissions: Submissions[str, str] = Submissions(SESSION)
    first = opened(submissions, "1", "k")
    submissions.looked_up(first, recorded=False)
    submissions.submitted(first)
    assert submissions.cancel(first) is None
    assert submissions.begin("2", "2", "k") == Joined(first)
    settlement = submissions.inserted(first)
    assert settlement is not None
    assert settlement.attempts == ("1", "2")
    assert settlement.message_id == derived_id(SESSION, "k")
    assert submissions.begin("3", "3", "k") == Known(derived_id(SESSION, "k"))


def test_an_attempt_behind_a_doomed_prompt_is_new_when_it_was_withdrawn() -> None:
    """E8, second half: it joins no doomed prompt."""
    submissions: Submissions[str, str] = Submissions(SESSION)
    first = opened(submissions, "1", "k")
    submissions.looked_up(first, recorded=False)
    submissions.submitted(first)
    submissions.cancel(first)
    submissions.begin("2", "second", "k")
    submissions.begin("3", "third", "k")
    settlement = submissions.failed(first)
    assert settlement is not None
    assert settlement.attempts == ("1",)
    assert settlement.message_id is None
    assert settlement.successor is not None
    assert settlement.successor.attempts == ["2", "3"]
    assert settlement.successor.payload == "second"
    assert settlement.successor.state is State.LOOKING


def test_a_cancel_during_the_first_look_up_waits_for_it() -> None:
    """D5: -32800 for a recorded key would be a lie."""
    submissions: Submissions[str, str] = Submissions(SESSION)
    first = opened(submissions, "1", "k")
    assert submissions.cancel(first) is None
    settlement = submissions.looked_up(first, recorded=True)
    assert settlement is not None
    assert settlement.message_id == derived_id(SESSION, "k")


def test_local_commands_are_known_by_key_under_a_random_id() -> None:
    """E29, E30, KEY-43: the id is no derived one, so that a later run does not reuse it."""
    submissions: Submissions[str, str] = Submissions(SESSION)
    decision = submissions.begin("1", "/status", "k", live_only=True)
    assert isinstance(decision, Opened)
    submissions.looked_up(decision.submission, recorded=False)
    submissions.submitted(decision.submission)
    settlement = submissions.inserted(decision.submission)
    assert settlement is not None
    assert settlement.message_id not in (None, derived_id(SESSION, "k"))
    assert submissions.begin("2", "/status", "k", live_only=True) == Known(str(settlement.message_id))
    assert isinstance(Submissions[str, str](SESSION).begin("3", "/status", "k", live_only=True), Opened)


def test_prompts_without_a_key_are_never_joined() -> None:
    """KEY-2, E39, PROMPT-22."""
    submissions: Submissions[str, str] = Submissions(SESSION)
    ids = {opened(submissions, str(n), None).message_id for n in range(5)}
    assert len(ids) == 5
