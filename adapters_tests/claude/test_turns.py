"""The state machine of prompts and turns, row by row, and against what must hold for every sequence of frames."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.acp.errors import AcpError, InternalError
from adapters.claude.cli.frames import Blocked, Echo, Lifecycle, Spoke, Stored, TurnBegan, TurnEnded
from adapters.claude.turns import FinishTools, Interrupt, Look, Open, Turns, Withdraw
from adapters.core.port import (
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    WorkEnded,
    WorkStarted,
)

S, A, B = "session", "prompt-a", "prompt-b"
DEAD = InternalError("Claude Code ended.")
OUTCOMES = (PromptInserted, PromptLiveOnly, PromptFailed)


def stored(*message_ids: str) -> Stored:
    return Stored("", S, frozenset(message_ids), frozenset())


def ended(*message_ids: str, **fields: Any) -> TurnEnded:
    return TurnEnded(frozenset(message_ids), **fields)


def aborted(*message_ids: str) -> TurnEnded:
    return ended(*message_ids, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")


def sent(message_id: str = A, turns: Turns | None = None) -> Turns:
    turns = turns or Turns()
    turns.sent(turns.submit(message_id))
    return turns


def opened(turns: Turns) -> Open:
    assert turns.open is not None
    return turns.open


def taken(message_id: str = A) -> Turns:
    turns = sent(message_id)
    turns.take(Lifecycle(message_id, "queued"))
    turns.take(Lifecycle(message_id, "started"))
    return turns


def test_an_idle_prompt_is_shown_when_it_starts_and_inserted_when_it_is_stored() -> None:
    """PROMPT-9, D2: `started` is no proof, the mirrored entry is."""
    turns = sent()
    assert turns.take(Lifecycle(A, "queued")) == []
    assert turns.take(Lifecycle(A, "started")) == [WorkStarted(), PromptTaken(A)]
    assert turns.take(TurnBegan(frozenset((A,)))) == []
    assert turns.take(Echo(A)) == []
    assert turns.take(stored(A)) == [PromptInserted(A)]
    assert turns.take(ended(A)) == [WorkEnded("end_turn")]
    assert turns.take(Lifecycle(A, "completed")) == []
    assert not turns.working
    assert turns.open is None


def test_a_folded_prompt_joins_the_running_work_and_shares_its_end() -> None:
    """STATE-4: one aggregate; one result for both."""
    turns = taken(A)
    turns.take(stored(A))
    sent(B, turns)
    turns.take(Lifecycle(B, "queued"))
    assert turns.take(Echo(B)) == []
    assert turns.take(Lifecycle(B, "started")) == [PromptTaken(B)]
    assert turns.take(Lifecycle(B, "completed")) == []
    assert turns.take(stored(B)) == [PromptInserted(B)]
    assert turns.take(ended(A, B)) == [WorkEnded("end_turn")]


def test_an_unwritable_store_makes_the_prompt_live_only_at_the_end_of_its_work() -> None:
    """D2, KEY-43: inserted, not retained."""
    turns = taken()
    submission = opened(turns)
    turns.take(Spoke())
    assert turns.take(ended(A)) == [WorkEnded("end_turn"), Look(submission, patient=True)]
    assert turns.looked(submission, found=False) == [PromptLiveOnly(A)]


def test_a_prompt_found_in_the_store_needs_no_mirror() -> None:
    turns = taken()
    submission = opened(turns)
    turns.take(ended(A))
    assert turns.looked(submission, found=True) == [PromptInserted(A)]
    assert turns.looked(submission, found=True) == []


def test_a_prompt_aborted_before_anything_was_said_and_stored_is_not_inserted() -> None:
    turns = taken()
    submission = opened(turns)
    turns.interrupt()
    assert turns.take(aborted(A))[1:] == [
        WorkEnded("cancelled", None, interrupted=True),
        Look(submission, patient=True),
    ]
    assert turns.looked(submission, found=False) == [PromptFailed(A, None)]
    assert turns.must_restart(A)


def test_a_store_that_cannot_be_read_is_no_evidence_that_nothing_was_inserted() -> None:
    """ADP-6, ERR-5: the error does not claim it, and the id is not given to this process again."""
    turns = taken()
    submission = opened(turns)
    turns.interrupt()
    turns.take(aborted(A))
    [failed] = turns.looked(submission, found=None)
    assert isinstance(failed, PromptFailed)
    assert failed.error is not None
    assert failed.error.data == {"inserted": None}
    assert turns.must_restart(A)


def test_a_withdrawn_prompt_fails_without_error_and_is_burnt_until_the_process_is_new() -> None:
    """D5, E52."""
    turns = sent()
    submission = opened(turns)
    turns.take(Lifecycle(A, "queued"))
    assert turns.withdraw(A) == [Withdraw(submission)]
    assert turns.take(Lifecycle(A, "cancelled")) == [PromptFailed(A, None)]
    assert turns.withdrawn(submission) == []
    assert turns.must_restart(A)
    turns.started_process()
    assert not turns.must_restart(A)


def test_a_prompt_in_our_hands_is_withdrawn_at_once_and_burns_nothing() -> None:
    turns = Turns()
    turns.submit(A)
    assert turns.withdraw(A) == [PromptFailed(A, None)]
    assert not turns.must_restart(A)


def test_a_prompt_that_was_begun_is_not_withdrawn_but_awaited() -> None:
    """E7: the truth, not -32800."""
    turns = taken()
    assert turns.withdraw(A) == []
    assert turns.take(stored(A)) == [PromptInserted(A)]


def test_a_confirmed_withdrawal_of_a_begun_prompt_is_decided_by_the_store() -> None:
    turns = taken()
    submission = opened(turns)
    turns.withdraw(A)
    assert turns.withdrawn(submission) == [Look(submission)]
    assert turns.looked(submission, found=False) == [PromptFailed(A, None)]


def test_a_prompt_dropped_unasked_is_an_error_not_a_success() -> None:
    turns = sent()
    submission = opened(turns)
    turns.take(Lifecycle(A, "queued"))
    assert turns.take(Lifecycle(A, "cancelled")) == [Look(submission)]
    [failed] = turns.looked(submission, found=False)
    assert isinstance(failed, PromptFailed)
    assert isinstance(failed.error, AcpError)


def test_a_hook_that_blocks_is_an_error_and_burns_the_id() -> None:
    """PROMPT-11: the error, and an idle boundary for the work that was running."""
    turns = taken()
    [failed] = turns.take(Blocked("not on my watch"))
    assert isinstance(failed, PromptFailed)
    assert failed.error is not None
    assert "not on my watch" in failed.error.message
    assert turns.must_restart(A)
    assert turns.take(ended(A)) == [WorkEnded("end_turn")]


def test_a_hook_that_blocks_a_folded_prompt_leaves_the_work_running() -> None:
    """PROMPT-12; the frames come in this order (2.1.332): started, completed, informational."""
    turns = taken(A)
    turns.take(stored(A))
    sent(B, turns)
    turns.take(Lifecycle(B, "queued"))
    turns.take(Lifecycle(B, "started"))
    assert turns.take(Lifecycle(B, "completed")) == []
    assert isinstance(turns.take(Blocked("no"))[0], PromptFailed)
    assert turns.working


@pytest.mark.parametrize("stage", ["echo", "overdue"])
def test_a_skipped_id_never_hangs(stage: str) -> None:
    """A burnt or known id gives an echo only, or nothing at all."""
    turns = sent()
    submission = opened(turns)
    effects = turns.take(Echo(A)) if stage == "echo" else turns.overdue(submission)
    assert effects == [Look(submission)]
    assert isinstance(turns.looked(submission, found=False)[0], PromptFailed)
    assert turns.must_restart(A)


def test_a_known_id_after_a_restart_is_found_in_the_store() -> None:
    """The CLI answers echo and `completed` without a result."""
    turns = sent()
    submission = opened(turns)
    assert turns.take(Lifecycle(A, "completed")) == [Look(submission)]
    nothing = [WorkStarted(), WorkEnded("cancelled", interrupted=True)]
    assert turns.looked(submission, found=True) == [PromptInserted(A), *nothing]


def test_an_interrupt_that_came_before_the_turn_is_sent_again() -> None:
    turns = taken()
    assert turns.interrupt() == [Interrupt()]
    assert turns.take(TurnBegan(frozenset((A,)))) == [Interrupt()]
    turns.take(stored(A))
    assert turns.take(aborted(A)) == [FinishTools("cancelled"), WorkEnded("cancelled", None, interrupted=True)]
    assert not turns.interrupting


def test_an_interrupt_of_nothing_does_nothing() -> None:
    """CANCEL-6."""
    turns = Turns()
    assert turns.interrupt() == []
    assert not turns.interrupting


def test_a_leftover_result_does_not_end_the_next_work() -> None:
    turns = taken(B)
    turns.take(stored(B))
    assert turns.take(aborted(A)) == []
    assert turns.working
    assert turns.take(ended(B)) == [WorkEnded("end_turn")]


def test_work_that_nobody_asked_for_has_its_own_bracket() -> None:
    """STATE-1, PROMPT-25: a background task's report starts a turn without any prompt."""
    turns = Turns()
    assert turns.take(TurnBegan()) == [WorkStarted()]
    assert turns.take(ended()) == [WorkEnded("end_turn")]
    assert turns.take(ended()) == []


