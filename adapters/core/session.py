"""One active session: its queue of prompts and its foreground state. Who watches it and is shown what: `audience`.

Owns everything that changes a session. Each change is one synchronous step on the event loop; the session's own task (`run`)
does the waiting: look-ups and hand-overs, one at a time, in order. Knows the port, no runtime behind it.

A prompt's way: `prompt` (one step: known, joins, or takes a queue place) -> look-up -> held -> handed over when the one before
is settled and the runtime is ready (D3) -> taken (shown) -> inserted (answered). See `submissions` for the states of a key.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from adapters.acp.errors import InvalidParams, ResourceNotFound
from adapters.acp.schema import ContentBlock, dump
from adapters.core import port
from adapters.core.audience import Audience, Client
from adapters.core.foreground import Foreground, Signal
from adapters.core.peer import Attempt
from adapters.core.prompt_errors import fate_unknown
from adapters.core.questions import Permissions
from adapters.core.retained import Wire
from adapters.core.submissions import Known, Opened, Settlement, State, Submission, Submissions, random_id
from adapters.core.work_waits import CANCELLED, WorkWaits
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

_STOP_BOUND = 3.0
"""Seconds that closing waits for work to end by its interrupt, and for look-ups, before the runtime session is closed anyway."""

Spawn = Callable[..., object]


@dataclass(eq=False, slots=True)
class Prompt:
    """What a submission carries: the blocks as sent, and what has become of them on the wire."""

    blocks: Sequence[ContentBlock]
    reply: port.LocalReply | None = None
    shown: bool = False
    withdrawing: bool = False
    unwanted: bool = False
    """`session/cancel` came before its fate was known: should it be inserted after all, its work is stopped (CANCEL-3)."""
    handed: anyio.Event | None = None


Pending = Submission[Attempt, Prompt]


class ClosedMeanwhile(ResourceNotFound):
    """The session was closed while a client was on its way in: it is stored, and can be opened again."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.session_id)
        self.closers = frozenset(session.closers)


