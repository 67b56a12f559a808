"""A rule and its possible outcomes. Values only: no wire, no agent.

The function of a rule returns when the rule holds, and raises `Broken` or `NotApplicable` otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from adapters.check.bench import Bench

Standing = Literal["held", "broken", "not applicable"]
Level = Literal["must", "should"]
"""Of the rule's source. A broken "should" is shown and does not fail the check."""


class Broken(Exception):  # noqa: N818 - an outcome, not a failure of the check
    """The agent breaks the rule. The message is one sentence; `shown` are lines of the wire that show it."""

    def __init__(self, sentence: str, shown: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.shown = tuple(shown)


class Silence(Broken):
    """Broken, as far as one can tell: nothing came within the bound."""


class NotApplicable(Exception):  # noqa: N818 - an outcome, not a failure of the check
    """The rule says nothing about this agent, or could not be brought about; the message says why."""


class Need(IntEnum):
    """What must work before a rule can be checked. Each need includes those before it."""

    NOTHING = 0
    VERSION = 1
    """`initialize` is answered with version 2."""
    SESSION = 2
    """`session/new` gives a session."""
    PROMPT = 3
    """A prompt is inserted and its work ends. Sends prompts."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `id` is the one of the project's conformance page where that has it; `source` is where the rule stands."""

    id: str
    sentence: str
    source: str
    check: Callable[[Bench], Awaitable[None]]
    needs: Need = Need.SESSION
    level: Level = "must"
    opens: Need | None = None
    """The need that is met when this rule holds; set for the first such rule in the table."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the table."""

    title: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one rule."""

    rule: Rule
    standing: Standing
    reason: str = ""
    shown: tuple[str, ...] = ()
    seconds: float = 0.0
    undecided: bool = False
    """The check itself failed: nothing is known."""
