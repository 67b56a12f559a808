"""What can happen to a session: prompts, resends, withdrawals, stops, questions, kills, other agents, the user's own turns.

Owns how each step is done and what it has to wait for. Which steps are played, and what must hold, is `walk`'s.
"""

from __future__ import annotations

import math
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
from anyio.abc import TaskGroup

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.permissions import Question
from adapters.client.record import ConnectionLostError, Message, as_object
from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Spread, Text, Thinking, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, Tool
from adapters_tests.e2e.runtimes import Deviation
from adapters_tests.reliability.history import History, Look, Opening, Stored, named

WITHIN = 60.0
"""Seconds in which every answer comes and all work ends, once nothing holds it up any more."""

_WITHDRAWN = 0.8
"""How often a prompt that is handed to a runtime that stands still is withdrawn."""

_SOON = 0.3
"""Seconds in which a prompt that is handed over to an idle runtime is taken in and stored, and answered."""

_IDLE = 0.5
"""How often a prompt that is to be withdrawn comes to an idle session, where it is handed over at once."""

_BEHIND = 0.6
"""How often attempts of which one is withdrawn wait behind a tool, so that none is inserted before that."""

_MISSING = re.compile(r"(\d+) messages? (?:is|are) missing in this history")
"""The title of the notice of an incomplete replay."""

_INTERNAL_ERROR = -32603

_FORGIVEN = 5.0
"""Seconds after a disturbance of the store in which opening a session may still fail."""

_BESIDE = 0.5
"""How often the user's own runtime takes its turn while our agent has the session active."""


@dataclass
class Submission:
    """What the client submitted under one key, and every attempt at it."""

    session: str
    key: str | None
    text: str
    tool: Tool | None = None
    calls: list[PromptCall] = field(default_factory=list[PromptCall])
    blocks: Sequence[Mapping[str, Any]] | None = None
    """What is sent, where it is more than the text."""
    shown_as: str | None = ""
    """The text that the model gets where it is another; None where that cannot be counted."""
    refusable: bool = False
    """A runtime may refuse it for what it is, each time."""


@dataclass
class Tally:
    """How often things happened."""

    steps: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    model_calls: int = 0
    torn: int = 0
    histories: int = 0

    def add(self, other: Tally) -> None:
        self.steps += other.steps
        self.outcomes += other.outcomes
        self.model_calls += other.model_calls
        self.torn += other.torn
        self.histories += other.histories


def by_id(view: SessionView) -> dict[tuple[str, str], dict[str, Any]]:
    """The snapshot by kind and id; without thoughts, of which a stopped turn stores none, and the output of failed tools."""
    shown = {(item["is"], item["id"]): item for item in view.snapshot() if item["is"] != "thought"}
    for item in shown.values():
        if item.get("status") == "failed":
            for name in ("content", "rawOutput"):
                item.pop(name, None)
    return shown


def _is_acknowledgement(message: Message) -> bool:
    return not message.sent and "messageId" in as_object(as_object(message.value).get("result"))


def _told_missing(update: Mapping[str, Any]) -> int:
    """Of how many messages this says that the history lacks them."""
    found = _MISSING.match(str(update.get("title", "")))
    return int(found[1]) if found and update["sessionUpdate"] == "notice" else 0


def _cut(item: dict[str, Any]) -> bool:
    """Whether this may be a tool call that came to nothing, or text that a stop has cut."""
    return item["is"] == "agent" or (item["is"] == "tool_call" and item.get("status") in ("failed", "cancelled"))


