"""The front of the agent: connections, the initialize gate (INIT-*), and the lazy way to everything heavy (D10).

Owns which connections exist and what each has negotiated. Imports no models: `initialize` is answered before they are loaded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from adapters.acp.calls import IncomingRequest, OutgoingRequest
from adapters.acp.errors import AcpError, InternalError, InvalidRequest, UnsupportedVersion
from adapters.acp.handshake import ClientInfo, parse_initialize
from adapters.acp.rpc import Connection, Transport
from adapters.core.prompt_errors import not_inserted
from adapters.log import log

if TYPE_CHECKING:
    from adapters.core.agent import Agent
    from adapters.core.runtime import Features, Runtime

PROTOCOL_VERSIONS = (2,)
"""ACP versions this agent speaks (INIT-2)."""


Prepare = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
"""Begins what a driver will need and sees it through; calls its argument once that comes up by itself. Raises nothing."""

_BEGIN_BOUND = 0.2
"""Seconds to wait for a preparation to begin (measured: 10 to 40 ms) before the driver is loaded anyway."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """How the agent introduces itself."""

    name: str
    title: str
    version: str


@dataclass(eq=False, slots=True)
class Peer:
    """One connection and what it negotiated."""

    connection: Connection
    client: ClientInfo | None = None
    settled: bool = False
    """A request other than initialize was made: initialize may not be repeated (INIT-8)."""

    @property
    def closed(self) -> bool:
        """The connection is over."""
        return self.connection.closed

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification now, in order."""
        self.connection.notify(method, params)

    def request(self, method: str, params: Mapping[str, Any]) -> OutgoingRequest:
        """Send a request now, in order."""
        return self.connection.request(method, params)

    async def writable(self) -> None:
        """Return once the outgoing buffer has room."""
        await self.connection.writable()


class Server:
    """Serves one runtime to any number of connections. Use as made by `serve`."""

    def __init__(
        self,
        tasks: TaskGroup,
        load: Callable[[], Runtime],
        features: Features,
        info: AgentInfo,
        prepare: Prepare | None,
    ) -> None:
        self._tasks = tasks
        self._load = load
        self._prepare = prepare
        self._features = features
        self._info = info
        self._agent: Agent | None = None
        self._peers: dict[Connection, Peer] = {}

    async def run_connection(self, transport: Transport) -> None:
        """Serve one connection until its end; then its sessions are no longer active on it (STDIO-13)."""
        connection = Connection(transport, self, refusal=_refusal)
        self._peers[connection] = Peer(connection)
        await connection.run()

    @property
    def agent(self) -> Agent:
        """The agent behind the gate, loaded at first need. Raises `AcpError` when the runtime's driver cannot be loaded."""
        if self._agent is None:
            self._prepare = None  # too late for it
            try:
                from adapters.core.agent import Agent  # noqa: PLC0415 - D10: not before initialize is answered

                self._agent = Agent(self._load(), self._features, self._tasks.start_soon)
            except AcpError:
                raise
            except Exception as error:
                log("runtime not loaded", error=type(error).__name__)
                raise InternalError("The runtime's driver cannot be loaded.") from error
        return self._agent

    # --- the handler of every connection --------------------------------------------------------------------------

    def handle_request(self, request: IncomingRequest) -> None:
        """Gate a request, then hand it to the agent's method."""
        peer = self._peers[request.connection]
        if request.method == "initialize":
            request.respond(self._initialize(peer, request.params))
            self._tasks.start_soon(self._warm_up)
            return
        try:
            if peer.client is None:
                raise InvalidRequest("Send initialize first.")
            peer.settled = True
            self.agent.handle_request(peer, request)
        except AcpError as error:
            raise _refusal(request.method, error) from None

    def handle_notification(self, method: str, params: Any, connection: Connection) -> None:
        """Hand a notification to the agent; before initialize it is ignored (INIT-1)."""
        peer = self._peers[connection]
        if peer.client is not None:
            self.agent.handle_notification(peer, method, params)

    def handle_close(self, connection: Connection) -> None:
        """The connection is over."""
        peer = self._peers.pop(connection, None)
        if peer is not None and self._agent is not None:
            self._agent.disconnected(peer)

    async def aclose(self) -> None:
        """Close every session and the runtime, within their bounds."""
        if self._agent is not None:
            await self._agent.aclose()

    def _initialize(self, peer: Peer, params: Any) -> dict[str, Any]:
        if peer.client is not None and peer.settled:
            raise InvalidRequest("initialize may be repeated only before the first other request.")
        try:
            client = parse_initialize(params, PROTOCOL_VERSIONS)
        except UnsupportedVersion:
            if peer.client is not None:
                raise InvalidRequest("A repeated initialize must not ask for a lower protocol version.") from None
            raise
        peer.client = client
        return {
            "protocolVersion": client.protocol_version,
            "info": {"name": self._info.name, "title": self._info.title, "version": self._info.version},
            "capabilities": capabilities(self._features),
            "authMethods": [],
        }

    async def _warm_up(self) -> None:
        """Load what the next request needs while the client reads the answer.

        What is prepared comes up while our models are imported, which blocks this process: so it has to have begun before.
        """
        await anyio.lowlevel.checkpoint()
        prepare, self._prepare = self._prepare, None
        if prepare:
            begun = anyio.Event()
            self._tasks.start_soon(prepare, begun.set)
            with anyio.move_on_after(_BEGIN_BOUND):
                await begun.wait()
            await anyio.lowlevel.checkpoint()  # what was just asked of it is written
        try:
            _ = self.agent
        except AcpError as error:
            log("runtime not loaded", code=error.code, reason=error.message)


def _refusal(method: str, error: AcpError) -> AcpError:
    """An error that came before the method was looked at; for a prompt it says that nothing was inserted."""
    return not_inserted(error) if method == "session/prompt" else error


def capabilities(features: Features) -> dict[str, Any]:
    """The capabilities object of the initialize answer: an object means supported (INIT-9, INIT-11)."""
    prompt = {"image": features.image, "audio": features.audio, "embeddedContext": features.embedded_context}
    mcp = {"stdio": features.mcp_stdio, "http": features.mcp_http}
    session: dict[str, Any] = {
        "prompt": {name: {} for name, has in prompt.items() if has},
        "mcp": {name: {} for name, has in mcp.items() if has},
    }
    extra = {"delete": features.delete, "additionalDirectories": features.additional_directories}
    session.update({name: {} for name, has in extra.items() if has})
    return {"session": session}


@asynccontextmanager
async def serve(
    load: Callable[[], Runtime], features: Features, info: AgentInfo, prepare: Prepare | None = None
) -> AsyncGenerator[Server]:
    """A server for one runtime; leaving the block closes its sessions and ends every task of it.

    `load` builds the runtime driver; it is called after `initialize` is answered and may raise an `AcpError`, which then
    answers each request that needs it. `prepare` is called once, right before it.
    """
    async with anyio.create_task_group() as tasks:
        server = Server(tasks, load, features, info, prepare)
        try:
            yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()
            tasks.cancel_scope.cancel()
