"""Errors that travel as JSON-RPC errors. Owns the codes, their classes and their wire shape; knows nothing else.

    Exception
    +-- AcpError                  any code, also one this table lacks (RPC-16)
        +-- ParseError            -32700  a line is not JSON
        +-- InvalidRequest        -32600  bad envelope, or not allowed now
        +-- MethodNotFound        -32601  unknown or unadvertised method           data {method}
        +-- InvalidParams         -32602  malformed params, unsupported value
        +-- InternalError         -32603  unexpected failure
        |   +-- ConnectionLost            ours, never sent: the peer can answer no more
        |   +-- InvalidResult             ours, never sent: the peer's answer is malformed
        +-- RequestCancelled      -32800  withdrawn before it took effect          data {requestId}
        +-- AuthRequired          -32000  log in first
        +-- ResourceNotFound      -32002  session unknown or not active here       data {sessionId}
        +-- UnsupportedVersion    -32022  no version at or below the requested     data {requested, supported}

Messages are one short sentence and hold no value that came from the peer or a runtime beyond names (RPC-14, RPC-15, KEY-30).
Whatever is no `AcpError` becomes an `InternalError` without details at the one boundary: `as_acp_error`.
"""

# ruff: noqa: N818 - the names of the JSON-RPC errors, as users know them

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

Id = int | str
"""A JSON-RPC request id (RPC-3)."""


class AcpError(Exception):
    """An error with a JSON-RPC code. `data` is any JSON value; None is omitted on the wire (RPC-15)."""

    default_code: ClassVar[int] = -32603
    default_message: ClassVar[str] = "Internal error."

    def __init__(self, message: str | None = None, data: Any = None, *, code: int | None = None) -> None:
        self.code = self.default_code if code is None else code
        self.message = self.default_message if message is None else message
        self.data = data
        super().__init__(self.message)

    @staticmethod
    def of(code: int, message: str | None = None, data: Any = None) -> AcpError:
        """The error of the class that belongs to `code`; a bare `AcpError` for codes without one."""
        error_class = BY_CODE.get(code, AcpError)
        error = AcpError.__new__(error_class)
        AcpError.__init__(error, message, data, code=code)
        return error

    @staticmethod
    def from_wire(error: Mapping[str, Any]) -> AcpError:
        """The error of a response. Raises `InvalidResult` where `code` or `message` is malformed (RPC-7)."""
        code, message = error.get("code"), error.get("message")
        if isinstance(code, float) and code.is_integer():
            code = int(code)
        if type(code) is not int or not isinstance(message, str):
            raise InvalidResult("The peer answered with a malformed error.")
        return AcpError.of(code, message, error.get("data"))

    def with_data(self, **members: Any) -> AcpError:
        """The same error with members added to its `data` object; other data is replaced."""
        data: Any = self.data
        known = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        return AcpError.of(self.code, self.message, {**known, **members})

    def to_wire(self) -> dict[str, Any]:
        """The `error` member of a response."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire


class ParseError(AcpError):
    """The line is not JSON; answered with `id: null` (STDIO-6)."""

    default_code = -32700
    default_message = "Parse error: the line is not JSON."


class InvalidRequest(AcpError):
    """Bad envelope, batch or id, or a request that is not allowed now (RPC-1, RPC-3, RPC-8, INIT-1, INIT-8)."""

    default_code = -32600
    default_message = "Invalid request."


class MethodNotFound(AcpError):
    """Unknown method, or one whose capability was not advertised (RPC-11)."""

    default_code = -32601
    default_message = "Method not found."

    def __init__(self, method: str, message: str | None = None) -> None:
        super().__init__(message, {"method": method})


class InvalidParams(AcpError):
    """Malformed params, or a value that is not supported. The message names the field and what is wanted, never the value."""

    default_code = -32602
    default_message = "Invalid params."


class InternalError(AcpError):
    """Unexpected failure (RPC-14)."""

    default_code = -32603
    default_message = "Internal error."


class ConnectionLost(InternalError):
    """The connection ended before the peer answered. Never sent; the outcome of that request is unknown."""

    default_message = "The connection ended before the answer."


class InvalidResult(InternalError):
    """The peer's answer breaks the protocol. Never sent; fails the request locally (RPC-7)."""

    default_message = "The peer's answer is malformed."


class RequestCancelled(AcpError):
    """Cancelled by `$/cancel_request`, or by us: session closed, shutdown (RCAN-2, RCAN-6)."""

    default_code = -32800
    default_message = "Request cancelled."


class AuthRequired(AcpError):
    """Log in first (AUTH-5)."""

    default_code = -32000
    default_message = "Authentication required."


class ResourceNotFound(AcpError):
    """The session does not exist or is not active on this connection (ERR-1, ERR-2)."""

    default_code = -32002
    default_message = "Resource not found: no such session is active on this connection."

    def __init__(self, session_id: str, message: str | None = None) -> None:
        super().__init__(message, {"sessionId": session_id})


class UnsupportedVersion(AcpError):
    """No supported protocol version is at or below the requested one (INIT-2)."""

    default_code = -32022
    default_message = "Unsupported protocol version."

    def __init__(self, requested: int, supported: Sequence[int], message: str | None = None) -> None:
        if message is None:
            spoken = " and ".join(map(str, supported))
            message = (
                f"The client asks for version {requested} of ACP, and this agent supports version {spoken} only: "
                f"use a client that speaks version {max(supported, default=spoken)}."
            )
        super().__init__(message, {"requested": requested, "supported": list(supported)})


BY_CODE: Mapping[int, type[AcpError]] = {
    error_class.default_code: error_class
    for error_class in (
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        RequestCancelled,
        AuthRequired,
        ResourceNotFound,
        UnsupportedVersion,
    )
}
"""Code -> class, both ways unique."""


def as_acp_error(error: BaseException) -> AcpError:
    """The wire error of a failure (RPC-14).

    An `AcpError` stays as it is, also out of the group that a task group made of it; the first one of several is taken.
    Anything else is an `InternalError` that says nothing of it: exception texts hold paths, prompts and secrets.
    """
    for leaf in leaves(error):
        if isinstance(leaf, AcpError):
            return leaf
    return InternalError()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or what an exception group holds, depth first."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error