class Steps:
    """The steps of one history, by name: an agent, its successors and rivals, one session and a sibling of it."""

    def __init__(self, rig: Rig, seed: str, *, obliging: bool = False) -> None:
        self.rig = rig
        self.obliging = obliging
        """Every question is answered with yes, at once: for chosen steps that need their tools."""
        self.seed = seed
        self.random = Random(seed)
        self.submissions: list[Submission] = []
        self.own: Counter[str] = Counter()
        self.log: list[str] = []
        self.tally = Tally(histories=1)
        self.history = History()
        self.faults: list[str] = []
        self.links: list[Link] = []
        self.session = ""
        self.sibling_session = ""
        self.complete = True
        """This connection has shown everything that is stored, and nothing else."""
        self.tainted = False
        """Its runtime was killed: what that had said and not stored is shown here, and no replay takes it back."""
        self._sibling_active = False
        self.others: dict[str, bool] = {}
        """More sessions, and whether each is active on this connection."""
        self.disturbed_until = -math.inf
        """When what keeps the runtime from its store ends."""
        self._stack = AsyncExitStack()
        self._watchers: TaskGroup
        self._questions: list[tuple[Question, anyio.Event]] = []
        self._answer_all = False

    async def connect(self) -> None:
        self._answer_all = False
        self._questions.clear()
        self._sibling_active = False
        self.others = dict.fromkeys(self.others, False)
        self.link: Link = await self._stack.enter_async_context(self.start_agent())
        self._follow(self.link)

    def start_agent(self) -> AbstractAsyncContextManager[Link]:
        """The next agent of the user's: a world may start it in another way."""
        return self.rig.agent(self.decide, command=self.agent_command())

    def agent_command(self) -> Sequence[str]:
        """How it is started, if not as always."""
        return ()

    def sessions(self, *, active: bool = False) -> list[str]:
        """Every session of the history, this one last; `active`: only those that are active on this connection."""
        sibling = [self.sibling_session] if self.sibling_session and (self._sibling_active or not active) else []
        others = [session for session, is_active in self.others.items() if is_active or not active]
        return [*others, *sibling, self.session]

    async def open(self, session: str, link: Link | None = None, *, replay: bool = False) -> None:
        """Resume a session. While the runtime's store is disturbed that may fail, and is tried again."""
        while True:
            try:
                await (link or self.link).resume(session, replay=replay)
            except AcpError as error:
                self.history.openings.append(Opening(time.monotonic(), session, error.code))
                if error.code != _INTERNAL_ERROR or time.monotonic() > self.disturbed_until + _FORGIVEN:
                    raise
                self.tally.outcomes["openings refused"] += 1
                await anyio.sleep(0.2)
            else:
                self.history.openings.append(Opening(time.monotonic(), session))
                return

    def _follow(self, link: Link) -> None:
        self.links.append(link)
        self._watchers.start_soon(self._watch, link)

    async def _watch(self, link: Link) -> None:
        """Look into the store the moment a prompt is answered: what is acknowledged is there, also when nobody is killed."""
        mark = 0
        try:
            while True:
                answer = await link.client.record.wait(_is_acknowledgement, mark, within=math.inf)
                mark = answer.index + 1
                self.look()
        except ConnectionLostError:
            return

    # --- questions -----------------------------------------------------------------------------------------------------

    async def decide(self, question: Question) -> str | None:
        """Answered when `answer_one` comes to it, mostly allowed, sometimes refused."""
        answered = anyio.Event()
        if self.obliging:
            return await permissions.allow(question)
        if not self._answer_all:
            self._questions.append((question, answered))
            await answered.wait()
        self.tally.outcomes["questions answered"] += 1
        return await self.random.choice((permissions.allow, permissions.allow, permissions.reject))(question)

    async def answer_one(self) -> None:
        """Any of the open ones, whatever the order in which they were asked."""
        if self._questions:
            _, answered = self._questions.pop(self.random.randrange(len(self._questions)))
            answered.set()

    def _answer_everything(self) -> None:
        self._answer_all = True
        while self._questions:
            self._questions.pop()[1].set()

    # --- prompts -------------------------------------------------------------------------------------------------------

    async def submit(self) -> None:
        await self._send(self._new())

    async def submit_unkeyed(self) -> None:
        await self._send(self._new(keyed=False))

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

    async def submit_asking(self) -> None:
        """The model wants two commands that have to be allowed."""
        made = self._new()
        path = self.rig.project / f"made-{len(self.submissions)}"
        asking = tuple(self.rig.runtime.asking(f"touch '{path}-{number}'") for number in range(2))
        self.rig.answer(made.text, Answer(asking), say("Done, or not."))
        await self._send(made)

    def _new(self, *, keyed: bool = True) -> Submission:
        number = len(self.submissions)
        key = f"history-{self.seed}-key-{number}" if keyed else None
        made = Submission(self.session, key, f"History {self.seed} prompt {number}")
        self.submissions.append(made)
        return made

    async def _send(self, made: Submission) -> None:
        made.calls.append(await self.link.prompt(made.session, made.blocks or made.text, made.key))

    def _recent(self, count: int) -> Submission | None:
        recent = [made for made in self.submissions if made.session == self.session and made.key is not None][-count:]
        return self.random.choice(recent) if recent else None

    async def resend(self) -> None:
        if made := self._recent(4):
            await self._send(made)

    async def resend_twice(self) -> None:
        if made := self._recent(2):
            await self._send(made)
            await self._send(made)

    async def withdraw(self) -> None:
        if made := self._recent(3):
            await self.link.client.cancel_request(self.random.choice(made.calls).request_id)

    async def withdraw_last(self) -> None:
        """Not random: the last attempt at the last submission."""
        await self.link.client.cancel_request(self.submissions[-1].calls[-1].request_id)

    async def withdraw_soon(self) -> None:
        """A prompt is withdrawn when it is not yet, or half, or wholly in the runtime (E7)."""
        if self.random.random() < _IDLE:
            await self._settle()
        await self.submit()
        await self._pause()
        await self.withdraw_last()

    async def withdraw_one(self) -> None:
        """Some attempts wait for one insertion, and one of them is withdrawn (E1, E6)."""
        if self.random.random() < _BEHIND:
            await self._behind_tool()
        await self.submit()
        made = self.submissions[-1]
        for _ in range(self.random.choice((1, 1, 2))):
            await self._send(made)
        await self._pause()
        await self.link.client.cancel_request(self.random.choice(made.calls).request_id)

    async def _pause(self) -> None:
        """More often short than long: Codex has a prompt stored 10 ms after it was sent, Claude Code after 100."""
        await anyio.sleep(_SOON * self.random.random() ** 3)

    async def _behind_tool(self) -> bool:
        """From here on prompts wait, behind a tool that runs until it is released. False: its runtime had just been killed."""
        await self._settle()
        obliging, self.obliging = self.obliging, True
        await self.submit_tool()
        await self.answered()
        inserted = isinstance(self.submissions[-1].calls[-1].outcome, dict)
        if inserted:
            await self.tool_runs()
        self.obliging = obliging
        return inserted

    async def resend_last(self) -> None:
        """Not random."""
        await self._send(self.submissions[-1])

    async def answered(self) -> None:
        """Wait for the answer to the last attempt."""
        await self._outcome(self.submissions[-1].calls[-1])

    async def queued(self) -> None:
        """Wait until the runtime itself holds a prompt."""
        await self.rig.queued(self.session)

    async def orphans_end(self) -> None:
        """Wait until only this agent's runtimes live: what a dead agent left has done all that it will do."""

        def alone() -> bool:
            return all(proc.parent == self.link.process.pid for proc in self.rig.runtimes())

        await wait_for(alone, WITHIN, "the orphans have ended")

    async def tool_runs(self) -> None:
        """Wait until the newest tool runs."""
        [*_, tool] = [made.tool for made in self.submissions if made.tool]
        await tool.started()

    async def sibling(self) -> None:
        """A key that is used here, in another session too: there it is new (KEY-40)."""
        used = [made for made in self.submissions if made.session == self.session and made.key is not None]
        if not used:
            return
        await self._activate_sibling()
        same = self.random.choice(used[-4:])
        made = Submission(self.sibling_session, same.key, f"{same.text} in the sibling {len(self.submissions)}")
        if not any(old.session == made.session and old.key == made.key for old in self.submissions):
            self.submissions.append(made)
            await self._send(made)

    async def _activate_sibling(self) -> None:
        if not self.sibling_session:
            self.sibling_session = await self.link.new()
            self._sibling_active = True
            await self._settled_turn(self.sibling_session, "sibling start")
        elif not self._sibling_active:
            await self.open(self.sibling_session)
            self._sibling_active = True

    # --- the session -----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        await self.link.client.cancel(self.session)

    async def release(self) -> None:
        for made in self.submissions:
            if made.tool is not None:
                made.tool.release()

    async def settle(self) -> None:
        """Wait for every answer and for the end of all work."""
        await self._settle()
        await self.compare()

    async def _settle(self) -> None:
        await self.release()
        self._answer_everything()
        for made in self.submissions:
            for call in made.calls:
                await self._outcome(call)
        for session in self.sessions(active=True):
            await self.link.client.wait_state(session, "idle", within=WITHIN)
        self._answer_all = False

    async def _outcome(self, call: PromptCall) -> None:
        try:
            await call.result(WITHIN)
        except (AcpError, ConnectionLostError):
            return
        except TimeoutError:
            raise AssertionError(f"{call.params['prompt'][0]['text']!r} got no answer within {WITHIN:.0f} s") from None

    async def resume_again(self) -> None:
        replay = self.random.random() < 0.5
        await self.open(self.session, replay=replay)
        self.complete = (self.complete or replay) and not self.tainted

    async def reopen(self) -> None:
        await self._close(self.session)
        await self.open(self.session)

    async def own_turn(self) -> None:
        """The user's own runtime takes a turn, beside our agent where the runtime lets it (Claude Code)."""
        await self._settle()
        text = f"History {self.seed} own {len(self.own)}"
        self.own[text] += 1
        beside = not self.rig.deviates(Deviation.LOCKS_ITS_THREADS) and self.random.random() < _BESIDE
        if not beside:
            await self._close_all()
        status, said = await self.rig.user_turn(self.session, text)
        if status or text not in [message.text for message in self.rig.stored(self.session)]:
            self.faults.append(f"the user's own turn came to nothing: {said[-300:]}")
        if not beside:
            await self.open(self.session)
        self.complete = False

    async def _close_all(self) -> None:
        await self._close(self.session)
        if self._sibling_active:
            await self._close(self.sibling_session)
            self._sibling_active = False
        for session in self.sessions(active=True):
            if session in self.others:
                await self._close(session)
                self.others[session] = False

    async def _close(self, session: str) -> None:
        await self.link.client.close(session)

    # --- processes -------------------------------------------------------------------------------------------------------

    async def kill_agent(self) -> None:
        self.link.process.kill()
        await self.link.process.wait()
        await self._next_agent()

    async def end_agent(self) -> None:
        """Its stdin ends: an orderly end, in the middle of whatever runs."""
        await self.link.process.end()
        await self._next_agent()

    async def _next_agent(self) -> None:
        await self.connect()
        self.complete = self.tainted = False
        await self.resume_again()

    async def abandon(self) -> None:
        """The agent is killed while its runtime holds a prompt behind a tool, which goes on when that was sent again (E9)."""
        if await self._behind_tool():
            await self.submit()
            await self.queued()
        await self.kill_agent()
        await self.resend_last()
        await self.answered()

    async def resend_folded(self) -> None:
        """A prompt that was taken in behind a tool goes to the next agent again: a runtime takes it for a new one (ADP-2)."""
        if await self._behind_tool():
            await self.submit()
            await self.release()
            await self.answered()
        await self.random.choice((self.kill_agent, self.kill_both, self.end_agent))()
        await self.resend_last()

    async def kill_runtime(self) -> None:
        self.complete, self.tainted = False, True
        for proc in self.rig.runtimes():
            self.history.kills += 1
            proc.kill()

    async def kill_both(self) -> None:
        await self.kill_everything()
        await self._next_agent()

    async def kill_everything(self) -> None:
        """Agent and runtime at once; nothing is left that could still write."""
        victims = self.rig.runtimes()
        self.link.process.kill()
        self.history.kills += len(victims)
        for victim in victims:
            victim.kill()
        await self.link.process.wait()
        await wait_for(lambda: not self.rig.runtimes(), 10, "the killed runtime is gone")
        self.look()

    async def kill_at_answer(self) -> None:
        """Everything is killed the moment a prompt is answered: what was acknowledged must be there."""
        await self._settle()
        made = self._new()
        await self._send(made)
        await self._outcome(made.calls[-1])
        await self.kill_everything()
        await self._next_agent()

    async def second_agent(self) -> None:
        """Another agent wants the session: refused, with the holder's name; nothing is lost.

        Where the runtime itself holds the lock, there is none between its death and the next prompt: then the other agent gets
        the session, and gives it back when it ends (LOCKS_ITS_THREADS).
        """
        held = self.rig.runtimes() or not self.rig.deviates(Deviation.LOCKS_ITS_THREADS)
        async with self.rig.agent() as rival:
            try:
                await rival.resume(self.session)
            except AcpError as error:
                self.tally.outcomes["second agents refused"] += 1
                if str(self.link.process.pid) not in f"{error.message} {error.data}":
                    self.faults.append(f"a second agent was refused without the holder's name: {error.message}")
            else:
                if held:
                    self.faults.append("a second agent got the session although it is active")

    async def guest_agent(self) -> None:
        """Another agent has the session for a turn, in order: closed here, opened there, and back (KEY-42, E45)."""
        await self._settle()
        await self._close_all()
        made = self._new()
        async with self.rig.agent() as guest:
            self._follow(guest)
            await self.open(self.session, guest)
            made.calls.append(await guest.prompt(self.session, made.text, made.key))
            await self._outcome(made.calls[-1])
            await guest.client.wait_state(self.session, "idle", since=made.calls[-1].mark, within=WITHIN)
        await self.open(self.session)
        self.complete = False
        await self._send(made)

    async def freeze(self) -> None:
        """The runtime stands still while a prompt is handed to it and withdrawn; then it goes on."""
        if self.random.random() < _IDLE:
            await self._settle()
        frozen = self.rig.runtimes()
        for proc in frozen:
            proc.kill(signal.SIGSTOP)
        try:
            await self.submit()
            await anyio.sleep(0.3)  # it may be on its way or not: both are cases
            if self.random.random() < _WITHDRAWN:
                await self.withdraw_last()
                await anyio.sleep(0.05)
        finally:
            for proc in frozen:
                proc.kill(signal.SIGCONT)

    async def _settled_turn(self, session: str, what: str) -> None:
        made = Submission(session, f"history-{self.seed}-{what}", f"History {self.seed} {what}")
        self.submissions.append(made)
        await self._send(made)
        await self._outcome(made.calls[-1])
        await self.link.client.wait_state(session, "idle", since=made.calls[-1].mark, within=WITHIN)

    # --- looking ---------------------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        """What this connection has shown is what a replay shows.

        The order is the replay's own: a client that resumed without history got that later than what followed it. What a cut
        tool had put out is known when its session is opened again.
        """
        shown = by_id(self.link.client.view(self.session))
        mark = self.link.client.record.mark
        await self.open(self.session, replay=True)
        told = sum(map(_told_missing, self.link.client.updates(self.session, mark)))
        self.look(replayed=tuple(self.link.user_messages(self.session, mark)), told=told)
        if self.complete:
            replayed = by_id(SessionView.of(self.link.client.updates(self.session, mark)))
            if self.rig.runtime.name == "codex":  # it stores neither refused commands nor text that was cut (0.163.0)
                shown = {key: item for key, item in shown.items() if key in replayed or not _cut(item)}
            different = [key for key in {**shown, **replayed} if shown.get(key) != replayed.get(key)]
            if different:
                first = different[0]
                self.faults.append(f"shown as {shown.get(first)}, replayed as {replayed.get(first)}")
        self.complete = not self.tainted

    def rewritten(self) -> Mapping[str, str]:
        """Messages by their ids, whose text a runtime does not keep as it was sent."""
        return {}

    def look(self, replayed: tuple[str, ...] | None = None, told: int = 0) -> None:
        """Note what is stored at this moment."""
        rewritten = self.rewritten()
        for session in self.sessions():
            at = time.monotonic()
            stored = tuple(
                Stored(message.message_id, rewritten.get(message.message_id) or named(message.text))
                for message in self.rig.stored(session)
            )
            this = session == self.session
            self.history.looks.append(Look(at, session, stored, replayed if this else None, told if this else 0))
