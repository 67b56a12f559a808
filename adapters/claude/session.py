"""One active session of Claude Code: drives its process, its store and its clocks for the state machine in `turns`.

Owns when the process starts, is replaced and ends, and every bound on waiting for it. What a signal means for a prompt is
decided in `turns`; how a frame looks to a client, in `updates`; what is stored, in `store`; open questions, in `asking`.

The process of a session:

    state     why                                          leaves by
    --------  -------------------------------------------  -------------------------------------------------------------
    none      not started yet, or it died                  starting: at new and resume, and before the next prompt
    starting  spawned; `initialize` is not answered        live: answered; none: refused, died, or 20 s passed (an error)
    live      frames are read, prompts are written         none: it died; starting: replaced while idle, because the next
                                                           prompt's id is burnt in it (D5), or because the stored session
                                                           holds entries that it did not announce (D6)
    closed    for good                                     -

When it dies, at any time, one path runs (`_lost`): nothing of it is left alive, the stored session is read, and the machine
decides the open submission and ends the work (D7). What must be killed takes the same path.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, Final

import anyio

from adapters.acp.errors import AcpError, InternalError, as_acp_error
from adapters.acp.schema import AvailableCommand, ContentBlock, Notice, SessionUpdate
from adapters.claude import commands, orphans
from adapters.claude.asking import Asking
from adapters.claude.frames import (
    AskedOther,
    AskedPermission,
    AskWithdrawn,
    Stored,
    Strayed,
    TurnBegan,
    TurnEnded,
    is_known,
    kind_of,
    signal_of,
    user_frame,
)
from adapters.claude.hosted import Hosted
from adapters.claude.launch import Launcher, start_error
from adapters.claude.lock import SessionLock
from adapters.claude.process import ClaudeProcess, ControlError
from adapters.claude.prompts import to_content
from adapters.claude.store import Store
from adapters.claude.turns import Effect, FinishTools, Interrupt, Look, Open, Stage, Turns, Withdraw
from adapters.claude.updates import Translator
from adapters.core import runtime as port
from adapters.core.shapes import as_list, as_mapping, as_text
from adapters.log import log

INTERRUPT_BOUND: Final = 5.0
"""Seconds in which an interrupt must end the work, before the process is ended instead (D7)."""
_INTERRUPT_AGAIN: Final = 1.0
_MIRROR_BOUND: Final = 0.3
"""Seconds for the announcement of an entry that is already in the file (measured: within 10 ms)."""
_LOOK_BOUND: Final = 1.0
"""Seconds for an entry that should be stored; the CLI writes its pending lines before a result."""
_LOOK_EVERY: Final = 0.1
_WATCH_EVERY: Final = 2.0
_ANSWER_BOUND: Final = 10.0
"""Seconds in which a process that is alive answers a control request (measured: 1 to 21 ms, also in mid-turn)."""
_SKIPPED_AFTER: Final = 5
"""Rounds without a word for a prompt, from a process that answers, until it counts as skipped."""
_STUCK_AFTER: Final = 60
"""Rounds in the queue of an idle process that waits for nothing, until it is ended."""
_WITHDRAW_AGAIN: Final = 0.5


_logged_kinds: set[str] = set()
"""Unknown kinds of frames that were logged: once per agent, not per session (D11)."""


class _State(Enum):
    NONE = "none"
    STARTING = "starting"
    LIVE = "live"
    CLOSED = "closed"


class ClaudeSession(Hosted):
    """An active session; see `adapters.core.runtime.RuntimeSession`. `host` must run beside it."""

    def __init__(
        self, session_id: str, setup: port.SessionSetup, sink: port.EventSink, launcher: Launcher, lock: SessionLock
    ) -> None:
        super().__init__(f"session {session_id}")
        self.session_id = session_id
        self.commands: Sequence[AvailableCommand] = ()
        self._setup = setup
        self._outdated = False
        """The live process was started with another setup."""
        self._sink = sink
        self._launcher = launcher
        self._lock = lock
        self._turns = Turns()
        self._translator = Translator(setup.cwd)
        self._store = Store(session_id, partial(launcher.transcript, session_id))
        self._asking = Asking(self._translator, self._deliver)
        self._process: ClaudeProcess | None = None
        self._state = _State.NONE
        self._gate = anyio.Lock()
        """Held while the process is started, replaced or buried."""
        self._strayed = False
        """The process went on in another session: it must not get another prompt."""
        self._told_servers: set[tuple[str, str]] = set()
        self._interrupt_again = False
        """A turn began after the interrupt was sent, so that was lost."""
        self._closing = False
        self._silent = False
        """Closed: nothing is delivered any more."""

    # --- the process ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the first process. Raises `AcpError` that says why it does not start; close the session then."""
        async with self._gate:
            await self._start_process()

    async def _start_process(self) -> None:
        self._state = _State.STARTING
        process: ClaudeProcess | None = None
        try:
            stored = await self._store.mark()
            self._outdated = False
            process = await self._launcher.spawn(self.session_id, self._setup, resume=stored)
            self._process = process
            self._start(self._serve, process)
            if self._closing:
                raise start_error("the session is being closed", None)  # noqa: TRY301 - one way out for all failures
            initialized = await self._launcher.initialize(process, self.session_id)
            if process.gone.is_set():
                raise start_error("it ended at once", process.exit_code)  # noqa: TRY301
        except BaseException:
            self._process = None
            self._state = _State.NONE
            if process:
                await process.stop(busy=True)
                self._launcher.gone(self.session_id)
            raise
        self._strayed = False
        self._turns.started_process()
        self._state = _State.LIVE
        self._offer(commands.available_commands(initialized))

    def _offer(self, offered: Sequence[AvailableCommand]) -> None:
        if tuple(offered) != tuple(self.commands):
            before, self.commands = self.commands, offered
            if before:
                self._deliver(port.CommandsChanged(offered))

    async def _serve(self, process: ClaudeProcess) -> None:
        try:
            await process.run(lambda frame: self._on_frame(process, frame), self._sink.writable)
        except Exception as error:  # noqa: BLE001 - whatever ended the reading, the process is gone
            log("reading from Claude Code failed", session=self.session_id, error=type(error).__name__)
        if process is self._process and self._state is _State.LIVE:
            await self._lost(process)

    async def _replace(self) -> None:
        """End the idle process; the caller, who holds the gate, starts the next one."""
        process, self._process = self._process, None
        self._state = _State.NONE
        if process:
            await process.stop(busy=False)
            self._launcher.gone(self.session_id)

    async def _lost(self, process: ClaudeProcess) -> None:
        """The process ended, whoever ended it: bury it, and let the stored session decide (D7)."""
        async with self._gate:
            if process is not self._process:
                return
            self._process = None
            self._state = _State.CLOSED if self._closing else _State.NONE
            if not process.stopping:
                await orphans.end_marked(self.session_id)  # its tools live on without it
            self._launcher.gone(self.session_id)
            if not self._closing:
                log("Claude Code ended", session=self.session_id, pid=process.pid, exit=process.exit_code)
            submission = self._turns.open
            found = await self._store.holds_at_last(submission.message_id) if submission else False
            self._apply(self._turns.died(_death(process), found=found))
            self._asking.withdraw_all()
        if not self._closing:
            self._deliver(port.ReadyChanged())

    # --- what the CLI says ----------------------------------------------------------------------------------------------

    def _on_frame(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
        if process is not self._process:
            return  # an old process has nothing to say any more
        try:
            signal = signal_of(frame)
            match signal:
                case TurnEnded():
                    self._show(frame)  # every update of the work comes before its end (STATE-2)
                    self._apply(self._turns.take(signal))
                case AskedPermission() | AskedOther() | AskWithdrawn():
                    stopped, foreground = self._turns.interrupting or self._closing, self._turns.working
                    self._asking.take(process, signal, stopped=stopped, foreground=foreground)
                case Stored():
                    if self._store.announced(signal):
                        self._apply(self._turns.take(signal))
                case Strayed():
                    log("Claude Code left the session; restarting it before the next prompt", session=self.session_id)
                    self._strayed = True
                case _:
                    if signal:
                        self._apply(self._turns.take(signal))
                    elif not is_known(frame):
                        self._log_once(kind_of(frame))
                    if isinstance(signal, TurnBegan):
                        self._tell_servers(signal.servers)
                    self._show(frame)
        except Exception as error:  # noqa: BLE001 - one frame that we cannot take must not end the session (D11)
            log("a frame was not understood", session=self.session_id, error=type(error).__name__)
        self._notify()

    def _log_once(self, kind: str) -> None:
        if kind not in _logged_kinds:
            _logged_kinds.add(kind)
            log("Claude Code wrote a frame of an unknown kind", kind=kind)

    def _show(self, frame: Mapping[str, Any]) -> None:
        for update in self._translator.feed(frame):
            self._deliver(port.Output(update))

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Look(submission, patient):
                    self._start(self._look_up, submission, patient)
                case Withdraw(submission):
                    self._start(self._ask_back, submission)
                case Interrupt():
                    self._interrupt_again = True
                case FinishTools(status):
                    for update in self._translator.finish(status):
                        self._deliver(port.Output(update))
                case port.WorkStarted():
                    self._store.turn_began()
                    self._deliver(effect)
                case port.WorkEnded():
                    self._deliver(effect)
                    self._start(self._store.turn_ended)
                case _:
                    self._deliver(effect)
        self._notify()

    def _deliver(self, event: port.Event) -> None:
        if not self._silent:
            self._sink.deliver(event)

    def _tell_servers(self, servers: Sequence[tuple[str, str]]) -> None:
        """The client's own MCP servers that do not work: one notice each."""
        ours = {server.name for server in self._setup.mcp_servers}
        for name, status in servers:
            if name in ours and status not in ("connected", "disabled") and (name, status) not in self._told_servers:
                self._told_servers.add((name, status))
                state = "does not answer yet" if status == "pending" else f"is not connected ({status})"
                title = f"The MCP server {name} {state}: its tools are missing."
                self._deliver(port.Output(Notice(severity="warning", title=title)))

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Answer the CLI; a request that it no longer waits for is ignored."""
        self._asking.answer(request_id, option_id)

    # --- prompts --------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a prompt would be taken in soon: not while one is open, an interrupt runs, or a process starts or ends."""
        return not (
            self._closing
            or self._turns.open
            or self._turns.interrupting
            or self._gate.locked()
            or self._state in (_State.STARTING, _State.CLOSED)
        )

    def local_reply(self, prompt: Sequence[ContentBlock]) -> port.LocalReply | None:
        """Our own answer to a command that would leave the session (D8)."""
        text = commands.local_text(prompt)
        return port.LocalReply(text) if text else None

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored session holds it, by a look at what was appended. Orphans were ended when it was opened."""
        await self._store.refresh()
        return self._store.holds(message_id)

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Take a prompt; its outcome comes as an event. Raises `InvalidParams` for content that the CLI cannot take."""
        content, literal = commands.arrange(prompt, to_content(prompt))
        if self._closing:
            raise InternalError("The session is being closed.")
        if self._turns.open:
            raise InternalError("Another prompt is being handed over.")
        submission = self._turns.submit(message_id)
        self._start(self._hand_over, submission, user_frame(message_id, content, literal=literal))

    def _is_open(self, submission: Open) -> bool:
        return self._turns.open is submission

    async def _hand_over(self, submission: Open, frame: Mapping[str, Any]) -> None:
        try:
            await self._write(submission, frame)
        except Exception as error:  # noqa: BLE001 - nothing was written: whatever it is, it is the prompt's outcome
            self._apply(self._turns.failed(submission, as_acp_error(error)))
        await self._watch(submission)
        self._deliver(port.ReadyChanged())  # the gate was held meanwhile, and nothing else may tell that it is free

    async def _write(self, submission: Open, frame: Mapping[str, Any]) -> None:
        """Give the prompt to a process that will run it, once there is one."""
        while self._is_open(submission):
            # A turn's process is needed until its end. A withdrawal and an interrupt still work meanwhile.
            if not await self._until(lambda: not self._must_wait(submission), _WATCH_EVERY):
                continue
            async with self._gate:
                if not self._is_open(submission) or self._must_wait(submission):
                    continue
                outdated = self._outdated or self._must_replace(submission)
                if not self._turns.working and (outdated or await self._overtaken()):
                    await self._replace()
                if self._process is None:
                    await self._start_process()
                process = self._process
                if self._is_open(submission) and process and process.alive:
                    self._turns.sent(submission)
                    process.send(frame)
                    return
            await self._until(lambda: self._process is not process, _WATCH_EVERY)  # noqa: B023 - it died; awaited here

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        """New roots and servers: a fresh process takes them up with the next prompt that finds no work (RESUME-1, RESUME-5)."""
        self._setup, self._outdated = setup, True

    def _must_replace(self, submission: Open) -> bool:
        """Whether the process would never run it: it left the session, or has burnt the id (D5, D8)."""
        return self._process is not None and (self._strayed or self._turns.must_restart(submission.message_id))

    def _must_wait(self, submission: Open) -> bool:
        return self._turns.working and self._must_replace(submission) and self._is_open(submission)

    async def _overtaken(self) -> bool:
        """Whether somebody else has written to the session, so that our process does not know all of it (D6)."""
        await self._store.refresh()
        if await self._until(lambda: not self._store.overtaken, _MIRROR_BOUND):
            return False
        log("the session was continued elsewhere; restarting Claude Code on it", session=self.session_id)
        return True

    async def _watch(self, submission: Open) -> None:
        """Bound every silent way in which a prompt could get lost; the usual ones are over before the first round."""
        rounds = 0
        while self._is_open(submission):
            stage = submission.stage
            moved = lambda: submission.stage is not stage or not self._is_open(submission)  # noqa: B023, E731 - awaited here
            if await self._until(moved, _WATCH_EVERY):
                rounds = 0
            elif (process := self._process) and not process.held_up:
                rounds += await self._check_on(submission, process, rounds + 1)

    async def _check_on(self, submission: Open, process: ClaudeProcess, rounds: int) -> bool:
        """Look after a prompt that has been without a word for `rounds` rounds; whether this one counts."""
        if submission.stage is Stage.TAKEN:
            with suppress(AcpError):
                if await self.is_recorded(submission.message_id):
                    self._apply(self._turns.looked(submission, found=True))
        elif submission.stage is Stage.CHECKING or (submission.stage is Stage.QUEUED and self._turns.working):
            return False  # somebody looks already; or it waits for the end of a turn
        else:
            waiting = await self._waiting_for_servers(process)
            if waiting:
                return False
            if not self._turns.working and (waiting is None or rounds >= _STUCK_AFTER):
                log("Claude Code is stuck; ending it", session=self.session_id, pid=process.pid)
                await process.stop(busy=True)
                return False
        if rounds >= _SKIPPED_AFTER:
            self._apply(self._turns.overdue(submission))
        return True

    async def _waiting_for_servers(self, process: ClaudeProcess) -> bool | None:
        """Whether the CLI still connects MCP servers, which holds up the first prompt; None when it does not answer at all."""
        try:
            answer = await process.request("mcp_status", bound=_ANSWER_BOUND)
        except ControlError:
            return None
        servers = [as_mapping(server) for server in as_list(answer.get("mcpServers"))]
        states = [(as_text(server.get("name")), as_text(server.get("status"))) for server in servers]
        self._tell_servers(states)
        return any(status == "pending" for _, status in states)

    async def _look_up(self, submission: Open, patient: bool) -> None:
        """Decide it by the store: by one complete look, or by the fact that there can be none for now."""
        found: bool | None = None
        deadline = anyio.current_time() + _LOOK_BOUND
        while self._is_open(submission):
            with suppress(AcpError):
                found = await self.is_recorded(submission.message_id)
            if found or (found is False and not patient) or anyio.current_time() > deadline:
                break
            await self._until(lambda: not self._is_open(submission), _LOOK_EVERY)
        self._apply(self._turns.looked(submission, found=found))

    async def withdraw(self, message_id: str) -> None:
        """Ask for the open submission back; its outcome comes as its one event."""
        self._apply(self._turns.withdraw(message_id))

    async def _ask_back(self, submission: Open) -> None:
        process = self._process
        if process is None:
            return
        try:
            answer = await process.request(
                "cancel_async_message", bound=_ANSWER_BOUND, message_uuid=submission.message_id
            )
            if answer.get("cancelled") is True:
                self._apply(self._turns.withdrawn(submission))
                return
            # An idle CLI that waits for its MCP servers holds the prompt outside its queue, for up to 30 s; an interrupt
            # that takes the queue with it is what gets it back (2.1.332).
            if not await self._until(lambda: self._turns.working or not self._is_open(submission), _WITHDRAW_AGAIN):
                await process.request("interrupt", bound=_ANSWER_BOUND, cancel_queued=True)
        except ControlError as error:
            log("a prompt could not be asked back", session=self.session_id, reason=str(error))

    # --- interrupts -----------------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        """Stop the running work: `WorkEnded` follows within `INTERRUPT_BOUND` and the time to end a process."""
        if self._turns.working and not self._turns.interrupting:
            self._apply(self._turns.interrupt())
            self._start(self._interrupting)

    async def _interrupting(self) -> None:
        """Ask until the work ends: an interrupt that comes before the turn has begun inside is lost (2.1.332)."""
        left = INTERRUPT_BOUND
        while self._turns.interrupting and (process := self._process):
            began = anyio.current_time()
            self._interrupt_again = False
            submission = self._turns.open
            queue_too = bool(submission and submission.withdrawing)
            with suppress(ControlError):
                await process.request("interrupt", bound=_INTERRUPT_AGAIN, cancel_queued=queue_too)
            await self._until(lambda: self._interrupt_again or not self._turns.interrupting, _INTERRUPT_AGAIN)
            if not process.held_up:  # what ends the work may wait behind a client that does not read
                left -= anyio.current_time() - began
            if self._turns.interrupting and left <= 0:
                log("Claude Code does not react to an interrupt; ending it", session=self.session_id, pid=process.pid)
                await process.stop(busy=True)
                return

    def replay(self) -> AsyncIterator[SessionUpdate]:
        """All retained history. Raises `InternalError` when it cannot be read."""
        return self._store.replay(self._setup.cwd, tuple(self._translator.open_calls))

    # --- the end --------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the process and free everything, within 2 s; the open submission ends in its event first. May be called again."""
        if self._closing:
            await self._ended.wait()
            return
        self._closing = self._turns.closing = True
        with anyio.CancelScope(shield=True):
            if (submission := self._turns.open) and submission.stage is Stage.PREPARING:
                self._apply(self._turns.withdraw(submission.message_id))
            process = self._process
            if process:
                await process.stop(busy=self._turns.working or self._turns.open is not None)
                await self._lost(process)
            async with self._gate:
                self._state = _State.CLOSED
            self._silent = True
            self._lock.release()
            await self._leave()


def _death(process: ClaudeProcess) -> InternalError:
    """What to say of work that ended with its process."""
    code = process.exit_code
    how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    said = f": {process.last_words}" if process.last_words else ""
    text = f"Claude Code ended unexpectedly ({how}){said}. The next prompt starts it again."
    return InternalError(text, {"category": "process_exit", "exitCode": code})