def test_a_result_is_enough_where_the_frames_before_it_are_unknown() -> None:
    """D11."""
    turns = sent()
    submission = opened(turns)
    assert turns.take(ended(A)) == [
        WorkStarted(),
        PromptTaken(A),
        WorkEnded("end_turn"),
        Look(submission, patient=True),
    ]


def test_death_decides_the_open_prompt_by_the_store_and_ends_the_work() -> None:
    """D7, E9, E10."""
    for found, outcome in ((True, PromptInserted(A)), (False, PromptFailed(A, DEAD))):
        assert taken().died(DEAD, found=found) == [outcome, FinishTools("failed"), WorkEnded("error", DEAD.to_wire())]


def test_death_with_an_unreadable_store_is_an_error_that_says_so() -> None:
    """ADP-6."""
    [failed, *_] = taken().died(DEAD, found=None)
    assert isinstance(failed, PromptFailed)
    assert failed.error is not None
    assert "cannot be read" in failed.error.message
    assert failed.error.data == {"inserted": None}


def test_death_of_an_interrupted_process_is_a_cancellation() -> None:
    """STOP-1."""
    turns = taken()
    turns.take(stored(A))
    turns.interrupt()
    assert turns.died(DEAD, found=False)[-1] == WorkEnded("cancelled", None, interrupted=True)


