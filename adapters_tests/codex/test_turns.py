"""The state machine: every row of its tables, and random histories against what must hold for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp.errors import InternalError, InvalidParams
from adapters.codex.server.signals import Answered, Item, ItemClosed, ItemOpened, Retrying, TurnEnded, TurnStarted
from adapters.codex.turn_types import (
    Compact,
    Confirm,
    Continue,
    EndCommands,
    FinishItems,
    Interrupt,
    Look,
    Open,
    Reclaim,
    Stage,
    Start,
    Steer,
)
from adapters.codex.turns import Turns
from adapters.core.port import (
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    ReadyChanged,
    WorkEnded,
    WorkStarted,
)

K = "5b1f0a52-0000-4000-8000-000000000001"
DEATH = InternalError("it died")


def user(message_id: str | None = K, item_id: str = "u1") -> Item:
    return Item(item_id, "userMessage", message_id)


def completed(turn_id: str = "N", status: str = "completed", **error: Any) -> TurnEnded:
    return TurnEnded(turn_id, status, error or None)


def sent(turns: Turns, turn_id: str | None = None) -> Open:
    """A submission whose request is on its way; into a running turn if one is named."""
    if turn_id:
        turns.take(TurnStarted(turn_id))
    submission = turns.submit(K)
    assert turns.way(submission) == (Steer(turn_id) if turn_id else Start())
    turns.sending(submission)
    return submission


def accepted(turns: Turns, turn_id: str = "N") -> Open:
    submission = sent(turns)
    assert turns.accepted(submission, turn_id) == []
    assert turns.take(TurnStarted(turn_id)) == [WorkStarted()]
    return submission


def only(effects: Iterable[object], *kinds: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kinds)]


# --- the submission ----------------------------------------------------------------------------------------------------


def test_a_prompt_on_an_idle_thread() -> None:
    """D2, PROMPT-9: accepted and begun prove nothing; the completed user message is the insertion."""
    turns = Turns()
    submission = accepted(turns)
    assert submission.stage is Stage.ACCEPTED
    assert turns.take(ItemOpened("N", user())) == [PromptTaken(K)]
    assert turns.take(ItemClosed("N", user(), stored=True)) == [PromptInserted(K)]
    assert turns.open is None
    assert turns.take(completed()) == [WorkEnded("end_turn")]


def test_a_steer_goes_into_the_running_turn() -> None:
    """D3: `turn/steer` names the turn; nothing of the work starts again."""
    turns = Turns()
    submission = sent(turns, "N")
    assert turns.accepted(submission, "N") == []
    assert turns.take(ItemOpened("N", user())) == [PromptTaken(K)]
    assert turns.take(ItemClosed("N", user(), stored=True)) == [PromptInserted(K)]


def test_signals_may_come_before_the_answer() -> None:
    """The message may be inserted before Codex answers the request."""
    turns = Turns()
    submission = sent(turns, "N")
    assert turns.take(ItemOpened("N", user())) == [PromptTaken(K)]
    assert turns.take(ItemClosed("N", user(), stored=True)) == [PromptInserted(K)]
    assert turns.accepted(submission, "N") == []
    assert turns.take(completed()) == [WorkEnded("end_turn")]


def test_compaction_before_the_insertion() -> None:
    """A whole model call may come before the message; the prompt waits, and is inserted all the same."""
    turns = Turns()
    accepted(turns)
    compaction = Item("c1", "contextCompaction")
    assert turns.take(ItemOpened("N", compaction)) == []
    assert turns.take(ItemClosed("N", compaction)) == [ReadyChanged()]
    assert only(turns.take(ItemOpened("N", user())), PromptTaken)
    assert turns.take(ItemClosed("N", user(), stored=True)) == [PromptInserted(K)]


@pytest.mark.parametrize(
    "words", ["no active turn to steer", "expected active turn id `A` but found `B`", "this turn is gone, sorry"]
)
def test_a_refused_steer_is_sent_once_more_as_a_start(words: str) -> None:
    """Known faults: "no active turn", "mismatch", reworded texts: `turn/start` at most once, never twice."""
    turns = Turns()
    submission = sent(turns, "N")
    assert turns.refused(submission, InternalError(words)) == []
    assert turns.way(submission) == Start()  # whether the turn is over or not: in mid-turn it is a steer
    turns.sending(submission)
    [failed] = turns.refused(submission, InternalError(words))
    assert isinstance(failed, PromptFailed)
    assert turns.open is None


def test_refused_content_is_not_sent_again() -> None:
    """PROMPT-13: too large is too large."""
    turns = Turns()
    submission = sent(turns)
    error = InvalidParams("too large")
    assert turns.refused(submission, error) == [PromptFailed(K, error)]


def test_a_turn_that_ends_without_the_prompt_is_looked_into() -> None:
    """PROMPT-23: nobody reports a dropped prompt; the stored items know."""
    turns = Turns()
    submission = accepted(turns)
    assert turns.take(completed()) == [Look(submission), WorkEnded("end_turn")]
    [failed] = turns.looked(submission, found=False)
    assert isinstance(failed, PromptFailed)
    assert failed.error is not None


def test_a_steer_that_an_interrupt_drops_is_withdrawn() -> None:
    """D5: dropped in silence; the truth is "not inserted", and that is what was asked for."""
    turns = Turns()
    submission = sent(turns, "N")
    turns.accepted(submission, "N")
    assert turns.interrupt() == [Interrupt("N")]
    assert turns.take(completed(status="interrupted"))[0] == Look(submission)
    assert turns.looked(submission, found=False) == [PromptFailed(K, None)]


def test_a_steer_that_an_interrupt_does_not_drop_is_inserted() -> None:
    """E7: the store has it, whatever was asked for."""
    turns = Turns()
    submission = sent(turns, "N")
    turns.accepted(submission, "N")
    turns.interrupt()
    turns.take(completed(status="interrupted"))
    nothing = [WorkStarted(), WorkEnded("cancelled", interrupted=True)]
    assert turns.looked(submission, found=True) == [PromptInserted(K), *nothing]


def test_the_report_can_overtake_the_look() -> None:
    """Exactly one outcome, whichever comes first."""
    turns = Turns()
    submission = accepted(turns)
    turns.take(completed())
    inserted, started, ended = turns.take(ItemClosed("N", user(), stored=True))
    assert (inserted, started) == (PromptInserted(K), WorkStarted())
    assert ended.error["message"] == "Codex ended the turn without working on the prompt."  # nobody answers it
    assert turns.looked(submission, found=True) == []


def test_an_answer_that_names_a_turn_which_is_over() -> None:
    """The steer was accepted, the turn ended, then the answer is read."""
    turns = Turns()
    submission = sent(turns, "N")
    turns.take(completed())
    assert turns.accepted(submission, "N") == [Look(submission)]


def test_withdrawing_before_anything_is_sent() -> None:
    """D5: it is ours."""
    turns = Turns()
    turns.submit(K)
    assert turns.withdraw("another") == []
    assert turns.withdraw(K) == [PromptFailed(K, None)]
    assert turns.open is None


def test_withdrawing_what_codex_has() -> None:
    """E7: the outcome is waited for; a refusal then is a withdrawal."""
    turns = Turns()
    submission = sent(turns)
    assert turns.withdraw(K) == [Reclaim(submission)]
    assert turns.refused(submission, InternalError("no")) == [PromptFailed(K, None)]


def test_a_store_that_cannot_be_read_is_no_evidence() -> None:
    """ADP-6, ERR-5: the error does not claim that nothing was inserted."""
    turns = Turns()
    submission = accepted(turns)
    turns.take(completed())
    [failed] = turns.looked(submission, found=None)
    assert failed.error.data == {"inserted": None}


def test_a_report_is_confirmed_by_the_file() -> None:
    """D2: what Codex reports as complete counts when the thread's file holds it."""
    turns = Turns()
    submission = accepted(turns)
    assert turns.take(ItemClosed("N", user())) == [PromptTaken(K), Confirm(submission)]
    assert submission.stage is Stage.CONFIRMING
    assert turns.take(ItemClosed("N", user())) == []
    assert turns.confirmed(submission, stored=True) == [PromptInserted(K)]
    assert turns.confirmed(submission, stored=True) == []


