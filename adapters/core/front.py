"""The front of the agent: connections, the initialize gate (INIT-*), and the lazy way to everything heavy (D10).

Owns which connections exist, what each has negotiated, and who waits for the agent. Imports no models: `initialize` is answered
before they are loaded. Importing them blocks the event loop, so what a driver can start before has to have begun by then, however
early the next request comes:

    state     a request                                        until
    cold      is refused: initialize comes first               a first `initialize` is answered
    waiting   takes its place behind what came before          the preparation has begun or come to nothing, or took too long;
                                                               then the agent is loaded and all are handed on, in order
    open      is handed to the agent                           the end

A notification goes the same way as a request, except that cold it is ignored. `initialize` itself never waits. One that waits is
answered at once when it is cancelled, and when its connection or the agent ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from adapters.acp.calls import IncomingRequest, log_failure
from adapters.acp.errors import AcpError, InternalError, InvalidRequest, RequestCancelled, UnsupportedVersion
from adapters.acp.handshake import parse_initialize
from adapters.acp.rpc import Connection, Transport
from adapters.acp.shapes import as_mapping
from adapters.core.peer import OWN, AgentInfo, Dialect, Peer
from adapters.core.prompt_errors import not_inserted
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from adapters.core.agent import Agent
    from adapters.core.port import Features, Runtime

__all__ = ["AgentInfo", "Prepare", "Server", "serve"]

Prepare = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
"""Begins what a driver will need and sees it through; calls its argument once that comes up by itself."""

_BEGIN_BOUND = 0.2
"""Seconds to wait for a preparation to begin (measured: 10 to 40 ms) before the driver is loaded anyway."""


@dataclass(eq=False, slots=True)
class _Door:
    """One connection and what it negotiated."""

    connection: Connection
    peer: Peer | None = None
    """None before initialize."""
    settled: bool = False
    """A request other than initialize was made: initialize may not be repeated (INIT-8)."""


@dataclass(frozen=True, eq=False, slots=True)
class _Arrival:
    """What came before the agent was loaded."""

    peer: Peer
    method: str
    params: Any
    request: IncomingRequest | None = None
    """None: it is a notification."""

    def give_up(self) -> None:
        """Nobody waits for it any more (RCAN-2, RCAN-6)."""
        if self.request is not None and not self.request.answered:
            self.request.fail(_refusal(self.method, RequestCancelled(data={"requestId": self.request.id})))


class Server:
    """Serves one runtime to any number of connections. Use as made by `serve`."""

    def __init__(
        self,
        tasks: TaskGroup,
        load: Callable[[], Runtime],
        features: Features,
        info: AgentInfo,
        *,
        prepare: Prepare | None,
        dialects: Mapping[int, Dialect],
        restricted_by: str = "",
    ) -> None:
        self._tasks = tasks
        self._load = load
        self._prepare = prepare
        self._features = features
        self._info = info
        self._dialects = dialects
        self._restricted_by = restricted_by
        self._agent: Agent | None = None
        self._doors: dict[Connection, _Door] = {}
        self._cold = True
        self._open = False
        self._arrivals: deque[_Arrival] = deque()
        """In order of receipt, of all connections."""

    async def run_connection(self, transport: Transport) -> None:
        """Serve one connection until its end; then its sessions are no longer active on it (STDIO-13)."""
        connection = Connection(transport, self, refusal=_refusal)
        self._doors[connection] = _Door(connection)
        await connection.run()

    # --- the handler of every connection --------------------------------------------------------------------------

    def handle_request(self, request: IncomingRequest) -> None:
        """Gate a request; once the agent is there, hand it on."""
        door = self._doors[request.connection]
        if request.method == "initialize":
            try:
                answer = self._initialize(door, request.params)
            except AcpError as error:
                raise self._first_refusal(error, as_mapping(request.params).get("protocolVersion")) from None
            request.respond(answer)
            if self._cold:
                self._cold = False
                self._tasks.start_soon(self._warm_up)
            return
        peer = door.peer
        if peer is None:
            raise _refusal(request.method, InvalidRequest("Send initialize first."))
        door.settled = True
        if self._open:
            self._request(peer, request)
        else:
            arrival = _Arrival(peer, request.method, request.params, request)
            request.on_cancel = arrival.give_up
            self._arrivals.append(arrival)

    def handle_notification(self, method: str, params: Any, connection: Connection) -> None:
        """As a request; before initialize it is ignored (INIT-1)."""
        peer = self._doors[connection].peer
        if peer is None:
            return
        if self._open:
            self.agent.handle_notification(peer, method, params)
        else:
            self._arrivals.append(_Arrival(peer, method, params))

    def handle_close(self, connection: Connection) -> None:
        """The connection is over."""
        door = self._doors.pop(connection, None)
        if door is None or door.peer is None:
            return
        peer = door.peer
        for arrival in self._arrivals:
            if arrival.peer is peer:
                arrival.give_up()
        if self._agent is not None:
            self._agent.disconnected(peer)

    async def aclose(self) -> None:
        """Close every session and the runtime, within their bounds."""
        self._open = True
        while self._arrivals:
            self._arrivals.popleft().give_up()
        if self._agent is not None:
            await self._agent.aclose()

    def _initialize(self, door: _Door, params: Any) -> dict[str, Any]:
        if door.settled:
            raise InvalidRequest("initialize may be repeated only before the first other request.")
        try:
            client = parse_initialize(params, tuple(self._dialects))
        except UnsupportedVersion:
            if door.peer is not None:
                raise InvalidRequest("A repeated initialize must not ask for a lower protocol version.") from None
            raise
        if door.peer is not None and client.protocol_version < door.peer.client.protocol_version:
            raise InvalidRequest("A repeated initialize must not ask for a lower protocol version.")
        dialect = self._dialects[client.protocol_version]
        door.peer = dialect.peer(door.connection, client)
        return {"protocolVersion": client.protocol_version, **dialect.initialized(self._features, self._info)}

    def _first_refusal(self, error: AcpError, asked: object) -> AcpError:
        """An `initialize` that is refused: most clients show only a part of the error, or nothing, so each part says it all."""
        supported = ",".join(map(str, self._dialects))
        version = asked if isinstance(asked, int | float) else "none"
        if self._restricted_by and isinstance(error, UnsupportedVersion):
            text = f"{error.message.removesuffix('.')}, or unset {self._restricted_by} where the agent is started."
            error = UnsupportedVersion(int(version) if version != "none" else 0, tuple(self._dialects), text)
        _log.warning(
            LogEvent("initialize refused", code=error.code, asked=version, supported=supported, reason=error.message)
        )
        return error.with_data(reason=error.message, details=error.message)

    # --- the way to the agent ---------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        """From waiting to open, while the client reads the answer of `initialize`."""
        await anyio.lowlevel.checkpoint()
        if self._prepare is not None:
            begun = anyio.Event()
            self._tasks.start_soon(_see_through, self._prepare, begun.set)
            with anyio.move_on_after(_BEGIN_BOUND):
                await begun.wait()
            await anyio.lowlevel.checkpoint()  # what was just asked of it is written
        try:
            _ = self.agent
        except AcpError as error:
            _log.warning(LogEvent("runtime not loaded", code=error.code, reason=error.message))
        while self._arrivals:
            self._hand_on(self._arrivals.popleft())
            await anyio.lowlevel.checkpoint()
        self._open = True

    @property
    def agent(self) -> Agent:
        """The agent behind the gate, loaded at first need. Raises `AcpError` when the runtime's driver cannot be loaded."""
        if self._agent is None:
            try:
                runtime = self._load()
                from adapters.core.agent import Agent  # noqa: PLC0415 - D10: not before initialize is answered

                self._agent = Agent(runtime, self._features, self._tasks.start_soon)
            except AcpError:
                raise
            except Exception as error:
                _log.warning(LogEvent("runtime not loaded", error=type(error).__name__))
                raise InternalError(
                    "The runtime's driver cannot be loaded: reinstall acp-adapters with the extra of this runtime."
                ) from error
        return self._agent

    def _request(self, peer: Peer, request: IncomingRequest) -> None:
        try:
            self.agent.handle_request(peer, request)
        except AcpError as error:
            raise _refusal(request.method, error) from None

    def _hand_on(self, arrival: _Arrival) -> None:
        """As if it came now. What it raises goes where the connection would have put it."""
        peer, request = arrival.peer, arrival.request
        if peer.connection not in self._doors or (request is not None and request.answered):
            return
        try:
            if request is None:
                self.agent.handle_notification(peer, arrival.method, arrival.params)
            else:
                request.on_cancel = None
                self._request(peer, request)
        except Exception as error:  # noqa: BLE001 - the boundary
            if request is None:
                log_failure("notification failed", arrival.method, error)
            else:
                request.fail(error)


