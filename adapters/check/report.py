"""What the check prints: a line per rule as it is decided, a summary, or JSON. Owns the words. Decides nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from adapters.check.bench import Bench
from adapters.check.verdict import Need, Outcome, Rule, Section
from adapters.client.record import as_object

NOT_LOOKED_AT = "not checked, because "
"""How the reason of a rule begins that depends on another one."""


def is_failure(outcome: Outcome) -> bool:
    """Whether this outcome fails the check: a broken "must"."""
    return outcome.standing == "broken" and outcome.rule.level == "must"


def line(outcome: Outcome) -> str:
    """The lines of one rule; ends without a newline."""
    should = " (should)" if outcome.rule.level == "should" else ""
    first = f"{outcome.standing:<14}  {outcome.rule.id:<9}  {outcome.rule.sentence}{should}"
    rest = [outcome.reason] if outcome.reason else []
    rest += outcome.shown
    return "\n".join([first, *(f"                  {text}" for text in rest)])


def sign_of_life(number: int, total: int, rule: Rule | None, seconds: float) -> str:
    """A line that shows that the check goes on."""
    minutes, rest = divmod(int(seconds), 60)
    return f"... {minutes}:{rest:02} min, rule {number} of {total}{f': {rule.id}' if rule else ''}\n"


class Printer:
    """Prints headings and lines as they come."""

    def __init__(self, write: Callable[[str], object], table: Sequence[Section]) -> None:
        self._write = write
        self._section = {rule.id: section.title for section in table for rule in section.rules}
        self._title = ""
        self._told: set[str] = set()
        self._skipped = 0
        self.told = 0
        """Rules that were told."""

    def tell(self, outcome: Outcome) -> None:
        """Print one more outcome. The reason for unchecked rules is printed once."""
        self.told += 1
        if outcome.reason.startswith(NOT_LOOKED_AT):
            if outcome.reason in self._told:
                self._skipped += 1
                return
            self._told.add(outcome.reason)
        title = self._section[outcome.rule.id]
        if title != self._title:
            self._title = title
            self._print(f"\n{title}")
        self._print(line(outcome))

    def summary(self, outcomes: Sequence[Outcome], bench: Bench, misplaced: Sequence[str] = ()) -> None:
        """The last lines. `misplaced` are arguments that are paths from another folder than the command's."""
        self._print("")
        if self._skipped:
            self._print(f"{self._skipped} more rules were not checked, for the same reasons.")
        for text in remarks(outcomes, bench, misplaced):
            self._print(text)
        self._print(summary(outcomes))

    def _print(self, text: str) -> None:
        self._write(text.encode("ascii", "backslashreplace").decode() + "\n")


def summary(outcomes: Iterable[Outcome]) -> str:
    """One line of counts."""
    counts = Counter(f"{o.rule.level} {o.standing}" for o in outcomes)
    held = counts["must held"] + counts["should held"]
    beside = counts["must not applicable"] + counts["should not applicable"]
    broken = f"{counts['must broken']} broken"
    should = f', {counts["should broken"]} "should" not held' if counts["should broken"] else ""
    return f"{held} held, {broken}{should}, {beside} not applicable"


def remarks(outcomes: Sequence[Outcome], bench: Bench, misplaced: Sequence[str] = ()) -> list[str]:
    """Sentences that keep the counts from being misread."""
    told: list[str] = []
    if misplaced and any(outcome.rule.opens is Need.VERSION and outcome.standing == "broken" for outcome in outcomes):
        told.append(
            f"The command starts in {bench.cwd}, where {', '.join(misplaced)} does not exist:"
            " write absolute paths, or give --cwd."
        )
    if reads_keys(outcomes) is False:
        told.append("This agent ignores idempotencyKey, a proposal of November 2026 that is not part of schema 2.4.0.")
    sent = any(outcome.rule.needs >= Need.PROMPT and outcome.standing != "not applicable" for outcome in outcomes)
    if sent and not bench.stage.controlled:
        told.append(
            "Model calls were not counted: the prompts went to the model that the command uses (see --scripted)."
        )
    return told


def reads_keys(outcomes: Sequence[Outcome]) -> bool | None:
    """False when invalid keys are taken and known ones inserted again; None when that was not looked at."""
    standing = {outcome.rule.id: outcome.standing for outcome in outcomes}
    telling = {standing.get(name, "not applicable") for name in ("KEY-4", "TRACE-1")}
    return None if "not applicable" in telling else telling != {"broken"}


def as_json(outcomes: Sequence[Outcome], bench: Bench, command: Sequence[str]) -> str:
    """The whole result as one JSON object."""
    rules = [
        {
            "id": outcome.rule.id,
            "rule": outcome.rule.sentence,
            "source": outcome.rule.source,
            "level": outcome.rule.level,
            "standing": outcome.standing,
            "reason": outcome.reason or None,
            "messages": list(outcome.shown),
            "seconds": round(outcome.seconds, 3),
        }
        for outcome in outcomes
    ]
    value = {
        "agent": as_object(bench.facts.get("info")) or None,
        "command": list(command),
        "modelCallsCounted": bench.stage.controlled,
        "readsIdempotencyKey": reads_keys(outcomes),
        "summary": summary(outcomes),
        "broken": sum(map(is_failure, outcomes)),
        "rules": rules,
    }
    return json.dumps(value, indent=2)
