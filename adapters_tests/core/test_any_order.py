"""Random orders of everything: several clients that come, go, cancel and close, on a runtime that waits, refuses and dies.

Whatever the order: valid messages, each request answered once, a success only for what is stored (or live-only), an error only
for what is not, one insertion per key, states that alternate, nothing left running. Each seed is one repeatable history.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.memory import memory_pair
from adapters.acp.schema import ContentBlock, SessionUpdate
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.client import Client
from adapters.client.record import ConnectionLostError
from adapters.core import port
from adapters.core.front import AgentInfo, Server, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime, ScriptedSession
from adapters.core.submissions import derived_id
from adapters_tests.core.rig import CWD
from adapters_tests.schema import validate_agent_message

pytestmark = pytest.mark.anyio

KEYS = ["a", "b", "c", "d", None]


async def pause(dice: random.Random, most: int = 6) -> None:
    for _ in range(dice.randrange(most)):
        await anyio.lowlevel.checkpoint()


class ChaosSession(ScriptedSession):
    """Does what the port allows, in an order of its own; a step at a time whenever something else happens."""

    def __init__(self, runtime: ChaosRuntime, session_id: str, sink: port.EventSink) -> None:
        super().__init__(runtime, session_id, sink)
        self.dice = runtime.dice
        self.open_id: str | None = None
        self.working = False
        self.asked = 0
        self.up = False
        """A stored session may come up late; a new one is up."""

    @property
    def ready(self) -> bool:
        return self.dice.random() < 0.8

    async def is_recorded(self, message_id: str) -> bool:
        await pause(self.dice)
        if self.dice.random() < 0.05:
            raise InternalError
        return message_id in self.stored.user_ids()

    async def started(self) -> None:
        if not self.up:
            await pause(self.dice)
            if self.dice.random() < 0.1:
                raise InternalError("does not come up")
            self.up = True

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        assert self.up
        assert self.open_id is None
        assert not self.closed
        await pause(self.dice)
        if self.dice.random() < 0.1:
            raise self.dice.choice([InternalError("no"), OSError()])
        self.submitted.append((message_id, prompt))
        self.open_id = message_id
        await pause(self.dice)

    async def withdraw(self, message_id: str) -> None:
        await pause(self.dice)
        if self.open_id == message_id and self.dice.random() < 0.5:
            self.settle(inserted=False)

    async def interrupt(self) -> None:
        await pause(self.dice)
        if self.working:
            self.work_ends("error", interrupted=self.dice.random() < 0.5)

    async def replay(self) -> AsyncIterator[SessionUpdate]:
        async for update in super().replay():
            await pause(self.dice)
            if self.dice.random() < 0.03:
                raise OSError
            yield update

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        await pause(self.dice)
        await super().reconfigure(setup)

    async def close(self) -> None:
        await pause(self.dice)
        if self.open_id:
            self.settle(inserted=self.dice.random() < 0.5)
        await super().close()
        if self.dice.random() < 0.1:
            raise OSError

    def settle(self, *, inserted: bool) -> None:
        message_id, self.open_id = self.open_id, None
        assert message_id is not None
        if inserted:
            self.insert(message_id)
        else:
            self.fail(message_id, self.dice.choice([None, InternalError("lost")]))

    def work_ends(self, stop_reason: str = "end_turn", **more: Any) -> None:
        self.working = False
        self.end(stop_reason, **more)

    def step(self) -> None:
        """Something the runtime does by itself."""
        if self.closed:
            return
        what = self.dice.randrange(7)
        if what <= 1 and self.open_id:
            if not self.working:
                self.working = True
                self.take(self.open_id)
            self.settle(inserted=self.dice.random() < 0.85)
        elif what == 2 and self.working:
            self.say("some text")
        elif what == 3 and self.working:
            self.work_ends()
        elif what == 4 and self.working:
            self.asked += 1
            options = [port.PermissionOption("yes", "Allow", "allow_once")]
            self.deliver(port.PermissionRequested(f"q{self.asked}", "May I?", options, foreground=what % 2 == 0))
        elif what == 5 and not self.working:
            self.working = True
            self.start()
        else:
            self.deliver(port.ReadyChanged())


class ChaosRuntime(ScriptedRuntime):
    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.all: list[ChaosSession] = []

    async def new_session(self, setup: port.SessionSetup, sink: port.EventSink) -> ScriptedSession:
        await pause(self.dice)
        return await super().new_session(setup, sink)

    async def open_session(self, session_id: str, setup: port.SessionSetup, sink: port.EventSink) -> ScriptedSession:
        await pause(self.dice)
        assert all(s.closed for s in self.all if s.session_id == session_id), "D6: one runtime session at a time"
        if self.dice.random() < 0.1:
            raise InternalError("held by another")
        return await super().open_session(session_id, setup, sink)

    def _open(self, session_id: str, sink: port.EventSink) -> ScriptedSession:
        session = self.sessions[session_id] = ChaosSession(self, session_id, sink)
        session.up = session_id not in {known.session_id for known in self.all}
        self.all.append(session)
        return session


class Chaos:
    def __init__(self, seed: int, server: Server, runtime: ChaosRuntime, tasks: Any, stack: AsyncExitStack) -> None:
        self.dice = random.Random(seed)
        self.server = server
        self.runtime = runtime
        self.tasks = tasks
        self.stack = stack
        self.clients: list[Client] = []
        self.sessions: list[str] = []
        self.prompts: list[tuple[PromptCall, str | None]] = []
        self.calls: list[Any] = []

    async def policy(self, _question: permissions.Question) -> str | None:
        await pause(self.dice, 30)
        return self.dice.choice(["yes", None])

    async def connect(self) -> Client:
        ours, theirs = memory_pair()
        self.tasks.start_soon(self.server.run_connection, theirs)
        client = await self.stack.enter_async_context(Client(ours, policy=self.policy))
        await client.initialize()
        self.clients.append(client)
        return client

    async def act(self) -> None:
        alive = [client for client in self.clients if not client.record.ended]
        client = self.dice.choice(alive) if alive else await self.connect()
        session_id = self.dice.choice(self.sessions)
        what = self.dice.randrange(20)
        if what < 7:
            key = self.dice.choice(KEYS)
            text = self.dice.choice(["hello", "hello", "/status"])
            self.prompts.append((await client.prompt(session_id, text, key=key), key))
        elif what < 11:
            replay = {"replayFrom": {"type": "start"}} if self.dice.random() < 0.5 else {}
            roots = {"additionalDirectories": ["/tmp"]} if self.dice.random() < 0.3 else {}  # noqa: S108
            params = {"sessionId": session_id, "cwd": CWD, **replay, **roots}
            self.calls.append(await client.request("session/resume", params))
        elif what == 11:
            await client.cancel(session_id)
        elif what == 12:
            self.calls.append(await client.request("session/close", {"sessionId": session_id}))
        elif what == 13 and self.dice.random() < 0.3:
            await client._transport.aclose()
        elif what == 14 and len(alive) < 3:
            await self.connect()
        elif what <= 17 and client._calls:
            await client.cancel_request(self.dice.choice(list(client._calls)))
        for runtime in self.runtime.all:
            runtime.step()
        await pause(self.dice, 12)

    async def settle(self) -> None:
        """Let the runtime finish what it has, until nobody waits."""
        while any(not call.done for call in (*self.calls, *(call for call, _ in self.prompts))):
            for runtime in self.runtime.all:
                runtime.step()
            await anyio.lowlevel.checkpoint()
        for runtime in self.runtime.all:
            if runtime.working:
                runtime.work_ends()
        for client in self.clients:
            if not client.record.ended:
                await client.list()

    async def leave(self) -> None:
        """When the last client is gone, every session is freed (KEY-43, STDIO-13)."""
        for client in self.clients:
            await client._transport.aclose()
        for runtime in self.runtime.all:
            while not runtime.closed:
                runtime.step()
                if runtime.working:
                    runtime.work_ends()
                await anyio.lowlevel.checkpoint()

    def check(self) -> None:
        store = self.runtime.store.sessions
        local = {(call.session_id, key) for call, key in self.prompts if call.params["prompt"][0]["text"] == "/status"}
        for call, key in self.prompts:
            stored = Counter(store[call.session_id].user_ids())
            if isinstance(call.outcome, dict):
                message_id = call.outcome["messageId"]
                assert stored[message_id] == 1 or (call.session_id, key) in local
            elif isinstance(call.outcome, AcpError):
                # None: its look-up failed, and an earlier attempt may have been inserted (ADP-6)
                assert call.outcome.data["inserted"] in (False, None)
                assert call.outcome.code in {-32800, -32603, -32002}
            else:
                assert isinstance(call.outcome, ConnectionLostError)
            if key is not None:
                assert stored[derived_id(call.session_id, key)] <= 1
        for session_id in self.sessions:
            assert all(count == 1 for count in Counter(store[session_id].user_ids()).values())
        for client in self.clients:
            for session_id in self.sessions:
                if not client.record.ended:
                    assert client.view(session_id).state in (None, "idle"), "STATE-1: nobody is left with a spinner"
            assert client.faults == []
            for message in client.record.since(0, sent=False):
                validate_agent_message(message.value)


@pytest.mark.parametrize("seed", range(8))
async def test_any_order_of_events_keeps_the_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """KEY-10..22, PROMPT-2, RPC-6, UPD-1, UPD-4, UPD-7, CLOSE-4, STATE-4, RESUME-5, E1..E8, E13, E44."""
    monkeypatch.setattr("adapters.core.session._STOP_BOUND", 0.2)
    runtime = ChaosRuntime(random.Random(-seed - 1))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            info = AgentInfo("test", "Test", "1")
            async with serve(lambda: runtime, FEATURES, info) as server, AsyncExitStack() as stack:
                chaos = Chaos(seed, server, runtime, tasks, stack)
                client = await chaos.connect()
                chaos.sessions = [await client.new(CWD) for _ in range(2)]
                for _ in range(150):
                    await chaos.act()
                await chaos.settle()
                chaos.check()
                await chaos.leave()
            tasks.cancel_scope.cancel()
    assert all(session.closed for session in runtime.all)