class Session:
    """A session active in this process; the sink of its runtime's events."""

    runtime: port.RuntimeSession

    def __init__(self, spawn: Spawn, on_idle: Callable[[Session], None]) -> None:
        self._spawn = spawn
        self._on_idle = on_idle
        self._audience = Audience(lambda: self._foreground.snapshot, self._arrived)
        self._joining = 0
        self._queue: deque[Pending] = deque()
        self._in_flight: Pending | None = None
        self._foreground = Foreground()
        self._waits = WorkWaits()
        self._stop_next_work = False
        self._wake = anyio.Event()
        self._early: list[port.Event] | None = []
        """What the runtime said before its opening call returned."""
        self._stopping = anyio.CancelScope()
        self.closing = False
        self.closers: set[object] = set()
        """The clients that asked for the close."""
        self.ended = anyio.Event()
        """Set when `close` is through."""

    def begin(self, runtime: port.RuntimeSession, setup: port.SessionSetup) -> None:
        """Bind the runtime session; from here on prompts can come. Start `run` beside it."""
        early, self._early = self._early or [], None
        self.runtime = runtime
        self._setup = setup
        self._submissions: Submissions[Attempt, Prompt] = Submissions(runtime.session_id)
        self._audience.session_id = runtime.session_id
        self._permissions = Permissions(runtime.session_id, self._permission_answered)
        for event in early:
            self.deliver(event)

    @property
    def session_id(self) -> str:
        """The ACP session id."""
        return self.runtime.session_id

    @property
    def unattended(self) -> bool:
        """No client, no work, no prompt: nothing would be lost by closing (KEY-43)."""
        return not (
            self._audience.clients or self._joining or self._foreground.working or self._waits or self._submissions.open
        )

    # --- clients ---------------------------------------------------------------------------------------------------

    def attach(self, client: Client) -> None:
        """From now on this client gets every update, unless its connection has ended meanwhile."""
        self._audience.attach(client)
        self._spawn(self._catch_up, client)

    async def _catch_up(self, client: Client) -> None:
        """In a step of its own: behind the answer that tells the client of the session."""
        if client in self._audience.clients:
            client.welcome(self.session_id, [dump(command) for command in self.runtime.commands])
        self._audience.catch_up()

    def detach(self, client: Client) -> None:
        """This client gets no more updates; what it asked for goes on (E3, E4, STDIO-13)."""
        self._audience.detach(client)
        self._permissions.gone(client)

    @contextmanager
    def joining(self) -> Generator[None]:
        """While a client is on its way in, the session is not freed and the fold of its work is kept."""
        self._joining += 1
        try:
            yield
        finally:
            self._joining -= 1
            self._forget_stored_work()
            if self.unattended:
                self._on_idle(self)

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        """A resume of this active session brings the complete new roots and servers (RESUME-1).

        Raises `InvalidParams` for another working folder: the session's history belongs to its own (RESUME-2).
        """
        if setup.cwd != self._setup.cwd:
            raise InvalidParams(f"cwd is not the folder of this session, which is {self._setup.cwd!r}.")
        if setup != self._setup:
            await self.runtime.reconfigure(setup)
            self._setup = setup

    async def synchronize(self, client: Client, *, replay: bool) -> None:
        """Bring a client up to date and attach it: history if asked for, the running work, the state (REPLAY-*).

        History is sent while the runtime comes up. Use inside `joining`. Raises what the runtime's replay and `started` raise; a
        client that was attached before is attached again and has missed nothing. Raises `ClosedMeanwhile` when the session is
        closed in the middle.
        """
        history = self.runtime.replay() if replay else None
        if not await self._audience.synchronize(client, history, self.runtime.started):
            raise ClosedMeanwhile(self)

    def _arrived(self, client: Client) -> None:
        self._permissions.reissue(client)

    async def writable(self) -> None:
        """Return once every client has room: a slow client slows the runtime instead of filling memory."""
        await self._audience.writable()

    # --- what clients ask -------------------------------------------------------------------------------------------

    def prompt(self, attempt: Attempt, blocks: Sequence[ContentBlock], key: str | None) -> None:
        """Take a prompt attempt in, in one step (KEY-10). It is answered now or by what becomes of its submission."""
        reply = self.runtime.local_reply(blocks)
        live_only = reply is not None or self.runtime.is_live_only(blocks)
        decision = self._submissions.begin(attempt, Prompt(blocks, reply), key, live_only=live_only)
        if isinstance(decision, Known):
            attempt.inserted(decision.message_id)
            return
        attempt.on_cancel(lambda: self._cancel_attempt(attempt))
        if isinstance(decision, Opened):
            self._queue.append(decision.submission)
            self._wake.set()

    def cancel(self) -> None:
        """`session/cancel`: stop the foreground work and withdraw every prompt known now (CANCEL-*)."""
        for submission in (*self._queue, *([self._in_flight] if self._in_flight else [])):
            submission.payload.unwanted = True
            self._withdraw(submission)
        self._waits.cancel_expected()
        if self._foreground.working:
            self._stop_work()

    async def close(self, stop_bound: float | None = None) -> None:
        """Cancel, end the runtime's work, free everything; every attempt is answered (CLOSE-*). May be called again.

        `stop_bound`: seconds that the work gets to end by its interrupt; of several calls the earliest end counts.
        """
        bound = _STOP_BOUND if stop_bound is None else stop_bound
        self._stopping.deadline = min(self._stopping.deadline, anyio.current_time() + bound)
        if self.closing:
            await self.ended.wait()
            return
        self.closing = True
        try:
            self._audience.close()
            self.cancel()
            self._permissions.withdraw_all(foreground_only=False)
            self._wake.set()
            with self._stopping:
                while self._foreground.working or self._submissions.open:
                    await self._wake.wait()
                    self._renew_wake()
            await self._guard("close", self.runtime.close)
        finally:
            self._finish()
            self.ended.set()
            self._wake.set()

    def _finish(self) -> None:
        """Nothing stays open behind a closed runtime session, whatever it reported."""
        for submission in list(self._submissions.open):
            self._fail(submission, None)
        if report := self._foreground.ended("cancelled", None, interrupted=True):
            self._audience.report(report)
        self._waits.ended(CANCELLED)
        self._audience.clear()

    def _renew_wake(self) -> None:
        if self._wake.is_set():
            self._wake = anyio.Event()

    # --- the session's own task -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look up and hand over, until closed. What waits for its look-up then still gets it: its answer must be true."""
        while True:
            self._renew_wake()
            while await self._step():
                pass
            if self.closing:
                return
            if not self._wake.is_set():
                await self._wake.wait()

    async def _step(self) -> bool:
        """One look-up or one hand-over; False when there is nothing to do before the next event."""
        while self._queue and self._queue[0].state in (State.SETTLED, State.SUBMITTED):
            self._queue.popleft()
        for submission in self._queue:
            if submission.state is State.LOOKING:
                await self._look_up(submission)
                return True
        if self.closing or not self._queue or self._in_flight or self._foreground.cancelling:
            return False
        head = self._queue[0]
        if (self._foreground.working or self._waits) and any(attempt.until_work_ends for attempt in head.attempts):
            return False  # it gets work of its own
        if head.payload.reply:
            self._reply_locally(head, head.payload.reply)
            return True
        if not self.runtime.ready:
            return False
        if await self._look_up(head) and not (self._in_flight or self._foreground.cancelling):
            await self._hand_over(head)
        return True

    async def _look_up(self, submission: Pending) -> bool:
        """Ask the stored session (D4); True when the submission is held and free to go."""
        wanted = self._submissions.lookup_id(submission)
        if wanted is not None:
            try:
                recorded = await self.runtime.is_recorded(wanted)
            except Exception as error:  # noqa: BLE001 - a store that cannot be read is an answer (ADP-6)
                self._fail(submission, fate_unknown(error))
                return False
            if settlement := self._submissions.looked_up(submission, recorded=recorded):
                self._answer(settlement, None)
        return submission.state is State.HELD

    async def _hand_over(self, submission: Pending) -> None:
        handed = submission.payload.handed = anyio.Event()
        self._queue.remove(submission)
        self._submissions.submitted(submission)
        self._in_flight = submission
        try:
            await self.runtime.submit(submission.message_id, submission.payload.blocks)
        except Exception as error:  # noqa: BLE001 - the driver's word that it is not inserted
            self._fail(submission, error)
        finally:
            handed.set()

    def _reply_locally(self, submission: Pending, reply: port.LocalReply) -> None:
        """A command that never reaches the runtime, in the whole prompt lifecycle (CMD-4)."""
        self._queue.remove(submission)
        own_work = self._foreground.signal(Signal.STARTED)
        if own_work:
            self._audience.report(own_work)
            self._waits.started()
        self._show(submission)
        self._settle_inserted(submission)
        content = [{"type": "text", "text": reply.text}]
        self._audience.broadcast({"sessionUpdate": "agent_message", "messageId": random_id(), "content": content})
        if own_work and (ended := self._foreground.ended("end_turn", None, interrupted=False)):
            self._audience.report(ended)
            self._waits.ended(ended)
            self._after_work()

    # --- withdrawing ------------------------------------------------------------------------------------------------

    def _cancel_attempt(self, attempt: Attempt) -> None:
        if submission := self._submissions.find(attempt):
            submission.payload.unwanted |= attempt.until_work_ends
            self._withdraw(submission)
        elif attempt in self._waits:
            self._waits.cancel_expected()
            if self._foreground.working:
                self._stop_work()

    def _withdraw(self, submission: Pending) -> None:
        if settlement := self._submissions.cancel(submission):
            self._answer(settlement, None)
        elif submission.state is State.SUBMITTED and not submission.payload.withdrawing:
            submission.payload.withdrawing = True
            self._spawn(self._ask_withdrawal, submission)

    async def _ask_withdrawal(self, submission: Pending) -> None:
        if submission.payload.handed:
            await submission.payload.handed.wait()
        if submission.state is State.SUBMITTED:
            await self._guard("withdraw", self.runtime.withdraw, submission.message_id)

    def _stop_work(self) -> None:
        self._stop_next_work = False
        if self._foreground.cancelling:
            return
        self._foreground.cancelling = True
        self._permissions.withdraw_all(foreground_only=True)
        self._spawn(self._guard, "interrupt", self.runtime.interrupt)

    async def _guard(self, what: str, call: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await call(*args)
        except Exception as error:  # noqa: BLE001 - the driver's bounds decide what happens next
            _log.warning(LogEvent(f"{what} failed", session=self.session_id, error=type(error).__name__))

    # --- events of the runtime ---------------------------------------------------------------------------------------

    def deliver(self, event: port.Event) -> None:
        """Take one event of the runtime; never blocks."""
        if self._early is not None:
            self._early.append(event)
            return
        match event:
            case port.Output(update):
                self._audience.show(update)
            case port.WorkStarted():
                if report := self._foreground.signal(Signal.STARTED):
                    self._audience.report(report)
                self._waits.started()
                if self._stop_next_work:
                    self._stop_work()
            case port.WorkEnded(stop_reason, error, interrupted):
                if interrupted or self._foreground.cancelling:
                    self._permissions.withdraw_all(foreground_only=True)
                self._permissions.outlive_work()
                if report := self._foreground.ended(stop_reason, error, interrupted=interrupted):
                    self._audience.report(report)
                    self._waits.ended(report)
                    self._after_work()
            case port.PromptTaken(message_id):
                if submission := self._open_submission(message_id):
                    self._show(submission)
                    self._waits.taken(message_id)
                    self._stop_if_unwanted(submission)
            case port.PromptInserted(message_id) | port.PromptLiveOnly(message_id, _):
                if submission := self._open_submission(message_id):
                    self._show(submission)
                    self._settle_inserted(submission)
                    self._stop_if_unwanted(submission)
                    if isinstance(event, port.PromptLiveOnly) and not event.by_design:
                        self._audience.broadcast(_NOT_STORED)
            case port.PromptFailed(message_id, error):
                if submission := self._open_submission(message_id):
                    self._fail(submission, error)
            case port.PermissionRequested():
                self._ask(event)
            case port.PermissionWithdrawn(request_id):
                self._permissions.withdraw(request_id)
                self._resume_if_answered()
            case port.CommandsChanged(commands):
                rows = [dump(command) for command in commands]
                self._audience.broadcast({"sessionUpdate": "available_commands_update", "availableCommands": rows})
            case port.ReadyChanged():
                pass
        self._wake.set()

    def _open_submission(self, message_id: str) -> Pending | None:
        submission = self._in_flight
        return submission if submission and submission.message_id == message_id else None

    def _show(self, submission: Pending) -> None:
        """Report the user message once, with the content as sent (PROMPT-4)."""
        if not submission.payload.shown:
            submission.payload.shown = True
            blocks = [dump(block) for block in submission.payload.blocks]
            self._audience.broadcast(_user_message(submission.message_id, blocks))

    def _settle_inserted(self, submission: Pending) -> None:
        if settlement := self._submissions.inserted(submission):
            self._answer(settlement, None)

    def _fail(self, submission: Pending, error: Exception | None) -> None:
        """Not inserted. What was shown of it is taken back (D2)."""
        if submission.payload.shown:
            submission.payload.shown = False
            self._audience.broadcast(_user_message(submission.message_id, []))
        if settlement := self._submissions.failed(submission):
            self._answer(settlement, error)

    def _answer(self, settlement: Settlement[Attempt, Prompt], error: Exception | None) -> None:
        """Every attempt gets the one outcome (KEY-17); an error says that nothing was inserted."""
        submission = settlement.submission
        if submission is self._in_flight:
            self._in_flight = None
        if submission in self._queue:
            self._queue.remove(submission)
        for attempt in settlement.attempts:
            if settlement.message_id is not None:
                attempt.inserted(settlement.message_id)
            else:
                attempt.failed(error)
        if settlement.message_id is not None:
            self._waits.inserted(settlement.message_id, settlement.attempts, working=self._foreground.working)
        self._waits.settled(submission.message_id)
        if settlement.successor:
            self._queue.append(settlement.successor)
        self._wake.set()
        if self.unattended:
            self._on_idle(self)

    def _stop_if_unwanted(self, submission: Pending) -> None:
        if not submission.payload.unwanted:
            return
        submission.payload.unwanted = False  # once: its proof of storage may come after the end of its work (CANCEL-5)
        if self._foreground.working:
            self._stop_work()
        else:
            self._stop_next_work = True

    def _ask(self, question: port.PermissionRequested) -> None:
        if self.closing or (question.foreground and self._foreground.cancelling):
            self._permission_answered(question, None)
            return
        self._permissions.ask(question, self._audience.clients)
        if question.foreground and (report := self._foreground.signal(Signal.BLOCKED)):
            self._audience.report(report)

    def _permission_answered(self, question: port.PermissionRequested, option_id: str | None) -> None:
        self._spawn(self._guard, "answer", self.runtime.answer_permission, question.request_id, option_id)
        self._resume_if_answered()

    def _resume_if_answered(self) -> None:
        if not self._permissions.foreground and (report := self._foreground.signal(Signal.RESUMED)):
            self._audience.report(report)

    def _after_work(self) -> None:
        self._stop_next_work = False
        self._forget_stored_work()
        if self.unattended:
            self._on_idle(self)

    def _forget_stored_work(self) -> None:
        if not (self._foreground.working or self._joining or self._in_flight):
            self._audience.forget_work()


def _user_message(message_id: str, content: list[Any]) -> Wire:
    return {"sessionUpdate": "user_message", "messageId": message_id, "content": content}


_NOT_STORED: Wire = {
    "sessionUpdate": "notice",
    "severity": "warning",
    "title": "This message could not be stored",
    "description": "The runtime works on the message but did not store it: the message will be missing after a restart.",
}
