"""Single requests: an incoming request is answered exactly once, an outgoing one ends exactly once.

Owns the place where an exception becomes a wire error (RPC-14), and the meaning of cancellation for a single request. Knows no
other request and no bytes. `rpc.Connection` finds requests by id and orders the output.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio

from adapters.acp.errors import AcpError, Id, InternalError, RequestCancelled, as_acp_error, leaves
from adapters.acp.framing import encode
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from adapters.acp.rpc import Connection

_UNENCODABLE = (TypeError, ValueError, RecursionError)
"""The errors of `framing.encode` for values that are not JSON."""


class IncomingRequest:
    """A request of the peer. Answer it once: by `respond`, by `fail`, or by what `run` comes to."""

    __slots__ = ("_scope", "answered", "cancelled", "connection", "id", "method", "on_cancel", "params", "size")

    def __init__(self, request_id: Id, method: str, params: dict[str, Any], connection: Connection, size: int) -> None:
        self.id = request_id
        self.method = method
        self.params = params
        """`{}` where omitted or null (RPC-9)."""
        self.connection = connection
        self.on_cancel: Callable[[], None] | None = None
        """Called at the peer's first `$/cancel_request`, instead of cancelling `run`; an answer is still owed (RCAN-2)."""
        self.answered = False
        self.cancelled = False
        """The peer asked for cancellation."""
        self.size = size
        """Bytes of its line."""
        self._scope: anyio.CancelScope | None = None

    def respond(self, result: Mapping[str, Any]) -> None:
        """Answer with a result. It takes its place in the output at once. A second answer is ignored and logged."""
        if self._take_turn():
            try:
                line = encode({"jsonrpc": "2.0", "id": self.id, "result": result})
            except _UNENCODABLE as error:
                _log.warning(LogEvent("result cannot be encoded", method=self.method, error=type(error).__name__))
                line = encode({"jsonrpc": "2.0", "id": self.id, "error": InternalError().to_wire()})
            self.connection.answer(line, self)

    def fail(self, error: BaseException) -> None:
        """Answer with an error. What is no `AcpError` is logged by type and sent as -32603 without details (RPC-14)."""
        wire = as_acp_error(error)
        if type(wire) is InternalError and wire is not error:
            log_failure("request failed", self.method, error)
        if self._take_turn():
            try:
                line = encode({"jsonrpc": "2.0", "id": self.id, "error": wire.to_wire()})
            except _UNENCODABLE:
                line = encode({"jsonrpc": "2.0", "id": self.id, "error": {"code": wire.code, "message": wire.message}})
            self.connection.answer(line, self)

    def run(self, function: Callable[..., Awaitable[Mapping[str, Any]]], *args: Any) -> None:
        """Answer with what `function(*args)` returns or raises, from a task of the connection.

        `$/cancel_request`, and the end of the connection, cancel it: then the answer is -32800, unless it returns a result.
        """
        self.connection.spawn(self._run, function, args)

    def cancel(self) -> None:
        """Do what the peer's `$/cancel_request` asks for, once."""
        if self.answered or self.cancelled:
            return
        self.cancelled = True
        if self.on_cancel is not None:
            try:
                self.on_cancel()
            except Exception as error:  # noqa: BLE001 - a notification has no answer to carry it
                log_failure("cancellation failed", self.method, error)
        else:
            self.stop()

    def stop(self) -> None:
        """Cancel the task of `run`, if there is one."""
        if self._scope is not None:
            self._scope.cancel()

    async def _run(self, function: Callable[..., Awaitable[Mapping[str, Any]]], args: tuple[Any, ...]) -> None:
        with anyio.CancelScope() as self._scope:
            if self.cancelled or self.connection.closed:
                self._scope.cancel()
            try:
                result = await function(*args)
            except Exception as error:  # noqa: BLE001 - the boundary
                self.fail(error)
            else:
                self.respond(result)
        self._scope = None
        if not self.answered:
            self.fail(RequestCancelled(data={"requestId": self.id}))

    def _take_turn(self) -> bool:
        if self.answered:
            _log.warning(LogEvent("second answer ignored", method=self.method))
            return False
        self.answered = True
        return True


class OutgoingRequest:
    """A request of ours. It ends exactly once: answered, cancelled by us, or with the connection."""

    __slots__ = ("_callbacks", "_connection", "_outcome", "id", "method")

    def __init__(self, request_id: Id, method: str, connection: Connection) -> None:
        self.id = request_id
        self.method = method
        self._connection = connection
        self._callbacks: list[Callable[[Any], None]] = []
        self._outcome: tuple[Any] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None

    def on_done(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(outcome)` at the end, at once if that has come: the result (any JSON), or an `AcpError`.

        The errors: the peer's; `InvalidResult` for a malformed response; `ConnectionLost`; `RequestCancelled` after `cancel`.
        """
        if self._outcome is None:
            self._callbacks.append(callback)
        else:
            self._call(callback, self._outcome[0])

    async def wait(self) -> Any:
        """The result. Raises the `AcpError` otherwise. Cancelling the wait cancels the request (RCAN-7)."""
        ended = anyio.Event()
        self.on_done(lambda _outcome: ended.set())
        try:
            await ended.wait()
        finally:
            self.cancel()
        outcome = cast("tuple[Any]", self._outcome)[0]
        if isinstance(outcome, AcpError):
            raise outcome
        return outcome

    def cancel(self) -> None:
        """Take the request back: send `$/cancel_request` once, end it here as cancelled, ignore what is answered (RCAN-7)."""
        if self._outcome is None:
            self._connection.withdraw(self)
            self.finish(RequestCancelled())

    def finish(self, outcome: Any) -> None:
        """End it; for the connection. The first outcome stands."""
        if self._outcome is None:
            self._outcome = (outcome,)
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                self._call(callback, outcome)

    def _call(self, callback: Callable[[Any], None], outcome: Any) -> None:
        try:
            callback(outcome)
        except Exception as error:  # noqa: BLE001 - the reader goes on
            log_failure("answer not handled", self.method, error)


def as_id(value: Any) -> Id | None:
    """A request id as it came: text, or an int64; `1.0` is the integer 1, `True` and null are none (RPC-3)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    return None


def log_failure(event: str, method: str, error: BaseException) -> None:
    """Log the type and place of an exception, not its text: texts hold paths, prompts and secrets."""
    leaf = next(leaves(error), error)
    trace = leaf.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    _log.warning(LogEvent(event, method=method, error=type(leaf).__name__, at=place))
