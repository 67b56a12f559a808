"""The clients that watch one session, and what each of them is shown.

Owns which clients are attached, the order of updates, and what a later client must be told: the fold of the running work
(`retained`), the standing facts, the state. Does not know why something is shown, nor any runtime.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

from adapters.acp.calls import OutgoingRequest
from adapters.acp.schema import SessionUpdate
from adapters.core.file_diff import wire_of
from adapters.core.foreground import Report
from adapters.core.port import PermissionRequested
from adapters.core.retained import Tail, Wire
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

_STANDING = ("usage_update", "session_info_update", "available_commands_update", "config_option_update")
"""Updates that describe the session as it is now: the sum of each is sent to a client that synchronizes (REPLAY-11)."""
_MOST_UNHEARD = 20
_UNENCODABLE = (TypeError, ValueError, RecursionError)
"""The errors of values that are not JSON: such a value costs one update, not the runtime's reader."""


class Client(Protocol):
    """A connection on which sessions can be active."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        ...

    def welcome(self, session_id: str, commands: Sequence[Wire]) -> None:
        """The session is active on it, and the answer that says so is written."""
        ...

    def begin_replay(self, session_id: str) -> None:
        """The whole history follows."""
        ...

    def update(self, session_id: str, update: Wire) -> None:
        """Show an update now, in order. Raises what values that are no JSON raise."""
        ...

    def ask(self, session_id: str, question: PermissionRequested) -> OutgoingRequest:
        """Put a question to it now, in order."""
        ...

    def chosen(self, question: PermissionRequested, outcome: Any) -> str | None:
        """The option that the outcome of `ask` chose; None: not approved."""
        ...

    async def writable(self) -> None:
        """Return once the outgoing buffer has room."""
        ...


class Audience:
    """All clients of a session.

    `state` gives the current state for a client that synchronizes; `arrived` is called when such a client has got everything.
    """

    session_id: str
    """Set before the first client comes and before anything is shown."""

    def __init__(self, state: Callable[[], Report], arrived: Callable[[Client], None]) -> None:
        self._state = state
        self._arrived = arrived
        self._clients: list[Client] = []
        self._away: list[Client] = []
        """Attached clients that synchronize again just now."""
        self._closing = False
        self._tail = Tail()
        self._unheard: deque[Wire] | None = deque(maxlen=_MOST_UNHEARD)
        """Notices from before the first client; None from that on."""
        self._standing: dict[str, Wire] = {}

    @property
    def clients(self) -> Sequence[Client]:
        """Those that get every update now."""
        return self._clients

    def attach(self, client: Client) -> None:
        """From now on this client gets every update, unless its connection has ended meanwhile."""
        if client not in self._clients and not client.closed:
            self._clients.append(client)

    def catch_up(self) -> None:
        """Send the notices from before the first client, once there is one. Call when its opening call is answered."""
        if self._clients and self._unheard is not None:
            unheard, self._unheard = self._unheard, None
            for notice in unheard:
                self.broadcast(notice)

    def detach(self, client: Client) -> None:
        """This client gets no more updates."""
        if client in self._clients:
            self._clients.remove(client)

    def clear(self) -> None:
        """No client gets any more updates."""
        self._clients.clear()

    async def writable(self) -> None:
        """Return once every client has room: a slow client slows the runtime instead of filling memory."""
        for client in list(self._clients):
            await client.writable()

    # --- clients that come ------------------------------------------------------------------------------------------

    async def synchronize(
        self, client: Client, history: AsyncIterator[SessionUpdate] | None, started: Callable[[], Awaitable[None]]
    ) -> bool:
        """Bring a client up to date and attach it: history if there is one, the running work, the state (REPLAY-*).

        What follows the history waits for `started`: until then there is no session to have a state.

        Live updates skip this client meanwhile; the fold of the running work covers them, so that nothing older follows
        something newer (REPLAY-9). False when the session began to close first. Raises what reading the history and `started`
        raise; a client that was attached before is attached again and has missed nothing.
        """
        attached = client in self._clients
        if attached:
            self._clients.remove(client)
            self._away.append(client)
        try:
            if history:
                client.begin_replay(self.session_id)
                async for update in history:
                    if self._closing:
                        break
                    if wire := self._wire(update):
                        self._send(client, wire)
                    await client.writable()
            await started()
            attached = True
        finally:
            if client in self._away:
                self._away.remove(client)
            if attached and not self._closing:
                self._bring_up_to_date(client)
        return not self._closing

    def close(self) -> None:
        """The session is being closed: who synchronizes is attached as it is, and nobody comes any more."""
        self._closing = True
        for client in self._away:
            self._bring_up_to_date(client)

    def _bring_up_to_date(self, client: Client) -> None:
        for folded in (*self._tail.updates(), *self._standing.values()):
            self._send(client, folded)
        self._send(client, _state_update(self._state()))
        self.attach(client)
        self._arrived(client)

    # --- showing ----------------------------------------------------------------------------------------------------

    def show(self, update: SessionUpdate) -> None:
        """Send an update to every client."""
        if wire := self._wire(update):
            self.broadcast(wire)

    def report(self, report: Report) -> None:
        """Send a change of the foreground state to every client."""
        self.broadcast(_state_update(report))

    def broadcast(self, update: Wire) -> None:
        """Send an update, as on the wire, to every client."""
        kind = update["sessionUpdate"]
        if kind == "notice" and self._unheard is not None:
            self._unheard.append(update)
            return
        if kind in _STANDING:
            self._standing[kind] = {**self._standing.get(kind, {}), **update}
        else:
            self._tail.add(update)
        for client in self._clients:
            self._send(client, update)

    def forget_work(self) -> None:
        """What was shown since the last durable point is in the stored session now."""
        self._tail.clear()

    def _wire(self, update: SessionUpdate) -> Wire | None:
        try:
            return wire_of(update)
        except _UNENCODABLE as error:
            _log.warning(LogEvent("update dropped", session=self.session_id, error=type(error).__name__))
            return None

    def _send(self, client: Client, update: Wire) -> None:
        try:
            client.update(self.session_id, update)
        except _UNENCODABLE as error:
            _log.warning(LogEvent("update dropped", session=self.session_id, error=type(error).__name__))


def _state_update(report: Report) -> Wire:
    update: Wire = {"sessionUpdate": "state_update", "state": report.state.value}
    if report.stop_reason is not None:
        update["stopReason"] = report.stop_reason
    if report.error is not None:
        update["error"] = dict(report.error)
    return update
