"""The state of a thread's prompts and turns: a pure state machine over Codex's signals.

Owns the one open submission and the foreground work. No I/O, no clock. It takes signals, answers of requests, and what was found
in the stored thread. It gives effects, in order. docs/codex.md has the measurements behind it.

There is at most one open submission (D3). Its outcome is delivered exactly once; then there is none.

    stage      what happened                               next       effects
    ---------  ------------------------------------------  ---------  --------------------------------------------------
    -          submit                                      PREPARING  (`way` says when it may be sent, and how)
    PREPARING  sending                                     SENDING
    PREPARING  withdraw                                    -          PromptFailed(None)
    SENDING    accepted into a turn                        ACCEPTED   when that turn has already ended: as below
    SENDING    refused for its content                     -          PromptFailed(error)
    SENDING    refused otherwise, the first time           PREPARING  the second and last way is turn/start
    SENDING    refused otherwise, the second time          -          PromptFailed(error)
    SENDING, ACCEPTED    its user message began            TAKEN      WorkStarted, PromptTaken
    SENDING.., CHECKING  its user message is complete,     -          PromptInserted
               and in the thread's file
    SENDING.., CHECKING  its user message is complete, but CONFIRMING Confirm
               not yet seen in the file
    CONFIRMING confirmed: it is in the file                -          PromptInserted
    CONFIRMING not confirmed in time: a full disk          -          PromptLiveOnly
    ACCEPTED, TAKEN      its turn ended without it         CHECKING   Look
    all but PREPARING    the process died                  CHECKING   Look
    all but PREPARING    withdraw                          same       Reclaim: it can only be waited for, or interrupted
    CHECKING   looked: found                               -          PromptInserted; WorkStarted and WorkEnded where no turn
                                                                      has taken it in, and none will
    CHECKING   looked: not found, the process had died     PREPARING  once: the process may have been dead before
               before it answered
    CHECKING   looked: not found otherwise                 -          PromptFailed(None where somebody wanted that: it was
                                                                      withdrawn, its turn was interrupted, or we close;
                                                                      else the reason)
    CHECKING   looked: the store cannot be read            -          PromptFailed(error that says so)

A `/compact` is a submission that leaves no message: it waits for the end of running work, and its turn's beginning is its
insertion (SENDING -> PromptTaken, PromptLiveOnly).

The foreground work:

    state      what happened                               next       effects
    ---------  ------------------------------------------  ---------  --------------------------------------------------
    idle       a turn or one of its items begins           working    WorkStarted
    working    interrupt                                   same       interrupting; Interrupt
    working    its turn ended                              idle       FinishItems unless it went well; WorkEnded
    working    its turn ended well behind a prompt for     going on   Continue: Codex inserts a prompt that comes at the very
               which the model was not asked                          end of a turn, and asks nobody (10 of 190 steers)
    going on   another turn begins                         working    WorkStarted; Interrupt if that was asked for meanwhile
    going on   none does                                   idle       WorkEnded
    working    its turn was interrupted, commands run on   ending     EndCommands
    ending     the last of them ended, or time is up       idle       FinishItems, WorkEnded
    any        the process died                            idle       FinishItems, WorkEnded(error, or interrupted)

A prompt may be handed to a running turn (`ready`, `way`) when nothing is open in it that a steer would cut short or wait for: no
agent message, no tool, no approval, no compaction (D3). A command that runs on while the model goes on is in the background and
holds nobody up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from adapters.acp.errors import AcpError, InternalError, InvalidParams
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex.outcomes import outcome_of
from adapters.codex.server.signals import (
    COMMAND,
    MODEL_OUTPUT,
    REASONING,
    SPOKEN,
    TOOLS,
    USER_MESSAGE,
    Answered,
    Item,
    ItemClosed,
    ItemOpened,
    Retrying,
    Signal,
    TurnEnded,
    TurnStarted,
)
from adapters.codex.turn_types import (
    Compact,
    Confirm,
    Continue,
    Effect,
    EndCommands,
    FinishItems,
    Interrupt,
    Look,
    Open,
    Reclaim,
    Stage,
    Start,
    Steer,
    Way,
)
from adapters.core.port import (
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    ReadyChanged,
    WorkEnded,
    WorkStarted,
)
from adapters.driver.endings import Outcome

_ENDED_KEPT = 32
"""Ended turns that are remembered: an answer that names one of them came late."""


@dataclass(slots=True)
class _Turn:
    """The running turn."""

    turn_id: str
    blocking: dict[str, str] = field(default_factory=dict[str, str])
    """Open items that a prompt has to wait for: id -> kind."""
    commands: set[str] = field(default_factory=set[str])
    """Commands of this turn that run, in the background or not."""
    thinking: str | None = None
    """The reasoning that streams: the model has not decided for a tool."""
    ended: TurnEnded | None = None
    """It ended, but commands of it run on, or another turn is to go on with it."""
    going_on: bool = False
    """Another turn is to begin, for the prompt that the model was not asked about."""
    answered: bool = True
    """The model was asked about everything that came into the running turn."""
    begun: bool = False
    """The model has said or done something in it."""


class Turns:
    """The machine. Every method is one step and gives its effects in the order in which they hold."""

    def __init__(self) -> None:
        self.open: Open | None = None
        self.interrupting = False
        self.closing = False
        self._turn: _Turn | None = None
        self._asks: dict[str, str] = {}
        self._ended: deque[TurnEnded] = deque(maxlen=_ENDED_KEPT)

    @property
    def working(self) -> bool:
        """Whether foreground work goes on."""
        return self._turn is not None

    @property
    def turn_id(self) -> str | None:
        """The running turn."""
        return self._turn.turn_id if self._turn else None

    def runs(self, turn_id: str) -> bool:
        """Whether this turn goes on, beyond commands that outlive it."""
        return self._turn is not None and self._turn.turn_id == turn_id and self._turn.ended is None

    @property
    def thinking(self) -> bool:
        """Whether the model surely has not decided for a tool yet: a prompt would be taken in at once."""
        return self._turn is not None and self._turn.thinking is not None

    @property
    def ready(self) -> bool:
        """Whether a prompt that comes now would be sent at once (D3)."""
        return self.open is None and self._passable

    @property
    def _passable(self) -> bool:
        turn = self._turn
        return not (self.closing or self.interrupting or (turn and (turn.blocking or turn.ended or self._asks)))

    def way(self, submission: Open) -> Way | None:
        """How to send the submission now; None while it has to wait."""
        if submission is not self.open or submission.stage is not Stage.PREPARING or not self._passable:
            return None
        if submission.compact:
            return None if self._turn else Compact()
        if self._turn and not submission.refused:
            return Steer(self._turn.turn_id)
        return Start()

    # --- what the session does -----------------------------------------------------------------------------------------

    def submit(self, message_id: str, *, compact: bool = False) -> Open:
        """A submission opens. The caller has made sure that none is open."""
        self.open = Open(message_id, compact=compact)
        return self.open

    def sending(self, submission: Open) -> None:
        """Its request is being written."""
        submission.stage = Stage.SENDING
        submission.owns_turn = self._turn is None

    def accepted(self, submission: Open, turn_id: str | None) -> list[Effect]:
        """Codex will insert it, into this turn where it names one. Its signals may have come before this answer."""
        if submission is not self.open or submission.stage is not Stage.SENDING:
            return []
        submission.stage = Stage.ACCEPTED
        if turn_id:
            submission.turn_id = turn_id
            submission.owns_turn = submission.owns_turn and (self._turn is None or self._turn.turn_id == turn_id)
        late = next((ended for ended in self._ended if ended.turn_id == turn_id), None)
        return self._left_out(submission, late) if late else []

    def refused(self, submission: Open, error: AcpError) -> list[Effect]:
        """Codex will not insert it: nothing was done. Once, another way is tried (a turn may just have ended)."""
        if submission is not self.open or submission.stage is not Stage.SENDING:
            return []
        if submission.withdrawing:
            return self._fail(None)
        if submission.refused or submission.compact or isinstance(error, InvalidParams):
            return self._fail(error)
        submission.refused = True
        submission.stage = Stage.PREPARING
        return []

    def failed(self, submission: Open, error: AcpError) -> list[Effect]:
        """It could not be handed over; nothing was sent."""
        if submission is not self.open or submission.stage is not Stage.PREPARING:
            return []
        return self._fail(None if submission.withdrawing else error)

    def withdraw(self, message_id: str) -> list[Effect]:
        """Somebody asks to take it back. What Codex has cannot be taken back, only prevented by an interrupt (D5)."""
        submission = self.open
        if not submission or submission.message_id != message_id:
            return []
        submission.withdrawing = True
        return self._fail(None) if submission.stage is Stage.PREPARING else [Reclaim(submission)]

    def interrupt(self) -> list[Effect]:
        """Somebody asks to stop the work."""
        if not self._turn or self.interrupting:
            return []
        self.interrupting = True
        return [] if self._turn.ended else [Interrupt(self._turn.turn_id)]

    def confirmed(self, submission: Open, *, stored: bool) -> list[Effect]:
        """The thread's file holds it, or does not although Codex reports it and goes on with it."""
        if submission is not self.open or submission.stage is not Stage.CONFIRMING:
            return []
        if stored:
            return self._inserted()
        self.open = None
        return [PromptLiveOnly(submission.message_id)]

    def looked(self, submission: Open, *, found: bool | None) -> list[Effect]:
        """The result of a look into the stored thread; None: it cannot be read."""
        if submission is not self.open or submission.stage is not Stage.CHECKING:
            return []
        if found:
            return self._inserted()
        if found is None:
            text = (
                "Codex's stored session cannot be read, so the prompt may be stored: send it again with the same key."
            )
            return self._fail(InternalError(text, {"inserted": None}))
        if submission.withdrawing or submission.unwanted or self.closing:
            return self._fail(None)
        if submission.unheard and not submission.resent:
            submission.resent = True
            submission.stage = Stage.PREPARING
            return []
        return self._fail(submission.reason)

    def commands_over(self, turn_id: str) -> list[Effect]:
        """The commands of an interrupted turn have ended, or do not."""
        turn = self._turn
        return self._finish(turn.ended) if turn and turn.ended and not turn.going_on and turn.turn_id == turn_id else []

    def goes_on(self, turn_id: str) -> bool:
        """Whether another turn is still to begin for this one."""
        return self._turn is not None and self._turn.turn_id == turn_id and self._turn.going_on

    def not_continued(self, turn_id: str) -> list[Effect]:
        """No other turn begins: the prompt is inserted, and the model reads it with the next one."""
        turn = self._turn
        return self._finish(turn.ended) if turn and self.goes_on(turn_id) and turn.ended else []

    def asked(self, request_id: str, item_id: str) -> None:
        """The running turn waits for an answer of the user about this item."""
        self._asks[request_id] = item_id

    def answered(self, request_id: str) -> list[Effect]:
        """It no longer does."""
        return self._changed(lambda: self._asks.pop(request_id, None))

    def died(self, error: AcpError) -> list[Effect]:
        """The process is gone, and the running turn with it (D7). Something unsent stays open: it goes to the next one."""
        stopped = self.interrupting or self.closing
        effects: list[Effect] = [FinishItems("cancelled" if stopped else "failed", None)]
        if turn := self._turn:
            outcome = Outcome("cancelled", interrupted=True) if stopped else Outcome("error", error.to_wire())
            effects += self._end_work(turn, outcome)[-1:]
        self._asks.clear()
        self._ended.clear()
        submission = self.open
        if submission and submission.stage not in (Stage.PREPARING, Stage.CHECKING):
            submission.unheard = submission.stage is Stage.SENDING
            effects += self._check(submission, error)
        return effects

    # --- what Codex says -------------------------------------------------------------------------------------------------

    def take(self, signal: Signal) -> list[Effect]:
        """One signal of the live process about this thread."""
        match signal:
            case TurnStarted(turn_id):
                return self._started(turn_id)
            case ItemOpened(turn_id, item):
                return self._opened(turn_id, item)
            case ItemClosed(turn_id, item, stored):
                return self._closed(turn_id, item, stored=stored)
            case Retrying(turn_id):
                return self._changed(lambda: self._cut_short(turn_id))
            case Answered(turn_id):
                if turn := self._running(turn_id):
                    turn.answered = True
                return []
            case TurnEnded():
                return self._turn_ended(signal)

    def _running(self, turn_id: str) -> _Turn | None:
        return self._turn if self._turn and self._turn.turn_id == turn_id else None

    def _started(self, turn_id: str) -> list[Effect]:
        effects = self._begin(turn_id)
        submission = self.open
        if submission and submission.compact and submission.stage in (Stage.SENDING, Stage.ACCEPTED):
            self.open = None
            effects += [PromptTaken(submission.message_id), PromptLiveOnly(submission.message_id, by_design=True)]
        return effects

    def _begin(self, turn_id: str) -> list[Effect]:
        """The turn runs, as its beginning or anything in it shows."""
        if self._turn and self._turn.turn_id == turn_id:
            return []
        if any(ended.turn_id == turn_id for ended in self._ended):
            return []  # a late word of a turn that is over
        already, self._turn = self._turn, _Turn(turn_id)
        effects: list[Effect] = [WorkStarted()]
        if self.interrupting and already:
            effects.append(Interrupt(turn_id))  # another turn took the place of the one that was to be stopped
        return effects

    def _opened(self, turn_id: str, item: Item) -> list[Effect]:
        effects = self._begin(turn_id)
        if item.kind == USER_MESSAGE:
            self._cut_short(turn_id)
            return [*effects, *self._taken(turn_id, item)]
        if turn := self._running(turn_id):
            turn.begun = turn.answered = True
            if item.kind in MODEL_OUTPUT:
                turn.blocking.clear()  # what ran before runs in the background; what was said before was cut short
            turn.thinking = item.item_id if item.kind == REASONING else None
            if item.kind in SPOKEN or item.kind in TOOLS:
                turn.blocking[item.item_id] = item.kind
            if item.kind == COMMAND:
                turn.commands.add(item.item_id)
        return effects

    def _taken(self, turn_id: str, item: Item) -> list[Effect]:
        submission = self.open
        if not self._is_ours(item) or not submission or submission.stage not in (Stage.SENDING, Stage.ACCEPTED):
            return []
        submission.stage = Stage.TAKEN
        submission.turn_id = turn_id
        return self._seen(submission)

    def _closed(self, turn_id: str, item: Item, *, stored: bool) -> list[Effect]:
        if item.kind == USER_MESSAGE:
            effects = self._begin(turn_id)
            if turn := self._running(turn_id):
                turn.answered = not turn.begun  # what a turn begins with is always asked
            submission = self.open
            if not submission or not self._is_ours(item) or submission.stage in (Stage.PREPARING, Stage.CONFIRMING):
                return effects
            if turn and not submission.taken:
                effects += self._seen(submission)
            if stored:
                return [*effects, *self._inserted()]
            submission.stage = Stage.CONFIRMING
            return [*effects, Confirm(submission)]
        turn = self._running(turn_id)
        if not turn:
            return []
        if turn.thinking == item.item_id:
            turn.thinking = None
        effects = self._changed(lambda: turn.blocking.pop(item.item_id, None))
        turn.commands.discard(item.item_id)
        if turn.ended and not (turn.commands or turn.going_on):
            return self._finish(turn.ended)
        return effects

    def _turn_ended(self, ended: TurnEnded) -> list[Effect]:
        self._ended.append(ended)
        effects: list[Effect] = []
        turn = self._running(ended.turn_id)
        submission = self.open
        if submission and submission.turn_id == ended.turn_id and submission.stage in (Stage.ACCEPTED, Stage.TAKEN):
            effects += self._left_out(submission, ended)
        if turn:
            turn.commands.difference_update(self._asks.values())  # what was asked about did not run
            self._asks.clear()
        if turn and turn.commands and ended.status == "interrupted":
            turn.ended = ended
            turn.blocking.clear()
            effects.append(EndCommands(turn.turn_id, tuple(turn.commands)))
        elif turn and ended.status == "completed" and not (turn.answered or self.interrupting or self.closing):
            turn.ended, turn.going_on = ended, True
            turn.blocking.clear()
            effects.append(Continue(turn.turn_id))
        elif turn:
            effects += self._finish(ended)
        return effects

    # --- steps -----------------------------------------------------------------------------------------------------------

    def _is_ours(self, item: Item) -> bool:
        return self.open is not None and not self.open.compact and item.client_id == self.open.message_id

    def _cut_short(self, turn_id: str) -> None:
        """What the model was saying is thrown away; it will never be completed."""
        if self._turn and self._turn.turn_id == turn_id:
            self._turn.thinking = None
            self._turn.blocking = {k: kind for k, kind in self._turn.blocking.items() if kind not in SPOKEN}

    def _changed(self, change: Callable[[], object]) -> list[Effect]:
        before = self._passable
        change()
        return [ReadyChanged()] if self._passable and not before else []

    def _finish(self, ended: TurnEnded) -> list[Effect]:
        assert self._turn is not None  # noqa: S101 - the callers have looked
        return self._end_work(self._turn, outcome_of(ended, interrupting=self.interrupting))

    def _end_work(self, turn: _Turn, outcome: Outcome) -> list[Effect]:
        if turn.ended is None and not any(ended.turn_id == turn.turn_id for ended in self._ended):
            self._ended.append(TurnEnded(turn.turn_id, "interrupted"))
        self._turn = None
        self.interrupting = False
        worked = WorkEnded(outcome.stop_reason, outcome.error, interrupted=outcome.interrupted)
        if outcome.interrupted:
            return [FinishItems("cancelled", turn.turn_id), worked]
        return [FinishItems("failed", turn.turn_id), worked] if outcome.error else [worked]

    def _left_out(self, submission: Open, ended: TurnEnded) -> list[Effect]:
        """Its turn is over and it was not seen in it: dropped by an interrupt, or refused by a hook of the user."""
        submission.unwanted = ended.status == "interrupted"
        error = outcome_of(ended, interrupting=False).error
        said = as_text(as_mapping(error).get("message"))
        text = (
            f"Codex did not work on the prompt: {said}"
            if said
            else "Codex ended the turn without working on the prompt."
        )
        return self._check(submission, InternalError(text))

    def _check(self, submission: Open, reason: AcpError) -> list[Effect]:
        submission.stage = Stage.CHECKING
        submission.reason = reason
        return [Look(submission)]

    def _inserted(self) -> list[Effect]:
        assert self.open is not None  # noqa: S101 - the callers have looked
        submission, self.open = self.open, None
        inserted = PromptInserted(submission.message_id)
        if submission.taken or self._turn:
            return [inserted]
        if submission.withdrawing or submission.unwanted or self.closing:  # nobody works on it, and nobody will
            return [inserted, WorkStarted(), WorkEnded("cancelled", interrupted=True)]
        reason = submission.reason or InternalError("Codex has not begun with the prompt.")
        return [inserted, WorkStarted(), WorkEnded("error", reason.to_wire())]

    def _seen(self, submission: Open) -> list[Effect]:
        submission.taken = True
        return [PromptTaken(submission.message_id)]

    def _fail(self, error: AcpError | None) -> list[Effect]:
        assert self.open is not None  # noqa: S101 - the callers have looked
        message_id = self.open.message_id
        self.open = None
        return [PromptFailed(message_id, error)]
