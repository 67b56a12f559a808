"""Requests this client has sent, and their answers.

Owns "exactly one answer per request" as seen from the client. Knows no method but `session/prompt`, whose answer is a
message id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from adapters.acp.retry import retry_class
from adapters.client.record import ConnectionLostError

if TYPE_CHECKING:
    from adapters.acp.errors import AcpError

Json = dict[str, Any]
RequestId = int | str


class MalformedAnswerError(Exception):
    """The agent's answer breaks the schema of its method. Names the field, not its value."""


class Call:
    """One request on the wire. Await `result`, or look at `outcome`."""

    def __init__(self, request_id: RequestId, method: str, params: Json, mark: int) -> None:
        self.request_id = request_id
        self.method = method
        self.params = params
        self.mark = mark
        """Index of the request in the record: what happened because of it comes later."""
        self.answered_at: int | None = None
        """Index of its answer in the record."""
        self.outcome: Json | AcpError | ConnectionLostError | MalformedAnswerError | None = None
        self._done = anyio.Event()

    @property
    def done(self) -> bool:
        """Whether an answer has come, or none can come any more."""
        return self.outcome is not None

    @property
    def may_resend(self) -> bool:
        """Whether the same params may be sent again, under a new id, when the answer is lost (`adapters.acp.retry`)."""
        match retry_class(self.method):
            case "idempotent" | "duplicating":
                return True
            case "keyed":
                return self.params.get("idempotencyKey") is not None
            case _:
                return False

    def settle(
        self, outcome: Json | AcpError | ConnectionLostError | MalformedAnswerError, at: int | None = None
    ) -> None:
        """Take the answer; the first one stands."""
        if self.outcome is None:
            self.outcome, self.answered_at = outcome, at
            self._done.set()

    async def result(self, within: float = 30.0) -> Json:
        """The result, when it is there.

        Raises:
            AcpError: the agent answered with an error. For `session/prompt`: the message was not inserted.
            ConnectionLostError: the connection ended first; the outcome is unknown.
            MalformedAnswerError: the answer is no object.
            TimeoutError: no answer within so many seconds. The request stays open.
        """
        with anyio.fail_after(within):
            await self._done.wait()
        if isinstance(self.outcome, dict):
            return self.outcome
        assert self.outcome is not None  # noqa: S101  # settled, or `wait` had not returned
        raise self.outcome


class PromptCall(Call):
    """One attempt to send a prompt."""

    @property
    def session_id(self) -> str:
        """The session it was sent to."""
        return self.params["sessionId"]

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return self.params.get("idempotencyKey")

    async def message_id(self, within: float = 30.0) -> str:
        """The id of the inserted message (PROMPT-3). Raises as `result` does."""
        value = (await self.result(within)).get("messageId")
        if not isinstance(value, str):
            raise MalformedAnswerError("messageId must be a string")
        return value
