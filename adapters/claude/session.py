"""One active session of Claude Code: connects its process, its store and its bounds with the state machine in `turns`.

Owns when the process starts, is replaced and ends, and when it gets which prompt. `turns` decides what a signal means for a
prompt. `deadlines` bounds the waits for Claude Code. `show.live` turns a frame into updates. `stored_watch` follows what is
stored. `open_questions` holds the questions that wait for an answer.

The process of a session:

    state     why                                          leaves by
    --------  -------------------------------------------  -------------------------------------------------------------
    none      not started yet, or it died                  starting: at new and resume, and before the next prompt
    starting  spawned; `initialize` is not answered: the   live: answered; none: refused, died, or 20 s passed (an error)
              stored session can be replayed meanwhile
    live      frames are read, prompts are written         none: it died; starting: replaced while idle, because the next
                                                           prompt's id is burnt in it (D5), or because the stored session
                                                           holds entries that it did not announce (D6)
    closed    for good                                     -

When it dies, at any time, one path runs (`_lost`): nothing of it is left alive, the stored session is read, and the machine
decides the open submission and ends the work (D7). What must be killed takes the same path.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

import anyio

from adapters.acp.errors import AcpError, InternalError, as_acp_error
from adapters.acp.schema import AvailableCommand, ContentBlock, SessionUpdate
from adapters.claude import commands
from adapters.claude.cli import orphans
from adapters.claude.cli.frames import (
    AskedOther,
    AskedPermission,
    AskWithdrawn,
    CommandsListed,
    Stored,
    Strayed,
    TurnBegan,
    TurnEnded,
    is_known,
    kind_of,
    signal_of,
    user_frame,
)
from adapters.claude.cli.launch import Launcher, start_error
from adapters.claude.cli.lock import SessionLocks, give_back
from adapters.claude.cli.process import ClaudeProcess
from adapters.claude.cli.program import server_key
from adapters.claude.deadlines import Watch
from adapters.claude.mcp_status import Servers
from adapters.claude.open_questions import Asking
from adapters.claude.show.edited_files import EditedFiles, KnownChanges
from adapters.claude.show.live import Translator
from adapters.claude.shown_plan import Plans
from adapters.claude.stored.content import to_content, to_message
from adapters.claude.stored_watch import Store
from adapters.claude.turns import Effect, FinishTools, Interrupt, Look, Open, Stage, Turns, Withdraw
from adapters.core import port
from adapters.driver.endings import died
from adapters.driver.slash import moving_text
from adapters.driver.tasks import Tasks
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_CLOSING: Final = "the session is being closed"

_logged_kinds: set[str] = set()
"""Unknown kinds of frames that were logged: once per agent, not per session (D11)."""


class _State(Enum):
    NONE = "none"
    STARTING = "starting"
    LIVE = "live"
    CLOSED = "closed"


class ClaudeSession:
    """An active session; see `adapters.core.port.RuntimeSession`. `tasks.run` must run beside it."""

    def __init__(
        self,
        session_id: str,
        setup: port.SessionSetup,
        sink: port.EventSink,
        launcher: Launcher,
        lock: SessionLocks,
        *,
        known: KnownChanges | None = None,
        made_here: bool = False,
    ) -> None:
        self.tasks = Tasks(session_id)
        self.session_id = session_id
        self.commands: Sequence[AvailableCommand] = ()
        self._setup = setup
        self._outdated = False
        """The live process was started with another setup."""
        self._running_with: Mapping[str, Any] = {}
        """The MCP servers that the live process was started with, by their keys."""
        self._sink = sink
        self._launcher = launcher
        self._bounds = launcher.bounds
        self._lock = lock
        self._turns = Turns()
        known = known or KnownChanges()
        self._known_change = partial(known.find, session_id)
        self._files = EditedFiles(setup.cwd, partial(known.add, session_id))
        self._translator = Translator(setup.cwd, self._known_change)
        find = partial(launcher.files, session_id, setup.cwd, made_here=made_here)
        self._store = Store(session_id, find)
        plans = Plans(launcher.plans, lambda: find().used)
        self._asking = Asking(self._translator, setup.cwd, plans, self._deliver, self._files.predicted)
        self._process: ClaudeProcess | None = None
        self._state = _State.NONE
        self._gate = anyio.Lock()
        """Held while the process is started, replaced or cleaned up."""
        self._first_start = anyio.Event()
        """The first process is up, or will not be: then `_start_failure` says why."""
        self._start_failure: AcpError | None = start_error(_CLOSING, None)
        """The reason if the start is given up; None once the process is up."""
        self._strayed = False
        """The process went on in another session: it must not get another prompt."""
        self._servers = Servers(lambda: self._running_with, self._deliver)
        self._watch = Watch(
            self._turns,
            self._store,
            self._servers,
            self.tasks,
            self._bounds,
            process=lambda: self._process,
            apply=self._apply,
        )
        self._closing = False
        self._silent = False
        """Closed: nothing is delivered any more."""

    # --- the process ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the first process; returns when it runs, before it is up (`started`).

        Raises `AcpError` when there is none to run; close the session then.
        """
        self.tasks.start(self._start_first)
        await self.tasks.until(lambda: self._process is not None or self._first_start.is_set())
        if self._process is None:
            await self.started()

    async def _start_first(self) -> None:
        try:
            async with self._gate:
                await self._start_process()
            self._start_failure = None
        except Exception as error:  # noqa: BLE001 - raised by `started`
            self._start_failure = as_acp_error(error)
        finally:
            self._first_start.set()
            self.tasks.changed()

    async def started(self) -> None:
        """Return once the first process is up. Raises `AcpError` that says why it is not."""
        await self._first_start.wait()
        if self._start_failure:
            raise self._start_failure

    async def _start_process(self) -> None:
        self._state = _State.STARTING
        process: ClaudeProcess | None = None
        try:
            stored = await self._store.mark()
            self._outdated = False
            self._running_with = {server_key(server.name): server for server in self._setup.mcp_servers}
            process = await self._launcher.spawn(self.session_id, self._setup, resume=stored)
            self._process = process
            self.tasks.start(self._serve, process)
            self.tasks.changed()
            if self._closing:
                raise start_error(_CLOSING, None)  # noqa: TRY301 - one way out for all failures
            initialized = await self._launcher.initialize(process, self.session_id, self._setup.cwd, resume=stored)
            if process.gone.is_set():
                raise start_error("it ended at once", process.exit_code)  # noqa: TRY301
        except BaseException:
            self._process = None
            self._state = _State.NONE
            if process:
                await process.stop(busy=True)
                await self._launcher.gone(self.session_id)
            raise
        self._strayed = False
        self._turns.started_process()
        self._state = _State.LIVE
        if self._running_with:
            self.tasks.start(self._watch.servers, process)
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
            _log.warning(
                LogEvent("reading from Claude Code failed", session=self.session_id, error=type(error).__name__)
            )
        if process is self._process and self._state is _State.LIVE:
            await self._lost(process)

    async def _replace(self) -> None:
        """End the idle process; the caller, who holds the gate, starts the next one."""
        process, self._process = self._process, None
        self._state = _State.NONE
        if process:
            await process.stop(busy=False)
            await self._launcher.gone(self.session_id)

    async def _lost(self, process: ClaudeProcess) -> None:
        """The process ended, for any reason: clean up after it, and let the stored session decide (D7)."""
        async with self._gate:
            if process is not self._process:
                return
            self._process = None
            self._state = _State.CLOSED if self._closing else _State.NONE
            if not process.stopping:
                await orphans.end_marked(self.session_id)  # its tools live on without it
            await self._launcher.gone(self.session_id)
            if not self._closing:
                _log.warning(
                    LogEvent("Claude Code ended", session=self.session_id, pid=process.pid, exit=process.exit_code)
                )
            submission = self._turns.open
            found = await self._found_at_last(submission.message_id) if submission else False
            self._apply(self._turns.died(died("Claude Code", process.exit_code, process.last_words), found=found))
            self._asking.withdraw_all()
        if not self._closing:
            self._deliver(port.ReadyChanged())

    async def _found_at_last(self, message_id: str) -> bool | None:
        """Whether the store holds the message, after its process has ended; None when unknown, at a close after one second."""
        with anyio.move_on_after(self._bounds.last_look if self._closing else None):
            return await self._store.holds_at_last(message_id)
        return None

    # --- what the CLI says ----------------------------------------------------------------------------------------------

    def _on_frame(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> Awaitable[None] | None:
        if self._files.wants(frame):
            return self._on_edit(process, frame)
        self._take(process, frame)
        return None

    async def _on_edit(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
        await self._files.look(frame)
        self._take(process, frame)

    def _take(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
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
                case CommandsListed(listed):
                    self._offer(commands.available_commands(listed))
                case Strayed():
                    _log.warning(
                        LogEvent(
                            "Claude Code left the session; restarting it before the next prompt",
                            session=self.session_id,
                        )
                    )
                    self._strayed = True
                case _:
                    if signal:
                        self._apply(self._turns.take(signal))
                    elif not is_known(frame):
                        self._log_once(kind_of(frame))
                    if isinstance(signal, TurnBegan):
                        self._servers.tell(signal.servers)
                    self._show(frame)
        except Exception as error:  # noqa: BLE001 - one frame that we cannot take must not end the session (D11)
            _log.warning(LogEvent("a frame could not be handled", session=self.session_id, error=type(error).__name__))
        self.tasks.changed()

    def _log_once(self, kind: str) -> None:
        if kind not in _logged_kinds:
            _logged_kinds.add(kind)
            _log.warning(LogEvent("Claude Code wrote a frame of an unknown kind", kind=kind))

    def _show(self, frame: Mapping[str, Any]) -> None:
        for update in self._translator.feed(frame):
            self._deliver(port.Output(update))

    def _apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Look(submission, patient):
                    self.tasks.start(self._watch.stored, submission, patient)
                case Withdraw(submission):
                    self.tasks.start(self._watch.withdrawal, submission)
                case Interrupt():
                    self._watch.interrupt_again()
                case FinishTools(status):
                    self._files.clear()
                    for update in self._translator.finish(status):
                        self._deliver(port.Output(update))
                case port.WorkEnded():
                    self._deliver(effect)
                    self.tasks.start(self._store.turn_ended)
                case _:
                    self._deliver(effect)
        self.tasks.changed()

    def _deliver(self, event: port.Event) -> None:
        if not self._silent:
            self._sink.deliver(event)

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        """Answer the CLI; a request that it no longer waits for is ignored."""
        await self._asking.answer(request_id, option_id)

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
        text = moving_text(prompt)
        return port.LocalReply(text) if text else None

    def is_live_only(self, prompt: Sequence[ContentBlock]) -> bool:  # noqa: ARG002 - the port's
        """Claude Code stores every prompt that it takes, commands too."""
        return False

    async def is_recorded(self, message_id: str) -> bool:
        """Whether the stored session holds it, by a look at what was appended. Orphans were ended when it was locked."""
        refused: AcpError | None = None
        if not await self._launcher.holds(self._lock):
            try:
                await self._launcher.lock_again(self._lock, self.session_id)
            except AcpError as error:
                refused = error
        found = await self._store.look(message_id)
        if refused and not found:
            raise refused
        return found

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        """Take a prompt; its outcome comes as an event. Raises `InvalidParams` for content that the CLI cannot take."""
        content, literal = commands.arrange(prompt, to_content(prompt))
        if self._closing:
            raise InternalError("The session is being closed.")
        if self._turns.open:
            raise InternalError("Another prompt is being handed over.")
        submission = self._turns.submit(message_id)
        frame = user_frame(message_id, to_message(content, literal=literal), literal=literal)
        self.tasks.start(self._hand_over, submission, frame)

    def _is_open(self, submission: Open) -> bool:
        return self._turns.open is submission

    async def _hand_over(self, submission: Open, frame: Mapping[str, Any]) -> None:
        try:
            await self._write(submission, frame)
        except Exception as error:  # noqa: BLE001 - nothing was written: whatever it is, it is the prompt's outcome
            self._apply(self._turns.failed(submission, as_acp_error(error)))
        await self._watch.prompt(submission)
        self._deliver(port.ReadyChanged())  # the gate was held meanwhile, and nothing else may tell that it is free

    async def _write(self, submission: Open, frame: Mapping[str, Any]) -> None:
        """Give the prompt to a process that will run it, once there is one."""
        while self._is_open(submission):
            # A turn's process is needed until its end. A withdrawal and an interrupt still work meanwhile.
            if not await self.tasks.until(lambda: not self._must_wait(submission), self._bounds.ready_again):
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
                if not await self._launcher.holds(self._lock):
                    raise _not_ours(self.session_id)
                if self._is_open(submission) and process and process.alive:
                    self._turns.sent(submission)
                    process.send(frame)
                    return
            await self.tasks.until(lambda: self._process is not process, self._bounds.ready_again)  # noqa: B023 - it died; awaited here

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
        if await self.tasks.until(lambda: not self._store.overtaken, self._bounds.mirror):
            return False
        _log.warning(
            LogEvent("another process wrote to the session; restarting Claude Code on it", session=self.session_id)
        )
        return True

    async def withdraw(self, message_id: str) -> None:
        """Ask for the open submission back; its outcome comes as its one event."""
        self._apply(self._turns.withdraw(message_id))

    # --- interrupts -----------------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        """Stop the running work: `WorkEnded` follows within `Bounds.interrupt` and the time to end a process."""
        if self._turns.working and not self._turns.interrupting:
            self._apply(self._turns.interrupt())
            self.tasks.start(self._watch.interrupt)

    def replay(self) -> AsyncIterator[SessionUpdate]:
        """All retained history. Raises `InternalError` when it cannot be read."""
        return self._store.replay(self._setup.cwd, tuple(self._translator.open_calls), self._known_change)

    # --- the end --------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the process and free everything, within 2 s; the open submission ends in its event first. May be called again."""
        if self._closing:
            await self.tasks.wait_ended()
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
            await give_back(self._lock)
            self.tasks.end()
            await self.tasks.wait_ended()
            self._first_start.set()  # nobody will start it any more


def _not_ours(session_id: str) -> InternalError:
    """The lock was lost since the last look at the stored session: somebody else may have inserted the prompt."""
    text = (
        f"The lock files of session {session_id} were removed while its prompt waited: send it again with the same key."
    )
    return InternalError(text, {"inserted": None})
