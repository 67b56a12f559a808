"""HTTP/1.1 on one connection, as far as a scripted model needs it. Owns waiting, bounds and answers; `h11` has the protocol.

Knows nothing of models. Every wait on the peer is bounded; whatever a broken client sends ends in a 4xx answer or in
the end of its connection, never in an exception for the server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import anyio
import h11
from anyio.abc import ByteStream

MAX_HEAD = 64 * 1024
"""Bytes of a request line with its headers; real clients send 2 to 4 KiB."""

MAX_BODY = 256 * 1024 * 1024
"""Bytes of a body: a prompt line may be 64 MiB, and a call carries the whole conversation."""

IDLE_SECONDS = 900.0
"""How long a connection may wait for its next request."""

PEER_SECONDS = 60.0
"""How long a started request may stand still, and how long a peer may refuse to read."""

_KNOWN = frozenset(HTTPStatus)


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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._head_only = False

    # --- reading ---------------------------------------------------------------------------------------------------

    async def next_request(self) -> Request | None:
        """The next request; None when no other can follow. Raises `BadRequest` and `PeerLeft`."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        self._head_only = head.method == b"HEAD"
        headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in head.headers}
        if head.http_version not in (b"1.0", b"1.1"):
            raise BadRequest(505, "the HTTP version must be 1.1 or 1.0")
        if "transfer-encoding" in headers and "content-length" in headers:
            raise BadRequest(400, "content-length and transfer-encoding exclude each other")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise BadRequest(415, "the body must not be compressed")
        body = await self._body(int(headers.get("content-length", "0")))
        return Request(head.method.decode("latin-1"), _path(head.target.decode("latin-1")), headers, body)

    async def _body(self, announced: int) -> bytes:
        body = bytearray()
        while max(announced, len(body)) <= MAX_BODY:
            event = await self._next_event()
            if not isinstance(event, h11.Data):
                return bytes(body)
            body += event.data
        raise BadRequest(413, f"the body exceeds {MAX_BODY} bytes")

    async def _next_event(self) -> h11.Event | None:
        """The next event from the peer; None when it may send nothing more before it is answered."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise BadRequest(error.error_status_hint, f"this is no valid HTTP/1.1: {error}") from None
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                return None
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            begun = self._http.their_state is not h11.IDLE or self._http.trailing_data[0]
            with anyio.move_on_after(PEER_SECONDS if begun else IDLE_SECONDS):
                if await self._more():
                    continue
            raise PeerLeft

    async def _more(self) -> bool:
        """Read once; False at the end of the stream."""
        try:
            self._http.receive_data(await self._stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return False
        return True

    async def while_connected(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work`, cancelled when the peer leaves; return whether it was finished. Early bytes are kept."""
        finished = False

        async def watch(scope: anyio.CancelScope) -> None:
            while len(self._http.trailing_data[0]) <= MAX_HEAD:
                if not await self._more():
                    scope.cancel()
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(watch, group.cancel_scope)
            try:
                await work()
                finished = True
            except PeerLeft:
                self._http.send_failed()
            group.cancel_scope.cancel()
        return finished

    # --- writing ---------------------------------------------------------------------------------------------------

    async def respond(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Answer with one JSON object. Raises `PeerLeft`."""
        data = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        await self._send(_head(status, fields), h11.Data(data=b"" if self._head_only else data), h11.EndOfMessage())

    async def refuse(self, error: BadRequest) -> None:
        """Answer a bad request; the connection takes no other request after it."""
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": error.message}}
        await self.respond(error.status, body, {"connection": "close"})

    async def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events. Raises `PeerLeft`."""
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        await self._send(_head(200, fields))

    async def send_event(self, data: bytes) -> None:
        """Send a part of the event stream. Raises `PeerLeft`."""
        await self._send(h11.Data(data=data))

    async def end_events(self) -> None:
        """End the event stream properly. Raises `PeerLeft`."""
        await self._send(h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        if not data:
            return
        try:
            with anyio.fail_after(PEER_SECONDS):
                await self._stream.send(data)
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._http.send_failed()
            raise PeerLeft from None


def _head(status: int, fields: Mapping[str, str]) -> h11.Response:
    reason = HTTPStatus(status).phrase if status in _KNOWN else "Scripted"
    return h11.Response(status_code=status, headers=list(fields.items()), reason=reason)


def _path(target: str) -> str:
    """The decoded path of a request target; a proxy's absolute form loses its scheme and host."""
    path = target.partition("?")[0]
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("/", 3)[3] if path.count("/") >= 3 else "/"  # noqa: PLR2004 - scheme://host/
    return unquote(path)
