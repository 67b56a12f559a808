"""The types of the state machine in `turns`: the open submission, the ways to send it, and the effects beside events.

Owns names and fields, no decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from adapters.acp.errors import AcpError
from adapters.core.port import Event


class Stage(Enum):
    """How far the open submission has come."""

    PREPARING = "preparing"
    SENDING = "sending"
    ACCEPTED = "accepted"
    TAKEN = "taken"
    CONFIRMING = "confirming"
    CHECKING = "checking"


@dataclass(slots=True, eq=False)
class Open:
    """The open submission. Whoever waits for something of it holds it, not its id: the id may be submitted again."""

    message_id: str
    compact: bool = False
    stage: Stage = Stage.PREPARING
    withdrawing: bool = False
    refused: bool = False
    """It was refused once: the next refusal is its end."""
    turn_id: str | None = None
    """The turn it was accepted into or seen in."""
    owns_turn: bool = False
    """Nothing else is in that turn: it was begun for this prompt."""
    taken: bool = False
    """Its user message was seen in a turn that ran."""
    unheard: bool = False
    """The process died before it answered: if nothing is stored, it may be handed to the next one."""
    resent: bool = False
    """It was, once."""
    unwanted: bool = False
    """Its turn was interrupted: not to be inserted is what was asked for."""
    reason: AcpError | None = None


# --- ways to send ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """`turn/start`."""


@dataclass(frozen=True, slots=True)
class Steer:
    """`turn/steer` into this turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Compact:
    """`thread/compact/start`."""


Way = Start | Steer | Compact

# --- effects beside the port's events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Look into the stored thread, then call `looked`."""

    submission: Open


@dataclass(frozen=True, slots=True)
class Confirm:
    """Look whether the thread's file comes to hold it, then call `confirmed`."""

    submission: Open


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Somebody wants it back: give it a moment, then interrupt its turn if that is its own."""

    submission: Open


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt this turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class EndCommands:
    """End these commands, which run on without their turn; then, or after a bound, call `commands_over`."""

    turn_id: str
    item_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Continue:
    """This turn ended just as a prompt came in: have the model asked in another one; call `not_continued` if none begins."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class FinishItems:
    """Give what this work left open its final status, before the `WorkEnded` that follows (STOP-4).

    `turn_id` None: everything that runs, in the background too, because the process is gone.
    """

    status: Literal["cancelled", "failed"]
    turn_id: str | None


Effect = Event | Look | Confirm | Reclaim | Interrupt | EndCommands | Continue | FinishItems