def test_a_report_without_the_file_is_live_only() -> None:
    """KEY-43: Codex goes on with a prompt that a full disk did not take."""
    turns = Turns()
    submission = accepted(turns)
    turns.take(ItemClosed("N", user()))
    assert turns.confirmed(submission, stored=False) == [PromptLiveOnly(K)]
    assert turns.open is None


def test_messages_of_others_are_not_ours() -> None:
    """PROMPT-20: only our id counts, never the place or the content."""
    turns = Turns()
    submission = accepted(turns)
    for other in (user(None), user("another")):
        assert turns.take(ItemOpened("N", other)) == []
        assert turns.take(ItemClosed("N", other)) == []
    assert submission.stage is Stage.ACCEPTED


# --- death -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [True, False])
def test_death_in_mid_turn(found: bool) -> None:
    """D7: the work ends with an error at once; the stored items decide the prompt."""
    turns = Turns()
    submission = accepted(turns)
    turns.take(ItemOpened("N", user()))
    finish, ended, look = turns.died(DEATH)
    assert finish == FinishItems("failed", None)
    assert (ended.stop_reason, ended.error["message"]) == ("error", "it died")
    assert look == Look(submission)
    assert turns.looked(submission, found=found) == [PromptInserted(K) if found else PromptFailed(K, DEATH)]
    assert not turns.working


