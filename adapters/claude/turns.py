"""The state of a session's prompts and turns: a pure state machine over Claude Code's signals.

Owns the one open submission and the foreground work. No I/O, no clock. It takes signals, and what was found in the stored
session. It gives effects: events for the core, in order, and actions for the session. The rows follow what Claude Code 2.1.332
was measured to do.

The code calls an id *burnt* when this process will never run it again, because it was withdrawn or blocked (D5).

There is at most one open submission (D3). Its outcome is delivered exactly once; then there is none.

    stage      signal                                   next       effects
    ---------  ---------------------------------------  ---------  ---------------------------------------------------
    -          submit                                   PREPARING
    PREPARING  sent (written to the process)            SENT
    PREPARING  withdraw                                 -          PromptFailed(None)
    PREPARING  the process dies                         PREPARING  another process is started for it
    SENT       queued                                   QUEUED
    SENT       echo: the CLI knows the id, skips it     CHECKING   Look("skipped")
    SENT       overdue: alive, but no word of it        CHECKING   Look("skipped")
    SENT QUEUED  withdraw                               same       Withdraw
    SENT QUEUED  withdrawn, or cancelled as asked for   -          PromptFailed(None); the id is burnt
    SENT QUEUED  started, or a turn begins with its id  TAKEN      WorkStarted, PromptTaken
    SENT QUEUED  cancelled unasked, or completed        CHECKING   Look("dropped")
    TAKEN      a hook blocked it                        -          PromptFailed(reason); the id is burnt
    TAKEN      its turn ended                           CHECKING   Look("ended")
    TAKEN      withdrawn, or overdue idle               CHECKING   Look("dropped")
    any        mirrored, or found in the stored session -          PromptInserted; WorkStarted and WorkEnded where nothing
                                                                   works on it and nothing will: it was dropped before it
                                                                   was taken, or the process is gone
    CHECKING   not found: dropped or skipped, as asked  -          PromptFailed(None); the id is burnt
    CHECKING   not found: dropped or skipped, unasked   -          PromptFailed(error); the id is burnt
    CHECKING   not found: ended, aborted before output  -          PromptFailed(None); the id is burnt
    CHECKING   not found: ended otherwise               -          PromptLiveOnly
    CHECKING   unreadable: unless it ended otherwise    -          PromptFailed(nobody knows); the id is burnt
    but PREPARING  the process is gone: found           -          PromptInserted
    but PREPARING  the process is gone: not found       -          PromptFailed(None when closing, else the error)

A burnt id never runs again in that process (D5): `must_restart` says so for the next submission of it.

The foreground work:

    state      signal                                   next       effects
    ---------  ---------------------------------------  ---------  ---------------------------------------------------
    idle       started, a turn begins                   working    WorkStarted
    working    started, a turn begins                   working    when interrupting: Interrupt again (it came too early)
    working    interrupt                                working    interrupting; Interrupt
    working    a result of this turn, or of nobody      idle       FinishTools unless it went well, WorkEnded
    working    a result of other prompts only           working    none: a leftover ends nothing
    working    the process is gone                      idle       FinishTools, WorkEnded(error, or interrupted)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from adapters.acp.errors import AcpError, InternalError
from adapters.claude.cli.frames import (
    Blocked,
    Echo,
    Lifecycle,
    LimitReached,
    Signal,
    Spoke,
    Stored,
    TurnBegan,
    TurnEnded,
)
from adapters.claude.outcomes import outcome_of
from adapters.core.port import (
    Event,
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    WorkEnded,
    WorkStarted,
)
from adapters.driver.endings import Outcome

Reason = Literal["skipped", "dropped", "ended"]


class Stage(Enum):
    """How far the open submission has come."""

    PREPARING = "preparing"
    SENT = "sent"
    QUEUED = "queued"
    TAKEN = "taken"
    CHECKING = "checking"


@dataclass(slots=True, eq=False)
class Open:
    """The open submission. Whoever waits for something of it holds it, not its id: the id may be submitted again."""

    message_id: str
    stage: Stage = Stage.PREPARING
    withdrawing: bool = False
    reason: Reason = "ended"
    quiet: bool = False
    """Its turn was aborted before anything was said."""
    taken: bool = False
    """A turn took it in."""


@dataclass(frozen=True, slots=True)
class Look:
    """Look into the stored session, then call `looked`: the open submission is decided by what is there."""

    submission: Open
    patient: bool = False
    """It should be there, if only a moment later."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Ask the CLI to take the prompt back; a confirmation comes as `withdrawn`, or as a signal."""

    submission: Open


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ask the CLI to interrupt the running turn."""


@dataclass(frozen=True, slots=True)
class FinishTools:
    """Give the tool calls left open by this work their final status, before the `WorkEnded` that follows (STOP-4)."""

    status: Literal["cancelled", "failed"]


Effect = Event | Look | Withdraw | Interrupt | FinishTools


@dataclass(slots=True)
class _Work:
    """The running foreground work."""

    message_ids: set[str] = field(default_factory=set[str])
    spoke: bool = False
    category: str | None = None
    """The category of the last failed model call."""


class Turns:
    """The machine. Every method is one step and gives its effects in the order in which they hold."""

    def __init__(self) -> None:
        self.open: Open | None = None
        self.interrupting = False
        self.closing = False
        self._work: _Work | None = None
        self._burnt: set[str] = set()
        self._resets_at: float | None = None
        self._unbegun = False
        """The last prompt is inserted, and no turn has taken it in yet."""

    @property
    def working(self) -> bool:
        """Whether foreground work goes on."""
        return self._work is not None

    def must_restart(self, message_id: str) -> bool:
        """Whether this process would never run the id (D5)."""
        return message_id in self._burnt

    # --- what the session does -----------------------------------------------------------------------------------------

    def submit(self, message_id: str) -> Open:
        """A submission opens. The caller has made sure that none is open."""
        self.open = Open(message_id)
        return self.open

    def sent(self, submission: Open) -> None:
        """It is written to the process."""
        if submission is self.open and submission.stage is Stage.PREPARING:
            submission.stage = Stage.SENT

    def withdraw(self, message_id: str) -> list[Effect]:
        """Somebody asks to take it back. Once the CLI has begun with it, the truth has to be waited for (D5)."""
        submission = self.open
        if not submission or submission.message_id != message_id:
            return []
        submission.withdrawing = True
        if submission.stage is Stage.PREPARING:
            return self._fail(None)
        return [Withdraw(submission)] if submission.stage in (Stage.SENT, Stage.QUEUED) else []

    def withdrawn(self, submission: Open) -> list[Effect]:
        """The CLI confirmed that it will not run."""
        if submission is not self.open:
            return []
        if submission.stage in (Stage.TAKEN, Stage.CHECKING):
            return self._check("dropped")  # it had begun with it: the stored session knows how far
        self._burnt.add(submission.message_id)
        return self._fail(None)

    def failed(self, submission: Open, error: AcpError) -> list[Effect]:
        """It could not be handed over."""
        return self._fail(error) if submission is self.open else []

    def interrupt(self) -> list[Effect]:
        """Somebody asks to stop the work."""
        if not self._work:
            return []
        self.interrupting = True
        return [Interrupt()]

    def overdue(self, submission: Open) -> list[Effect]:
        """The process is alive, answers, and has had no word for this prompt for too long."""
        if submission is self.open and submission.stage is Stage.SENT:
            return self._check("skipped")
        if submission is self.open and submission.stage is Stage.TAKEN and not self._work:
            return self._check("dropped")
        return []

    def looked(self, submission: Open, *, found: bool | None) -> list[Effect]:
        """The result of a look into the stored session, complete at a moment after the signal that asked for it.

        None: it cannot be read, which is no evidence of anything (ADP-6).
        """
        if submission is not self.open:
            return []
        if found:
            effects = self._inserted()
            return [*effects, *self._nothing("cancelled")] if submission.reason == "dropped" else effects
        if submission.stage is not Stage.CHECKING:
            return []
        if submission.reason == "ended" and not submission.quiet:
            self.open = None
            return [PromptLiveOnly(submission.message_id)]
        self._burnt.add(submission.message_id)
        if found is None:
            return self._fail(_unknown("Claude Code did not report what became of the prompt"))
        wanted = submission.withdrawing or self.interrupting or self.closing
        if submission.reason == "ended" or wanted:
            return self._fail(None)
        return self._fail(InternalError(f"Claude Code {submission.reason} the prompt; send it again."))

    def started_process(self) -> None:
        """A fresh process: it has burnt no ids."""
        self._burnt.clear()
        self._resets_at = None

    def died(self, error: AcpError, *, found: bool | None) -> list[Effect]:
        """The process is surely gone; `found`: whether the stored session holds the open submission, None: unreadable."""
        effects: list[Effect] = []
        if self.open and self.open.stage is not Stage.PREPARING:
            if found:
                effects += self._inserted()
            elif found is None:
                effects += self._fail(_unknown("Claude Code ended"))
            else:
                withdrawn = self.closing or self.open.withdrawing
                effects += self._fail(None if withdrawn else error)
        if self._work:
            interrupted = self.interrupting or self.closing
            outcome = Outcome("cancelled", interrupted=True) if interrupted else Outcome("error", error.to_wire())
            effects += self._end_work(outcome)
        else:
            effects += self._nothing("cancelled" if self.closing else "error", error)
        self.interrupting = False
        return effects

    # --- what the CLI says ----------------------------------------------------------------------------------------------

    def take(self, signal: Signal) -> list[Effect]:
        """One signal of the live process."""
        match signal:
            case Lifecycle(message_id, state):
                return self._lifecycle(message_id, state)
            case TurnBegan(message_ids):
                return self._begin(message_ids)
            case Echo(message_id):
                if self.open and self.open.message_id == message_id and self.open.stage is Stage.SENT:
                    return self._check("skipped")
            case Stored(message_ids=message_ids):
                if self.open and self.open.message_id in message_ids:
                    return self._inserted()
            case Blocked(reason):
                return self._blocked(reason)
            case Spoke(error):
                if self._work:
                    self._work.spoke = True
                    self._work.category = error
            case LimitReached(resets_at):
                self._resets_at = resets_at
            case TurnEnded():
                return self._end(signal)
            case _:
                pass
        return []

    def _lifecycle(self, message_id: str, state: str) -> list[Effect]:
        if state == "started":
            return self._begin(frozenset((message_id,)))
        submission = self.open
        if submission and submission.message_id == message_id and submission.stage in (Stage.SENT, Stage.QUEUED):
            if state == "queued":
                submission.stage = Stage.QUEUED
            elif state == "cancelled" and submission.withdrawing:
                return self.withdrawn(submission)
            elif state in ("cancelled", "completed"):
                return self._check("dropped")
        return []

    def _begin(self, message_ids: frozenset[str]) -> list[Effect]:
        effects: list[Effect] = []
        if not self._work:
            self._work = _Work()
            effects.append(WorkStarted())
        elif self.interrupting:
            effects.append(Interrupt())
        self._unbegun = False
        self._work.message_ids |= message_ids
        if self.open and self.open.message_id in message_ids and self.open.stage in (Stage.SENT, Stage.QUEUED):
            self.open.stage = Stage.TAKEN
            self.open.taken = True
            effects.append(PromptTaken(self.open.message_id))
        return effects

    def _blocked(self, reason: str) -> list[Effect]:
        if not self.open or self.open.stage is not Stage.TAKEN:
            return []
        self._burnt.add(self.open.message_id)
        text = f"A UserPromptSubmit hook blocked the prompt: {reason or 'it gave no reason'}"
        return self._fail(InternalError(text, {"category": "blocked_by_hook"}))

    def _end(self, result: TurnEnded) -> list[Effect]:
        effects: list[Effect] = []
        submission = self.open
        if (
            submission
            and submission.message_id in result.message_ids
            and submission.stage in (Stage.SENT, Stage.QUEUED)
        ):
            effects += self._begin(result.message_ids)  # the frames before were lost or unknown; the result is not
        work = self._work
        if not work or (result.message_ids and work.message_ids and work.message_ids.isdisjoint(result.message_ids)):
            return effects
        outcome = outcome_of(result, category=work.category, resets_at=self._resets_at, interrupting=self.interrupting)
        quiet = outcome.interrupted and not work.spoke
        effects += self._end_work(outcome)
        theirs = result.message_ids
        if submission and submission.stage is Stage.TAKEN and (not theirs or submission.message_id in theirs):
            submission.quiet = quiet
            effects += self._check("ended")
        return effects

    # --- steps -----------------------------------------------------------------------------------------------------------

    def _end_work(self, outcome: Outcome) -> list[Effect]:
        self._work = None
        self.interrupting = False
        ended = WorkEnded(outcome.stop_reason, outcome.error, interrupted=outcome.interrupted)
        if outcome.interrupted:
            return [FinishTools("cancelled"), ended]
        return [FinishTools("failed"), ended] if outcome.error else [ended]

    def _check(self, reason: Reason) -> list[Effect]:
        assert self.open is not None  # noqa: S101 - the callers have looked
        self.open.stage = Stage.CHECKING
        self.open.reason = reason
        return [Look(self.open, patient=reason == "ended")]

    def _inserted(self) -> list[Effect]:
        assert self.open is not None  # noqa: S101 - the callers have looked
        submission, self.open = self.open, None
        self._unbegun = not (submission.taken or self._work)
        return [PromptInserted(submission.message_id)]

    def _nothing(self, stop_reason: str, error: AcpError | None = None) -> list[Effect]:
        """Nobody works on the inserted prompt, and nobody will."""
        if not self._unbegun:
            return []
        self._unbegun = False
        wire = error.to_wire() if error and stop_reason == "error" else None
        return [WorkStarted(), WorkEnded(stop_reason, wire, interrupted=stop_reason == "cancelled")]

    def _fail(self, error: AcpError | None) -> list[Effect]:
        assert self.open is not None  # noqa: S101 - the callers have looked
        message_id = self.open.message_id
        self.open = None
        return [PromptFailed(message_id, error)]


def _unknown(what: str) -> InternalError:
    """The error of a prompt whose fate nobody can tell for now; it does not claim that nothing was inserted."""
    text = f"{what}, and the stored session cannot be read: send the prompt again with the same key."
    return InternalError(text, {"inserted": None})
