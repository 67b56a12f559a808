"""The server behind every scripted model: calls come in, the script's answers go out. Owns delays and faults.

Knows no API: a `Dialect` reads the requests and writes the answers of one. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup, TaskStatus

from adapters.changed import Changed
from adapters.log import LogEvent
from adapters.scripted.calls import Asked, Call, CallLog
from adapters.scripted.gates import Gate
from adapters.scripted.http import BadRequest, HttpConnection, PeerLeft, Request
from adapters.scripted.script import Answer, Drop, HttpFailure, Script, StreamFailure

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"

_BEFORE_CUT = 0.1  # seconds; see `Drop`


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a streamed answer, encoded. `delta`: it carries a piece of content, so `delta_delay` follows it."""

    data: bytes
    delta: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A point in a streamed answer at which it waits for a gate."""

    gate: str


class Dialect(Protocol):
    """One model API."""

    path: str
    """The path of model calls; a POST there is a call."""

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
        """Understand a request. Raises `BadRequest`."""
        ...

    def events(self, answer: Answer, asked: Asked) -> Iterable[Event | Hold]:
        """The answer as a stream."""
        ...

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """The answer as one JSON object."""
        ...

    def failure(self, failure: HttpFailure) -> dict[str, Any]:
        """The body of an HTTP error."""
        ...

    def stream_failure(self, failure: StreamFailure) -> bytes:
        """The event that ends a stream in an error."""
        ...

    def headers(self) -> dict[str, str]:
        """Headers of every answer."""
        ...

    def side_call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a POST on another path of the API that is no model call; None for unknown paths."""
        ...