def test_death_before_the_answer_hands_it_to_the_next_process_once() -> None:
    """D7: a process that had died unnoticed is no reason for an error, as long as the store proves that it is nowhere."""
    turns = Turns()
    submission = sent(turns)
    assert Look(submission) in turns.died(DEATH)
    assert turns.looked(submission, found=False) == []
    assert turns.way(submission) == Start()
    turns.sending(submission)
    turns.died(DEATH)
    assert turns.looked(submission, found=False) == [PromptFailed(K, DEATH)]


def test_death_keeps_what_was_not_sent() -> None:
    """It goes to the next process."""
    turns = Turns()
    submission = turns.submit(K)
    assert not only(turns.died(DEATH), Look, PromptFailed)
    assert turns.way(submission) == Start()


def test_death_while_closing_is_no_failure() -> None:
    """CLOSE-2, CLOSE-4: cancelled, and -32800 for a prompt that is not stored."""
    turns = Turns()
    submission = accepted(turns)
    turns.closing = True
    assert only(turns.died(DEATH), WorkEnded) == [WorkEnded("cancelled", interrupted=True)]
    assert turns.looked(submission, found=False) == [PromptFailed(K, None)]


# --- what a prompt waits for (D3) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["agentMessage", "plan", "commandExecution", "fileChange", "mcpToolCall", "webSearch", "contextCompaction"]
)
def test_a_prompt_waits_for_what_it_would_cut_short(kind: str) -> None:
    """D3: held while the item is open, ready at its end."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    assert turns.ready
    turns.take(ItemOpened("N", Item("i", kind)))
    assert not turns.ready
    submission = turns.submit(K)
    assert turns.way(submission) is None
    turns.withdraw(K)
    assert turns.take(ItemClosed("N", Item("i", kind))) == [ReadyChanged()]
    assert turns.ready


@pytest.mark.parametrize("kind", ["reasoning", "somethingNew", "hookPrompt"])
def test_a_prompt_does_not_wait_for_thoughts_and_unknown_items(kind: str) -> None:
    """D11: what Codex may add must not hold prompts for ever."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("i", kind)))
    assert turns.ready
    assert turns.thinking is (kind == "reasoning")


def test_a_question_holds_prompts_until_it_is_answered() -> None:
    """D3: an approval is open."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.asked("q", "i")
    assert not turns.ready
    assert turns.answered("q") == [ReadyChanged()]


def test_a_command_in_the_background_holds_nobody_up() -> None:
    """D3: the model goes on while it runs."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("c", "commandExecution")))
    turns.take(ItemOpened("N", Item("m", "agentMessage")))
    assert turns.take(ItemClosed("N", Item("m", "agentMessage"))) == [ReadyChanged()]
    assert turns.ready


