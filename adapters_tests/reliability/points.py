"""Fail or die at every step: a keyed prompt's way, again and again, with a fault at its operation 1, 2, ... N.

Owns the scenarios, the list of points, and what is done after each: resume by a fresh agent, send again, and judge the
history. The faults themselves are made by `hook/sitecustomize.py` inside the agent, which is the product as it is.

    scenario   the operations that count
    resume     from `session/resume` of a stored session to the end of the work on a keyed prompt
    new        the same from `session/new`
    fold       from a keyed prompt that comes while a tool runs, to the end of the work
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.client import Client
from adapters.client.process import start_agent
from adapters.client.record import ConnectionLostError
from adapters_tests.e2e.rig import Link, Rig, Tool
from adapters_tests.reliability.history import History, Look, Stored, attempts_of, faults_of

HOOK = Path(__file__).with_name("hook")

SCENARIOS = ("resume", "new", "fold")

KINDS = (
    "kill-agent", "kill-runtime", "torn", "eio", "enospc", "eio-on", "enospc-on", "closed", "delay", "lost", "doubled", "stall",
)  # fmt: skip

ANSWER_WITHIN = 150.0
"""Seconds in which every request is answered whatever failed; the longest bound of the product is 120 (a page of history)."""
STOPPED_WITHIN = 20.0
"""Seconds in which `session/cancel` ends any work."""

_FILE = ("open", "create", "read", "write", "stat", "scan", "lock", "remove", "replace", "mkdir", "truncate", "chmod")
_WRITE = ("create", "write", "replace", "mkdir", "truncate")
_FRAME = ("frame-in", "frame-out")
_CLIENT = ("client-in", "client-out")

_APPLIES: dict[str, tuple[str, ...] | None] = {
    "kill-agent": None,
    "kill-runtime": None,
    "stall": None,
    "torn": ("frame-out", "client-out", "write"),
    "eio": (*_FILE, "spawn"),
    "eio-on": _FILE,
    "enospc": _WRITE,
    "enospc-on": _WRITE,
    "closed": (*_FRAME, *_CLIENT),
    "delay": _FRAME,
    "lost": _FRAME,
    "doubled": _FRAME,
}
"""To which operations a kind of fault can happen; None is all."""

_TWO_PROMPTS = ("frame-out turn/start", "frame-out turn/steer")
"""Never doubled: Codex compares no ids, so two such lines are two prompts, and no pipe makes two lines of one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A fault at an operation. `label` is what stood there in the run without faults."""

    scenario: str
    kind: str
    at: int
    label: str = ""

    def __str__(self) -> str:
        return f"{self.scenario} {self.kind} {self.at} ({self.label})"


@dataclass
class Result:
    """What came of a point."""

    point: Point
    hit: str = ""
    """The operation that failed; empty when the run had fewer."""
    first: str = ""
    """The outcome of the attempt that met the fault."""
    faults: list[str] = field(default_factory=list[str])
    torn: int = 0
    attempts: int = 0
    lost: int = 0
    calls: int = 0
    seconds: float = 0.0


def points_of(scenario: str, labels: list[str]) -> Iterator[Point]:
    """Every fault that can happen at these operations."""
    for kind, operations in _APPLIES.items():
        for number, label in enumerate(labels, 1):
            if kind == "doubled" and label.startswith(_TWO_PROMPTS):
                continue
            if operations is None or label.split(" ")[0] in operations:
                yield Point(scenario, kind, number, label)


class Bench:
    """Plays points one after another in one home, several on one session."""

    PER_SESSION = 20

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._session: str | None = None
        self._used = 0
        self._number = 0
        self._texts: list[tuple[str, str]] = []
        """Text and message id of what the session holds, in order."""

    async def operations(self, scenario: str) -> list[str]:
        """The operations of the scenario without a fault, by their labels. Raises `AssertionError` when that run fails."""
        result, labels = await self._play(Point(scenario, "", 0))
        assert not result.faults, result.faults
        assert {label.split(" ")[0] for label in labels} >= set(_CLIENT + _FRAME), "the hook sees what it is made for"
        return labels

    async def play(self, point: Point) -> Result:
        """Run the scenario with the fault, recover, and judge."""
        start = anyio.current_time()
        result, _ = await self._play(point)
        result.seconds = anyio.current_time() - start
        if result.faults:
            self._session = None
        return result

    async def _play(self, point: Point) -> tuple[Result, list[str]]:
        run = _Run(self.rig, point, self._number)
        self._number += 1
        if point.scenario != "new" and (self._session is None or self._used >= self.PER_SESSION):
            await self._make_session(point.scenario)
        self._used += 1
        try:
            await run.meet_fault(None if point.scenario == "new" else self._session)
            labels = run.log()
            if run.session is not None:
                await run.recover()
                run.judge([] if point.scenario == "new" else self._texts)
                if point.scenario != "new":
                    self._texts.extend(run.acknowledged)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of the point
            labels = run.log()
            run.result.faults.append(f"{type(error).__name__}: {error}")
        return run.result, labels

    async def _make_session(self, scenario: str) -> None:
        text = f"Start {self._number} of {scenario}"
        async with self.rig.agent() as link:
            self._session = await link.new()
            message_id = await link.turn(self._session, text)
        self._used = 0
        self._texts = [(text, message_id)]


class _Run:
    """One point."""

    def __init__(self, rig: Rig, point: Point, number: int) -> None:
        self.rig = rig
        self.point = point
        self.result = Result(point)
        self.session: str | None = None
        self.text = f"Point {number} of {point.scenario}"
        self.key = f"the-key-of-point-{number}-{point.scenario}"
        self.after = f"After point {number} of {point.scenario}"
        self.acknowledged: list[tuple[str, str]] = []
        self.history = History()
        self.tool: Tool | None = None
        self.tool_text = f"Tool for point {number} of {point.scenario}"
        self._log = rig.root / f"operations-{number}"
        self._number = number
        self._connections = 0

    # --- the fault -----------------------------------------------------------------------------------------------------

    async def meet_fault(self, session: str | None) -> None:
        """The scenario, in an agent with the hook."""
        arms = {"resume": "session/resume", "new": "session/new", "fold": f'"{self.text}"'}
        env = {
            "PYTHONPATH": f"{HOOK}:{self.rig.env['PYTHONPATH']}",
            "FAULT_ROOT": str(self.rig.root),
            "FAULT_LOG": str(self._log),
            "FAULT_KIND": self.point.kind,
            "FAULT_AT": str(self.point.at),
            "FAULT_ARM": arms[self.point.scenario],
        }
        if self.point.scenario == "fold":
            self.tool = self.rig.tool(self.tool_text)
        self.session = session
        try:
            async with self._agent(**env) as link:
                try:
                    await self._scenario(link, session)
                except ConnectionLostError:
                    self.result.first = self.result.first or "not opened: lost"
                if self._number % 2:
                    link.process.kill()
        finally:
            if self.tool:
                self.tool.release()
            for line in self._log.read_text().splitlines() if self._log.exists() else ():
                if line.startswith("HIT "):
                    self.result.hit = line[4:]

    async def _scenario(self, link: Link, session: str | None) -> None:
        with anyio.fail_after(ANSWER_WITHIN):
            await link.client.initialize()
        try:
            if session is None:
                call = await link.client.request("session/new", {"cwd": str(self.rig.project)})
                self.session = (await call.result(ANSWER_WITHIN))["sessionId"]
                session = self.session
            else:
                params = {"sessionId": session, "cwd": str(self.rig.project)}
                await (await link.client.request("session/resume", params)).result(ANSWER_WITHIN)
        except AcpError as error:
            self.result.first = f"not opened: {error.code}"
            return
        mark = link.client.record.mark
        if self.tool:
            work = await link.prompt(session, self.tool_text, f"{self.key}-tool")
            await work.message_id(ANSWER_WITHIN)
            await self.tool.started()
        call = await link.prompt(session, self.text, self.key)
        if self.tool:
            with anyio.move_on_after(0.3):  # it has to be on its way before the tool ends, not more
                await self._outcome(call)
            self.tool.release()
        outcome = await self._outcome(call)
        self.result.first = self.result.first or outcome
        with anyio.move_on_after(4 if outcome == "ok" else 0.1):
            await link.client.wait_state(session, "idle", since=mark, within=60)
        await self._stop(link, session)
        if outcome != "unknown":
            # On the same connection: known, or new and inserted now, or refused truthfully; never silence.
            again = await link.prompt(session, self.text, self.key)
            await self._outcome(again)
            await self._stop(link, session)

    async def _outcome(self, call: PromptCall) -> str:
        try:
            await call.result(ANSWER_WITHIN)
        except AcpError as error:
            return f"failed: {error.code}"
        except ConnectionLostError:
            return "unknown"
        return "ok"

    async def _stop(self, link: Link, session: str) -> None:
        """Work that a fault left hanging ends by a cancel."""
        if link.client.view(session).state in (None, "idle"):
            return
        await link.client.cancel(session)
        await link.client.wait_state(session, "idle", within=STOPPED_WITHIN)

    # --- after it ------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """A fresh agent resumes, sends again, and goes on."""
        assert self.session is not None
        async with self._agent() as link:
            await link.client.initialize()
            try:
                await link.resume(self.session, replay=True)
            except AcpError as error:
                acknowledged = any(attempt.outcome == "ok" for attempt in self.history.attempts)
                if error.code == -32002 and self.point.scenario == "new" and not acknowledged:
                    self.result.first = f"{self.result.first}, the session was never stored"
                    self.session = None
                    return
                raise
            self._look(link, link.user_messages(self.session))
            texts = [(self.tool_text, f"{self.key}-tool")] if self.tool else []
            for text, key in [*texts, (self.text, self.key), (self.after, f"{self.key}-after")]:
                call = await link.prompt(self.session, text, key)
                message_id = await call.message_id(ANSWER_WITHIN)
                self.acknowledged.append((text, message_id))
                await link.client.wait_state(self.session, "idle", within=30)
            mark = link.client.record.mark
            await link.resume(self.session, replay=True)
            self._look(link, link.user_messages(self.session, mark))

    def _look(self, link: Link, replayed: list[str] | None) -> None:
        assert self.session is not None
        stored = tuple(Stored(m.message_id, m.text) for m in self.rig.stored(self.session))
        at = link.client.record.add(None, 0, sent=True).at  # the record's clock
        self.history.looks.append(Look(at, self.session, stored, None if replayed is None else tuple(replayed)))

    def judge(self, before: list[tuple[str, str]]) -> None:
        """Everything that must hold now."""
        if self.session is None:
            return
        history, model = self.history, self.rig.model
        history.own = Counter(text for text, _ in before)
        history.torn = self.rig.runtime.torn(self.rig.root)
        texts = {attempt.text for attempt in history.attempts}
        history.calls = {text: model.calls(text) for text in texts}
        history.in_context = {text: model.in_conversation(text) for text in texts}
        history.kills = self.point.kind in ("kill-runtime", "closed", "lost", "delay")
        self.result.faults += faults_of(history)
        self.result.torn = sum(history.torn[text] for text in texts)
        stored = [message.message_id for message in history.looks[-1].stored]
        kept = [message_id for _, message_id in before]
        if stored[: len(kept)] != kept:
            self.result.faults.append("what was stored before the fault has changed")
        self.result.attempts = len(history.attempts)
        self.result.lost = sum(attempt.outcome == "unknown" for attempt in history.attempts)
        self.result.calls = sum(history.calls.values())

    # --- agents ----------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _agent(self, **env: str) -> AsyncIterator[Link]:
        """An agent whose attempts become part of the history. What it may send is checked where no fault was planted."""
        number, self._connections = self._connections, self._connections + 1
        link: Link | None = None
        try:
            async with (
                start_agent(self.rig.runtime.command, env={**self.rig.env, **env}, cwd=str(self.rig.root)) as process,
                Client(process.transport, policy=permissions.allow) as client,
            ):
                link = Link(self.rig, process, client)
                yield link
        finally:
            if link:
                self.history.attempts += attempts_of(link.client.record.since(0), number, ended=True)
        if self.point.kind != "torn" or not env:
            link.check()

    def log(self) -> list[str]:
        """The operations that were counted."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.removeprefix("HIT ").partition(" ")[2] for line in lines]
