"""Random histories of one session, and what must hold at their end.

The steps (`steps`) and their order come from the seed alone: a seed gives the same steps again (not the same races). `run` plays
a random history, `play` steps that a test has chosen. What is right or wrong is said by `history`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import anyio

from adapters.acp.errors import AcpError
from adapters.client.record import ConnectionLostError
from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability import homes
from adapters_tests.reliability.client_steps import ClientSteps
from adapters_tests.reliability.history import History, attempts_of, faults_of
from adapters_tests.reliability.process_steps import ProcessSteps
from adapters_tests.reliability.steps import Tally
from adapters_tests.reliability.store_steps import StoreSteps
from adapters_tests.reliability.worlds import WORLDS, steps_of

STEPS = {
    "submit": 7, "submit_tool": 3, "submit_slow": 2, "submit_failing": 1, "submit_asking": 2, "submit_unkeyed": 1,
    "resend": 5, "resend_twice": 1, "withdraw": 3, "withdraw_soon": 3, "withdraw_one": 3, "stop": 1, "release": 3,
    "answer_one": 3, "settle": 2, "kill_agent": 1, "kill_runtime": 1, "kill_both": 1, "end_agent": 1, "abandon": 3,
    "kill_at_answer": 1, "freeze": 2, "resume_again": 1, "reopen": 1, "second_agent": 1, "guest_agent": 3,
    "own_turn": 1, "sibling": 3, "resend_folded": 2,
}  # fmt: skip
"""What may happen next, and how often it does."""

_LINES = 5
"""Of each agent's log, shown with a broken promise."""

_QUIET = 0.5
"""How often all work has ended, and what was refused must be absent, before everything is sent again."""

_TRIES = 3
"""How often everything is sent again at the end, until all of it is in."""


class BrokenPromiseError(AssertionError):
    """A history that breaks what was promised: the sentences, and the steps that led there."""


class Walk(ClientSteps, StoreSteps, ProcessSteps):
    """One history, in the world of this name."""

    def __init__(self, rig: Rig, seed: str, *, world: str = "plain", obliging: bool = False) -> None:
        super().__init__(rig, seed, obliging=obliging)
        self.world = world

    def agent_command(self) -> Sequence[str]:
        return self.odd_stderr() if WORLDS[self.world].odd_stderr else ()

    async def run(self, steps: int) -> Tally:
        """Play so many random steps and judge. Raises `BrokenPromiseError`."""
        return await self.play(steps_of(self.seed, steps, STEPS, WORLDS[self.world]))

    async def play(self, names: Iterable[str]) -> Tally:
        """Play these steps until one breaks a promise, finish and judge. Raises `BrokenPromiseError`."""
        async with anyio.create_task_group() as self._watchers:
            try:
                async with self._stack:
                    await self._play(names)
            except (AssertionError, TimeoutError, AcpError, ConnectionLostError) as error:
                self.faults.append(f"{type(error).__name__}: {error}")
        self.faults += self.judge(so_far="finish" not in self.log)
        if self.faults:
            said = [line for link in self.links for line in link.process.stderr.splitlines()[-_LINES:]]
            sentences = "\n  ".join([*dict.fromkeys(self.faults), *said])
            raise BrokenPromiseError(f"history {self.seed} ({self.world}): {' '.join(self.log)}\n  {sentences}")
        return self.tally

    async def _play(self, names: Iterable[str]) -> None:
        world = WORLDS[self.world]
        self._stack.enter_context(world.home(self.rig, Random(f"home of {self.seed}")))
        if not await self._begun():
            self.log.append("refused")
            return
        await self._settled_turn(self.session, "start")
        for name in names:
            self.log.append(name)
            self.tally.steps[name] += 1
            step: Callable[[], Any] = getattr(self, name)
            await step()
            self.look()
            await anyio.sleep(self.random.choice((0, 0, 0.005, 0.03, 0.12)))
            if self.faults or faults_of(self._gathered(), so_far=True):
                return  # what is broken stays broken
        self.log.append("finish")
        await self.finish()

    async def _begun(self) -> bool:
        """Start an agent and a session. False: the home is of a kind that may be refused, and it was, by its name."""
        try:
            await self.connect()
            self.session = await self.link.new()
        except (AcpError, ConnectionLostError) as error:
            said = f"{error} {getattr(error, 'data', '')} {self.links[-1].process.stderr if self.links else ''}"
            if homes.may_be_refused(self.rig) and homes.variable_of(self.rig) in said:
                self.tally.outcomes["homes refused"] += 1
                return False
            raise
        return True

    async def finish(self) -> None:
        """Send everything again: now all of it is in, once, and the conversation is one line."""
        if self.random.random() < _QUIET:
            await self._settle()
            self.look()
        await self.activate_all()
        again = [made for made in self.submissions if made.key is not None and not made.refusable]
        for _ in range(_TRIES):
            for made in again:
                await self._send(made)
            await self._settle()
            # An error is an answer: what a runtime had that was killed or stood still is free to be sent again.
            again = [made for made in again if not isinstance(made.calls[-1].outcome, dict)]
        self.faults += [f"{made.text!r} cannot be inserted: {made.calls[-1].outcome!r}" for made in again]
        await self.compare()
        seen: dict[str, int] = {}
        for session in self.sessions():
            await self._settled_turn(session, f"end of {session}")
            for made in self.submissions:
                if made.session == session and made.shown_as is not None:
                    seen[made.text] = self.rig.model.in_conversation(made.shown_as or made.text)
        self.history.in_context = seen
        await self.compare()
        for text in self.own:
            if self.rig.in_conversation(text) != 1:
                self.faults.append(f"{text!r}, the user's own, is not in the conversation once")

    def judge(self, *, so_far: bool) -> list[str]:
        """What the history breaks; `so_far` when it was not played to its end."""
        history = self._gathered()
        history.torn = self.rig.runtime.torn(self.rig.root)
        history.calls = {
            made.text: self.rig.model.calls(made.shown_as or made.text)
            for made in self.submissions
            if made.shown_as is not None
        }
        for attempt in history.attempts:
            self.tally.outcomes[attempt.outcome] += 1
        self.tally.model_calls = self.rig.model.total_calls
        self.tally.torn = sum(history.torn[made.text] for made in self.submissions)
        return faults_of(history, so_far=so_far)

    def _gathered(self) -> History:
        """The history up to here, as seen from outside."""
        self.history.own = self.own
        self.history.attempts = [
            attempt
            for number, link in enumerate(self.links)
            for attempt in attempts_of(link.client.record.since(0), number, ended=link is not self.link)
        ]
        return self.history