@pytest.mark.parametrize("signal", [Retrying("N"), ItemOpened("N", user("another"))])
def test_a_message_that_was_cut_short_holds_nobody_up(signal: Retrying | ItemOpened) -> None:
    """Trap 10: it never gets its end."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("m", "agentMessage")))
    turns.take(signal)
    assert turns.ready


# --- work --------------------------------------------------------------------------------------------------------------


def test_an_item_is_enough_to_know_that_work_goes_on() -> None:
    """STATE-1: the beginning of a turn may have been missed."""
    turns = Turns()
    assert turns.take(ItemOpened("N", Item("m", "agentMessage")))[0] == WorkStarted()


def test_late_words_of_an_old_turn_start_nothing() -> None:
    """Known faults: a leftover ends nothing and begins nothing."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(completed())
    for late in (
        TurnStarted("N"),
        ItemOpened("N", Item("i", "agentMessage")),
        ItemClosed("N", Item("i", "commandExecution")),
    ):
        assert turns.take(late) == []
    assert not turns.working
    turns.take(TurnStarted("O"))
    assert turns.take(completed("N")) == []
    assert turns.working


def late_steer(turns: Turns) -> None:
    """A prompt is inserted behind the last model call of a turn."""
    submission = sent(turns, "N")
    turns.take(ItemOpened("N", Item("m", "agentMessage")))
    turns.take(ItemClosed("N", Item("m", "agentMessage")))
    turns.take(Answered("N"))
    turns.accepted(submission, "N")
    turns.take(ItemOpened("N", user()))
    assert turns.take(ItemClosed("N", user(), stored=True)) == [PromptInserted(K)]


def test_a_prompt_that_comes_in_as_the_turn_ends_is_answered_in_another() -> None:
    """Known faults: the steer that lands at the end. The work goes on without an idle in between (STATE-2)."""
    turns = Turns()
    late_steer(turns)
    assert turns.take(completed()) == [Continue("N")]
    assert turns.working
    assert not turns.ready
    assert turns.goes_on("N")
    assert turns.take(TurnStarted("O")) == [WorkStarted()]
    assert not turns.goes_on("N")
    assert turns.not_continued("N") == []
    assert turns.ready
    assert turns.take(completed("O")) == [WorkEnded("end_turn")]


def test_where_no_other_turn_begins_the_work_is_over() -> None:
    """D7: nothing waits for ever. The prompt is inserted; the model reads it with the next one."""
    turns = Turns()
    late_steer(turns)
    turns.take(completed())
    assert turns.not_continued("another") == []
    assert turns.not_continued("N") == [WorkEnded("end_turn")]
    assert turns.ready


def test_work_that_goes_on_can_be_stopped() -> None:
    """CANCEL-1: before the other turn begins as well."""
    turns = Turns()
    late_steer(turns)
    turns.take(completed())
    assert turns.interrupt() == []
    assert turns.take(TurnStarted("O")) == [WorkStarted(), Interrupt("O")]
    assert turns.take(completed("O", "interrupted"))[-1] == WorkEnded("cancelled", interrupted=True)


@pytest.mark.parametrize("what", ["asked", "a tool", "an empty answer", "interrupted", "failed", "stopping", "closing"])
def test_a_turn_that_has_asked_or_was_stopped_is_over(what: str) -> None:
    """One more turn only for a prompt that the model was surely not asked about; an empty answer is one."""
    turns = Turns()
    status = "completed"
    if what == "an empty answer":
        turns.take(TurnStarted("N"))
        turns.take(ItemClosed("N", user(None)))
    else:
        late_steer(turns)
    match what:
        case "asked":
            turns.take(Answered("N"))
        case "a tool":
            turns.take(ItemOpened("N", Item("c", "webSearch")))
        case "stopping":
            turns.interrupt()
        case "closing":
            turns.closing = True
        case "interrupted" | "failed":
            status = what
        case _:
            pass
    effects = turns.take(completed("N", status))
    assert only(effects, Continue) == []
    assert only(effects, WorkEnded)


def test_one_interrupt_per_turn() -> None:
    """Trap 6: a second one is never answered. The next turn inherits nothing (CANCEL-9)."""
    turns = Turns()
    assert turns.interrupt() == []
    turns.take(TurnStarted("N"))
    assert turns.interrupt() == [Interrupt("N")]
    assert turns.interrupt() == []
    assert not turns.ready
    assert turns.take(completed(status="interrupted")) == [
        FinishItems("cancelled", "N"),
        WorkEnded("cancelled", interrupted=True),
    ]
    assert turns.take(TurnStarted("O")) == [WorkStarted()]
    assert turns.ready