async def _see_through(prepare: Prepare, begun: Callable[[], None]) -> None:
    try:
        await prepare(begun)
    except Exception as error:  # noqa: BLE001 - the driver is told when it needs what is missing
        _log.warning(LogEvent("not prepared", error=type(error).__name__))
    finally:
        begun()


def _refusal(method: str, error: AcpError) -> AcpError:
    """An error that came before the method was looked at; for a prompt it says that nothing was inserted."""
    return not_inserted(error) if method == "session/prompt" else error


@asynccontextmanager
async def serve(
    load: Callable[[], Runtime],
    features: Features,
    info: AgentInfo,
    prepare: Prepare | None = None,
    *,
    dialects: Mapping[int, Dialect] = OWN,
    restricted_by: str = "",
) -> AsyncGenerator[Server]:
    """A server for one runtime; leaving the block closes its sessions and ends every task of it.

    `load` builds the runtime driver; it is called after `initialize` is answered and may raise an `AcpError`, which then
    answers each request that needs it. `prepare` is called once, right before it. `dialects`: by protocol version.
    `restricted_by`: the variable that keeps others out, for the error.
    """
    async with anyio.create_task_group() as tasks:
        server = Server(tasks, load, features, info, prepare=prepare, dialects=dialects, restricted_by=restricted_by)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()
            tasks.cancel_scope.cancel()
