"""JSON-RPC 2.0 as ACP uses it: correlation, cancellation and the one writer.

Owns ids, exactly-once answers and the order of bytes. Knows the envelope of a message, no method but `$/cancel_request`, and no
transport but the three calls of `Transport`. Never logs or sends params, results or exception texts (STDIO-15, RPC-14).

What a message is decided by, in this order (RPC-1..8, STDIO-6..8):

    not JSON                              -32700, id null
    an array, or no object                -32600, id null
    no method, but id, result or error    a response: never answered; a malformed one fails our request
    no "jsonrpc": "2.0", method no text   -32600, id null
    id there, but no text or int64        -32600, id null
    id there                              a request: `Handler.handle_request`
    else                                  a notification: `Handler.handle_notification`

Memory is bounded although reading never waits for a write. While `MAX_REQUESTS` requests, or `MAX_REQUEST_BYTES` of them, wait
for their answer or for the client to take it, further ones are refused, so that cancels and the client's own answers, which may
be what the waiting ones need, still get through; reading pauses only for a client that leaves twice as many answers untaken.
Everything else that produces output awaits `Connection.writable`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from adapters.acp.calls import IncomingRequest, OutgoingRequest, as_id, log_failure
from adapters.acp.errors import (
    AcpError,
    ConnectionLost,
    Id,
    InternalError,
    InvalidParams,
    InvalidRequest,
    InvalidResult,
    ParseError,
)
from adapters.acp.framing import MAX_LINE, LineDecoder, LineTooLong, decode, encode
from adapters.changed import Changed
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

__all__ = ["Connection", "Handler", "IncomingRequest", "OutgoingRequest", "Transport", "as_id"]

CANCEL_REQUEST: Final = "$/cancel_request"

HIGH_WATER: Final = 4 * 1024 * 1024
"""Bytes of output that wait for the client before `writable` holds producers back."""

MAX_REQUESTS: Final = 10_000
"""Requests whose answer the client has not taken yet. Far above what any client holds open: more are refused."""

MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""Bytes of those requests; a single one always passes."""

FLUSH_SECONDS: Final = 0.5
"""How long the end of a connection waits for a client that takes nothing; each byte taken starts it anew."""

FLUSH_LIMIT_SECONDS: Final = 5.0
"""How long it waits at most."""

_TURN: Final = 64  # messages of one read that are handled before other tasks get their turn
_BATCH: Final = 256 * 1024  # bytes per write: lines are joined and cut to it, so that progress shows


def _as_it_is(_method: str, error: AcpError) -> AcpError:
    return error


class Transport(Protocol):
    """A byte stream to one peer."""

    async def receive(self) -> bytes:
        """The next bytes; b"" at the end."""
        ...

    async def send(self, data: bytes) -> None:
        """Hand over all of `data`. Raises `OSError` or an anyio resource error when the peer is gone."""
        ...

    async def aclose(self) -> None:
        """Give the stream back."""
        ...


class Handler(Protocol):
    """What a connection serves. The methods are called in the order of receipt; they never block and never await."""

    def handle_request(self, request: IncomingRequest) -> None:
        """Take a request. What it raises becomes its error response."""
        ...

    def handle_notification(self, method: str, params: dict[str, Any], connection: Connection) -> None:
        """Take a notification. Unknown ones are ignored (RPC-13); what it raises is logged (MAL-2)."""
        ...

    def handle_close(self, connection: Connection) -> None:
        """The connection is over: called once, when no answer can be expected any more (STDIO-11)."""
        ...


