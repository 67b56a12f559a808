"""A runtime without a process: implements the port in memory, step by step or automatically.

For tests of the core and for authors of other drivers. `Store` outlives a runtime as files outlive a process, so a new
`ScriptedRuntime` on the same store is a restart. Owns no protocol. Deterministic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from adapters.acp.errors import AcpError, InternalError, InvalidParams, ResourceNotFound
from adapters.acp.schema import (
    AgentMessage,
    AgentMessageChunk,
    AvailableCommand,
    ContentBlock,
    SessionUpdate,
    TextBlock,
    UserMessage,
)
from adapters.changed import Changed
from adapters.core import port
from adapters.core.submissions import random_id

__all__ = [
    "FEATURES",
    "ScriptedRuntime",
    "ScriptedSession",
    "Store",
    "Stored",
]

FEATURES = port.Features(embedded_context=True, additional_directories=True, delete=True, mcp_stdio=True, mcp_http=True)


@dataclass
class Stored:
    """A stored session: its folder and its messages in order, each with who wrote it, its id and its blocks."""

    cwd: str
    messages: list[tuple[str, str, Sequence[ContentBlock]]] = field(
        default_factory=list[tuple[str, str, Sequence[ContentBlock]]]
    )

    def user_ids(self) -> list[str]:
        """Ids of the user messages, in order, repeats included."""
        return [message_id for who, message_id, _ in self.messages if who == "user"]


@dataclass
class Store:
    """The stored sessions, which survive the process."""

    sessions: dict[str, Stored] = field(default_factory=dict[str, Stored])


class ScriptedSession:
    """One session. With `runtime.automatic` each prompt is taken, stored, answered with "ok" and ended at once."""

    def __init__(self, runtime: ScriptedRuntime, session_id: str, sink: port.EventSink) -> None:
        self.session_id = session_id
        self.commands: Sequence[AvailableCommand] = runtime.commands
        self.sink = sink
        self.submitted: list[tuple[str, Sequence[ContentBlock]]] = []
        self.withdrawals: list[str] = []
        self.answers: list[tuple[str, str | None]] = []
        self.setups: list[port.SessionSetup] = []
        self.interrupts = 0
        self.lookups = 0
        self.closed = False
        self.held = False
        """Set it to make the session not ready."""
        self._runtime = runtime
        self._changed = Changed()

    @property
    def stored(self) -> Stored:
        """This session in the store."""
        return self._runtime.store.sessions[self.session_id]

    # --- the port ----------------------------------------------------------------------------------------------------

    async def started(self) -> None:
        """Waits for `runtime.start_gate`, fails with `runtime.start_error`."""
        await self._runtime.start_gate.wait()
        if self._runtime.start_error:
            raise self._runtime.start_error

    @property
    def ready(self) -> bool:
        """True unless a test holds the session."""
        return not self.held

    def local_reply(self, prompt: Sequence[ContentBlock]) -> port.LocalReply | None:
        """`/status` is answered here."""
        first = prompt[0]
        if isinstance(first, TextBlock) and first.text.startswith("/status"):
            self._runtime.local_runs += 1
            return port.LocalReply("all is well")
        return None

    def is_live_only(self, prompt: Sequence[ContentBlock]) -> bool:
        """`/compact` is never stored."""
        return isinstance(prompt[0], TextBlock) and prompt[0].text == "/compact"

    async def is_recorded(self, message_id: str) -> bool:
        """Look into the store; waits for `runtime.lookup_gate`, fails with `runtime.lookup_error`."""
        self.lookups += 1
        self._changed.notify()
        await self._runtime.lookup_gate.wait()
        if self._runtime.lookup_error:
            raise InternalError(self._runtime.lookup_error)
        return message_id in self.stored.user_ids()

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Take note; automatic runtimes go all the way."""
        if self._runtime.submit_error:
            raise self._runtime.submit_error
        self.submitted.append((message_id, prompt))
        self._changed.notify()
        if self._runtime.automatic:
            self.take(message_id)
            self.insert(message_id)
            self.say("ok")
            self.end()

    async def withdraw(self, message_id: str) -> None:
        """Take note; automatic runtimes confirm."""
        self.withdrawals.append(message_id)
        self._changed.notify()
        if self._runtime.automatic:
            self.fail(message_id)

    async def interrupt(self) -> None:
        """Take note; automatic runtimes end the work."""
        self.interrupts += 1
        self._changed.notify()
        if self._runtime.automatic:
            self.end("error", interrupted=True)

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Take note."""
        self.answers.append((request_id, option_id))
        self._changed.notify()

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        """Take note."""
        self.setups.append(setup)

    async def replay(self) -> AsyncIterator[SessionUpdate]:
        """Every stored message as a whole; waits for `runtime.replay_gate` before each."""
        for who, message_id, content in list(self.stored.messages):
            await self._runtime.replay_gate.wait()
            kind = UserMessage if who == "user" else AgentMessage
            yield kind(message_id=message_id, content=list(content))

    async def close(self) -> None:
        """Nothing is delivered afterwards."""
        self.closed = True
        self._changed.notify()

    # --- what a test makes the runtime do ----------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until a condition over this session's records holds. Raises `TimeoutError` after `seconds`."""
        await self._changed.require(condition, seconds)

    def start(self) -> None:
        """Foreground work begins."""
        self.deliver(port.WorkStarted())

    def take(self, message_id: str) -> None:
        """The prompt is begun with."""
        self.start()
        self.deliver(port.PromptTaken(message_id))

    def insert(self, message_id: str) -> None:
        """The prompt is stored, then reported."""
        content = next(blocks for known, blocks in self.submitted if known == message_id)
        self.stored.messages.append(("user", message_id, content))
        self.deliver(port.PromptInserted(message_id))

    def fail(self, message_id: str, error: AcpError | None = None) -> None:
        """The prompt is not inserted."""
        self.deliver(port.PromptFailed(message_id, error))

    def say(self, text: str, *, message_id: str | None = None) -> None:
        """Stream one message in two pieces, and store it."""
        message_id = message_id or random_id()
        half = len(text) // 2
        for part in (text[:half], text[half:]):
            self.output(AgentMessageChunk(message_id=message_id, content=TextBlock(text=part)))
        self.stored.messages.append(("agent", message_id, [TextBlock(text=text)]))

    def output(self, update: SessionUpdate) -> None:
        """Send any update."""
        self.deliver(port.Output(update))

    def end(
        self, stop_reason: str = "end_turn", *, error: Mapping[str, Any] | None = None, interrupted: bool = False
    ) -> None:
        """Foreground work ends."""
        self.deliver(port.WorkEnded(stop_reason, error, interrupted))

    def deliver(self, event: port.Event) -> None:
        """Deliver any event, as long as the session is open."""
        if not self.closed:
            self.sink.deliver(event)


