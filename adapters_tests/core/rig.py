"""An agent on the scripted runtime with any number of clients, in this process, over memory or over pipes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from adapters.acp.memory import memory_pair
from adapters.acp.rpc import Transport
from adapters.acp.schema import ToolCallUpdate
from adapters.acp.stdio import StdioTransport
from adapters.client.client import Client
from adapters.core import port
from adapters.core.front import AgentInfo, Server, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime, ScriptedSession, Store
from adapters_tests.schema import validate_agent_message

CWD = "/"


def pipe_pair() -> tuple[Transport, Transport]:
    """Two stdio transports over two pipes."""
    agent_in, client_out = os.pipe()
    client_in, agent_out = os.pipe()
    return StdioTransport(client_in, client_out), StdioTransport(agent_in, agent_out)


PAIRS: dict[str, Callable[[], tuple[Transport, Transport]]] = {"memory": memory_pair, "pipes": pipe_pair}


class Rig:
    """The pieces of a test."""

    def __init__(self, runtime: ScriptedRuntime, server: Server, tasks: Any, stack: AsyncExitStack, pair: str) -> None:
        self.runtime = runtime
        self.server = server
        self._tasks = tasks
        self._stack = stack
        self._pair = pair
        self.clients: list[Client] = []

    async def connect(self, *, initialize: bool = True) -> Client:
        """One more client."""
        ours, theirs = PAIRS[self._pair]()
        self._tasks.start_soon(self.server.run_connection, theirs)
        client = await self._stack.enter_async_context(Client(ours))
        self.clients.append(client)
        if initialize:
            await client.initialize()
        return client

    async def session(self, client: Client) -> tuple[str, ScriptedSession]:
        """A new session, as its id and as the runtime sees it."""
        session_id = await client.new(CWD)
        return session_id, self.runtime.sessions[session_id]

    async def running(self, client: Client, text: str = "work", key: str | None = None) -> tuple[str, ScriptedSession]:
        """A session with a prompt inserted and its work going on."""
        session_id, runtime = await self.session(client)
        call = await client.prompt(session_id, text, key)
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        await call.message_id()
        return session_id, runtime

    def check(self) -> None:
        """What holds after every test: valid messages, no protocol fault."""
        for client in self.clients:
            assert client.faults == []
            for message in client.record.since(0, sent=False):
                validate_agent_message(message.value)


@asynccontextmanager
async def rig(
    store: Store | None = None,
    *,
    automatic: bool = False,
    pair: str = "memory",
    runtime: ScriptedRuntime | None = None,
) -> AsyncIterator[Rig]:
    """An agent on a scripted runtime; everything it said is validated at the end."""
    runtime = runtime or ScriptedRuntime(store, automatic=automatic)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            async with serve(lambda: runtime, FEATURES, AgentInfo("test", "Test", "1")) as server:
                async with AsyncExitStack() as stack:
                    made = Rig(runtime, server, tasks, stack, pair)
                    yield made
                    runtime.automatic = True  # what still runs ends at once
                    runtime.lookup_gate.set()
                made.check()
            tasks.cancel_scope.cancel()


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """The result, or the exception."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


def question(request_id: str = "q", **more: Any) -> port.PermissionRequested:
    """A question of a runtime, with a way to say yes and one to say no."""
    options = [
        port.PermissionOption("yes", "Allow", "allow_once"),
        port.PermissionOption("no", "Reject", "reject_once"),
    ]
    return port.PermissionRequested(
        request_id, "May I?", options, ToolCallUpdate(tool_call_id="t", title="Bash"), **more
    )
