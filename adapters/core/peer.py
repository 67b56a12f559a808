"""A connection and the dialect of ACP that it speaks: requests in, answers, updates and questions out.

Owns the seam between the core and the versions of the protocol. The core's own words are those of ACP v2, so `Peer` itself
translates nothing. A `Dialect` of another version brings a subclass that does. Imports no models: `initialize` is answered before
they are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from adapters.acp.calls import IncomingRequest, OutgoingRequest
from adapters.acp.errors import RequestCancelled
from adapters.acp.handshake import ClientInfo
from adapters.acp.rpc import Connection
from adapters.core.prompt_errors import not_inserted

if TYPE_CHECKING:
    from adapters.core.foreground import Report
    from adapters.core.port import Features, PermissionRequested

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """How the agent introduces itself."""

    name: str
    title: str
    version: str


class Attempt(Protocol):
    """One `session/prompt` request that waits for its answer. The core calls one of `failed` and `inserted`, once.

    After `inserted` it calls `work_ended`, once, if `until_work_ends` is true.
    """

    @property
    def until_work_ends(self) -> bool:
        """Whether the answer is owed at the end of the work that took the prompt in. Then the prompt gets work of its own."""
        ...

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client cancels the request."""
        ...

    def inserted(self, message_id: str) -> None:
        """The runtime's stored session holds the prompt under this id, or the runtime works on it without storing it."""
        ...

    def failed(self, error: Exception | None) -> None:
        """The prompt is not inserted: `error` says why. None: it was withdrawn."""
        ...

    def work_ended(self, report: Report) -> None:
        """The work that took the prompt in is over. `report` has the stop reason, and the error where the work failed."""
        ...


class PromptAttempt:
    """An attempt whose answer is the message id, as soon as the prompt is inserted (PROMPT-9)."""

    until_work_ends = False

    def __init__(self, request: IncomingRequest) -> None:
        self._request = request

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """See `Attempt`."""
        self._request.on_cancel = callback

    def inserted(self, message_id: str) -> None:
        """See `Attempt`."""
        self._request.respond({"messageId": message_id})

    def failed(self, error: Exception | None) -> None:
        """See `Attempt`."""
        withdrawn = RequestCancelled(data={"requestId": self._request.id})
        self._request.fail(not_inserted(error or withdrawn))

    def work_ended(self, report: Report) -> None:
        """Nothing: the answer was given before."""


class Peer:
    """One initialized connection."""

    def __init__(self, connection: Connection, client: ClientInfo) -> None:
        self.connection = connection
        self.client = client

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
        return self.connection.closed

    async def writable(self) -> None:
        """Return once the outgoing buffer has room."""
        await self.connection.writable()

    def read(self, method: str, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """A request or notification in the core's words. Raises an `AcpError` for one that this dialect does not have."""
        return method, params

    def result(self, method: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of `method`, as named on the wire, in the words of the client."""
        del method
        return result

    def attempt(self, request: IncomingRequest) -> Attempt:
        """A `session/prompt` request as what the core answers."""
        return PromptAttempt(request)

    def welcome(self, session_id: str, commands: Sequence[Wire]) -> None:
        """The session is active on this connection, and the answer that says so is written."""

    def left(self, session_id: str) -> None:
        """The session was closed: nothing more of it is shown."""

    def begin_replay(self, session_id: str) -> None:
        """The whole history of a session follows: what was shown of it before does not count."""

    def update(self, session_id: str, update: Wire) -> None:
        """Show an update, in order. Raises what `framing.encode` raises for an update that is no JSON."""
        self.connection.notify("session/update", {"sessionId": session_id, "update": update})

    def ask(self, session_id: str, question: PermissionRequested) -> OutgoingRequest:
        """Put a question to the client, in order. `chosen` reads the outcome."""
        return self.connection.request("session/request_permission", permission_params(session_id, question))

    def chosen(self, question: PermissionRequested, outcome: Any) -> str | None:
        """The option that an outcome of `ask` chose. None: not approved (PERM-2, PERM-3)."""
        from adapters.acp.schema import selected_option  # noqa: PLC0415 - see the head of this file

        return selected_option(outcome, {option.option_id for option in question.options})


class Dialect(Protocol):
    """One version of ACP. Loaded before `initialize` is answered, so it imports no models."""

    def initialized(self, features: Features, info: AgentInfo) -> dict[str, Any]:
        """The result of `initialize`, without `protocolVersion`."""
        ...

    def peer(self, connection: Connection, client: ClientInfo) -> Peer:
        """The connection as a peer, once the version is chosen. May load models."""
        ...


class OwnDialect:
    """ACP v2, the core's own words."""

    def initialized(self, features: Features, info: AgentInfo) -> dict[str, Any]:
        """See `Dialect`."""
        return {
            "info": {"name": info.name, "title": info.title, "version": info.version},
            "capabilities": capabilities(features),
            "authMethods": [],
        }

    def peer(self, connection: Connection, client: ClientInfo) -> Peer:
        """See `Dialect`."""
        return Peer(connection, client)


OWN: Mapping[int, Dialect] = {2: OwnDialect()}
"""The dialects that the core brings itself, by protocol version (INIT-2)."""


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


def permission_params(session_id: str, question: PermissionRequested) -> dict[str, Any]:
    """The params of `session/request_permission`."""
    from adapters.core.file_diff import wire_of  # noqa: PLC0415 - see the head of this file

    params: dict[str, Any] = {
        "sessionId": session_id,
        "title": question.title,
        "options": [
            {"optionId": option.option_id, "name": option.name, "kind": option.kind} for option in question.options
        ],
    }
    if question.description is not None:
        params["description"] = question.description
    if question.tool_call is not None:
        fields = wire_of(question.tool_call)
        fields.pop("sessionUpdate", None)
        params["subject"] = {"type": "tool_call", "toolCall": fields}
    elif question.command is not None:
        command, cwd = question.command
        params["subject"] = {"type": "command", "command": command, "cwd": cwd}
    return params
