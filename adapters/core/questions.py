"""Open permission requests of one session: which clients were asked, and the one answer that counts.

Owns the bookkeeping between a runtime's question and the clients' answers. Does not know what a permission allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.acp.calls import OutgoingRequest
from adapters.acp.errors import AcpError, ConnectionLost
from adapters.core.port import PermissionRequested


class Asked(Protocol):
    """A client that can be asked."""

    def ask(self, session_id: str, question: PermissionRequested) -> OutgoingRequest:
        """Put the question to the client now."""
        ...

    def chosen(self, question: PermissionRequested, outcome: Any) -> str | None:
        """The option that the outcome of `ask` chose; None: not approved."""
        ...


@dataclass(eq=False, slots=True)
class _Open:
    question: PermissionRequested
    foreground: bool
    outgoing: dict[Asked, OutgoingRequest] = field(default_factory=dict[Asked, OutgoingRequest])


class Permissions:
    """All questions of a session that wait for an answer.

    `answered(question, option_id)` is called once for each question that gets an answer; option_id None means not approved: a
    cancelled, unknown, malformed or failing answer, or an option that was not offered (PERM-2, PERM-3).
    """

    def __init__(self, session_id: str, answered: Callable[[PermissionRequested, str | None], None]) -> None:
        self._session_id = session_id
        self._answered = answered
        self._open: dict[str, _Open] = {}

    @property
    def foreground(self) -> bool:
        """Whether a question of the foreground work waits."""
        return any(item.foreground for item in self._open.values())

    def ask(self, question: PermissionRequested, clients: Iterable[Asked]) -> None:
        """Put a question to all clients; the first answer counts. Without a client it waits for the next `reissue`.

        It replaces a question that is still open under its id.
        """
        self.withdraw(question.request_id)
        item = self._open[question.request_id] = _Open(question, question.foreground)
        for client in clients:
            self._send(item, client)

    def reissue(self, client: Asked) -> None:
        """Ask a client that has just synchronized what still waits (PERM-9, REPLAY-10)."""
        for item in list(self._open.values()):
            if client not in item.outgoing:
                self._send(item, client)

    def withdraw(self, request_id: str) -> None:
        """The runtime no longer waits for this answer: cancel it at every client (RCAN-7)."""
        item = self._open.pop(request_id, None)
        if item is not None:
            _cancel(item)

    def withdraw_all(self, *, foreground_only: bool) -> None:
        """The work that needed the answers is over (PERM-6, CLOSE-5)."""
        for request_id, item in list(self._open.items()):
            if item.foreground or not foreground_only:
                self.withdraw(request_id)

    def outlive_work(self) -> None:
        """The foreground work is over, and the runtime still waits: what asks works on in the background."""
        for item in self._open.values():
            item.foreground = False

    def gone(self, client: Asked) -> None:
        """A client left without an answer. Its questions wait for another client."""
        for item in self._open.values():
            item.outgoing.pop(client, None)

    def _send(self, item: _Open, client: Asked) -> None:
        outgoing = item.outgoing[client] = client.ask(self._session_id, item.question)
        outgoing.on_done(lambda result: self._done(item, client, result))

    def _done(self, item: _Open, client: Asked, result: Any) -> None:
        if self._open.get(item.question.request_id) is not item or client not in item.outgoing:
            return
        del item.outgoing[client]
        if isinstance(result, ConnectionLost) or (isinstance(result, AcpError) and item.outgoing):
            return
        del self._open[item.question.request_id]
        _cancel(item)
        self._answered(item.question, client.chosen(item.question, result))


def _cancel(item: _Open) -> None:
    for outgoing in item.outgoing.values():
        outgoing.cancel()
    item.outgoing.clear()
