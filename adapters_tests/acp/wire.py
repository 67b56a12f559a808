"""A connection under test and a raw peer at its other end, over any transport."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio

from adapters.acp.framing import LineDecoder
from adapters.acp.memory import memory_pair
from adapters.acp.rpc import Connection, IncomingRequest, Transport
from adapters.acp.stdio import StdioTransport

SECONDS = 10.0
"""Bound of every wait in these tests."""

LINKS = ("memory", "pipes", "socket")


@contextmanager
def link(kind: str) -> Iterator[tuple[Transport, Transport]]:
    """Two connected transports: ours and the peer's."""
    if kind == "memory":
        yield memory_pair()
    elif kind == "pipes":
        (our_in, their_out), (their_in, our_out) = os.pipe(), os.pipe()
        yield StdioTransport(our_in, our_out, owned=True), StdioTransport(their_in, their_out, owned=True)
    else:
        ours, theirs = (side.detach() for side in socket.socketpair())
        yield StdioTransport(ours, ours, owned=True), StdioTransport(theirs, theirs, owned=True)


class Recorder:
    """A handler that notes what comes and answers by `methods`, a table of functions that get the request."""

    def __init__(self, **methods: Callable[[IncomingRequest], None]) -> None:
        self.methods = methods
        self.requests: list[IncomingRequest] = []
        self.notifications: list[tuple[str, dict[str, Any]]] = []
        self.closed = 0
        self._changed = anyio.Event()

    def handle_request(self, request: IncomingRequest) -> None:
        self.requests.append(request)
        self._notify()
        if method := self.methods.get(request.method):
            method(request)

    def handle_notification(self, method: str, params: dict[str, Any], connection: Connection) -> None:
        assert isinstance(connection, Connection)
        self.notifications.append((method, params))
        self._notify()

    def handle_close(self, connection: Connection) -> None:
        assert connection.closed
        self.closed += 1
        self._notify()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition over this record holds."""
        with anyio.fail_after(SECONDS):
            while not condition():
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class RawPeer:
    """Lines in, messages out; nothing is checked or answered by itself."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._decoder = LineDecoder()
        self._lines: list[bytes] = []
        self.ended = False

    async def send_bytes(self, data: bytes) -> None:
        with anyio.fail_after(SECONDS):
            await self.transport.send(data)

    async def send(self, *messages: Any) -> None:
        await self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def call(self, request_id: Any, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    async def tell(self, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def read(self) -> Any:
        """The next message. Raises `EOFError` at the end."""
        with anyio.fail_after(SECONDS):
            while not self._lines and not self.ended:
                data = await self.transport.receive()
                self.ended = not data
                lines = self._decoder.feed(data) if data else self._decoder.finish()
                self._lines += [line for line in lines if isinstance(line, bytes)]
        if not self._lines:
            raise EOFError
        return json.loads(self._lines.pop(0))

    async def read_all(self) -> list[Any]:
        """Every message up to the end of the stream."""
        messages: list[Any] = []
        while True:
            try:
                messages.append(await self.read())
            except EOFError:
                return messages

    async def fence(self) -> list[Any]:
        """All messages up to the answer of a request sent now: what came before it has been dealt with."""
        await self.call("fence", "fence")
        messages: list[Any] = []
        while (message := await self.read()).get("id") != "fence":
            messages.append(message)
        return messages


def answer(request: IncomingRequest) -> None:
    """A method that answers with its params."""
    request.respond({"params": request.params})


@asynccontextmanager
async def connected(
    handler: Recorder, kind: str = "memory", **options: int
) -> AsyncIterator[tuple[Connection, RawPeer]]:
    """Run a connection; at the end of the block close the peer's side and wait for `run` to return."""
    handler.methods.setdefault("fence", answer)
    with link(kind) as (ours, theirs), anyio.fail_after(3 * SECONDS):
        connection = Connection(ours, handler, **options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            try:
                yield connection, RawPeer(theirs)
            finally:
                with anyio.CancelScope(shield=True):
                    await theirs.aclose()
        assert handler.closed == 1