def test_an_interrupted_turn_ends_with_its_commands() -> None:
    """Trap 11, STOP-4: they are ended first; their reports come before idle."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("c", "commandExecution")))
    turns.interrupt()
    assert turns.take(completed(status="interrupted")) == [EndCommands("N", ("c",))]
    assert turns.working
    assert not turns.runs("N")
    assert turns.take(ItemClosed("N", Item("c", "commandExecution")))[-1] == WorkEnded("cancelled", interrupted=True)
    assert turns.commands_over("N") == []


def test_commands_that_do_not_end_are_not_waited_for() -> None:
    """D7: every wait has a bound."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("c", "commandExecution")))
    turns.take(completed(status="interrupted"))
    assert turns.commands_over("N") == [FinishItems("cancelled", "N"), WorkEnded("cancelled", interrupted=True)]


def test_a_command_that_waits_for_an_approval_does_not_run() -> None:
    """PERM-4: an interrupt answers it; nothing has to be ended."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    turns.take(ItemOpened("N", Item("c", "commandExecution")))
    turns.asked("q", "c")
    turns.interrupt()
    assert only(turns.take(completed(status="interrupted")), EndCommands) == []
    assert not turns.working


def test_a_failed_turn() -> None:
    """STOP-3, STOP-4: calls left open have failed; the error is told."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    finish, ended = turns.take(completed(status="failed", message="boom", codexErrorInfo="other"))
    assert finish == FinishItems("failed", "N")
    assert ended.error["message"] == "boom"


# --- /compact ----------------------------------------------------------------------------------------------------------


