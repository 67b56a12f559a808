"""The foreground state of a session as a table. Pure: takes what happened, tells what to report.

Owns the state and the stop reason of ended work. Knows no session, no connection, no runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class State(Enum):
    """The state as the client sees it, with its names on the wire."""

    IDLE = "idle"
    RUNNING = "running"
    REQUIRES_ACTION = "requires_action"


class Signal(Enum):
    """A change of the foreground work as a whole."""

    STARTED = "started"
    BLOCKED = "blocked"
    """The work waits for the user and nothing else runs."""
    RESUMED = "resumed"
    ENDED = "ended"


TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (State.IDLE, Signal.STARTED): State.RUNNING,
    (State.RUNNING, Signal.BLOCKED): State.REQUIRES_ACTION,
    (State.RUNNING, Signal.ENDED): State.IDLE,
    (State.REQUIRES_ACTION, Signal.RESUMED): State.RUNNING,
    (State.REQUIRES_ACTION, Signal.ENDED): State.IDLE,
}
"""Every other pair changes nothing and is not reported: repeated starts, answers for work that is over (STATE-7, STATE-8)."""


@dataclass(frozen=True, slots=True)
class Report:
    """One `state_update` to send. `stop_reason` and `error` belong to idle only (STOP-3)."""

    state: State
    stop_reason: str | None = None
    error: Mapping[str, Any] | None = None


class Foreground:
    """The one aggregate state of a session (STATE-4)."""

    def __init__(self) -> None:
        self.state = State.IDLE
        self.cancelling = False
        """The client asked to stop the work that runs now."""
        self._last: Report = Report(State.IDLE)

    @property
    def working(self) -> bool:
        """Whether foreground work goes on."""
        return self.state is not State.IDLE

    @property
    def snapshot(self) -> Report:
        """The current state for a client that synchronizes (REPLAY-8)."""
        return self._last

    def signal(self, signal: Signal) -> Report | None:
        """Apply `STARTED`, `BLOCKED` or `RESUMED`; the report to send, or None when nothing changes."""
        target = TRANSITIONS.get((self.state, signal))
        if target is None:
            return None
        self.state = target
        self._last = Report(target)
        return self._last

    def ended(self, stop_reason: str, error: Mapping[str, Any] | None, *, interrupted: bool) -> Report | None:
        """The work is over: the idle report, once per end of work (CANCEL-10), or None when none was going on."""
        if TRANSITIONS.get((self.state, Signal.ENDED)) is None:
            return None
        cancelled = interrupted or (self.cancelling and stop_reason in {"error", "cancelled"})
        self.state = State.IDLE
        self.cancelling = False
        if cancelled:
            self._last = Report(State.IDLE, "cancelled")
        else:
            self._last = Report(State.IDLE, stop_reason, error if stop_reason == "error" else None)
        return self._last