class ScriptedRuntime:
    """The port, in memory."""

    features = FEATURES

    def __init__(self, store: Store | None = None, *, automatic: bool = False) -> None:
        self.store = store or Store()
        self.automatic = automatic
        self.commands: Sequence[AvailableCommand] = ()
        self.sessions: dict[str, ScriptedSession] = {}
        self.local_runs = 0
        self.lookup_gate = anyio.Event()
        self.lookup_gate.set()
        self.replay_gate = anyio.Event()
        self.replay_gate.set()
        self.start_gate = anyio.Event()
        self.start_gate.set()
        self.start_error: AcpError | None = None
        self.lookup_error: str | None = None
        self.submit_error: AcpError | None = None
        self.closed = False

    async def new_session(self, setup: port.SessionSetup, sink: port.EventSink) -> ScriptedSession:
        """A fresh session in the store."""
        session_id = random_id()
        self.store.sessions[session_id] = Stored(setup.cwd)
        return self._open(session_id, sink)

    async def open_session(self, session_id: str, setup: port.SessionSetup, sink: port.EventSink) -> ScriptedSession:
        """A stored session, active again."""
        if session_id not in self.store.sessions:
            raise ResourceNotFound(session_id, port.NOT_STORED)
        if self.store.sessions[session_id].cwd != setup.cwd:
            raise InvalidParams("cwd is not the folder of this session.")
        return self._open(session_id, sink)

    async def list_sessions(self, cwd: str | None, cursor: str | None) -> port.SessionPage:
        """All of them on one page."""
        if cursor is not None:
            raise InvalidParams("cursor is not one that this agent gave: list from the start.")
        rows = [port.StoredSession(name, stored.cwd) for name, stored in self.store.sessions.items()]
        return port.SessionPage([row for row in rows if cwd in (None, row.cwd)][::-1])

    async def delete_session(self, session_id: str) -> None:
        """Remove it from the store."""
        self.store.sessions.pop(session_id, None)

    async def aclose(self) -> None:
        """Take note."""
        self.closed = True

    def _open(self, session_id: str, sink: port.EventSink) -> ScriptedSession:
        session = self.sessions[session_id] = ScriptedSession(self, session_id, sink)
        return session