def test_a_prompt_that_was_not_written_yet_survives_the_death_of_the_process() -> None:
    turns = Turns()
    submission = turns.submit(A)
    assert turns.died(DEAD, found=False) == []
    assert turns.open is submission


# --- every sequence ---------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["p1", "p2", "p3"])


class AnySequence(RuleBasedStateMachine):
    """Whatever frames come in whatever order: one outcome each, brackets in pairs, no insertion without evidence."""

    @initialize()
    def begin(self) -> None:
        self.turns = Turns()
        self.outcome: dict[str, list[Any]] = {}
        self.evidence: set[str] = set()
        self.shown: set[str] = set()
        self.working = False
        self.count = 0
        self.current: str | None = None
        self.taken: str | None = None
        self.worked: str | None = None
        """Taken in by work that has ended."""
        self.owed: set[str] = set()
        """Inserted: the end of the work on it is still to come."""

    def check(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case WorkStarted():
                    assert not self.working
                    self.working = True
                case WorkEnded(stop_reason, error):
                    assert self.working
                    assert (error is not None) == (stop_reason == "error")
                    self.working = False
                    self.worked, self.taken = self.taken or self.worked, None
                    self.owed.clear()
                case PromptTaken(message_id):
                    assert self.working
                    assert message_id not in self.shown
                    assert not self.outcome[message_id]
                    self.shown.add(message_id)
                    self.taken, self.worked = message_id, None
                case PromptInserted(message_id) | PromptLiveOnly(message_id) | PromptFailed(message_id):
                    assert not self.outcome[message_id]
                    self.outcome[message_id].append(effect)
                    if not isinstance(effect, PromptFailed) and self.worked != message_id:
                        self.owed.add(message_id)
                    self.taken = self.worked = None
                    if isinstance(effect, PromptInserted):
                        assert message_id in self.evidence
                    if isinstance(effect, PromptFailed):
                        assert message_id not in self.evidence
                case FinishTools() | Interrupt():
                    assert self.working
                case _:
                    assert isinstance(effect, (Look, Withdraw))
                    assert effect.submission is self.turns.open

    @precondition(lambda self: self.turns.open is None)
    @rule(write=st.booleans())
    def submit(self, write: bool) -> None:
        self.count += 1
        self.current = f"s{self.count}"
        self.outcome[self.current] = []
        self.submission = self.turns.submit(self.current)
        if write:
            self.turns.sent(self.submission)

    @precondition(lambda self: self.current)
    @rule(state=st.sampled_from(["queued", "started", "completed", "cancelled", "novel"]))
    def lifecycle(self, state: str) -> None:
        self.check(self.turns.take(Lifecycle(self.current or "", state)))

    @precondition(lambda self: self.current)
    @rule(
        signal=st.sampled_from(["echo", "init", "blocked", "spoke", "result", "aborted", "error"]),
        ours=st.booleans(),
    )
    def frame(self, signal: str, ours: bool) -> None:
        ids = (self.current or "",) if ours else ()
        self.check(
            self.turns.take(
                {
                    "echo": Echo(self.current or ""),
                    "init": TurnBegan(frozenset(ids)),
                    "blocked": Blocked("no"),
                    "spoke": Spoke(),
                    "result": ended(*ids),
                    "aborted": aborted(*ids),
                    "error": ended(*ids, is_error=True, terminal_reason="api_error", status=500),
                }[signal]  # pyright: ignore[reportArgumentType]
            )
        )

    @rule(other=IDS)
    def leftover(self, other: str) -> None:
        prompted = self.turns._work is not None and bool(self.turns._work.message_ids)
        self.check(self.turns.take(aborted(other)))
        assert self.turns.working or not prompted

    @precondition(lambda self: self.turns.open)
    @rule()
    def store(self) -> None:
        assert self.turns.open is not None
        self.evidence.add(self.turns.open.message_id)
        self.check(self.turns.take(stored(self.turns.open.message_id)))

    @precondition(lambda self: self.current)
    @rule(action=st.sampled_from(["withdraw", "withdrawn", "overdue", "interrupt"]))
    def ask(self, action: str) -> None:
        current = self.current or ""
        match action:
            case "withdraw":
                self.check(self.turns.withdraw(current))
            case "withdrawn":
                self.check(self.turns.withdrawn(self.submission))
            case "overdue":
                self.check(self.turns.overdue(self.submission))
            case _:
                self.check(self.turns.interrupt())

    @precondition(lambda self: self.current)
    @rule()
    def look(self) -> None:
        self.check(self.turns.looked(self.submission, found=self.current in self.evidence))

    @rule()
    def die(self) -> None:
        submission = self.turns.open
        self.check(self.turns.died(DEAD, found=bool(submission and submission.message_id in self.evidence)))
        assert not self.working
        assert not self.owed, "an inserted prompt is waited for in vain"
        assert self.turns.open is None or self.turns.open.stage.value == "preparing"
        self.turns.started_process()

    @invariant()
    def agrees(self) -> None:
        assert self.working == self.turns.working
        for message_id, outcomes in self.outcome.items():
            assert bool(outcomes) == (not self.turns.open or self.turns.open.message_id != message_id)


AnySequence.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestAnySequence = AnySequence.TestCase
