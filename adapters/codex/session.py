"""One active session of Codex: drives its thread for the state machine in `turns`, and bounds every wait.

Owns what is asked of Codex when. What a signal means for a prompt is decided in `turns`; how a notification looks to a client, in
`updates`; when the thread is loaded, in `thread`; what is stored, in `history`.

When the app-server dies, one path runs (`on_death`): the work ends with an error at once, and an open submission that may have
reached it is decided by the stored items, once the thread is loaded again (D7). What does not do what it must is killed and
takes the same path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from adapters.acp.errors import AcpError, InternalError, as_acp_error
from adapters.acp.schema import AvailableCommand, ContentBlock, Notice, SessionUpdate
from adapters.codex import commands, threads
from adapters.codex.approvals import Ask, ask_of, declined
from adapters.codex.appserver import Answer, AppServer, Gone, Refused, RequestFailed, RequestId, Unanswered
from adapters.codex.frames import (
    MODEL_OUTPUT,
    ItemClosed,
    ItemOpened,
    Signal,
    TurnEnded,
    TurnStarted,
    children_of,
    client_id_of,
    item_of,
    signal_of,
    thread_of,
)
from adapters.codex.host import Host
from adapters.codex.prompts import to_input
from adapters.codex.replay import Replay, ShownIds
from adapters.codex.steps import (
    Compact,
    Confirm,
    Effect,
    EndCommands,
    FinishItems,
    Interrupt,
    Look,
    Open,
    Reclaim,
    Stage,
    Start,
    Steer,
    Way,
)
from adapters.codex.thread import Thread
from adapters.codex.turns import Turns
from adapters.codex.updates import Translator
from adapters.core import runtime as port
from adapters.core.shapes import as_mapping, as_text
from adapters.core.tool_text import one_line
from adapters.log import log

INTERRUPT_BOUND: Final = 5.0
"""Seconds in which an interrupt must end the turn (measured: 8 to 18 ms), before the process is ended instead (D7)."""
_INTERRUPT_AGAIN: Final = 0.2
"""Seconds after which a refused interrupt is asked for again: the turn had not begun inside."""
_COMMANDS_BOUND: Final = 1.0
"""Seconds for the commands of an interrupted turn to end (measured: 30 to 80 ms)."""
_RECLAIM_AFTER: Final = 1.0
"""Seconds that a withdrawn prompt gets to be inserted anyway, before its turn is interrupted (measured: 17 to 100 ms)."""
_LOOK_BOUND: Final = 0.5
"""Seconds for a message that may still be on its way into the store (measured: 10 to 50 ms)."""
_LOOK_EVERY: Final = 0.05
_CONFIRM_BOUND: Final = 2.0
"""Seconds for a legacy thread's file to hold a message that Codex reports as complete."""
_CONFIRM_EVERY: Final = 0.02
_WATCH_EVERY: Final = 10.0
_STUCK_AFTER: Final = 3
"""Rounds without a turn, for a prompt that was accepted, until the process is ended."""
_CLOSE_BOUND: Final = 1.0
_LOOKS: Final = 3
"""Into the stored items, before it is said that they cannot be read."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A question that waits for the user."""

    server: AppServer
    request_id: RequestId
    ask: Ask


