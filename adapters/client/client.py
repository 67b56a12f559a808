"""The client side of one ACP v2 connection.

Owns sending, receiving and the answers to the agent's requests. Keeps every message (`record`), a view of each session (`view`)
and a list of the agent's violations of the protocol (`faults`). `adapters.client.outbox` has keys and resending;
`adapters.client.process` starts an agent.

It matches answers itself and does not use `adapters.acp.rpc`. A client that checks an agent must see what a well-behaved
connection hides (second answers, answers to no request, malformed messages), and must be able to send anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio

from adapters import __version__
from adapters.acp.errors import AcpError, InvalidParams, InvalidResult, MethodNotFound, ParseError
from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.acp.rpc import Transport
from adapters.client import permissions
from adapters.client.calls import Call, Json, MalformedAnswerError, PromptCall, RequestId
from adapters.client.record import ConnectionLostError, Message, Record
from adapters.client.view import MalformedUpdateError, SessionView

_INFO = {"name": "acp-adapters-client", "version": __version__}
_LOST = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
_C = TypeVar("_C", bound=Call)

Blocks = str | Sequence[Mapping[str, Any]]
"""A prompt: content blocks, or a text for one text block."""


class Client:
    """A connection to an agent. Use as ``async with Client(transport) as client``; leaving closes the transport.

    `policy` answers permission requests, `keep` bounds the record to so many messages.
    """

    def __init__(
        self, transport: Transport, *, policy: permissions.Policy = permissions.reject, keep: int | None = None
    ) -> None:
        self._transport = transport
        self.policy = policy
        self.record = Record(keep)
        self.faults: list[str] = []
        """The agent's violations of the protocol, one sentence each, without values of messages."""
        self._calls: dict[RequestId, Call] = {}
        self._next_id = 0
        self._views: dict[str, SessionView] = {}
        self._questions: dict[RequestId, anyio.CancelScope] = {}
        self._writing = anyio.Lock()

    async def __aenter__(self) -> Self:
        """Start to read."""
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading; open calls end in `ConnectionLostError`. An error of the body passes as it is, not in a group."""
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._end()
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._transport.aclose()

    # --- any message -------------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, request_id: RequestId | None = None
    ) -> Call:
        """Send a request; returns once it is written. `request_id` overrides the running number."""
        return await self._call(Call, method, dict(params or {}), request_id)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; returns once it is written."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    async def send_line(self, line: bytes, expecting: RequestId | None = None) -> Call:
        r"""Send these bytes and a newline as they are. An answer to the id `expecting` settles the returned call."""
        call = Call(expecting if expecting is not None else "", "", {}, self.record.mark)
        if expecting is not None:
            self._calls[expecting] = call
        await self._write(line + b"\n", None)
        return call

    async def cancel_request(self, request_id: RequestId) -> None:
        """Ask the agent to cancel a request of ours; its one answer still comes (RCAN-2)."""
        await self.notify("$/cancel_request", {"requestId": request_id})

    # --- methods -----------------------------------------------------------------------------------------------------

    async def initialize(self, version: int = 2, capabilities: Mapping[str, Any] | None = None) -> Json:
        """Open the conversation; gives the agent's answer."""
        params = {"protocolVersion": version, "info": _INFO, "capabilities": dict(capabilities or {})}
        return await (await self.request("initialize", params)).result()

    async def new(self, cwd: str, **more: Any) -> str:
        """Start a session; gives its id. `more` are further wire fields such as `mcpServers`."""
        result = await (await self.request("session/new", {"cwd": cwd, **more})).result()
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            raise MalformedAnswerError("sessionId must be a string")
        self._offered(session_id, result)
        return session_id

    async def resume(self, session_id: str, cwd: str, *, replay: bool = False, **more: Any) -> Json:
        """Make a stored session active here, replaying its history if asked for."""
        params: Json = {"sessionId": session_id, "cwd": cwd, **more}
        if replay:
            params["replayFrom"] = {"type": "start"}
        result = await (await self.request("session/resume", params)).result()
        self._offered(session_id, result)
        return result

    async def list(self, cwd: str | None = None) -> list[Json]:
        """All stored sessions, page by page."""
        params: Json = {} if cwd is None else {"cwd": cwd}
        sessions: list[Json] = []
        while True:
            page = await (await self.request("session/list", params)).result()
            sessions += page["sessions"]
            if page.get("nextCursor") is None:
                return sessions
            params["cursor"] = page["nextCursor"]

    async def prompt(
        self, session_id: str, prompt: Blocks, key: str | None = None, request_id: RequestId | None = None
    ) -> PromptCall:
        """Send a prompt; gives the attempt, whose `message_id()` waits for the insertion."""
        params: Json = {"sessionId": session_id, "prompt": as_blocks(prompt)}
        if key is not None:
            params["idempotencyKey"] = key
        return await self._call(PromptCall, "session/prompt", params, request_id)

    async def cancel(self, session_id: str) -> None:
        """Stop the session's foreground work."""
        await self.notify("session/cancel", {"sessionId": session_id})

    async def close(self, session_id: str) -> None:
        """Close the session; its history stays."""
        await (await self.request("session/close", {"sessionId": session_id})).result()

    async def delete(self, session_id: str) -> None:
        """Delete the session."""
        await (await self.request("session/delete", {"sessionId": session_id})).result()

    async def set_option(self, session_id: str, config_id: str, value: str | bool) -> Json:
        """Set a config option; gives the complete new list."""
        kind = "boolean" if isinstance(value, bool) else "id"
        params = {"sessionId": session_id, "configId": config_id, "type": kind, "value": value}
        return await (await self.request("session/set_config_option", params)).result()

    # --- looking and waiting -----------------------------------------------------------------------------------------

    def view(self, session_id: str) -> SessionView:
        """The view of the session, as shown on this connection."""
        return self._views.setdefault(session_id, SessionView())

    def updates(self, session_id: str, since: int = 0) -> Iterator[Json]:
        """The session's updates from this mark of the record on."""
        for message in self.record.since(since, sent=False):
            update = _update_of(message, session_id)
            if update is not None:
                yield update

    async def wait_update(
        self, session_id: str, wanted: Callable[[Json], bool], since: int = 0, within: float = 30.0
    ) -> Json:
        """The first update of the session from this mark on that is wanted. Raises as `Record.wait` does."""

        def matches(message: Message) -> bool:
            update = _update_of(message, session_id)
            return update is not None and wanted(update)

        return (await self.record.wait(matches, since, within)).value["params"]["update"]

    async def wait_state(self, session_id: str, state: str, since: int | None = None, within: float = 30.0) -> Json:
        """The first `state_update` to this state from the mark on; without a mark the latest one counts too."""
        if since is None:
            if self.view(session_id).state == state:
                return self.view(session_id).state_update
            since = self.record.mark

        def wanted(update: Json) -> bool:
            return update.get("sessionUpdate") == "state_update" and update.get("state") == state

        return await self.wait_update(session_id, wanted, since, within)

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _call(self, kind: type[_C], method: str, params: Json, request_id: RequestId | None) -> _C:
        if request_id is None:
            self._next_id += 1
            request_id = self._next_id
        call = kind(request_id, method, params, self.record.mark)
        if self.record.ended:
            call.settle(ConnectionLostError("the connection has ended"))
            return call
        self._calls[request_id] = call
        await self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return call

    async def _send(self, message: Json) -> None:
        await self._write(encode(message), message)

    async def _write(self, data: bytes, value: Any) -> None:
        async with self._writing:
            self.record.add(value, len(data), sent=True)
            try:
                await self._transport.send(data)
            except _LOST:
                self._end()

    # --- receiving ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        decoder = LineDecoder()
        try:
            while data := await self._transport.receive():
                self._take_lines(decoder.feed(data))
            self._take_lines(decoder.finish())
        except _LOST:
            pass
        finally:
            self._end()

    def _take_lines(self, lines: Iterable[bytes | LineTooLong]) -> None:
        for line in lines:
            if isinstance(line, LineTooLong):
                self.faults.append(f"a line of {line.size} bytes")
                continue
            try:
                message = self.record.add(decode(line), len(line) + 1, sent=False)
            except ParseError:
                self.record.add(None, len(line) + 1, sent=False, line=line)
                self.faults.append("a line that is not JSON")
            else:
                self._take(message, message.value)

    def _take(self, message: Message, value: Any) -> None:
        if not isinstance(value, dict):
            self.faults.append("a message that is not an object")
        elif message.method is None:
            self._take_answer(message)
        elif "id" in value:
            self._take_request(message.method, cast("Json", value))
        else:
            self._take_notification(message.method, cast("Json", value).get("params"))

    def _take_answer(self, message: Message) -> None:
        request_id = message.value.get("id")
        if request_id is None:
            return  # to something we sent that had no readable id: the record holds it
        call = self._calls.pop(request_id, None) if isinstance(request_id, int | str) else None
        if call is None:
            self.faults.append("an answer to no open request")
        elif isinstance(message.value.get("result"), dict):
            call.settle(message.value["result"], message.index)
        elif (error := _error_of(message.value)) is not None:
            call.settle(error, message.index)
        else:
            self.faults.append(f"a malformed answer to {call.method}")
            call.settle(MalformedAnswerError("an answer must have an object as result, or an error"), message.index)

    def _take_notification(self, method: str, params: Any) -> None:
        if not isinstance(params, dict):
            self.faults.append(f"{method} without params")
        elif method == "session/update":
            self._fold(cast("Json", params))
        elif method == "$/cancel_request":
            request_id: Any = cast("Json", params).get("requestId")
            if isinstance(request_id, int | str) and request_id in self._questions:
                self._questions[request_id].cancel()

    def _fold(self, params: Json) -> None:
        session_id, update = params.get("sessionId"), params.get("update")
        if not isinstance(session_id, str) or not isinstance(update, dict):
            self.faults.append("session/update without sessionId or update")
            return
        try:
            self.view(session_id).apply(cast("Json", update))
        except MalformedUpdateError as error:
            self.faults.append(f"a malformed session/update: {error}")

    # --- the agent's requests ----------------------------------------------------------------------------------------

    def _take_request(self, method: str, value: Json) -> None:
        request_id, params = value["id"], value.get("params")
        if not isinstance(request_id, int | str) or request_id in self._questions:
            self.faults.append(f"{method} under an id that is still open, or none")
            return
        scope = anyio.CancelScope()
        self._questions[request_id] = scope
        if method == "session/request_permission":
            question = permissions.question_of(request_id, params)
            if question is None:
                self.faults.append("a malformed permission request")
                self._tasks.start_soon(self._refuse, request_id, method)
                return
            try:
                self.view(question.session_id).apply_permission(question.params)
            except MalformedUpdateError as error:
                self.faults.append(f"a malformed permission request: {error}")
            self._tasks.start_soon(self._ask, question, scope)
        else:
            self._tasks.start_soon(self._refuse, request_id, method)

    async def _ask(self, question: permissions.Question, scope: anyio.CancelScope) -> None:
        answer = None
        with scope:
            answer = await self.policy(question)
        if isinstance(answer, AcpError):
            await self._answer(question.request_id, error=answer.to_wire())
        else:
            await self._answer(question.request_id, result=permissions.as_result(answer))

    async def _refuse(self, request_id: RequestId, method: str) -> None:
        match method:
            case "elicitation/create":  # ELIC-1
                error = InvalidParams("no elicitation mode was advertised")
            case "session/request_permission":
                error = InvalidParams("sessionId and options with ids and kinds are needed")
            case _:
                error = MethodNotFound(method)
        await self._answer(request_id, error=error.to_wire())

    async def _answer(self, request_id: RequestId, **outcome: Any) -> None:
        del self._questions[request_id]
        await self._send({"jsonrpc": "2.0", "id": request_id, **outcome})

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    def _offered(self, session_id: str, result: Json) -> None:
        view = self.view(session_id)
        view.config_options = result.get("configOptions", view.config_options)
        view.commands = result.get("availableCommands", view.commands)

    def _end(self) -> None:
        self.record.end()
        for call in self._calls.values():
            call.settle(ConnectionLostError("the connection ended before the answer"))
        self._calls.clear()


def as_blocks(prompt: Blocks) -> list[Json]:
    """The content blocks of a prompt."""
    if isinstance(prompt, str):
        return [{"type": "text", "text": prompt}]
    return [dict(block) for block in prompt]


def _error_of(answer: Json) -> AcpError | None:
    try:
        return AcpError.from_wire(answer["error"]) if isinstance(answer.get("error"), dict) else None
    except InvalidResult:
        return None


def _update_of(message: Message, session_id: str) -> Json | None:
    if message.sent or message.method != "session/update":
        return None
    update: Any = message.params.get("update")
    return cast("Json", update) if isinstance(update, dict) and message.params.get("sessionId") == session_id else None
