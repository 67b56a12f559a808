"""How long a driver of Claude Code waits for what: one value, given to the runtime and passed down.

All in seconds, unless a line says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The defaults are for real processes; a test gives shorter ones."""

    lock: float = 2.0
    """For an agent that is going away to free its session; it ends within one."""
    initialize: float = 20.0
    """Until a started CLI must have answered `initialize`. Measured: 0.5 s, 1.0 s with 60 MB of history, 2.3 s at most."""
    history_per_second: float = 4_000_000
    """Bytes of history for which it gets one more second: it reads all of it first. Measured: 250 MB take 4 to 16 s."""
    ready_again: float = 2.0
    """Between looks whether a prompt can be handed over; what matters wakes the waiting at once."""
    mirror: float = 0.3
    """For the announcement of an entry that is already in the file (measured: within 10 ms)."""
    last_look: float = 1.0
    """For the look into the store after the end of a process, while the session is being closed."""

    silence: float = 2.0
    """One round without a word."""
    skipped_after: int = 5
    """Rounds without a word for a prompt, from a process that answers, until it counts as skipped."""
    stuck_after: int = 60
    """Rounds in the queue of an idle process that waits for nothing, until it is ended."""
    interrupt: float = 5.0
    """In which an interrupt must end the work, before the process is ended instead (D7)."""
    interrupt_again: float = 1.0
    """Until an interrupt that did nothing is sent again."""
    look: float = 1.0
    """For an entry that should be stored; the CLI writes its pending lines before a result."""
    look_again: float = 0.1
    answer: float = 10.0
    """In which a process that is alive answers a control request (measured: 1 to 21 ms, also in mid-turn)."""
    servers_again: float = 0.5
    server_looks: int = 120
    """Looks at the servers of a new process: the CLI gives a server 30 s, and tells how that went with the next turn only."""
    withdraw_again: float = 0.5
    """For a turn to begin after a withdrawal that got nothing back, before an interrupt takes the prompt with the queue."""