class Connection:
    """One peer. `await run()` serves it to its end; the other methods may be called at any time from the same event loop."""

    def __init__(
        self,
        transport: Transport,
        handler: Handler,
        *,
        max_line: int = MAX_LINE,
        high_water: int = HIGH_WATER,
        refusal: Callable[[str, AcpError], AcpError] = _as_it_is,
    ) -> None:
        """`refusal(method, error)`: how a request is refused that never reaches the handler."""
        self._transport = transport
        self._handler = handler
        self._refusal = refusal
        self._decoder = LineDecoder(max_line)
        self._max_line = max_line
        self._high_water = high_water
        self._tasks: TaskGroup | None = None
        self._reading: anyio.CancelScope | None = None
        self._running = 0
        self._closed = False
        self._broken = False
        self._output: deque[tuple[bytes, int]] = deque()  # a line, and the size of the request it answers, or -1
        self._buffered = 0
        self._changed = Changed()
        """Output, requests or tasks have become more or fewer."""
        self._flush: anyio.CancelScope | None = None
        self._incoming: dict[Id, list[IncomingRequest]] = {}
        self._waiting = 0
        self._waiting_bytes = 0
        self._outgoing: dict[Id, OutgoingRequest] = {}
        self._last_id = 0

    @property
    def closed(self) -> bool:
        """No message is read any more."""
        return self._closed

    # --- sending -----------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; it takes its place in the output at once. Nothing happens on a connection that is over.

        Raises what `framing.encode` raises for params that are no JSON.
        """
        if not self._broken:
            self._put(encode({"jsonrpc": "2.0", "method": method, "params": params}), -1)

    def request(self, method: str, params: Mapping[str, Any]) -> OutgoingRequest:
        """Send a request under a fresh id (RPC-5). On a connection that is over it has already failed."""
        self._last_id += 1
        request = OutgoingRequest(self._last_id, method, self)
        if self._closed:
            request.finish(ConnectionLost())
        else:
            line = encode({"jsonrpc": "2.0", "id": request.id, "method": method, "params": params})
            self._outgoing[request.id] = request
            self._put(line, -1)
        return request

    async def writable(self) -> None:
        """Return once less than `high_water` bytes wait for the peer, or the connection is over: await it before more output."""
        while self._buffered >= self._high_water and not self._broken:
            await self._changed.wait()

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading, send what is buffered within the bound, and end `run`."""
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Serve the peer until its stream ends, breaks, or `close` is called. None of these raises (STDIO-11, STDIO-12).

        At the end, in this order: our requests fail, tasks of `IncomingRequest.run` are cancelled, `handle_close` is called,
        the output is flushed within its bounds, the transport is closed.
        """
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._write)
                try:
                    await self._read()
                finally:
                    self._end()
                await self._settle()
                self._tasks.cancel_scope.cancel()
        finally:
            self._broken = True
            self._changed.notify()
            with anyio.CancelScope(shield=True), anyio.move_on_after(FLUSH_SECONDS):
                await self._transport.aclose()

    def _end(self) -> None:
        """The peer says no more."""
        self._closed = True
        outgoing, self._outgoing = self._outgoing, {}
        for request in outgoing.values():
            request.finish(ConnectionLost())
        for requests in list(self._incoming.values()):
            for incoming in list(requests):
                incoming.stop()
        try:
            self._handler.handle_close(self)
        except Exception as error:  # noqa: BLE001 - the end goes on
            log_failure("close not handled", "", error)

    async def _settle(self) -> None:
        """Let cancelled tasks answer and the peer take what is buffered: as long as it takes something, within a bound."""
        with anyio.move_on_after(FLUSH_LIMIT_SECONDS), anyio.move_on_after(FLUSH_SECONDS) as self._flush:
            while (self._running or self._buffered) and not self._broken:
                await self._changed.wait()
        if self._buffered and not self._broken:
            _log.warning(LogEvent("output dropped", size=self._buffered))

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        with anyio.CancelScope() as self._reading:
            while not self._closed:
                try:
                    data = await self._transport.receive()
                except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
                    _log.warning(LogEvent("input broken", error=type(error).__name__))
                    data = b""
                for number, line in enumerate(self._decoder.feed(data) if data else self._decoder.finish()):
                    if number % _TURN == _TURN - 1:
                        await checkpoint()
                    self._receive(line)
                    while self._waiting >= 2 * MAX_REQUESTS:
                        await self._changed.wait()
                if not data:
                    return

    def _full(self) -> bool:
        """No further request is taken; a single one may have any size."""
        return self._waiting >= MAX_REQUESTS or (self._waiting > 1 and self._waiting_bytes > MAX_REQUEST_BYTES)

    def _receive(self, line: bytes | LineTooLong) -> None:
        if self._closed:
            return
        if isinstance(line, LineTooLong):
            _log.warning(LogEvent("line too long", size=line.size))
            self._refuse(InvalidRequest(f"Invalid request: a message must not be longer than {self._max_line} bytes."))
            return
        try:
            message = decode(line)
        except ParseError as error:
            self._refuse(error)
            return
        if isinstance(message, list):
            self._refuse(InvalidRequest("Invalid request: JSON-RPC batches are not supported."))
        elif not isinstance(message, dict):
            self._refuse(InvalidRequest("Invalid request: a message must be an object."))
        else:
            self._dispatch(cast("dict[str, Any]", message), len(line))

    def _dispatch(self, message: dict[str, Any], size: int) -> None:
        method = message.get("method")
        if "method" not in message and not message.keys().isdisjoint(("id", "result", "error")):
            self._receive_response(message)
        elif message.get("jsonrpc") != "2.0":
            self._refuse(InvalidRequest('Invalid request: "jsonrpc" must be "2.0".'))
        elif not isinstance(method, str):
            self._refuse(InvalidRequest("Invalid request: method must be a string."))
        elif "id" not in message:
            self._receive_notification(method, message.get("params"))
        elif (request_id := as_id(message["id"])) is None:
            self._refuse(InvalidRequest("Invalid request: id must be a string or an integer."))
        else:
            self._receive_request(request_id, method, message.get("params"), size)

    def _receive_request(self, request_id: Id, method: str, params: Any, size: int) -> None:
        known = isinstance(params, dict)
        full = self._full()
        request = IncomingRequest(request_id, method, cast("dict[str, Any]", params) if known else {}, self, size)
        self._incoming.setdefault(request_id, []).append(request)
        self._waiting += 1
        self._waiting_bytes += size
        if full:
            busy = InternalError("Too many requests are open: wait for some answers, then send this request again.")
            request.fail(self._refusal(method, busy))
            return
        if not known and params is not None:
            request.fail(self._refusal(method, InvalidParams("Invalid params: params must be an object.")))
            return
        try:
            self._handler.handle_request(request)
        except Exception as error:  # noqa: BLE001 - the boundary
            request.fail(error)

    def _receive_notification(self, method: str, params: Any) -> None:
        if params is None:
            params = {}
        if not isinstance(params, dict):
            _log.warning(LogEvent("malformed notification dropped", method=method))
            return
        known = cast("dict[str, Any]", params)
        if method == CANCEL_REQUEST:
            request_id = as_id(known.get("requestId"))
            for request in list(self._incoming.get(request_id, ())) if request_id is not None else ():
                request.cancel()
            return
        try:
            self._handler.handle_notification(method, known, self)
        except Exception as error:  # noqa: BLE001 - a notification has no answer to carry it
            log_failure("notification failed", method, error)

    def _receive_response(self, message: dict[str, Any]) -> None:
        request_id = as_id(message.get("id"))
        request = None if request_id is None else self._outgoing.pop(request_id, None)
        if request is None:
            if not (isinstance(request_id, int) and 0 < request_id <= self._last_id):  # late answers are expected
                _log.warning(LogEvent("response to no request ignored"))
            return
        has_result, has_error = "result" in message, "error" in message
        error = message.get("error")
        if message.get("jsonrpc") != "2.0" or has_result == has_error or (has_error and not isinstance(error, dict)):
            request.finish(InvalidResult())
        elif has_result:
            request.finish(message["result"])
        else:
            try:
                request.finish(AcpError.from_wire(cast("dict[str, Any]", error)))
            except InvalidResult as malformed:
                request.finish(malformed)

    # --- for requests only ------------------------------------------------------------------------------------------

    def spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task that ends with the connection. On a connection that is over nothing happens."""
        if self._tasks is None or self._broken:
            return
        self._running += 1
        self._tasks.start_soon(self._counted, function, args)

    async def _counted(self, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        finally:
            self._running -= 1
            self._changed.notify()

    def answer(self, line: bytes, request: IncomingRequest) -> None:
        """Put the one answer of `request` into the output."""
        known = self._incoming.get(request.id, [])
        if request in known:
            known.remove(request)
        if not known:
            self._incoming.pop(request.id, None)
        self._put(line, request.size)

    def _refuse(self, error: AcpError) -> None:
        """Answer what has no usable id (RPC-3); it counts as a request, so that a flood of them is bounded too."""
        _log.warning(LogEvent("message refused", code=error.code))
        self._waiting += 1
        self._put(encode({"jsonrpc": "2.0", "id": None, "error": error.to_wire()}), 0)

    def withdraw(self, request: OutgoingRequest) -> None:
        """Tell the peer that an answer is no longer wanted, and expect none."""
        if self._outgoing.pop(request.id, None) is not None:
            self.notify(CANCEL_REQUEST, {"requestId": request.id})

    # --- writing -----------------------------------------------------------------------------------------------------

    def _put(self, line: bytes, request_size: int) -> None:
        if self._broken:
            self._release(request_size)
            return
        self._output.append((line, request_size))
        self._buffered += len(line)
        self._changed.notify()

    def _release(self, request_size: int) -> None:
        if request_size >= 0:
            self._waiting -= 1
            self._waiting_bytes -= request_size

    async def _write(self) -> None:
        """The one writer (STDIO-9)."""
        try:
            while True:
                while not self._output:
                    await self._changed.wait()
                await self._send_batch()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            if not self._closed:
                _log.warning(LogEvent("output broken", error=type(error).__name__))
            self._broken = True
            self._output.clear()
            self._buffered = 0
            self._changed.notify()
            self.close()

    async def _send_batch(self) -> None:
        lines: list[bytes] = []
        sizes: list[int] = []
        total = 0
        while self._output and total < _BATCH:
            line, request_size = self._output.popleft()
            lines.append(line)
            sizes.append(request_size)
            total += len(line)
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        for start in range(0, total, _BATCH):
            piece = data if total <= _BATCH else data[start : start + _BATCH]
            await self._transport.send(piece)
            self._buffered -= len(piece)
            if self._flush is not None:
                self._flush.deadline = anyio.current_time() + FLUSH_SECONDS
            self._changed.notify()
        for request_size in sizes:
            self._release(request_size)
        self._changed.notify()
