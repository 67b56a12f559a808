"""One active session of Codex: connects its thread with the state machine in `turns`.

Owns the order of actions: what happens first at a notification, what is handed over when, and how a session ends. `turns` decides
what a signal means for a prompt. `show.live` turns a notification into updates. `thread.loaded` loads the thread.
`thread.history` and `evidence` say what is stored. `interrupts` stops work.

When the app-server dies, one path runs (`on_death`). The work ends with an error at once. The stored items decide about an open
submission that may have reached the app-server, when the thread is loaded again (D7). A process that does not react is killed and
takes the same path.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from adapters.acp.errors import AcpError, InternalError, as_acp_error
from adapters.acp.schema import AvailableCommand, ContentBlock, Notice, SessionUpdate
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex import commands
from adapters.codex.evidence import Evidence
from adapters.codex.interrupts import Stopper
from adapters.codex.mcp_servers import Keys, without_secrets
from adapters.codex.open_questions import Questions
from adapters.codex.server.process import AppServer, Gone, Refused, RequestFailed, RequestId, Unanswered
from adapters.codex.server.shared import Host
from adapters.codex.server.signals import (
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
from adapters.codex.show.content import to_input
from adapters.codex.show.live import Translator
from adapters.codex.show.replay import Replay, ShownIds
from adapters.codex.thread import requests
from adapters.codex.thread.loaded import Thread
from adapters.codex.turn_types import (
    Compact,
    Confirm,
    Continue,
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
from adapters.codex.turns import Turns
from adapters.core import port
from adapters.core.server_keys import name_of, named
from adapters.driver.slash import command_of
from adapters.driver.tasks import Tasks
from adapters.driver.tool_text import one_line
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)


class CodexSession:
    """An active session; see `adapters.core.port.RuntimeSession`. `tasks.run` must run beside it."""

    def __init__(self, session_id: str, setup: port.SessionSetup, sink: port.EventSink, host: Host) -> None:
        self.session_id = session_id
        self.commands: Sequence[AvailableCommand] = commands.COMMANDS
        self.tasks = Tasks(session_id)
        self._sink = sink
        self._host = host
        self._bounds = host.bounds
        self._turns = Turns()
        self._thread = Thread(session_id, setup, host, is_quiet=self._is_quiet, on_loaded=self._on_loaded)
        self._history = self._thread.history
        self._evidence = Evidence(self._thread, self._turns, self.tasks, self._bounds)
        self._ours: set[str] = set()
        """Messages that were handed over here: the core shows them."""
        self._translator = Translator(setup.cwd, is_ours=self._ours.__contains__)
        self._shown_ids = ShownIds()
        self._questions = Questions(
            self._turns, self._translator, host.asked_items, host.refuse, self._apply, given=lambda: self._thread.keys
        )
        self._stopper = Stopper(
            self._thread, self._turns, self._translator, self.tasks, self._apply, bounds=self._bounds
        )
        self._status = commands.Status(session_id)
        self._loaded_with: frozenset[str] = frozenset()
        """Keys of the client's servers that the status may hold."""
        self._told_servers: dict[str, Any] = {}
        """Servers that the user was told of: key -> what the client gave."""
        self._held_back: list[port.Event] | None = []
        """Events from before the core has taken the session over, from the first one on that is no mere output."""
        self._unblocked_at = -self._bounds.unblocked
        self._prompted = False
        """Something was handed over: the thread may hold it, whatever was said of it."""
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether it needs the server only to end what it does."""
        return self._closing

    def begin(self) -> None:
        """The core takes over in this very step of the event loop: events may flow from the next one on."""
        self.tasks.start(self._release)

    async def _release(self) -> None:
        held, self._held_back = self._held_back or [], None
        for event in held:
            self._deliver(event)

    # --- the thread ----------------------------------------------------------------------------------------------------

    def made(self, server: AppServer, answer: Mapping[str, Any], keys: Keys) -> None:
        """The thread was made in this server, for this session, with these MCP servers."""
        self._thread.started(server, answer, keys)

    async def open(self) -> None:
        """Load the stored thread. Raises `AcpError`, see `Thread.load`."""
        await self._thread.load()

    async def started(self) -> None:
        """The thread is loaded before its session is there: until then nothing can be said of what it holds."""

    def _on_loaded(self, answer: Mapping[str, Any]) -> None:
        for key in self._loaded_with - self._thread.keys.keys():
            self._status.servers.pop(key, None)
        self._loaded_with = frozenset(self._thread.keys)
        self._status.version = self._host.version
        self._status.warnings = tuple(self._host.warnings)
        self._status.update({name: value for name, value in answer.items() if name != "thread"})

    def _is_quiet(self) -> bool:
        submission = self._turns.open
        return not self._turns.working and (submission is None or submission.stage is Stage.PREPARING)

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        """Other roots and servers, from the next moment without work on (RESUME-1, RESUME-5)."""
        self._thread.reconfigure(setup)
        self.tasks.start(self._catch_up)

    async def _catch_up(self) -> None:
        if self._thread.outdated and self._is_quiet() and not self._closing:
            await self._thread.load()

    # --- what Codex says -----------------------------------------------------------------------------------------------

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification about the thread or one of a sub-agent of it."""
        signal = signal_of(method, params)
        if thread_of(params) != self.session_id:
            self._stopper.heard(thread_of(params), signal)
            return
        self._note(method, params)
        if isinstance(signal, ItemOpened | TurnStarted):
            self._apply(self._turns.take(signal))
            self._show(method, params)
        else:
            signal = self._before(signal, params)
            self._show(method, params)
            if signal:
                self._apply(self._turns.take(signal))

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        """Handle notifications that neither belong to a turn nor are shown."""
        match method:
            case "thread/settings/updated":
                self._status.update(as_mapping(params.get("threadSettings")))
            case "thread/tokenUsage/updated":
                self._status.usage = as_mapping(params.get("tokenUsage"))
            case "mcpServer/startupStatus/updated":
                self._on_server_status(params)
            case "thread/closed":
                self._thread.closed()
            case "serverRequest/resolved" if self._thread.server:
                self._questions.resolved(self._thread.server, params.get("requestId"))
            case _:
                pass

    def _before(self, signal: Signal | None, params: Mapping[str, Any]) -> Signal | None:
        """Find out what must be known before the signal has its effects. Returns the signal with that."""
        match signal:
            case ItemClosed(turn_id):
                item = item_of(params)
                self._history.unwritten = False
                for child in children_of(item):
                    self._host.adopt(child, self.session_id)
                if self._history.legacy:
                    self._shown_ids.add(turn_id, item)
                return replace(signal, stored=self._is_stored(client_id_of(item)))
            case TurnEnded(turn_id, status):
                self._translator.turn_over(turn_id, interrupted=status == "interrupted")
            case _:
                pass
        return signal

    def _is_stored(self, message_id: str | None) -> bool:
        """Whether the file holds a message that Codex reports as complete. Other items are never asked about."""
        if message_id is None:
            return True
        if self._turns.open and self._turns.open.message_id == message_id:
            return self._history.is_in_file_already(message_id)
        self._history.doubt()  # nobody here has sent it
        return False

    def _show(self, method: str, params: Mapping[str, Any]) -> None:
        for update in self._translator.feed(method, params):
            self._deliver(port.Output(update))

    def _on_server_status(self, params: Mapping[str, Any]) -> None:
        name, state = as_text(params.get("name")), as_text(params.get("status"))
        if not name:
            return
        self._status.servers[name] = state
        given = self._thread.keys.get(name)
        if state == "failed" and given is not None and self._told_servers.get(name) != given:
            self._told_servers[name] = given
            title = one_line(f"The MCP server {name_of(name)} did not start; its tools are missing.")
            reason = one_line(without_secrets(named(as_text(params.get("error")), name), given)) or "It gave no reason."
            self._deliver(port.Output(Notice(severity="warning", title=title, description=reason)))

    def on_request(self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        """A question about the thread or one of a sub-agent of it."""
        own = thread_of(params) == self.session_id
        self._questions.ask(server, request_id, method, params, self._thread.setup.cwd, own=own)

    def on_death(self, server: AppServer, error: AcpError) -> None:
        """The process is gone: the work ends at once, the stored items decide about the open submission (D7)."""
        if server is not self._thread.server:
            return
        self._thread.lost()
        self._stopper.forget()
        self._status.servers.clear()
        self._questions.drop_all()
        self._apply([*self._turns.died(error), port.ReadyChanged()])

    async def writable(self) -> None:
        """Return once the session's clients have room."""
        await self._sink.writable()

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Look(submission):
                    self.tasks.start(self._look_up, submission)
                case Confirm(submission):
                    self.tasks.start(self._confirm, submission)
                case Reclaim(submission):
                    self.tasks.start(self._reclaim, submission)
                case Interrupt(turn_id):
                    self.tasks.start(self._stopper.interrupt, turn_id)
                case Continue(turn_id):
                    self.tasks.start(self._go_on, turn_id)
                case EndCommands(turn_id, item_ids):
                    self.tasks.start(self._stopper.end_commands, turn_id, item_ids)
                case FinishItems(status, turn_id):
                    for update in self._translator.finish(status, turn_id):
                        self._deliver(port.Output(update))
                case _:
                    self._deliver(effect)
                    if isinstance(effect, port.ReadyChanged):
                        self._unblocked_at = anyio.current_time()
                    elif isinstance(effect, port.WorkEnded) and self._thread.outdated:
                        self.tasks.start(self._catch_up)
        self.tasks.changed()

    def _deliver(self, event: port.Event) -> None:
        if self.tasks.ending:
            return
        if self._held_back is None or (isinstance(event, port.Output) and not self._held_back):
            self._sink.deliver(event)
        else:
            self._held_back.append(event)

    # --- prompts -------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a prompt would be taken in soon, without cutting short what is being said (D3)."""
        return not self._closing and self._turns.ready

    def local_reply(self, prompt: Sequence[ContentBlock]) -> port.LocalReply | None:
        """Our own answers: `/status`, and commands that would leave the session (D8)."""
        text = commands.local_text(prompt, self._status)
        return port.LocalReply(text) if text else None

    def is_live_only(self, prompt: Sequence[ContentBlock]) -> bool:
        """`/compact` leaves no message in the thread."""
        return command_of(prompt) == "compact"

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored thread holds it. Raises `AcpError` when it cannot be read (ADP-6)."""
        return await self._evidence.is_recorded(message_id)

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Take a prompt; its outcome comes as an event. Raises `InvalidParams` for content that Codex cannot take."""
        compact = commands.is_compact(prompt)
        content = [] if compact else to_input(prompt)
        if self._closing:
            raise InternalError("The session is being closed.")
        if self._turns.open:
            raise InternalError("Another prompt is being handed over.")
        self._ours.add(message_id)
        self.tasks.start(self._hand_over, self._turns.submit(message_id, compact=compact), content)

    def _is_open(self, submission: Open) -> bool:
        return self._turns.open is submission

    async def _hand_over(self, submission: Open, content: Sequence[Mapping[str, Any]]) -> None:
        """Hand the prompt over as soon as possible, again if the state machine says so, and watch it until it is settled."""
        while self._is_open(submission):
            if submission.stage is not Stage.PREPARING:
                await self._watch(submission)
                continue
            try:
                await self._hand_over_once(submission, content)
            except Exception as error:  # noqa: BLE001 - nothing was sent: whatever it is, it is the prompt's outcome
                self._apply(self._turns.failed(submission, as_acp_error(error)))

    async def _hand_over_once(self, submission: Open, content: Sequence[Mapping[str, Any]]) -> None:
        def waits() -> bool:
            return self._is_open(submission) and submission.stage is Stage.PREPARING

        quiet: Way | None = None
        while waits():
            server = await self._thread.load()
            way = self._turns.way(submission)
            if way is None:
                await self.tasks.until(lambda: not waits() or self._turns.way(submission) is not None)
            elif isinstance(way, Steer) and way != quiet and not self._surely_no_tool:
                await self._settle(submission, way)
                quiet = way
            elif not await self._thread.is_locked():
                text = "The lock file of this session was removed while its prompt waited: send it again with the same key."
                raise InternalError(text, {"category": "held", "inserted": None})
            elif waits() and self._turns.way(submission) == way and self._thread.server is server:
                await self._send(server, submission, way, content)  # not to one that died during the look at its lock

    async def _settle(self, submission: Open, way: Way) -> None:
        """Is the running turn as quiet as it seems?"""
        await self.tasks.until(lambda: self._turns.way(submission) != way or self._surely_no_tool, self._bounds.settle)

    @property
    def _surely_no_tool(self) -> bool:
        """Whether the running turn is at a point where no tool can run that we have not heard of."""
        return self._turns.thinking or anyio.current_time() - self._unblocked_at < self._bounds.unblocked

    async def _send(self, server: AppServer, submission: Open, way: Way, content: Sequence[Mapping[str, Any]]) -> None:
        method, params = self._request_of(way, submission.message_id, content)
        self._history.sending()
        self._turns.sending(submission)
        self._prompted = True
        try:
            await server.request(
                method, params, bound=self._bounds.accept, then=lambda answer: self._accepted(submission, answer)
            )
        except Refused as refused:
            _log.warning(LogEvent("Codex refused a prompt", session=self.session_id, method=method, code=refused.code))
            self._apply(self._turns.refused(submission, requests.prompt_error(refused)))
            if submission.stage is Stage.PREPARING:
                self._thread.doubt()
        except Unanswered:
            _log.warning(
                LogEvent("Codex does not answer; ending it", session=self.session_id, method=method, pid=server.pid)
            )
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
        """Wait for its next stage. Bounds the one silent way in which it could get lost: accepted, and no turn begins."""
        stage = submission.stage
        for _ in range(self._bounds.stuck_after):
            if await self.tasks.until(
                lambda: submission.stage is not stage or not self._is_open(submission), self._bounds.silence
            ):
                return
            server = self._thread.server
            if server is None or server.held_up or self._turns.working:
                return
        if stage in (Stage.ACCEPTED, Stage.TAKEN) and (server := self._thread.server):
            _log.warning(
                LogEvent("Codex does not start on a prompt; ending it", session=self.session_id, pid=server.pid)
            )
            server.kill()

    async def withdraw(self, message_id: str) -> None:
        """Ask for the open submission back; its outcome comes as its one event."""
        self._apply(self._turns.withdraw(message_id))

    async def _reclaim(self, submission: Open) -> None:
        """Nothing takes a prompt back. In a turn of its own an interrupt prevents it, if it is not inserted by then."""
        await self.tasks.until(lambda: not self._is_open(submission), self._bounds.reclaim)
        while self._is_open(submission) and submission.stage in (Stage.SENDING, Stage.ACCEPTED):
            if submission.owns_turn and submission.turn_id and self._turns.runs(submission.turn_id):
                self._apply(self._turns.interrupt())
                return
            await self.tasks.until(lambda: not self._is_open(submission), self._bounds.reclaim)

    async def _go_on(self, turn_id: str) -> None:
        """Have the model asked about what came in at the end of a turn: a turn without input of its own does that (0.163.0)."""
        _log.warning(
            LogEvent("a prompt was inserted as a turn ended; asking the model once more", session=self.session_id)
        )
        server = self._thread.server
        try:
            if server and not self._turns.interrupting:
                await server.request(
                    "turn/start", {"threadId": self.session_id, "input": []}, bound=self._bounds.accept
                )
                await self.tasks.until(lambda: not self._turns.goes_on(turn_id), self._bounds.accept)
        except RequestFailed as failed:
            _log.warning(LogEvent("the model was not asked", session=self.session_id, error=type(failed).__name__))
        self._apply(self._turns.not_continued(turn_id))

    async def _look_up(self, submission: Open) -> None:
        found = await self._evidence.look_up(submission)
        self._apply(self._turns.looked(submission, found=found))

    async def _confirm(self, submission: Open) -> None:
        stored = await self._evidence.confirm(submission)
        if not stored:
            _log.warning(LogEvent("a prompt is not in the file of its session", session=self.session_id))
        self._apply(self._turns.confirmed(submission, stored=stored))

    async def interrupt(self) -> None:
        """Stop the running work: `WorkEnded` follows within `Bounds.interrupt` and the time to end a process."""
        self._apply(self._turns.interrupt())

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Answer Codex; a question that it no longer waits for is ignored."""
        self._questions.answer(request_id, option_id)

    async def replay(self) -> AsyncIterator[SessionUpdate]:
        """All retained history, read page by page as it is passed on. Raises `AcpError` when it cannot be read.

        A process that dies before anything was passed on is replaced once (D7).
        """
        begun = False
        for last in (False, True):
            running, overwritten = self._translator.running_items, self._host.overwritten
            replay = Replay(self._history, self._thread.setup.cwd, running, self._shown_ids, overwritten)
            try:
                async for update in replay.updates(await self._thread.load()):
                    begun = True
                    yield update
            except RequestFailed as failed:
                if last or begun or not isinstance(failed, Gone):
                    raise requests.failed_error("The stored session cannot be read", failed) from None
            else:
                return

    # --- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the work and free the thread, within 4 s; the open submission ends in its event first. May be called again."""
        if self._closing:
            await self.tasks.wait_ended()
            return
        self._closing = self._turns.closing = True
        with anyio.CancelScope(shield=True):
            submission = self._turns.open
            if submission and submission.stage is Stage.PREPARING:
                self._apply(self._turns.withdraw(submission.message_id))
            self._apply(self._turns.interrupt())
            if not await self.tasks.until(lambda: not (self._turns.working or self._turns.open), self._bounds.close):
                await self._give_up()
            await self._let_go()
            self.tasks.end()
            self._host.leave(self)
            await self._host.retire()
            await self.tasks.wait_ended()

    async def _give_up(self) -> None:
        """Codex did not end the work in time; nobody waits any longer. A look can still tell what became of the prompt."""
        self._apply(self._turns.died(InternalError("Codex did not end the work in time.")))
        await self.tasks.until(lambda: self._turns.open is None, self._bounds.close)
        if submission := self._turns.open:
            self._apply(self._turns.looked(submission, found=None))

    async def _let_go(self) -> None:
        """What runs in the background ends; a session that was never prompted leaves nothing behind."""
        server = self._thread.server
        if server is None or server.gone.is_set():
            return
        thread = {"threadId": self.session_id}
        self._stopper.stop_children(server)
        if self._translator.running_items:
            server.post("thread/backgroundTerminals/clean", thread)
            self._apply([port.Output(update) for update in self._translator.finish("cancelled")])
        try:
            if self._history.unwritten and not self._prompted:
                await server.request("thread/delete", thread, bound=self._bounds.close)
            elif self._host.is_shared():
                for child in self._host.children_of(self.session_id):
                    server.post("thread/unsubscribe", {"threadId": child})
                await self._thread.unload(server, bound=self._bounds.close)
        except RequestFailed as failed:
            _log.warning(
                LogEvent("a thread could not be unloaded", session=self.session_id, error=type(failed).__name__)
            )