def test_compact_waits_for_the_end_of_the_turn() -> None:
    """A compaction in mid-turn would interrupt it."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    submission = turns.submit(K, compact=True)
    assert turns.way(submission) is None
    turns.take(completed())
    assert turns.way(submission) == Compact()
    turns.sending(submission)
    turns.accepted(submission, None)
    effects = turns.take(TurnStarted("C"))
    assert effects == [WorkStarted(), PromptTaken(K), PromptLiveOnly(K, by_design=True)]
    assert turns.open is None


def test_a_refused_compact_is_not_tried_again() -> None:
    """There is no other way to do it."""
    turns = Turns()
    submission = turns.submit(K, compact=True)
    turns.sending(submission)
    error = InternalError("no")
    assert turns.refused(submission, error) == [PromptFailed(K, error)]


# --- all histories -----------------------------------------------------------------------------------------------------

_IDS = st.sampled_from(["u1", "a1", "c1", "x1"])
_ITEMS = st.builds(
    Item,
    _IDS,
    st.sampled_from(["userMessage", "agentMessage", "reasoning", "commandExecution", "contextCompaction", "new"]),
    st.sampled_from([None, K, "another"]),
)
_TURNS = st.sampled_from(["N", "O", "P"])
_SIGNALS = st.one_of(
    st.builds(TurnStarted, _TURNS),
    st.builds(
        TurnEnded,
        _TURNS,
        st.sampled_from(["completed", "interrupted", "failed", "odd"]),
        st.sampled_from([None, {"message": "m"}]),
    ),
    st.builds(ItemOpened, _TURNS, _ITEMS),
    st.builds(ItemClosed, _TURNS, _ITEMS, st.booleans()),
    st.builds(Retrying, _TURNS),
    st.builds(Answered, _TURNS),
)
_ACTS = st.sampled_from(
    (
        *("submit", "compact", "send", "accept", "refuse", "refuse content", "withdraw", "interrupt", "died", "look"),
        *("over", "ask", "answer", "confirm", "not continued"),
    )
)


class _History:
    """Plays acts and signals, and notes what must hold."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.stored = False
        self.outcomes = 0
        self.submissions = 0
        self.working = False
        self.requests: list[Open] = []
        self.starts_of: dict[int, int] = {}
        self.effects: list[object] = []
        self.taken: str | None = None
        """Taken in, and its work has not ended."""
        self.worked: str | None = None
        """Taken in by work that has ended."""
        self.owed: set[str] = set()
        """Inserted: the end of the work on it is still to come."""

    def owe(self, effect: object) -> None:
        match effect:
            case PromptTaken(message_id):
                self.taken, self.worked = message_id, None
            case WorkEnded():
                self.worked, self.taken = self.taken or self.worked, None
                self.owed.clear()
            case PromptInserted(message_id) | PromptLiveOnly(message_id):
                if self.worked != message_id:
                    self.owed.add(message_id)
                self.taken = self.worked = None
            case PromptFailed():
                self.taken = self.worked = None
            case _:
                pass

    def note(self, effects: Sequence[object]) -> None:
        self.effects += effects
        for effect in effects:
            self.owe(effect)
            if isinstance(effect, PromptInserted | PromptLiveOnly | PromptFailed):
                self.outcomes += 1
            if isinstance(effect, PromptInserted):
                assert self.stored, "inserted without evidence"
            if isinstance(effect, PromptFailed) and not (effect.error and effect.error.data == {"inserted": None}):
                assert not self.stored, "an error for a stored prompt"
            if isinstance(effect, WorkStarted):
                self.working = True
            if isinstance(effect, WorkEnded):
                assert self.working, "an end without a beginning"
                self.working = False
        assert self.working == self.turns.working
        assert self.outcomes == self.submissions - (self.turns.open is not None), "exactly one outcome each"

    def act(self, act: str, look: bool | None) -> None:
        turns, submission = self.turns, self.turns.open
        if act in ("submit", "compact"):
            if submission is None and turns.ready:
                self.submissions += 1
                self.stored = False
                turns.submit(K, compact=act == "compact")
            return
        if act == "not continued":
            self.note(turns.not_continued("N"))
            return
        if submission is None:
            if act == "interrupt":
                self.note(turns.interrupt())
            elif act == "died":
                self.note(turns.died(DEATH))
            elif act == "over":
                self.note(turns.commands_over("N"))
            return
        match act:
            case "send" if (way := turns.way(submission)) is not None:
                turns.sending(submission)
                sends = self.starts_of[id(submission)] = self.starts_of.get(id(submission), 0) + 1
                self.requests.append(submission)
                assert sends <= 3, "once, once more after a refusal, once more after a death"
                assert (way == Compact()) == submission.compact
            case "accept":
                self.note(turns.accepted(submission, None if submission.compact else "N"))
            case "refuse" if not self.stored:
                self.note(turns.refused(submission, InternalError("no")))
            case "refuse content" if not self.stored:
                self.note(turns.refused(submission, InvalidParams("no")))
            case "withdraw":
                self.note(turns.withdraw(K))
            case "interrupt":
                self.note(turns.interrupt())
            case "died":
                self.note(turns.died(DEATH))
            case "look":
                self.note(turns.looked(submission, found=None if look is None else self.stored))
            case "over":
                self.note(turns.commands_over("N"))
            case "confirm" if submission.stage is Stage.CONFIRMING:
                self.note(turns.confirmed(submission, stored=self.stored))
            case "ask":
                turns.asked("q", "c1")
            case "answer":
                self.note(turns.answered("q"))
            case _:
                pass

    def hear(self, signal: Any) -> None:
        submission = self.turns.open
        ours = isinstance(signal, ItemClosed) and signal.item.kind == "userMessage" and signal.item.client_id == K
        if ours:
            if submission is None or submission.compact or submission.stage is Stage.PREPARING:
                return  # Codex completes only messages that it was sent
            self.stored = self.stored or signal.stored
        self.note(self.turns.take(signal))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(_SIGNALS, st.tuples(_ACTS, st.sampled_from([True, None]))), max_size=60))
def test_any_history_gives_each_submission_one_true_outcome(history: list[Any]) -> None:
    """D2, D7, ERR-5, STATE-1, STATE-2: one outcome each, never against the evidence; work begins before it ends."""
    played = _History()
    for step in history:
        if isinstance(step, tuple):
            played.act(*step)
        else:
            played.hear(step)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(_SIGNALS, st.tuples(_ACTS, st.just(True))), max_size=40))
def test_after_any_history_a_prompt_can_get_through(history: list[Any]) -> None:
    """Nothing waits for ever: once the process is gone and the store was read, the next prompt may be sent."""
    played = _History()
    for step in history:
        if isinstance(step, tuple):
            played.act(*step)
        else:
            played.hear(step)
    played.note(played.turns.died(DEATH))
    if submission := played.turns.open:
        played.note(played.turns.looked(submission, found=played.stored))
        if submission is played.turns.open:
            played.note(played.turns.withdraw(K))
    assert played.owed == set(), "an inserted prompt is waited for in vain"
    assert played.turns.ready
    assert played.turns.way(played.turns.submit(K)) == Start()
