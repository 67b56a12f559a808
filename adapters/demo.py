"""The offline demo: a real runtime, an isolated temporary home, a scripted model, and no account.

Shows two promises of `idempotencyKey` on a timeline: a prompt whose answer is lost in a crash of the agent, and a prompt that is
sent twice while it is held. Counts the result from outside. Owns only the story: client, agent and model are the product's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import anyio

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.calls import MalformedAnswerError, PromptCall
from adapters.client.client import Client
from adapters.client.process import AgentProcess, start_agent
from adapters.client.record import ConnectionLostError
from adapters.driver.procfs import everybody, has_variable
from adapters.plugins import load
from adapters.scripted.home import work_folder
from adapters.scripted.script import Answer, Rule, Script, Shell, Spread, Text, say

if TYPE_CHECKING:
    from adapters.scripted.server import ScriptedServer

_CRASH = "Rename the module, please."
_WORK = "Run the tests."
_HELD = "And update the changelog."
_IMPORT_FROM = str(Path(__file__).resolve().parents[1])
_BOUND = 30.0
"""Seconds that any one step may take."""
_HEAD_START = 0.3
"""Seconds that the held prompts get to be answered too early, while the tool still runs."""


@dataclass
class _Show:
    """One run with one runtime: its places, its timeline and its claims."""

    name: str
    home: Path
    project: Path
    env: dict[str, str]
    model: ScriptedServer
    out: TextIO
    start: float = field(default_factory=time.monotonic)
    claims: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    prompts: int = 0
    """Prompts that were sent, to any agent."""

    def say(self, text: str) -> None:
        """One line of the timeline."""
        print(f"{time.monotonic() - self.start:7.2f} s  {text}", file=self.out, flush=True)

    def claim(self, text: str, holds: bool) -> None:
        """One claim and whether it holds."""
        self.claims.append((text, holds))

    @asynccontextmanager
    async def agent(self) -> AsyncGenerator[tuple[AgentProcess, Client]]:
        """A running agent and an open connection to it."""
        command = [sys.executable, "-m", "adapters", self.name]
        async with (
            start_agent(command, env=self.env, cwd=str(self.home)) as process,
            Client(process.transport, policy=permissions.allow) as client,
        ):
            await client.initialize()
            self.say(f"agent {process.pid} answers initialize")
            yield process, client

    async def send(self, client: Client, session: str, text: str, key: str) -> PromptCall:
        """Send a prompt with its key."""
        self.prompts += 1
        call = await client.prompt(
            session, text, key, f"p{self.prompts}"
        )  # a client's own numbers begin again with each agent
        self.say(f'-> request {call.request_id}: prompt "{text}" with key {key[:4]}...')
        return call


async def run_demo(runtimes: Sequence[str], out: TextIO) -> int:
    """Show the demo for each runtime on `out`. Gives the exit status: 0 when every claim holds, else 1.

    Nothing is left behind, neither files nor processes, also when it is cancelled or interrupted.
    """
    everything_holds = True
    for name in runtimes:
        print(f"acp-adapters {name}: the real runtime, a scripted model, a temporary home, no account\n", file=out)
        everything_holds &= await _run(name, out)
    return 0 if everything_holds else 1


async def _run(name: str, out: TextIO) -> bool:
    plugin = load(name)
    home, project = _folders()
    try:
        async with plugin.model(_script(project)) as model:
            env = {**plugin.isolated(home, model.base_url), "PYTHONPATH": _IMPORT_FROM}
            show = _Show(name, home, project, env, model, out)
            try:
                async with _crash(show) as client:
                    await _hold(show, client)
            except (AcpError, ConnectionLostError, MalformedAnswerError, TimeoutError, OSError) as error:
                show.say(f"stopped: {error or type(error).__name__}")
                show.claim("the demo ran to its end", holds=False)
    finally:
        with anyio.CancelScope(shield=True):
            await _end_leftovers(home)
        shutil.rmtree(home, ignore_errors=True)
    print(file=out)
    for text, holds in show.claims:
        print(f"  {'holds' if holds else 'FAILS'}  {text}", file=out)
    print(file=out, flush=True)
    return all(holds for _, holds in show.claims)


def _folders() -> tuple[Path, Path]:
    home = Path(tempfile.mkdtemp(prefix="acp-adapters-demo-")).resolve()
    return home, work_folder(home / "project")


def _script(project: Path) -> Script:
    slow = Text("Renamed. " * 40, Spread(deltas=40))
    wait = f"echo testing; while [ ! -e '{project}/tests-done' ]; do sleep 0.05; done"
    return Script(
        rules=(
            Rule((Answer((slow,), delta_delay=0.1),), exact=_CRASH),
            Rule((Answer((Shell(wait),)), say("All tests pass.")), exact=_WORK),
            Rule((say("The changelog is updated."),), exact=_HELD),
        )
    )


@asynccontextmanager
async def _crash(show: _Show) -> AsyncGenerator[Client]:
    """A prompt whose answer is lost, a SIGKILL, and the same prompt again; gives the connection it ends with."""
    key = str(uuid.uuid4())
    async with show.agent() as (process, client):
        session = await client.new(str(show.project))
        show.say(f"session ...{session[-8:]} started")
        call = await show.send(client, session, _CRASH, key)
        first = await call.message_id(_BOUND)
        show.say(f"<- request {call.request_id}: inserted as {first[:8]}; this answer is thrown away")
        await show.model.wait_prompt(_CRASH, seconds=_BOUND)
        show.say(f"   model calls: {show.model.total_calls}, the model is still writing")
        process.kill()
        await process.wait(_BOUND)
        show.say(f"SIGKILL: agent {process.pid} is gone")
    async with show.agent() as (_, client):
        await client.resume(session, str(show.project), replay=True)
        shown = client.view(session).user_message_ids()
        show.say(f"session ...{session[-8:]} resumed; its history shows {_count(len(shown), 'user message')}")
        mark = client.record.mark
        again = await show.send(client, session, _CRASH, key)
        second = await again.message_id(_BOUND)
        show.say(f"<- request {again.request_id}: {second[:8]}, {_ms(client, again)} after the request")
        replayed = await _replayed(client, session, show)
        reported = [update for update in client.updates(session, mark) if update["sessionUpdate"] == "user_message"]
        calls = show.model.calls(_CRASH)
        show.say(f"   model calls for this prompt: {calls}")
        show.claim("after the crash, the same prompt with the same key has the same messageId", second == first)
        show.claim("the history holds it once", shown == [first] and replayed == [first])
        show.claim("the retry reported no second user message", all(u["messageId"] == first for u in reported))
        show.claim("the model was asked once", calls == 1)
        yield client


async def _hold(show: _Show, client: Client) -> None:
    """A prompt sent twice while a tool runs."""
    key = str(uuid.uuid4())
    session = await client.new(str(show.project))
    show.say(f"session ...{session[-8:]} started")
    work = await show.send(client, session, _WORK, str(uuid.uuid4()))
    await work.message_id(_BOUND)
    await client.wait_update(session, _runs_a_tool, since=work.mark, within=_BOUND)
    show.say("   a tool is running")
    calls = [await show.send(client, session, _HELD, key) for _ in range(2)]
    with anyio.move_on_after(_HEAD_START):
        await calls[0].result(_BOUND)
    early = any(call.done for call in calls)
    show.say(f"   {'answered already' if early else 'both are held'}; now the tool ends")
    (show.project / "tests-done").touch()
    answers = [await call.message_id(_BOUND) for call in calls]
    for call, answer in zip(calls, answers, strict=True):
        show.say(f"<- request {call.request_id}: inserted as {answer[:8]}")
    await client.wait_state(session, "idle", since=work.mark, within=_BOUND)
    inserted = client.view(session).user_message_ids().count(answers[0])
    asked = show.model.calls(_HELD)
    show.say(f"   all work has ended; model calls for the held prompt: {asked}")
    replayed = await _replayed(client, session, show)
    show.claim("a held prompt is not answered before it is inserted", not early)
    show.claim("sent twice, both requests get the one messageId", len(set(answers)) == 1)
    show.claim("it was inserted once: shown once, stored once", inserted == replayed.count(answers[0]) == 1)
    show.claim("the model was asked about it once", asked == 1)


async def _replayed(client: Client, session: str, show: _Show) -> list[str]:
    """The user messages that a replay of the stored session shows now."""
    mark = client.record.mark
    await client.resume(session, str(show.project), replay=True)
    kinds = ("user_message", "user_message_chunk")
    ids = (update["messageId"] for update in client.updates(session, mark) if update["sessionUpdate"] in kinds)
    return list(dict.fromkeys(ids))


def _runs_a_tool(update: dict[str, object]) -> bool:
    return update.get("sessionUpdate") == "tool_call_update" and update.get("status") == "in_progress"


def _ms(client: Client, call: PromptCall) -> str:
    sent, answered = (
        next(message.at for message in client.record.since(index)) for index in (call.mark, call.answered_at or 0)
    )
    return f"{(answered - sent) * 1000:.0f} ms"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


async def _end_leftovers(home: Path) -> None:
    """End the processes that still live in this home: a runtime whose agent was killed and that nobody resumed.

    Without /proc such a runtime ends by itself when its work is done.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = [process.pid for process in everybody() if has_variable(process.pid, "HOME", str(home))]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if pids:
            await anyio.sleep(0.3)
