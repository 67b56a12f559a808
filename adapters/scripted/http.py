"""HTTP/1.1 on one connection, as far as a scripted model needs it. Owns parsing, bounds and keep-alive.

Knows nothing of models. Every wait on the peer is bounded; whatever a broken client sends ends in a 4xx answer or in
the end of its connection, never in an exception for the server. Source of the rules: RFC 9112.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import anyio
from anyio.abc import ByteStream

MAX_HEAD = 64 * 1024
"""Bytes of a request line with its headers; real clients send 2 to 4 KiB."""

MAX_BODY = 256 * 1024 * 1024
"""Bytes of a body: a prompt line may be 64 MiB, and a call carries the whole conversation."""

IDLE_SECONDS = 900.0
"""How long a connection may wait for its next request."""

PEER_SECONDS = 60.0
"""How long a started request may stand still, and how long a peer may refuse to read."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
    529: "Overloaded",
}


class PeerLeft(Exception):  # noqa: N818 - an event of the connection, not a mistake
    """The peer closed the connection, or stood still for too long; nothing more can be sent."""


class BadRequest(Exception):  # noqa: N818 - named after the answer
    """The peer sent something that is not a request we take: it is answered with `status` and the connection ends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request. Header names are lower case; `path` is without the query and percent-decoded."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


class HttpConnection:
    """One accepted connection: reads requests and writes responses, one after the other."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._chunked = True
        self._close = False
        self._head_only = False

    # --- reading ---------------------------------------------------------------------------------------------------

    async def next_request(self) -> Request | None:
        """The next request; None when the peer is done. Raises `BadRequest` and `PeerLeft`."""
        if self._close:
            return None
        while not self._buffer:
            if not await self._more(IDLE_SECONDS):
                return None
        head = await self._until(b"\r\n\r\n", MAX_HEAD, 431)
        method, target, version, headers = _parse_head(head)
        self._head_only = method == "HEAD"
        self._chunked = version == "HTTP/1.1"
        self._close = not self._chunked or "close" in headers.get("connection", "").lower()
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise BadRequest(415, "the body must not be compressed")
        body = await self._body(headers)
        return Request(method, _path(target), headers, body)

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        coding = headers.get("transfer-encoding")
        length_text = headers.get("content-length")
        if coding is not None:
            if length_text is not None:
                raise BadRequest(400, "content-length and transfer-encoding exclude each other")
            if coding.lower() != "chunked":
                raise BadRequest(501, "the only transfer-encoding understood is chunked")
            await self._continue(headers)
            return await self._chunked_body()
        if length_text is None:
            return b""
        if not (length_text.isascii() and length_text.isdigit()):
            raise BadRequest(400, "content-length is not a number")
        length = int(length_text) if len(length_text) < 19 else MAX_BODY + 1  # noqa: PLR2004 - longer than any size
        if length > MAX_BODY:
            raise BadRequest(413, f"the body exceeds {MAX_BODY} bytes")
        await self._continue(headers)
        return await self._exactly(length)

    async def _chunked_body(self) -> bytes:
        body = bytearray()
        while True:
            line = await self._until(b"\r\n", 4096, 400)
            digits = line.split(b";", 1)[0].strip()
            try:
                size = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                size = -1
            if size < 0:
                raise BadRequest(400, "a chunk size is not a hexadecimal number")
            if len(body) + size > MAX_BODY:
                raise BadRequest(413, f"the body exceeds {MAX_BODY} bytes")
            if size == 0:
                break
            body += await self._exactly(size)
            if await self._exactly(2) != b"\r\n":
                raise BadRequest(400, "a chunk does not end where its size says")
        trailers = 0
        while line := await self._until(b"\r\n", MAX_HEAD, 431):
            trailers += len(line)
            if trailers > MAX_HEAD:
                raise BadRequest(431, f"the trailers exceed {MAX_HEAD} bytes")
        return bytes(body)

    async def _continue(self, headers: Mapping[str, str]) -> None:
        if headers.get("expect", "").lower() == "100-continue" and not self._buffer:
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _until(self, end: bytes, limit: int, status: int) -> bytes:
        searched = 0
        while (found := self._buffer.find(end, searched)) < 0:
            searched = max(0, len(self._buffer) - len(end) + 1)
            if len(self._buffer) > limit:
                raise BadRequest(status, f"a line or header block exceeds {limit} bytes")
            if not await self._more(PEER_SECONDS):
                raise PeerLeft
        if found > limit:
            raise BadRequest(status, f"a line or header block exceeds {limit} bytes")
        data = bytes(self._buffer[:found])
        del self._buffer[: found + len(end)]
        return data

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self._more(PEER_SECONDS):
                raise PeerLeft
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data

    async def _more(self, seconds: float) -> bool:
        """Read once into the buffer; False at the end of the stream or when nothing came in time."""
        with anyio.move_on_after(seconds):
            try:
                self._buffer += await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return False
            return True
        return False

    async def while_connected(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work`, cancelled when the peer leaves; return whether it was finished. Early bytes are kept."""
        finished = False

        async def watch(scope: anyio.CancelScope) -> None:
            while len(self._buffer) <= MAX_HEAD:
                try:
                    self._buffer += await self._stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    scope.cancel()
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(watch, group.cancel_scope)
            try:
                await work()
                finished = True
            except PeerLeft:
                self._close = True
            group.cancel_scope.cancel()
        return finished

    # --- writing ---------------------------------------------------------------------------------------------------

    async def respond(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Answer with one JSON object. Raises `PeerLeft`."""
        data = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        await self._send(self._head(status, fields) + (b"" if self._head_only else data))

    async def refuse(self, error: BadRequest) -> None:
        """Answer a bad request; the connection takes no other request after it."""
        self._close = True
        await self.respond(
            error.status, {"type": "error", "error": {"type": "invalid_request_error", "message": error.message}}
        )

    async def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events. Raises `PeerLeft`."""
        coding = {"transfer-encoding": "chunked"} if self._chunked else {}
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **coding, **headers}
        await self._send(self._head(200, fields))

    async def send_event(self, data: bytes) -> None:
        """Send a part of the event stream. Raises `PeerLeft`."""
        if data:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def end_events(self) -> None:
        """End the event stream properly. Raises `PeerLeft`."""
        if self._chunked:
            await self._send(b"0\r\n\r\n")

    def _head(self, status: int, fields: Mapping[str, str]) -> bytes:
        if self._close:
            fields = {**fields, "connection": "close"}
        lines = [
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Scripted')}",
            *(f"{name}: {text}" for name, text in fields.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    async def _send(self, data: bytes) -> None:
        try:
            with anyio.fail_after(PEER_SECONDS):
                await self._stream.send(data)
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._close = True
            raise PeerLeft from None


def _path(target: str) -> str:
    """The decoded path of a request target; a proxy's absolute form loses its scheme and host."""
    path = target.partition("?")[0]
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("/", 3)[3] if path.count("/") >= 3 else "/"  # noqa: PLR2004 - scheme://host/
    return unquote(path)


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[0].isalpha():  # noqa: PLR2004 - method, target, version
        raise BadRequest(400, "the first line is not a request line")
    method, target, version = parts
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest(505, "the HTTP version must be 1.1 or 1.0")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line or "\0" in line:
            raise BadRequest(400, "a header line is malformed")
        name = name.lower()
        if name == "content-length" and headers.get(name, text.strip()) != text.strip():
            raise BadRequest(400, "content-length is given twice")
        headers[name] = text.strip()
    return method, target, version, headers
