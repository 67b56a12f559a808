"""Attempts that are answered at the end of the work that took their prompt in (`Attempt.until_work_ends`).

Owns which work that is. Pure: it is told what happened in a session, and calls `Attempt.work_ended`. A prompt's life from its
hand-over to the runtime on ("over": answered, in the same step):

    state     taken   work started   work ended   inserted, work goes on   inserted, no work   not inserted
    HANDED    TAKEN   HANDED         HANDED       WORKING                  EXPECTED            forgotten
    TAKEN     -       TAKEN          ENDED        WORKING                  EXPECTED            forgotten
    ENDED     -       ENDED          ENDED        over                     over                forgotten
    EXPECTED  -       WORKING        over         -                        -                   -
    WORKING   -       WORKING        over         -                        -                   -

ENDED is where the proof of storage comes after the end of the work. A driver lets work begin and end after every inserted prompt
(`port.PromptInserted`), so nobody stays in EXPECTED; a cancel ends it at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from adapters.core.foreground import Report, State
from adapters.core.peer import Attempt

CANCELLED = Report(State.IDLE, "cancelled")


class WorkWaits:
    """All attempts of one session that wait for the end of work."""

    def __init__(self) -> None:
        self._taken: str | None = None
        self._ended: tuple[str, Report] | None = None
        self._expected: list[Attempt] = []
        self._working: list[Attempt] = []

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._expected or self._working)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._expected or attempt in self._working

    def taken(self, message_id: str) -> None:
        """The running work has taken the prompt in."""
        self._taken = message_id

    def started(self) -> None:
        """Work began."""
        self._working += self._expected
        self._expected.clear()

    def inserted(self, message_id: str, attempts: Iterable[Attempt], *, working: bool) -> None:
        """The prompt is inserted; `working`: work goes on now."""
        waiting = [attempt for attempt in attempts if attempt.until_work_ends]
        if self._ended and self._ended[0] == message_id:
            report = self._ended[1]
            for attempt in waiting:
                attempt.work_ended(report)
        elif working:
            self._working += waiting
        else:
            self._expected += waiting

    def settled(self, message_id: str) -> None:
        """The prompt's fate is known: nothing more is to be kept of it."""
        if self._taken == message_id:
            self._taken = None
        if self._ended and self._ended[0] == message_id:
            self._ended = None

    def ended(self, report: Report) -> None:
        """The work is over, and everything that belongs to it is shown."""
        if self._taken is not None:
            self._ended, self._taken = (self._taken, report), None
        over, self._expected, self._working = [*self._expected, *self._working], [], []
        for attempt in over:
            attempt.work_ended(report)

    def cancel_expected(self) -> None:
        """A client cancels, and no work goes on: what has not begun is not waited for any more."""
        over, self._expected = self._expected, []
        for attempt in over:
            attempt.work_ended(CANCELLED)
