"""Random histories of one session: prompts, resends, cancels, kills, the user's own turns. Seeded; what holds, holds always."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.permissions import Question
from adapters.client.record import ConnectionLostError
from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Spread, Text, Thinking
from adapters_tests.e2e.rig import Link, Rig, Tool

pytestmark = pytest.mark.anyio

SEEDS = (1, 2, 3)
STEPS = 22


@dataclass
class Submission:
    """What the client submitted under one key, and every attempt at it."""

    key: str
    text: str
    tool: Tool | None = None
    calls: list[PromptCall] = field(default_factory=list[PromptCall])

    def ids(self) -> set[str]:
        return {call.outcome["messageId"] for call in self.calls if isinstance(call.outcome, dict)}

    @property
    def lost(self) -> int:
        return sum(isinstance(call.outcome, ConnectionLostError) for call in self.calls)


def by_id(view: SessionView) -> dict[tuple[str, str], dict[str, Any]]:
    """The snapshot by kind and id; without thoughts, of which a stopped turn stores none, and the output of failed tools."""
    shown = {(item["is"], item["id"]): item for item in view.snapshot() if item["is"] != "thought"}
    for item in shown.values():
        if item.get("status") == "failed":
            for name in ("content", "rawOutput"):
                item.pop(name, None)
    return shown


class Walk:
    """One history: an agent, its successors, one session."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = Random(seed)
        self.name = f"walk {seed}"
        self.submissions: list[Submission] = []
        self.own: list[str] = []
        self.log: list[str] = []
        self._stack = AsyncExitStack()
        self._killed_runtimes = 0
        self.complete = True
        """This connection has shown everything that is stored, and nothing else."""
        self.tainted = False
        """Its runtime was killed: what that had said and not stored is shown here, and no replay takes it back."""

    async def run(self) -> None:
        async with self._stack:
            await self.connect()
            self.session = await self.link.new()
            await self.link.turn(self.session, f"{self.name} start")
            steps: dict[Callable[[], Any], int] = {
                self.submit: 7,
                self.submit_tool: 3,
                self.submit_slow: 2,
                self.submit_failing: 1,
                self.resend: 5,
                self.withdraw: 3,
                self.stop: 1,
                self.release: 3,
                self.settle: 2,
                self.kill_agent: 1,
                self.kill_runtime: 1,
                self.kill_both: 1,
                self.resume_again: 1,
                self.reopen: 1,
                self.own_turn: 1,
            }
            for _ in range(STEPS):
                [step] = self.random.choices(list(steps), list(steps.values()))
                self.log.append(step.__name__)
                await step()
                await anyio.sleep(self.random.choice((0, 0, 0.005, 0.03, 0.12)))
            await self.settle()
            self.check()
            await self.finish()

    async def connect(self) -> None:
        self.link: Link = await self._stack.enter_async_context(self.rig.agent(self.decide))

    async def decide(self, question: Question) -> str | None:
        """Mostly allowed, sometimes late, sometimes refused."""
        await anyio.sleep(self.random.choice((0, 0, 0.1)))
        return await self.random.choice((permissions.allow, permissions.allow, permissions.reject))(question)

    # --- steps -------------------------------------------------------------------------------------------------------

    async def submit(self) -> None:
        await self._send(self._new())

    async def submit_tool(self) -> None:
        made = self._new()
        made.tool = self.rig.tool(made.text)
        await self._send(made)

    async def submit_slow(self) -> None:
        made = self._new()
        slow = Answer((Thinking("Well."), Text("Slowly. ", Spread(repeat=12))), delta_delay=0.02)
        self.rig.answer(made.text, slow)
        await self._send(made)

    async def submit_failing(self) -> None:
        made = self._new()
        self.rig.fail(made.text, 403, "by the script")
        await self._send(made)

    def _new(self) -> Submission:
        number = len(self.submissions)
        made = Submission(f"{self.name} key {number}", f"{self.name} prompt {number}")
        self.submissions.append(made)
        return made

    async def _send(self, made: Submission) -> None:
        made.calls.append(await self.link.prompt(self.session, made.text, made.key))

    async def resend(self) -> None:
        if self.submissions:
            await self._send(self.random.choice(self.submissions[-4:]))

    async def withdraw(self) -> None:
        if self.submissions:
            call = self.random.choice(self.random.choice(self.submissions[-3:]).calls)
            await self.link.client.cancel_request(call.request_id)

    async def stop(self) -> None:
        await self.link.client.cancel(self.session)

    async def release(self) -> None:
        for made in self.submissions:
            if made.tool is not None:
                made.tool.release()

    async def settle(self) -> None:
        """Wait for every answer and for the end of all work."""
        await self.release()
        with anyio.fail_after(60):
            for made in self.submissions:
                for call in made.calls:
                    try:
                        await call.result(60)
                    except (AcpError, ConnectionLostError):
                        continue
            await self.link.client.wait_state(self.session, "idle", within=60)
        await self.compare()

    async def compare(self) -> None:
        """What this connection has shown is what a replay shows.

        The order is the replay's own, checked against the store in `finish`: a client that resumed without history got
        that later than what followed it. What a cut tool had put out is known when its session is opened again.
        """
        shown = by_id(self.link.client.view(self.session))
        mark = self.link.client.record.mark
        await self.link.resume(self.session, replay=True)
        if self.complete:
            assert by_id(SessionView.of(self.link.client.updates(self.session, mark))) == shown
        self.complete = not self.tainted

    async def kill_agent(self) -> None:
        self.link.process.kill()
        await self.link.process.wait()
        await self.connect()
        self.complete = self.tainted = False
        await self.resume_again()

    async def kill_both(self) -> None:
        await self.kill_runtime()
        await self.kill_agent()

    async def resume_again(self) -> None:
        replay = self.random.random() < 0.5
        await self.link.resume(self.session, replay=replay)
        self.complete = (self.complete or replay) and not self.tainted

    async def kill_runtime(self) -> None:
        self._killed_runtimes += 1
        self.complete, self.tainted = False, True
        for proc in self.rig.runtimes():
            proc.kill()

    async def reopen(self) -> None:
        await self.link.client.close(self.session)
        await self.link.resume(self.session)

    async def own_turn(self) -> None:
        await self.settle()
        text = f"{self.name} own {len(self.own)}"
        self.own.append(text)
        await self.link.user_turn(self.session, text)
        self.complete = False

    # --- what holds ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every answer so far is true of the stored session."""
        stored = self.rig.stored_ids(self.session)
        assert len(set(stored)) == len(stored), "no message is stored twice"
        texts = [message.text for message in self.rig.stored(self.session)]
        for made in self.submissions:
            ids = made.ids()
            assert len(ids) <= 1, f"{made.key} has two ids"
            for message_id in ids:
                assert stored.count(message_id) == 1, f"{made.key} was answered and is not stored"
            if not ids and not made.lost:
                assert made.text not in texts, f"{made.key} has only errors and is stored"
            assert texts.count(made.text) <= 1, f"{made.key} is stored twice"

    async def finish(self) -> None:
        """Send everything again: now all of it is in, once, and the conversation is one line."""
        for made in self.submissions:
            await self._send(made)
        await self.settle()
        for made in self.submissions:
            call = made.calls[-1]
            assert isinstance(call.outcome, dict), f"{made.key}: {call.outcome}"
        self.check()
        await self.link.turn(self.session, f"{self.name} end")
        for text in (*self.own, *(made.text for made in self.submissions)):
            assert self.rig.in_conversation(text) == 1, f"{text} is not in the conversation once"
        for made in self.submissions:
            assert self.rig.model.calls(made.text) <= 1 + made.lost + self._killed_runtimes, f"{made.text} ran again"
        mark = self.link.client.record.mark
        await self.link.resume(self.session, replay=True)
        assert self.link.user_messages(self.session, mark) == self.rig.stored_ids(self.session)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_history(rig: Rig, seed: int) -> None:
    """KEY-10..KEY-22, KEY-42, ERR-5, PROMPT-16, PROMPT-23, D2..D7: see `Walk.check` and `Walk.finish`."""
    walk = Walk(rig, seed)
    try:
        await walk.run()
    except BaseException as error:
        error.add_note(f"{walk.name}: {' '.join(walk.log)}")
        raise
