"""The rig: a scripted model, an isolated home with a project folder, and agents as real subprocesses in it.

Counts from outside: model calls per prompt, stored messages by an independent reader, bytes and messages on the wire,
processes of the home. Every connection is checked when it ends: see `Link.check`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.client import Blocks, Client
from adapters.client.process import AgentProcess, start_agent
from adapters.client.record import Message
from adapters.client.view import SessionView
from adapters.scripted.gates import Gate
from adapters.scripted.home import work_folder
from adapters.scripted.script import Answer, HttpFailure, Rule, Shell, Text, say
from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.processes import Proc, living_in, wait_for
from adapters_tests.e2e.runtimes import Deviation, RuntimeUnderTest
from adapters_tests.e2e.stored import StoredMessage
from adapters_tests.schema import validate_agent_message

GONE_WITHIN = 2.0
"""Seconds after the end of an agent in which every process of its home must be gone."""


@dataclass
class Tool:
    """A shell command of the scripted model that tells when it runs and ends when it is told to."""

    started_file: Path
    go_file: Path

    async def started(self, within: float = 20.0) -> None:
        await wait_for(self.started_file.exists, within, "the tool runs")

    def release(self) -> None:
        self.go_file.touch()


@dataclass
class Link:
    """One connection to one agent process."""

    rig: Rig
    process: AgentProcess
    client: Client
    _quiet: str | None = None

    async def new(self, **more: Any) -> str:
        session = await self.client.new(str(self.rig.project), **more)
        self.rig.sessions.append(session)
        return session

    async def quiet_session(self) -> str:
        """A session for tests that insert nothing; made once per connection."""
        if self._quiet is None:
            self._quiet = await self.new()
        return self._quiet

    async def resume(self, session: str, *, replay: bool = False, **more: Any) -> dict[str, Any]:
        return await self.client.resume(session, str(self.rig.project), replay=replay, **more)

    async def prompt(self, session: str, prompt: Blocks, key: str | None = None, **more: Any) -> PromptCall:
        if key is not None:
            self.rig.keys.add(key)
        return await self.client.prompt(session, prompt, key, **more)

    async def turn(self, session: str, prompt: Blocks, key: str | None = None) -> str:
        """Send a prompt and wait for the end of its work; gives the message id."""
        call = await self.prompt(session, prompt, key)
        message_id = await call.message_id()
        await self.ended(session, message_id)  # an idle before that is the end of other work
        return message_id

    async def error(self, call: PromptCall, within: float = 30.0, *, inserted: bool | None = False) -> AcpError:
        """The error that a prompt was answered with; it says that nothing was inserted, or (None) that it does not know."""
        with pytest.raises(AcpError) as caught:
            await call.result(within)
        assert isinstance(caught.value.data, dict), "an error on session/prompt says in its data what became of it"
        assert caught.value.data.get("inserted", 0) is inserted
        return caught.value

    def states(self, session: str, since: int = 0, *, every: bool = False) -> list[str]:
        """Where work began and ended from a mark on, as `running`, `idle:end_turn`; repeated snapshots are left out.

        `every`: with the states in between (`requires_action`).
        """
        shown: list[str] = []
        for update in self.client.updates(session, since):
            if update["sessionUpdate"] != "state_update" or (update["state"] == "requires_action" and not every):
                continue
            if not shown or shown[-1].partition(":")[0] != update["state"]:
                shown.append(":".join(filter(None, (update["state"], update.get("stopReason")))))
        return shown

    async def replays_alike(self, session: str) -> SessionView:
        """The live view, after a check that a replay here and one after the session was closed look the same."""
        live = self.client.view(session)
        before = live.snapshot()
        mark = self.client.record.mark
        await self.resume(session, replay=True)
        assert SessionView.of(self.client.updates(session, mark)).snapshot() == before
        await self.client.close(session)
        mark = self.client.record.mark
        await self.resume(session, replay=True)
        assert SessionView.of(self.client.updates(session, mark)).snapshot() == before
        assert live.snapshot() == before
        return live

    async def tool_shown(self, session: str, since: int = 0) -> None:
        """Wait until a tool call is shown: Codex tells of a command up to 150 ms after its start."""
        await self.client.wait_update(session, is_update("tool_call_update"), since=since)

    async def user_turn(self, session: str, text: str) -> None:
        """One turn in the active session by the user's own runtime.

        Where that is locked out of active sessions, the session is closed for it, and resumed (LOCKS_ITS_THREADS).
        """
        if self.rig.deviates(Deviation.LOCKS_ITS_THREADS):
            status, printed = await self.rig.user_turn(session, text)
            assert (status != 0, "active writer" in printed) == (True, True)
            await self.client.close(session)
        status, printed = await self.rig.user_turn(session, text)
        assert status == 0, printed
        if self.rig.deviates(Deviation.LOCKS_ITS_THREADS):
            await self.resume(session)

    async def ended(self, session: str, message_id: str) -> None:
        """Wait for the end of the work on a message: idle after the last time that it was shown."""
        shown = is_update("user_message", messageId=message_id)
        await self.client.wait_update(session, shown)
        at = [m.index for m in self.received("session/update") if shown(m.params["update"])][-1]
        await self.client.wait_state(session, "idle", since=at)

    def user_messages(self, session: str, since: int = 0) -> list[str]:
        """The ids in the `user_message` and `user_message_chunk` updates from a mark on, each once, in order."""
        kinds = ("user_message", "user_message_chunk")
        updates = self.client.updates(session, since)
        return list(dict.fromkeys(update["messageId"] for update in updates if update["sessionUpdate"] in kinds))

    def received(self, method: str) -> Iterator[Message]:
        return (message for message in self.client.record.since(0, sent=False) if message.method == method)

    def check(self) -> None:
        """What holds for everything an agent sends.

        Valid under the v2 schema; no key text; every request answered exactly once unless the connection was lost; no
        answer to anything else; nothing after `session/close` but owed answers.
        """
        assert self.client.faults == []
        requests: dict[Any, str] = {}
        answers: Counter[Any] = Counter()
        for message in self.client.record.since(0):
            value = message.value
            if message.sent:
                if isinstance(value, dict) and "id" in value and "method" in value:
                    requests[value["id"]] = value["method"]
                continue
            answered = requests.get(value.get("id")) if "method" not in value else None
            self._validate(value, answered)
            if answered is not None:
                answers[value["id"]] += 1
            self._check_keys(value)
        assert set(answers.values()) <= {1}
        for key in self.rig.keys:
            assert len(key) < _TELLING or key not in self.process.stderr, "a key in the log"

    def _validate(self, value: Any, answered: str | None) -> None:
        """Against the schema, once for all answers that differ in their id only: a replay repeats most of what was live."""
        content = json.dumps([answered, value if answered is None else {**value, "id": 0}], sort_keys=True)
        if content not in self.rig.validated:
            validate_agent_message(value, answered)
            self.rig.validated.add(content)

    def _check_keys(self, value: Any) -> None:
        spellings = (json.dumps(value), json.dumps(value, ensure_ascii=False))
        for key in self.rig.keys:
            if len(key) >= _TELLING:
                assert not any(json.dumps(key)[1:-1] in text or key in text for text in spellings), "a key on the wire"


_TELLING = 8  # shorter keys occur in other text by chance


@dataclass
class Rig:
    """A home in which agents come and go. Made by `rig`."""

    runtime: RuntimeUnderTest
    model: ScriptedServer
    root: Path
    project: Path
    keys: set[str] = field(default_factory=set[str])
    sessions: list[str] = field(default_factory=list[str])
    extra_env: dict[str, str] = field(default_factory=dict[str, str])
    fixed_env: dict[str, str] | None = None
    """The environment as it was made once: making it writes into the home, which a test may keep from being written."""
    user_env: dict[str, str] = field(default_factory=dict[str, str])
    """What the user's own command line has in another way than agents."""
    validated: set[str] = field(default_factory=set[str])
    """Messages of agents that were found valid."""
    last_gate: str = ""
    _tools: int = 0

    @property
    def env(self) -> dict[str, str]:
        made = self.fixed_env or self.runtime.environment(self.root, self.model.base_url)
        return {**made, **self.extra_env}

    # --- agents ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def agent(
        self,
        policy: permissions.Policy = permissions.allow,
        *,
        initialize: bool = True,
        command: Sequence[str] = (),
        **env: str,
    ) -> AsyncIterator[Link]:
        """Start an agent, by another command if one is given, and connect to it; check the connection at the end."""
        async with (
            start_agent(command or self.runtime.command, env={**self.env, **env}, cwd=str(self.root)) as process,
            Client(process.transport, policy=policy) as client,
        ):
            link = Link(self, process, client)
            if initialize:
                await client.initialize()
            yield link
        link.check()

    async def agent_on_pipes(self) -> tuple[Process, int, int]:
        """Start an agent; gives its process and our ends of its pipes, to read from and to write to. The caller closes them."""
        agent_in, to_agent = os.pipe()
        from_agent, agent_out = os.pipe()
        command, nothing = self.runtime.command, subprocess.DEVNULL
        process = await anyio.open_process(
            command, stdin=agent_in, stdout=agent_out, stderr=nothing, env=self.env, cwd=self.root
        )
        os.close(agent_in)
        os.close(agent_out)
        return process, from_agent, to_agent

    # --- the script --------------------------------------------------------------------------------------------------

    def answer(self, text: str, *steps: Answer, joins: bool = False) -> None:
        """Answer this prompt with these steps."""
        rule = Rule(steps, exact=text, joins=joins)
        self.model.script = replace(self.model.script, rules=(rule, *self.model.script.rules))

    def hold_model(self, text: str, *blocks: Text) -> Gate:
        """Let the model's answer to this prompt wait at the gate that is given back."""
        name = f"g{len(self.model.script.rules)}"
        self.answer(text, Answer(blocks or (Text(f"Answer to {name}."),), gate=name))
        self.last_gate = name
        return self.model.gate(name)

    def fail(self, text: str, status: int, message: str, times: int | None = None) -> None:
        """Answer this prompt with an HTTP error, for ever or the first times only."""
        self.answer(text, Answer((Text("After all."),), failure=HttpFailure(status, message=message, times=times)))

    def tool(self, text: str, last: str = "The tool is done.") -> Tool:
        """Answer this prompt with a shell command that waits to be released, and a text after it."""
        self._tools += 1
        tool = Tool(self.project / f"tool{self._tools}.started", self.project / f"tool{self._tools}.go")
        started, go = shlex.quote(str(tool.started_file)), shlex.quote(str(tool.go_file))
        wait = f"touch {started}; while [ ! -e {go} ]; do sleep 0.02; done; echo released"
        self.answer(text, Answer((Shell(wait),)), say(last))
        return tool

    # --- counting ----------------------------------------------------------------------------------------------------

    def stored(self, session: str) -> list[StoredMessage]:
        """The user messages of the stored session."""
        return self.runtime.stored(self.root, session)

    def stored_ids(self, session: str) -> list[str]:
        return [message.message_id for message in self.stored(session)]

    def in_conversation(self, text: str) -> int:
        """How often the model's latest conversation holds the prompt, without torn insertions of it (TORN_INSERTION)."""
        return self.model.in_conversation(text) - self.runtime.torn(self.root)[text]

    async def queued(self, session: str) -> None:
        """Wait until the runtime itself holds a prompt."""
        await wait_for(lambda: self.runtime.queued(self.root, session), 10, "the runtime holds the prompt")

    def processes(self) -> list[Proc]:
        """Every live process of this home."""
        return living_in(self.root)

    def runtimes(self) -> list[Proc]:
        """The runtime's own live processes of this home. A child that has not become another program yet is none."""
        found = [proc for proc in self.processes() if self.runtime.is_runtime(proc)]
        pids = {proc.pid for proc in found}
        return [proc for proc in found if proc.parent not in pids]

    def runtime_of(self, session: str) -> Proc:
        """The one live process of the runtime that has this session active."""
        [proc] = [proc for proc in self.runtimes() if self.runtime.serves(proc, session)]
        return proc

    def deviates(self, deviation: Deviation) -> bool:
        """Whether the runtime differs here; the mark says what is right instead."""
        return deviation in self.runtime.deviations

    async def all_gone(self, within: float = GONE_WITHIN) -> float:
        """Wait until no process of this home is left; gives the seconds it took."""
        return await wait_for(lambda: not self.processes(), within, f"all gone, not {self.processes()}")

    # --- the user's own command line ---------------------------------------------------------------------------------

    async def user_turn(self, session: str, text: str) -> tuple[int, str]:
        """One more turn in the session by the user's own runtime, outside of any agent; its exit status and output."""
        done = await anyio.run_process(
            list(self.runtime.user_command(session, text)),
            env={**self.env, **self.user_env},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.returncode, done.stdout.decode()


@asynccontextmanager
async def open_rig(runtime: RuntimeUnderTest, model: ScriptedServer, root: Path) -> AsyncIterator[Rig]:
    """A rig in this folder. Kills what is left of its home at the end, and fails if anything was."""
    project = work_folder(root / "My Project - x")
    rig = Rig(runtime, model, root, project)
    try:
        yield rig
        await rig.all_gone()
    finally:
        for proc in rig.processes():
            proc.kill(signal.SIGKILL)


def unanswered(link: Link) -> list[Any]:
    """Ids of requests without an answer."""
    answered = {m.value.get("id") for m in link.client.record.since(0, sent=False) if "method" not in m.value}
    sent = (m.value for m in link.client.record.since(0, sent=True) if isinstance(m.value, dict))
    return [value["id"] for value in sent if "id" in value and "method" in value and value["id"] not in answered]


async def id_or_none(call: PromptCall, code: int, within: float = 30.0) -> str | None:
    """The message id, or None when the answer is the error of this code; any other error is raised."""
    try:
        return await call.message_id(within)
    except AcpError as error:
        if error.code != code:
            raise
        return None


def is_update(variant: str, **fields: Any) -> Callable[[dict[str, Any]], bool]:
    """A predicate for `Client.wait_update`."""
    return lambda update: update["sessionUpdate"] == variant and all(update.get(k) == v for k, v in fields.items())