class CodexSession:
    """An active session; see `adapters.core.runtime.RuntimeSession`. `run` must run beside it."""

    def __init__(self, session_id: str, setup: port.SessionSetup, sink: port.EventSink, host: Host) -> None:
        self.session_id = session_id
        self.commands: Sequence[AvailableCommand] = commands.COMMANDS
        self._sink = sink
        self._host = host
        self._turns = Turns()
        self._thread = Thread(session_id, setup, host, is_quiet=self._is_quiet, on_loaded=self._on_loaded)
        self._history = self._thread.history
        self._ours: set[str] = set()
        """Messages that were handed over here: the core shows them."""
        self._translator = Translator(setup.cwd, is_ours=self._ours.__contains__)
        self._status = commands.Status(session_id)
        self._questions: dict[str, _Question] = {}
        self._child_turns: dict[str, str] = {}
        """Running turns of sub-agents: thread -> turn."""
        self._shown_ids = ShownIds()
        self._told_servers: set[str] = set()
        self._held_back: list[port.Event] | None = []
        """Events before the core has taken the session over."""
        self._changed: anyio.Event | None = None
        self._closing = False
        self._close = anyio.Event()
        self._closed = anyio.Event()

    # --- tasks ---------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the session's tasks until it is closed. Run it in a task group that outlives the session."""
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await self._close.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            self._closed.set()

    @property
    def closed(self) -> bool:
        """Whether nothing is left of it."""
        return self._closed.is_set()

    def begin(self) -> None:
        """The core takes over in this very step of the event loop: events may flow from the next one on."""
        self._start(self._release)

    async def _release(self) -> None:
        held, self._held_back = self._held_back or [], None
        for event in held:
            self._deliver(event)

    def _start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        self._tasks.start_soon(self._guard, work, *args)

    async def _guard(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """A failure of one task must not take the others with it."""
        try:
            await work(*args)
        except Exception as error:  # noqa: BLE001 - logged by kind: the text can hold what a user wrote
            log("error in a session's task", session=self.session_id, task=work.__name__, error=type(error).__name__)

    def _notify(self) -> None:
        if self._changed:
            self._changed.set()
            self._changed = None

    async def _until(self, done: Callable[[], bool], bound: float | None = None) -> bool:
        """Wait until something makes it true, for `bound` seconds at most; whether it is."""
        with anyio.move_on_after(bound):
            while not done():
                self._changed = self._changed or anyio.Event()
                await self._changed.wait()
        return done()

    # --- the thread ----------------------------------------------------------------------------------------------------

    def started(self, server: AppServer, answer: Mapping[str, Any]) -> None:
        """The thread was made in this server, for this session."""
        self._thread.started(server, answer)

    async def open(self) -> None:
        """Load the stored thread. Raises `AcpError`, see `Thread.load`."""
        await self._thread.load()

    def _on_loaded(self, answer: Mapping[str, Any]) -> None:
        self._turns.legacy = self._thread.history.legacy
        self._status.version = self._host.version
        self._status.warnings = tuple(self._host.warnings)
        self._status.update({name: value for name, value in answer.items() if name != "thread"})

    def _is_quiet(self) -> bool:
        submission = self._turns.open
        return not self._turns.working and (submission is None or submission.stage is Stage.PREPARING)

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        """Other roots and servers, from the next moment without work on (RESUME-1, RESUME-5)."""
        self._thread.reconfigure(setup)
        self._start(self._catch_up)

    async def _catch_up(self) -> None:
        if self._thread.outdated and self._is_quiet() and not self._closing:
            await self._thread.load()

    # --- what Codex says -----------------------------------------------------------------------------------------------

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification about the thread or one of a sub-agent of it."""
        signal = signal_of(method, params)
        if thread_of(params) != self.session_id:
            self._on_child(thread_of(params), signal)
            return
        match method:
            case "thread/settings/updated":
                self._status.update(as_mapping(params.get("threadSettings")))
            case "thread/tokenUsage/updated":
                self._status.usage = as_mapping(params.get("tokenUsage"))
            case "mcpServer/startupStatus/updated":
                self._on_server_status(params)
            case "serverRequest/resolved":
                self._on_resolved(params.get("requestId"))
            case _:
                pass
        if isinstance(signal, ItemOpened | TurnStarted):
            self._apply(self._turns.take(signal))
            self._show(method, params)
        else:
            self._before(signal, params)
            self._show(method, params)
            if signal:
                self._apply(self._turns.take(signal))

    def _before(self, signal: Signal | None, params: Mapping[str, Any]) -> None:
        """What must be known before the signal has its effects."""
        match signal:
            case ItemClosed(turn_id, item):
                stored = item_of(params)
                self._history.unwritten = False
                if message_id := client_id_of(stored):
                    self._history.add(message_id)
                for child in children_of(stored):
                    self._host.adopt(child, self.session_id)
                if self._history.legacy and item.kind in MODEL_OUTPUT:
                    self._shown_ids.add(turn_id, item.kind, item.item_id)
            case TurnEnded(turn_id, status):
                self._translator.turn_over(turn_id, interrupted=status == "interrupted")
            case _:
                pass

    def _show(self, method: str, params: Mapping[str, Any]) -> None:
        for update in self._translator.feed(method, params):
            self._deliver(port.Output(update))

    def _on_child(self, thread_id: str, signal: Signal | None) -> None:
        """A sub-agent does not speak in the conversation; its call in the parent's turn shows it. Its turns can be stopped."""
        match signal:
            case TurnStarted(turn_id):
                self._child_turns[thread_id] = turn_id
            case TurnEnded():
                self._child_turns.pop(thread_id, None)
            case _:
                pass

    def _on_server_status(self, params: Mapping[str, Any]) -> None:
        name, state = as_text(params.get("name")), as_text(params.get("status"))
        if not name:
            return
        self._status.servers[name] = state
        ours = dict(
            zip(threads.server_names(self._thread.setup.mcp_servers), self._thread.setup.mcp_servers, strict=True)
        )
        if state == "failed" and name in ours and name not in self._told_servers:
            self._told_servers.add(name)
            title = one_line(f"The MCP server {ours[name].name} did not start; its tools are missing.")
            reason = one_line(as_text(params.get("error"))) or "It gave no reason."
            self._deliver(port.Output(Notice(severity="warning", title=title, description=reason)))

    def on_death(self, server: AppServer, error: AcpError) -> None:
        """The process is gone: the work ends at once, the stored items decide about the open submission (D7)."""
        if server is not self._thread.server:
            return
        self._thread.lost()
        self._child_turns.clear()
        self._status.servers.clear()
        for key in list(self._questions):
            del self._questions[key]
            self._deliver(port.PermissionWithdrawn(key))
        self._apply(self._turns.died(error))
        self._deliver(port.ReadyChanged())

    async def writable(self) -> None:
        """Return once the session's clients have room."""
        await self._sink.writable()

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Look(submission):
                    self._start(self._look_up, submission)
                case Confirm(submission):
                    self._start(self._confirm, submission)
                case Reclaim(submission):
                    self._start(self._reclaim, submission)
                case Interrupt(turn_id):
                    self._start(self._interrupt_turn, turn_id)
                case EndCommands(turn_id, item_ids):
                    self._start(self._end_commands, turn_id, item_ids)
                case FinishItems(status, turn_id):
                    for update in self._translator.finish(status, turn_id):
                        self._deliver(port.Output(update))
                case port.WorkEnded():
                    self._deliver(effect)
                    if self._thread.outdated:
                        self._start(self._catch_up)
                case _:
                    self._deliver(effect)
        self._notify()

    def _deliver(self, event: port.Event) -> None:
        if self._close.is_set():
            return
        if self._held_back is None:
            self._sink.deliver(event)
        else:
            self._held_back.append(event)

    # --- questions -----------------------------------------------------------------------------------------------------

    def on_request(self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        """A question about the thread or one of a sub-agent of it."""
        own = thread_of(params) == self.session_id
        running = self._translator.running_items
        stopped = self._closing or (own and self._turns.interrupting)
        ask = declined(method, params) if stopped else ask_of(method, params, running, self._thread.setup.cwd)
        key = f"{server.pid}:{request_id}"
        if ask is None:
            self._host.refuse(server, request_id, method)
        elif not isinstance(ask, Ask):
            server.respond(request_id, ask)
        elif key not in self._questions:
            self._questions[key] = _Question(server, request_id, ask)
            tool_call = self._translator.waiting_call(ask.item_id) if own else None
            if own:
                self._turns.asked(key, ask.item_id)
            self._deliver(
                port.PermissionRequested(
                    key, ask.title, ask.options, tool_call, ask.description, foreground=self._turns.working
                )
            )

    def _on_resolved(self, request_id: Any) -> None:
        """Codex no longer waits for an answer."""
        key = f"{server.pid}:{request_id}" if (server := self._thread.server) else ""
        if self._questions.pop(key, None):
            self._deliver(port.PermissionWithdrawn(key))
            self._apply(self._turns.answered(key))

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Answer Codex; a question that it no longer waits for is ignored."""
        question = self._questions.pop(request_id, None)
        if question is None:
            return
        question.server.respond(question.request_id, question.ask.answer(option_id))
        if option_id in question.ask.approvals:
            for update in self._translator.running(question.ask.item_id):
                self._deliver(port.Output(update))
        self._apply(self._turns.answered(request_id))

    # --- prompts -------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a prompt would be taken in soon, without cutting short what is being said (D3)."""
        return not self._closing and self._turns.ready

    def local_reply(self, prompt: Sequence[ContentBlock]) -> port.LocalReply | None:
        """Our own answers: `/status`, and commands that would leave the session (D8)."""
        text = commands.local_text(prompt, self._status)
        return port.LocalReply(text) if text else None

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored thread holds it: read once, then known from events. Raises `AcpError` (ADP-6)."""
        try:
            await self._history.refresh(await self._thread.load())
        except RequestFailed as failed:
            raise threads.failed_error("The stored session cannot be read", failed) from None
        return message_id in self._history.ids

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Take a prompt; its outcome comes as an event. Raises `InvalidParams` for content that Codex cannot take."""
        compact = commands.is_compact(prompt)
        content = [] if compact else to_input(prompt)
        if self._closing:
            raise InternalError("The session is being closed.")
        if self._turns.open:
            raise InternalError("Another prompt is being handed over.")
        self._ours.add(message_id)
        self._start(self._hand_over, self._turns.submit(message_id, compact=compact), content)

    def _is_open(self, submission: Open) -> bool:
        return self._turns.open is submission

    async def _hand_over(self, submission: Open, content: Sequence[Mapping[str, Any]]) -> None:
        waits = lambda: self._is_open(submission) and submission.stage is Stage.PREPARING  # noqa: E731 - said twice
        try:
            while waits():
                server = await self._thread.load()
                way = self._turns.way(submission)
                if way:
                    await self._send(server, submission, way, content)
                else:
                    await self._until(lambda: not waits() or self._turns.way(submission) is not None)
        except Exception as error:  # noqa: BLE001 - nothing was sent: whatever it is, it is the prompt's outcome
            self._apply(self._turns.failed(submission, as_acp_error(error)))
        await self._watch(submission)

    async def _send(self, server: AppServer, submission: Open, way: Way, content: Sequence[Mapping[str, Any]]) -> None:
        method, params = self._request_of(way, submission.message_id, content)
        self._turns.sending(submission)
        try:
            await server.request(method, params, then=lambda answer: self._accepted(submission, answer))
        except Refused as refused:
            log("Codex refused a prompt", session=self.session_id, method=method, code=refused.code)
            self._apply(self._turns.refused(submission, threads.prompt_error(refused)))
            if submission.stage is Stage.PREPARING:
                self._thread.doubt()
        except Unanswered:
            log("Codex does not answer; ending it", session=self.session_id, method=method, pid=server.pid)
            server.kill()
        except Gone:
            return  # `on_death` follows, and decides

    def _request_of(
        self, way: Way, message_id: str, content: Sequence[Mapping[str, Any]]
    ) -> tuple[str, dict[str, Any]]:
        thread: dict[str, Any] = {"threadId": self.session_id}
        prompt = {**thread, "clientUserMessageId": message_id, "input": content}
        match way:
            case Compact():
                return "thread/compact/start", thread
            case Steer(turn_id):
                return "turn/steer", {**prompt, "expectedTurnId": turn_id}
            case Start():
                return "turn/start", prompt

    def _accepted(self, submission: Open, answer: Mapping[str, Any]) -> None:
        turn_id = as_text(answer.get("turnId")) or as_text(as_mapping(answer.get("turn")).get("id"))
        self._apply(self._turns.accepted(submission, turn_id or None))

    async def _watch(self, submission: Open) -> None:
        """Bound the one silent way in which a prompt could get lost: accepted, and no turn begins."""
        rounds = 0
        while self._is_open(submission):
            stage = submission.stage
            moved = lambda: submission.stage is not stage or not self._is_open(submission)  # noqa: B023, E731 - awaited here
            if await self._until(moved, _WATCH_EVERY):
                rounds = 0
            elif (server := self._thread.server) and not (server.held_up or self._turns.working):
                rounds += 1
                if rounds >= _STUCK_AFTER and submission.stage in (Stage.ACCEPTED, Stage.TAKEN):
                    log("Codex does not begin with a prompt; ending it", session=self.session_id, pid=server.pid)
                    server.kill()

    async def withdraw(self, message_id: str) -> None:
        """Ask for the open submission back; its outcome comes as its one event."""
        self._apply(self._turns.withdraw(message_id))

    async def _reclaim(self, submission: Open) -> None:
        """Nothing takes a prompt back. In a turn of its own an interrupt prevents it, if it is not inserted by then."""
        await self._until(lambda: not self._is_open(submission), _RECLAIM_AFTER)
        while self._is_open(submission) and submission.stage in (Stage.SENDING, Stage.ACCEPTED):
            if submission.owns_turn and submission.turn_id and self._turns.runs(submission.turn_id):
                self._apply(self._turns.interrupt())
                return
            await self._until(lambda: not self._is_open(submission), _RECLAIM_AFTER)

    async def _look_up(self, submission: Open) -> None:
        """Decide by the stored items; where the process lives on, the message may still be on its way."""
        found: bool | None = None
        for _ in range(_LOOKS):
            try:
                server = await self._thread.load()
                patient = self._history.complete
                await self._history.refresh(server)
                found = submission.message_id in self._history.ids
                if patient and not found:
                    found = await self._appears(server, submission)
                break
            except (AcpError, RequestFailed):
                found = None
                await anyio.sleep(_LOOK_EVERY)
        if found:
            self._history.add(submission.message_id)
        self._apply(self._turns.looked(submission, found=found))

    async def _appears(self, server: AppServer, submission: Open) -> bool:
        deadline = anyio.current_time() + _LOOK_BOUND
        while self._is_open(submission):
            if await self._history.holds_lately(server, submission.message_id):
                return True
            if anyio.current_time() >= deadline:
                break
            await self._until(lambda: not self._is_open(submission), _LOOK_EVERY)
        return False

    async def _confirm(self, submission: Open) -> None:
        """In a legacy thread the event may come before the write: see the file itself (D2)."""
        deadline = anyio.current_time() + _CONFIRM_BOUND
        while self._is_open(submission) and anyio.current_time() < deadline:
            if await self._history.is_in_file(submission.message_id):
                break
            await anyio.sleep(_CONFIRM_EVERY)
        if submission.stage is Stage.CONFIRMING:
            self._apply(self._turns.confirmed(submission))

    # --- interrupts ----------------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        """Stop the running work: `WorkEnded` follows within `INTERRUPT_BOUND` and the time to end a process."""
        self._apply(self._turns.interrupt())

    async def _interrupt_turn(self, turn_id: str) -> None:
        """Ask once, and again only when that was refused; the end of the turn counts, not the answer (trap 6)."""
        server = self._thread.server
        if server is None:
            return
        self._stop_children(server)
        left = INTERRUPT_BOUND
        while left > 0 and self._turns.runs(turn_id):
            began = anyio.current_time()
            refused: list[Answer] = []

            def take(answer: Answer, refused: list[Answer] = refused) -> None:
                if isinstance(answer, RequestFailed):
                    refused.append(answer)
                    self._notify()

            server.ask("turn/interrupt", {"threadId": self.session_id, "turnId": turn_id}, take)
            over = lambda: not self._turns.runs(turn_id)  # noqa: E731 - said twice
            await self._until(lambda: bool(over() or refused), left)  # noqa: B023 - awaited here
            if refused:
                await self._until(over, _INTERRUPT_AGAIN)
            if not server.held_up:  # what ends the turn may wait behind a client that does not read
                left -= anyio.current_time() - began
        if self._turns.runs(turn_id) and server is self._thread.server:
            log("Codex does not react to an interrupt; ending it", session=self.session_id, pid=server.pid)
            server.kill()

    def _stop_children(self, server: AppServer) -> None:
        for thread_id, turn_id in self._child_turns.items():
            server.post("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})

    async def _end_commands(self, turn_id: str, item_ids: Sequence[str]) -> None:
        """An interrupt leaves commands running (trap 11). Those of earlier turns, which nobody asked to stop, go on."""
        if server := self._thread.server:
            items = self._translator.running_items
            for item_id in item_ids:
                process_id = as_text(as_mapping(items.get(item_id)).get("processId"))
                params = {"threadId": self.session_id, "processId": process_id}
                if process_id:
                    server.post("thread/backgroundTerminals/terminate", params)
        await self._until(lambda: self._turns.turn_id != turn_id, _COMMANDS_BOUND)
        self._apply(self._turns.commands_over(turn_id))

    # --- the store -----------------------------------------------------------------------------------------------------

    async def replay(self) -> AsyncIterator[SessionUpdate]:
        """All retained history, read page by page as it is passed on. Raises `AcpError` when it cannot be read."""
        replay = Replay(self._history, self._thread.setup.cwd, self._translator.running_items, self._shown_ids)
        try:
            async for update in replay.updates(await self._thread.load()):
                yield update
        except RequestFailed as failed:
            raise threads.failed_error("The stored session cannot be read", failed) from None

    # --- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the work and free the thread, within 3 s; the open submission ends in its event first. May be called again."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = self._turns.closing = True
        with anyio.CancelScope(shield=True):
            submission = self._turns.open
            if submission and submission.stage is Stage.PREPARING:
                self._apply(self._turns.withdraw(submission.message_id))
            self._apply(self._turns.interrupt())
            done = lambda: not (self._turns.working or self._turns.open)  # noqa: E731 - said twice
            await self._until(done, _CLOSE_BOUND)
            if not done():
                await self._give_up()
            await self._let_go()
            self._close.set()
            self._host.leave(self)
            await self._host.retire()
            await self._closed.wait()

    async def _give_up(self) -> None:
        """Codex did not end the work in time; nobody waits any longer. A look can still tell what became of the prompt."""
        self._apply(self._turns.died(InternalError("Codex did not end the work in time.")))
        await self._until(lambda: self._turns.open is None, _CLOSE_BOUND)
        if submission := self._turns.open:
            self._apply(self._turns.looked(submission, found=None))

    async def _let_go(self) -> None:
        """What runs in the background ends; a session that was never prompted leaves nothing behind."""
        server = self._thread.server
        if server is None or server.gone.is_set():
            return
        thread = {"threadId": self.session_id}
        self._stop_children(server)
        if self._translator.running_items:
            server.post("thread/backgroundTerminals/clean", thread)
            for update in self._translator.finish("cancelled"):
                self._deliver(port.Output(update))
        with anyio.move_on_after(_CLOSE_BOUND):
            try:
                await server.request("thread/delete" if self._history.unwritten else "thread/unsubscribe", thread)
            except RequestFailed as failed:
                log("a thread could not be let go", session=self.session_id, error=type(failed).__name__)
