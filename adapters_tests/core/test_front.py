"""The front between `initialize` and the agent: the driver's preparation, its loading (D10), and what waits for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from adapters.acp.calls import IncomingRequest
from adapters.acp.errors import AcpError, AuthRequired
from adapters.acp.framing import encode
from adapters.acp.memory import MemoryTransport, memory_pair
from adapters.core import agent, front
from adapters.core.front import AgentInfo, Server, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime
from adapters.core.peer import Peer
from adapters.core.port import Features, Runtime

pytestmark = pytest.mark.anyio

INITIALIZE = ("initialize", {"protocolVersion": 2, "info": {"name": "test", "version": "1"}, "capabilities": {}})

Message = tuple[str, dict[str, Any]]


class Driver:
    """Notes what is asked of it, in order. Its preparation begins when `begin` is set, and is seen through at `go_on`."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.begin = anyio.Event()
        self.go_on = anyio.Event()
        self.fault: Exception | None = None
        """What loading it raises."""

    async def prepare(self, begun: Callable[[], None]) -> None:
        self.said.append("prepare")
        await self.begin.wait()
        self.said.append("begun")
        begun()
        await self.go_on.wait()
        self.said.append("prepared")

    def load(self) -> ScriptedRuntime:
        self.said.append("load")
        if self.fault:
            raise self.fault
        return ScriptedRuntime(automatic=True)


class Wire:
    """A client that only writes lines and reads answers."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._last_id = 0
        self._unread = b""

    async def send(self, *messages: Message, notify: bool = False) -> None:
        """All in one piece, so that they are read together."""
        lines = b""
        for method, params in messages:
            number = {} if notify else {"id": self._next_id()}
            lines += encode({"jsonrpc": "2.0", **number, "method": method, "params": params})
        await self.transport.send(lines)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def answers(self, count: int) -> list[dict[str, Any]]:
        """The next ones."""
        while self._unread.count(b"\n") < count:
            data = await self.transport.receive()
            assert data, "the connection has ended"
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n", count)
        return [json.loads(line) for line in lines]

    async def initialize(self) -> None:
        await self.send(INITIALIZE)
        (answer,) = await self.answers(1)
        assert answer["result"]["protocolVersion"] == 2

    async def cancel(self, request_id: int) -> None:
        await self.send(("$/cancel_request", {"requestId": request_id}), notify=True)


class Noting:
    """An agent that notes what reaches it, in order, and answers every request with its method."""

    seen: list[str]

    def __init__(self, _runtime: Runtime, _features: Features, _spawn: Callable[..., object]) -> None:
        pass

    def handle_request(self, _peer: Peer, request: IncomingRequest) -> None:
        self.seen.append(request.method)
        assert request.on_cancel is None
        request.respond({"done": request.method})

    def handle_notification(self, _peer: Peer, method: str, _params: Any) -> None:
        self.seen.append(method)

    def disconnected(self, _peer: Peer) -> None:
        self.seen.append("disconnected")

    async def aclose(self) -> None:
        self.seen.append("closed")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches an agent that notes it."""
    noted: list[str] = []
    monkeypatch.setattr(Noting, "seen", noted, raising=False)
    monkeypatch.setattr(agent, "Agent", Noting)
    return noted


class Served:
    """A server with any number of clients."""

    def __init__(self, server: Server, tasks: Any) -> None:
        self.server = server
        self._tasks = tasks

    async def connect(self) -> Wire:
        ours, theirs = memory_pair()
        self._tasks.start_soon(self.server.run_connection, theirs)
        return Wire(ours)

    async def waiting(self, count: int) -> None:
        """Return when so many wait for the agent."""
        while len(self.server._arrivals) < count:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def served(driver: Driver) -> AsyncIterator[Served]:
    info = AgentInfo("test", "Test", "1")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            async with serve(driver.load, FEATURES, info, driver.prepare) as server:
                yield Served(server, tasks)
            tasks.cancel_scope.cancel()


async def test_what_a_driver_needs_begins_before_it_is_loaded_and_once() -> None:
    """Nothing before `initialize`; then the preparation until it has begun, and the driver without waiting for the rest."""
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await anyio.wait_all_tasks_blocked()
        assert driver.said == []
        await wire.initialize()
        await wire.initialize()  # INIT-8: no other request was made
        assert driver.said == ["prepare"]
        driver.begin.set()
        await wire.send(("session/list", {}))
        await wire.answers(1)
        assert driver.said == ["prepare", "begun", "load"]
        driver.go_on.set()
        await wire.send(("session/list", {}))
        await wire.answers(1)
        assert driver.said == ["prepare", "begun", "load", "prepared"]


