"""How long a driver of Codex waits for what: one value, given to the runtime and passed down.

All in seconds, unless a line says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The defaults are for real processes; a test gives shorter ones."""

    initialize: float = 30.0
    """From the start of a process to its answer (measured: 0.1 to 0.3)."""
    start: float = 60.0
    """For `thread/start` (measured: 20 to 50 ms; servers of the user are started beside it)."""
    held: float = 3.0
    """For another holder of the thread that is going away; a crashed one frees it at once."""
    held_again: float = 0.1
    loaded: float = 5.0
    """For what Codex sends behind the answer to a resume."""
    unload: float = 2.0
    """For Codex to close a thread that nobody watches (measured: 23 ms)."""
    half_way: float = 0.2
    """For somebody else who may be moving the thread into or out of the archive."""
    parent: float = 5.0
    """For Codex to say whose sub-agent a thread is."""
    eof: float = 0.5
    """From the end of a process's input to its exit. Measured: 0.03 to 0.07 s, also in mid-turn."""
    term: float = 0.5
    """From TERM to KILL."""

    accept: float = 10.0
    """For Codex to accept a prompt (measured: 7 to 60 ms), before its process is ended and the store decides (D7)."""
    silence: float = 10.0
    """One round without a turn, for a prompt that was accepted."""
    stuck_after: int = 3
    """Such rounds until the process is ended."""
    settle: float = 0.4
    """For a tool that runs to be told of: Codex does that up to 150 ms after its start (0.163.0). A prompt that was sent
    meanwhile waits for the tool inside Codex, where it cannot be withdrawn."""
    unblocked: float = 0.05
    """From the end of what a prompt waited for, in which surely no tool has begun."""
    reclaim: float = 1.0
    """For a withdrawn prompt to be inserted anyway, before its turn is interrupted (measured: 17 to 100 ms)."""
    interrupt: float = 5.0
    """In which an interrupt must end the turn (measured: 8 to 18 ms), before the process is ended instead (D7)."""
    interrupt_again: float = 0.2
    """Until a refused interrupt is asked for again: the turn had not begun inside."""
    commands: float = 1.0
    """For the commands of an interrupted turn to end (measured: 30 to 80 ms)."""
    close: float = 1.0
    """For each step of closing a session."""

    look: float = 0.5
    """For a message that may still be on its way into the store (measured: 10 to 50 ms)."""
    look_again: float = 0.05
    looks: int = 3
    """Into the store, before it is said that it cannot be read or that its witnesses differ: one has new lines first."""
    confirm: float = 2.0
    """For the thread's file to hold a message that Codex reports as complete. Of a legacy thread it may come first."""
    confirm_again: float = 0.02
