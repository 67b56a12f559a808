"""ACP v1 for today's clients, beside v2 on one command. What it looks like to a client: docs/acp-v1.md.

Owns when a v1 request is answered, and which renderer belongs to which session of a connection. The shapes are those of
`adapters.acp.v1`, imported at first need: `initialize` is answered before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adapters.acp.calls import IncomingRequest, OutgoingRequest
from adapters.acp.errors import AcpError, InternalError, RequestCancelled
from adapters.acp.handshake import ClientInfo
from adapters.acp.rpc import Connection
from adapters.core.peer import AgentInfo, Attempt, Peer
from adapters.core.prompt_errors import not_inserted

if TYPE_CHECKING:
    from adapters.acp.v1.updates import Renderer
    from adapters.core.foreground import Report
    from adapters.core.port import Features, PermissionRequested

Wire = dict[str, Any]


class V1Dialect:
    """See `core.peer.Dialect`."""

    def initialized(self, features: Features, info: AgentInfo) -> Wire:
        """Only what is answered is advertised (V1-INIT-3, V1-SES-5)."""
        session: dict[str, bool] = {
            "list": True,
            "resume": True,
            "close": True,
            "delete": features.delete,
            "additionalDirectories": features.additional_directories,
        }
        return {
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {
                    "image": features.image,
                    "audio": features.audio,
                    "embeddedContext": features.embedded_context,
                },
                "mcpCapabilities": {"http": features.mcp_http, "sse": False},
                "sessionCapabilities": {name: {} for name, has in session.items() if has},
            },
            "agentInfo": {"name": info.name, "title": info.title, "version": info.version},
            "authMethods": [],
        }

    def peer(self, connection: Connection, client: ClientInfo) -> Peer:
        """See `core.peer.Dialect`."""
        return V1Peer(connection, client)


class V1Attempt:
    """A prompt of v1: answered with a stop reason, at the end of the work that took it in (V1-PR-1..3)."""

    until_work_ends = True

    def __init__(self, request: IncomingRequest) -> None:
        self._request = request
        self._message_id: str | None = None

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """See `Attempt`."""
        self._request.on_cancel = callback

    def inserted(self, message_id: str) -> None:
        """Nothing yet."""
        self._message_id = message_id

    def failed(self, error: Exception | None) -> None:
        """Withdrawn by `session/cancel`: its stop reason says so. By `$/cancel_request`: the code of that (V1-PR-5)."""
        if error is None and not self._request.cancelled:
            self._request.respond({"stopReason": "cancelled"})
        else:
            self._request.fail(not_inserted(error or RequestCancelled(data={"requestId": self._request.id})))

    def work_ended(self, report: Report) -> None:
        """A failure is an error that says that the message is stored: to send it again would double it (V1-PR-2)."""
        from adapters.acp.v1.closed import STOP_REASONS  # noqa: PLC0415 - see the head of this file

        if report.stop_reason == "error":
            error = _failure(report.error)
            self._request.fail(error.with_data(inserted=True, messageId=self._message_id))
        else:
            known = report.stop_reason in STOP_REASONS
            self._request.respond({"stopReason": report.stop_reason if known else "end_turn"})


def _failure(error: Mapping[str, Any] | None) -> AcpError:
    if error is None:
        return InternalError("The work failed.")
    return AcpError.of(error["code"], error["message"], error.get("data"))


def _which(program: str) -> str | None:
    import shutil  # noqa: PLC0415 - see the head of this file

    return shutil.which(program)


class V1Peer(Peer):
    """A connection that speaks v1."""

    def __init__(self, connection: Connection, client: ClientInfo) -> None:
        super().__init__(connection, client)
        self._renderers: dict[str, Renderer] = {}

    def read(self, method: str, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """See `Peer`."""
        from adapters.acp.v1 import requests  # noqa: PLC0415 - see the head of this file

        read = requests.read(method, params, _which)
        if read[0] == "session/resume" and (renderer := self._renderers.get(str(params.get("sessionId")))):
            renderer.begin_joining()
        return read

    def result(self, method: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Peer`."""
        from adapters.acp.v1 import results  # noqa: PLC0415 - see the head of this file

        return results.result(method, result, booleans=self.client.boolean_options)

    def attempt(self, request: IncomingRequest) -> Attempt:
        """See `Peer`."""
        return V1Attempt(request)

    def welcome(self, session_id: str, commands: Sequence[Wire]) -> None:
        """The commands come after the answer (V1-SES-7)."""
        if commands:
            self.update(session_id, {"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def left(self, session_id: str) -> None:
        """See `Peer`."""
        self._renderers.pop(session_id, None)

    def begin_replay(self, session_id: str) -> None:
        """See `Peer`."""
        self._renderer(session_id).begin_replay()

    def update(self, session_id: str, update: Wire) -> None:
        """See `Peer`."""
        self._show(session_id, self._renderer(session_id).render(update))

    def ask(self, session_id: str, question: PermissionRequested) -> OutgoingRequest:
        """See `Peer`."""
        from adapters.acp.schema import dump  # noqa: PLC0415 - see the head of this file
        from adapters.acp.v1.closed import OPTION_KINDS  # noqa: PLC0415 - same

        renderer = self._renderer(session_id)
        asked = renderer.ask(
            question.request_id,
            question.title,
            tool_call=None if question.tool_call is None else dump(question.tool_call),
            description=question.description,
            command=question.command,
        )
        self._show(session_id, asked.updates)
        options = [
            {"optionId": option.option_id, "name": option.name, "kind": option.kind}
            for option in question.options
            if option.kind in OPTION_KINDS
        ]
        params = {"sessionId": session_id, "toolCall": asked.tool_call, "options": options}
        outgoing = self.connection.request("session/request_permission", params)
        if asked.of_its_own:
            outgoing.on_done(
                lambda outcome: self._show(
                    session_id, renderer.answered(asked.call_id, approved=self._approved(question, outcome))
                )
            )
        return outgoing

    def _approved(self, question: PermissionRequested, outcome: Any) -> bool:
        chosen = self.chosen(question, outcome)
        return any(option.option_id == chosen and option.kind.startswith("allow") for option in question.options)

    def _show(self, session_id: str, updates: Sequence[Wire]) -> None:
        for update in updates:
            self.connection.notify("session/update", {"sessionId": session_id, "update": update})

    def _renderer(self, session_id: str) -> Renderer:
        renderer = self._renderers.get(session_id)
        if renderer is None:
            from adapters.acp.v1.updates import Abilities, Renderer  # noqa: PLC0415 - see the head of this file

            client = self.client
            can = Abilities(
                terminals=client.terminal_output,
                notices=client.notices,
                compaction=client.compaction,
                plans=client.plans,
                boolean_options=client.boolean_options,
            )
            renderer = self._renderers[session_id] = Renderer(can)
        return renderer