async def test_a_request_that_comes_with_initialize_waits_for_the_preparation() -> None:
    """Loading blocks the process; `initialize` is answered before it, and what the driver needs has begun by then."""
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await wire.send(INITIALIZE, ("session/list", {}))
        (answer,) = await wire.answers(1)
        assert answer["id"] == 1
        await anyio.wait_all_tasks_blocked()
        assert driver.said == ["prepare"]
        driver.begin.set()
        (answer,) = await wire.answers(1)
        assert answer["id"] == 2
        assert driver.said == ["prepare", "begun", "load"]


async def test_what_waits_is_handed_on_in_order_of_receipt_over_all_connections(seen: list[str]) -> None:
    driver = Driver()
    async with served(driver) as made:
        first, second = await made.connect(), await made.connect()
        await first.initialize()
        await second.initialize()
        for wire, method, notify in (
            (first, "a", False),
            (second, "b", False),
            (first, "c", True),
            (second, "d", True),
        ):
            before = len(made.server._arrivals)
            await wire.send((method, {}), notify=notify)
            await made.waiting(before + 1)
        await first.send(("e", {}))
        await made.waiting(5)
        assert seen == []
        driver.begin.set()
        assert [answer["result"]["done"] for answer in await first.answers(2)] == ["a", "e"]
        assert [answer["result"]["done"] for answer in await second.answers(1)] == ["b"]
        assert seen == ["a", "b", "c", "d", "e"]