class ScriptedServer:
    """A scripted model on a loopback port. Use it as an async context manager; `port` 0 takes a free one."""

    def __init__(self, dialects: Iterable[Dialect], script: Script | None = None, *, port: int = 0) -> None:
        self.script = script or Script()
        self._dialects = {dialect.path: dialect for dialect in dialects}
        self._wanted_port = port
        self._port: int | None = None
        self._log = CallLog()
        self._gates: dict[str, Gate] = {}
        self._changed = Changed()
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        try:
            await group.start(self.serve)
        except BaseException:
            self._group = None
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The group is left without the body's exception, which it would wrap into an exception group.
        group, self._group = self._group, None
        if group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)

    async def serve(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the port once it accepts connections. Raises `OSError` if it is taken."""
        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=self._wanted_port)
        async with listener:
            self._port = int(listener.extra(SocketAttribute.local_port))  # noqa: S610 - not Django
            task_status.started(self._port)
            await listener.serve(self._connection)

    # --- what a user of the model asks -----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._port is None:
            raise RuntimeError("the scripted model is not started: use it in an `async with` block")
        return self._port

    @property
    def base_url(self) -> str:
        """The URL a runtime is pointed at, without a path."""
        return f"http://{HOST}:{self.port}"

    @property
    def records(self) -> list[Call]:
        """All calls so far, in the order of arrival. Request bodies are kept for the last few only."""
        return self._log.records

    @property
    def total_calls(self) -> int:
        """All calls so far: retries, later steps, compactions and fallbacks count."""
        return len(self._log.records)

    def calls(self, text: str) -> int:
        """How often the model was asked to answer the prompt `text`: see `CallLog.calls`."""
        return self._log.calls(text)

    def prompts_seen(self) -> list[str]:
        """The prompts in the order in which the model took them up: see `CallLog.prompts_seen`."""
        return self._log.prompts_seen()

    def in_conversation(self, text: str) -> int:
        """How often the latest conversation holds the prompt `text`: see `CallLog.in_conversation`."""
        return self._log.in_conversation(text)

    def summary(self) -> dict[str, Any]:
        """The counts as JSON values: what `GET /__calls` answers."""
        return self._log.summary()

    def gate(self, name: str) -> Gate:
        """The gate of that name."""
        if name not in self._gates:
            self._gates[name] = Gate(name, self.script.gates.get(name))
        return self._gates[name]

    async def wait_calls(self, count: int, seconds: float = 30.0) -> None:
        """Return once `count` calls in all have arrived. Raises `TimeoutError` after `seconds`."""
        await self._changed.require(lambda: self.total_calls >= count, seconds)

    async def wait_prompt(self, text: str, count: int = 1, seconds: float = 30.0) -> None:
        """Return once the model was asked to answer `text` so often. Raises `TimeoutError` after `seconds`."""
        await self._changed.require(lambda: self.calls(text) >= count, seconds)

    async def wait_ended(self, count: int, seconds: float = 30.0) -> None:
        """Return once `count` calls in all have ended, however. Raises `TimeoutError` after `seconds`."""
        await self._changed.require(lambda: sum(call.outcome != "open" for call in self.records) >= count, seconds)

    # --- serving ---------------------------------------------------------------------------------------------------

    async def _connection(self, stream: SocketStream) -> None:
        async with stream:
            connection = HttpConnection(stream)
            try:
                while (request := await connection.next_request()) is not None:
                    if not await self._request(connection, request):
                        return
            except BadRequest as error:
                await _refuse(connection, error)
            except PeerLeft:
                return
            except Exception as error:  # noqa: BLE001 - one broken call must not end the model for the others
                _log.warning(LogEvent("scripted-call-failed", error=repr(error)))

    async def _request(self, connection: HttpConnection, request: Request) -> bool:
        """Answer one request; return whether the connection can take another."""
        dialect = self._dialects.get(request.path)
        if request.method == "POST" and dialect is not None:
            return await self._call(connection, dialect, request)
        if request.method == "GET" and request.path == "/__calls":
            await connection.respond(200, self.summary())
        elif request.path.startswith("/__gates/") and request.method in ("GET", "POST"):
            gate = self.gate(request.path.removeprefix("/__gates/"))
            if request.method == "POST":
                gate.release()
            await connection.respond(200, {"gate": gate.name, "open": gate.is_open, "arrivals": gate.arrivals})
        else:
            await self._side_call(connection, request)
        return True

    async def _side_call(self, connection: HttpConnection, request: Request) -> None:
        for dialect in self._dialects.values() if request.method == "POST" else ():
            answer = dialect.side_call(request.path, _json_object(request.body) if request.body else {})
            if answer is not None:
                await connection.respond(200, answer, dialect.headers())
                return
        message = f"the scripted model serves nothing at {request.method} {request.path[:200]}"
        await connection.respond(404, {"type": "error", "error": {"type": "not_found_error", "message": message}})

    async def _call(self, connection: HttpConnection, dialect: Dialect, request: Request) -> bool:
        body = _json_object(request.body)
        asked = dialect.read(body, request.headers)
        prompt, step = self._position(asked)
        call = self._log.add(asked, prompt, step, body)
        self._changed.notify()
        answer = self.script.compaction if asked.compaction else self.script.answer(prompt, step)
        try:
            return await connection.while_connected(lambda: self._answer(connection, dialect, call, answer))
        finally:
            self._log.end(call, "left")
            self._changed.notify()

    def _position(self, asked: Asked) -> tuple[str | None, int]:
        """The prompt whose rule answers the call, and its step."""
        if not asked.prompts:
            return None, 0
        index = len(asked.prompts) - 1
        while asked.mid_turn[index] and (rule := self.script.rule(asked.prompts[index])) is not None and rule.joins:
            index -= 1
        return asked.prompts[index], asked.steps[index]

    async def _answer(self, connection: HttpConnection, dialect: Dialect, call: Call, answer: Answer) -> None:
        if answer.gate is not None:
            await self.gate(answer.gate).hold()
        if answer.delay:
            await anyio.sleep(answer.delay)
        failure = answer.failure
        if failure is not None and _still(failure, call):
            extra = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
            self._log.end(call, "failed")
            await connection.respond(failure.status, dialect.failure(failure), {**dialect.headers(), **extra})
        elif call.asked.streaming:
            await self._stream(connection, dialect, call, answer)
        else:
            self._log.end(call, "answered")
            await connection.respond(200, dialect.whole(answer, call.asked), dialect.headers())

    async def _stream(self, connection: HttpConnection, dialect: Dialect, call: Call, answer: Answer) -> None:
        broken = answer.stream_failure if answer.stream_failure and _still(answer.stream_failure, call) else None
        drop = answer.drop if answer.drop and _still(answer.drop, call) else None
        events = sent = 0
        await connection.start_events(dialect.headers())
        for event in dialect.events(answer, call.asked):
            if isinstance(event, Hold):
                await self.gate(event.gate).hold()
                continue
            if broken is not None and events >= broken.after_events:
                self._log.end(call, "failed")
                await connection.send_event(dialect.stream_failure(broken))
                await connection.end_events()
                return
            if drop is not None and (part := _before_drop(drop, event.data, events, sent)) is not None:
                self._log.end(call, "failed")
                await connection.send_event(part)
                await (self.gate(drop.gate).hold() if drop.gate else anyio.sleep(_BEFORE_CUT))
                raise PeerLeft
            await connection.send_event(event.data)
            events += 1
            sent += len(event.data)
            if event.delta and answer.delta_delay:
                await anyio.sleep(answer.delta_delay)
        self._log.end(call, "answered")
        await connection.end_events()


def _still(fault: HttpFailure | StreamFailure | Drop, call: Call) -> bool:
    return fault.times is None or call.attempt <= fault.times


def _before_drop(drop: Drop, data: bytes, events: int, sent: int) -> bytes | None:
    """The last part that is sent before the connection is cut, None while the event goes out whole."""
    if drop.after_events is not None:
        return b"" if events >= drop.after_events else None
    left = (drop.after_bytes or 0) - sent
    return data[:left] if left < len(data) else None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest(400, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise BadRequest(400, "the body is not a JSON object")
    return cast("dict[str, Any]", value)


async def _refuse(connection: HttpConnection, error: BadRequest) -> None:
    _log.warning(LogEvent("scripted-bad-request", status=error.status, reason=error.message))
    try:
        await connection.refuse(error)
    except PeerLeft:
        return
