"""One run over the table of rules: which rule is checked when, with what, and with which outcome.

Owns the order, the bounds and the clean-up. A rule is checked only if what it needs works (`Need`), and only while the agent
answers at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import anyio

from adapters.check.bench import Bench
from adapters.check.report import NOT_LOOKED_AT
from adapters.check.verdict import Broken, Need, NotApplicable, Outcome, Rule, Section, Silence, Standing
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

_WAITS = 8
"""A rule may take so many times the bound of one wait."""
_PATIENCE = 3
"""An agent that does not answer may cost this many times the bound of one wait; then waits are short."""
_SHORT = 10
"""A short wait is the bound divided by this, and not below `_SHORTEST`."""
_SHORTEST = 1.0
"""Seconds; an agent has to start in them."""
_SILENT = 6
"""Rules in a row without an answer after which an agent is given up."""

NO_PROMPTS = "needs prompts: give --scripted claude|codex, or --prompts to use the command's own model"


class Runner:
    """One run over a table. `chosen` None is all rules; `prompts` False leaves out those that send prompts."""

    def __init__(
        self, bench: Bench, table: Sequence[Section], chosen: frozenset[str] | None = None, *, prompts: bool = True
    ) -> None:
        self._bench = bench
        self._rules = [rule for section in table for rule in section.rules]
        self._chosen = chosen
        self._why: dict[Need, str] = {} if prompts else {Need.PROMPT: NO_PROMPTS}
        """Why something is not."""
        self._bound = bench.bound
        self._lost = 0.0
        """Seconds in which the agent did not answer."""
        self._silent = 0
        """Rules in a row that it did not answer."""
        self.at: Rule | None = None
        """The rule that is looked at."""
        self.number = 0
        """Its place in the table."""

    @property
    def total(self) -> int:
        """Rules in the table."""
        return len(self._rules)

    async def run(self, tell: Callable[[Outcome], None]) -> list[Outcome]:
        """Check every chosen rule and tell its outcome at once. Cleans up also when it is cancelled."""
        outcomes: list[Outcome] = []
        deepest = max((rule.needs for rule in self._rules if self._is_chosen(rule)), default=Need.NOTHING)
        try:
            for number, rule in enumerate(self._rules, 1):
                self.at, self.number = rule, number
                opening = rule.opens is not None and rule.opens <= deepest
                if self._is_chosen(rule) or opening:
                    outcome = await self._outcome(rule)
                    if self._is_chosen(rule) or outcome.standing == "broken":
                        outcomes.append(outcome)
                        tell(outcome)
        finally:
            try:
                await self._bench.unshare()  # in no scope of ours: the connection was opened outside of it
            finally:
                self._bench.launcher.sweep()
        return outcomes

    def _is_chosen(self, rule: Rule) -> bool:
        return self._chosen is None or rule.id in self._chosen

    async def _outcome(self, rule: Rule) -> Outcome:
        start = time.monotonic()
        standing: Standing = "held"
        reason, shown, undecided = "", (), False
        try:
            missing = next(
                (why for need, why in sorted(self._why.items()) if need <= max(rule.needs, rule.opens or 0)), None
            )
            if missing is None:
                await self._look(rule)
                self._silent = 0
            else:
                standing, reason = "not applicable", missing
        except Broken as broken:
            standing, reason, shown = "broken", str(broken), broken.shown
            if self._was_cut_short(time.monotonic() - start, silence=isinstance(broken, Silence)):
                standing, reason = "not applicable", f"not decided, because {self._short_wait()}: {broken}"
        except NotApplicable as why:
            standing, reason = "not applicable", str(why)
        except Exception as error:  # noqa: BLE001 - a mistake of the check must not be told as one of the agent
            self._bench.spoil()
            _log.warning(LogEvent("check failed", rule=rule.id, error=repr(error)))
            standing, undecided = "not applicable", True
            reason = f"the check itself failed ({type(error).__name__}); please report it"
        if standing != "held" and rule.opens is not None and rule.opens not in self._why:
            self._why[rule.opens] = f"{NOT_LOOKED_AT}{rule.id} does not hold: {reason}"
        with anyio.move_on_after(self._bench.bound):
            await self._bench.tidy()
        self._bench.launcher.sweep(self._bench.shared)
        return Outcome(rule, standing, reason, shown, time.monotonic() - start, undecided)

    def _was_cut_short(self, seconds: float, *, silence: bool) -> bool:
        """Take note of a rule that was broken after so many seconds; whether its wait was too short to tell."""
        if not silence:
            self._silent = 0
            return False
        short = self._bench.bound < self._bound
        self._lost += seconds
        self._silent += 1
        if self._lost >= _PATIENCE * self._bound:
            self._bench.bound = min(self._bound, max(_SHORTEST, self._bound / _SHORT))
        if self._silent >= _SILENT:
            why = f"{NOT_LOOKED_AT}the agent did not answer in {_SILENT} rules in a row"
            self._why = dict.fromkeys(Need, why) | self._why
        return short

    def _short_wait(self) -> str:
        return f"waits are short after {self._lost:.0f} s without an answer (check it alone with --rule)"

    async def _look(self, rule: Rule) -> None:
        bound = self._bench.bound * _WAITS
        try:
            if rule.needs >= Need.VERSION:
                await self._bench.share()
            with anyio.fail_after(bound):
                await rule.check(self._bench)
        except TimeoutError:
            self._bench.spoil()
            raise Silence(f"no result within {bound:g} s") from None
        except Broken:
            self._bench.spoil()
            raise