async def test_what_comes_while_others_are_handed_on_stays_behind_them(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    take = Noting.handle_request
    async with served(driver) as made:
        wire = await made.connect()
        await wire.initialize()

        def take_and_send(self: Noting, peer: Peer, request: IncomingRequest) -> None:
            take(self, peer, request)
            made.server.handle_notification(f"after {request.method}", {}, peer.connection)

        monkeypatch.setattr(Noting, "handle_request", take_and_send)
        await wire.send(("a", {}), ("b", {}))
        await made.waiting(2)
        driver.begin.set()
        await wire.answers(2)
        await anyio.wait_all_tasks_blocked()
        assert seen == ["a", "b", "after a", "after b"]
        await wire.send(("c", {}))
        await wire.answers(1)
        assert seen[4:] == ["c", "after c"]


async def test_initialize_is_not_repeated_while_a_request_waits(seen: list[str]) -> None:
    """INIT-8; and what comes before `initialize` never waits (INIT-1)."""
    driver = Driver()
    async with served(driver) as made:
        wire, other = await made.connect(), await made.connect()
        await wire.initialize()
        await wire.send(("a", {}), INITIALIZE)
        (refused,) = await wire.answers(1)
        assert (refused["id"], refused["error"]["code"]) == (3, -32600)
        await other.send(("b", {}), notify=True)
        await other.send(("b", {}))
        (refused,) = await other.answers(1)
        assert refused["error"]["code"] == -32600
        driver.begin.set()
        await wire.answers(1)
        assert seen == ["a"]


async def test_a_cancelled_request_that_waits_is_answered_at_once(seen: list[str]) -> None:
    """RCAN-2; a prompt says that nothing was inserted (ERR-5). Ids count from 1: `initialize`."""
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await wire.initialize()
        await wire.send(("session/new", {}), ("session/prompt", {}), ("session/list", {}))
        for number in (3, 2, 3):
            await wire.cancel(number)
        prompt, new = await wire.answers(2)
        assert prompt == {
            "jsonrpc": "2.0",
            "id": 3,
            "error": {"code": -32800, "message": "Request cancelled.", "data": {"requestId": 3, "inserted": False}},
        }
        assert (new["id"], new["error"]["data"]) == (2, {"requestId": 2})
        assert driver.said == ["prepare"]
        driver.begin.set()
        (answer,) = await wire.answers(1)
        assert answer["id"] == 4
        assert seen == ["session/list"]


async def test_what_waits_ends_with_its_connection(seen: list[str]) -> None:
    """Its requests are answered, as long as the peer reads; the agent never hears of them, and others go on waiting."""
    driver = Driver()
    async with served(driver) as made:
        leaving, staying = await made.connect(), await made.connect()
        await leaving.initialize()
        await staying.initialize()
        await leaving.send(("session/new", {}), ("session/prompt", {}))
        await leaving.send(("session/cancel", {}), notify=True)
        await made.waiting(3)
        await staying.send(("session/list", {}))
        await made.waiting(4)
        leaving.transport.send_eof()
        answers = await leaving.answers(2)
        assert [answer["error"]["code"] for answer in answers] == [-32800, -32800]
        assert answers[1]["error"]["data"]["inserted"] is False
        driver.begin.set()
        await staying.answers(1)
        assert seen == ["session/list"]


async def test_what_waits_is_answered_when_the_agent_ends(seen: list[str]) -> None:
    """RCAN-6. Nothing is loaded for it."""
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await wire.initialize()
        await wire.send(("session/list", {}))
        await made.waiting(1)
        await made.server.aclose()
        (answer,) = await wire.answers(1)
        assert answer["error"]["code"] == -32800
    assert (seen, driver.said) == ([], ["prepare"])


async def test_a_preparation_that_does_not_begin_is_waited_for_within_a_bound(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_BEGIN_BOUND", 0.01)
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await wire.send(INITIALIZE, ("a", {}))
        await wire.answers(2)
        assert (seen, driver.said) == (["a"], ["prepare", "load"])


@pytest.mark.parametrize("fault", [None, RuntimeError("secret"), AuthRequired()], ids=repr)
async def test_a_preparation_that_comes_to_nothing_is_not_waited_for(
    fault: Exception | None, seen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver says so where it needs what is missing. A request after it is served as any other."""
    monkeypatch.setattr(front, "_BEGIN_BOUND", 60.0)
    driver = Driver()

    async def prepare(_begun: Callable[[], None]) -> None:
        driver.said.append("prepare")
        if fault:
            raise fault

    monkeypatch.setattr(driver, "prepare", prepare)
    async with served(driver) as made:
        wire = await made.connect()
        await wire.send(INITIALIZE, ("a", {}))
        await wire.answers(2)
        await wire.send(("b", {}))
        await wire.answers(1)
        assert (seen, driver.said) == (["a", "b"], ["prepare", "load"])
    logged = capsys.readouterr().err
    assert ("not prepared" in logged) == (fault is not None)
    assert "secret" not in logged


@pytest.mark.parametrize("fault", [RuntimeError("secret"), AuthRequired()], ids=repr)
async def test_a_driver_that_cannot_be_loaded_answers_each_request_that_needs_it(fault: Exception) -> None:
    """Those that waited and those that come later; it is tried again each time. A prompt says that nothing was inserted."""
    driver = Driver()
    driver.begin.set()
    driver.fault = fault
    code = fault.code if isinstance(fault, AcpError) else -32603
    async with served(driver) as made:
        wire = await made.connect()
        await wire.send(INITIALIZE, ("session/new", {}), ("session/prompt", {}))
        _, new, prompt = await wire.answers(3)
        assert (new["error"]["code"], prompt["error"]["code"]) == (code, code)
        assert prompt["error"]["data"]["inserted"] is False
        await wire.send(("session/cancel", {}), notify=True)
        await wire.send(("session/list", {}))
        (answer,) = await wire.answers(1)
        assert answer["error"]["code"] == code
        driver.fault = None
        await wire.send(("session/list", {}))
        (answer,) = await wire.answers(1)
        assert answer["result"] == {"sessions": []}


async def test_a_fault_in_one_that_waited_leaves_the_others(
    seen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """RPC-14: as where the connection hands it on itself."""

    def fail(_self: Noting, _peer: Peer, method: str, _params: Any) -> None:
        seen.append(method)
        raise RuntimeError("secret")

    monkeypatch.setattr(Noting, "handle_notification", fail)
    driver = Driver()
    async with served(driver) as made:
        wire = await made.connect()
        await wire.initialize()
        await wire.send(("n", {}), notify=True)
        await wire.send(("a", {}))
        driver.begin.set()
        (answer,) = await wire.answers(1)
        assert answer["result"] == {"done": "a"}
        assert seen == ["n", "a"]
    logged = capsys.readouterr().err
    assert "notification failed" in logged
    assert "secret" not in logged
