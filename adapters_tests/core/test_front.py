"""What the front does around the first `initialize`: the driver's preparation, and its loading (D10)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from adapters.acp.framing import encode
from adapters.acp.memory import memory_pair
from adapters.client.client import Client
from adapters.core.front import AgentInfo, Server, serve
from adapters.core.scripted_runtime import FEATURES, ScriptedRuntime

pytestmark = pytest.mark.anyio


class Driver:
    """Notes what is asked of it, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.loaded = anyio.Event()
        self.go_on = anyio.Event()

    async def prepare(self, begun: Callable[[], None]) -> None:
        self.said.append("prepare")
        await anyio.lowlevel.checkpoint()
        self.said.append("begun")
        begun()
        await self.go_on.wait()
        self.said.append("prepared")

    def load(self) -> ScriptedRuntime:
        self.said.append("load")
        self.loaded.set()
        return ScriptedRuntime(automatic=True)


@asynccontextmanager
async def served(driver: Driver) -> AsyncIterator[Server]:
    info = AgentInfo("test", "Test", "1")
    with anyio.fail_after(10):
        async with serve(driver.load, FEATURES, info, driver.prepare) as server:
            yield server


async def test_what_a_driver_needs_begins_before_it_is_loaded_and_once() -> None:
    """Nothing before `initialize`; then the preparation until it has begun, and the driver without waiting for the rest."""
    driver = Driver()
    async with anyio.create_task_group() as tasks, served(driver) as server:
        ours, theirs = memory_pair()
        tasks.start_soon(server.run_connection, theirs)
        async with Client(ours) as client:
            assert driver.said == []
            await client.initialize()
            await driver.loaded.wait()
            await client.initialize()  # INIT-8: no other request was made
            assert driver.said == ["prepare", "begun", "load"]
            driver.go_on.set()
            await client.new("/")
            assert driver.said == ["prepare", "begun", "load", "prepared"]
        tasks.cancel_scope.cancel()


async def test_a_request_that_comes_with_initialize_loads_the_driver_at_once() -> None:
    """Then it is too late for a preparation, which would start the same again."""
    driver = Driver()
    async with anyio.create_task_group() as tasks, served(driver) as server:
        ours, theirs = memory_pair()
        info = {"name": "test", "version": "1"}
        first = {"protocolVersion": 2, "info": info, "capabilities": {}}
        for number, (method, params) in enumerate((("initialize", first), ("session/list", {}))):
            await ours.send(encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        tasks.start_soon(server.run_connection, theirs)
        received = b""
        while received.count(b"\n") < 2:
            received += await ours.receive()
        assert driver.said == ["load"]
        tasks.cancel_scope.cancel()
