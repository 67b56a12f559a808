"""What a session does when Claude Code does not react in time to a prompt, a withdrawal or an interrupt.

Keeps every bound between the writing of a prompt and its outcome, and between an interrupt and the end of the work, so that no
wait is endless (D7). `turns` decides what a signal or its absence means. A process that is ended here is handled like one that
died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio

from adapters.acp.errors import AcpError
from adapters.claude.bounds import Bounds
from adapters.claude.cli.process import ClaudeProcess, ControlError
from adapters.claude.mcp_status import Servers
from adapters.claude.stored_watch import Store
from adapters.claude.turns import Effect, Open, Stage, Turns
from adapters.driver.tasks import Tasks
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)


class Watch:
    """Looks after the open submission and the interrupt of one session. `process` gives the one that runs now."""

    def __init__(
        self,
        turns: Turns,
        store: Store,
        servers: Servers,
        tasks: Tasks,
        bounds: Bounds,
        *,
        process: Callable[[], ClaudeProcess | None],
        apply: Callable[[Sequence[Effect]], None],
    ) -> None:
        self._turns = turns
        self._store = store
        self._servers = servers
        self._tasks = tasks
        self._bounds = bounds
        self._process = process
        self._apply = apply
        self._interrupt_again = False
        """A turn began after the interrupt was sent, so that was lost."""

    def _is_open(self, submission: Open) -> bool:
        return self._turns.open is submission

    async def prompt(self, submission: Open) -> None:
        """Bound every silent way in which a prompt could get lost; the usual ones are over before the first round."""
        rounds = 0
        while self._is_open(submission):
            stage = submission.stage
            moved = lambda: submission.stage is not stage or not self._is_open(submission)  # noqa: B023, E731 - awaited here
            if await self._tasks.until(moved, self._bounds.silence):
                rounds = 0
            elif (process := self._process()) and not process.held_up:
                rounds += await self._check_on(submission, process, rounds + 1)

    async def _check_on(self, submission: Open, process: ClaudeProcess, rounds: int) -> bool:
        """Look after a prompt that has been without a word for `rounds` rounds; whether this one counts."""
        if submission.stage is Stage.TAKEN:
            with suppress(AcpError):
                if await self._store.look(submission.message_id):
                    self._apply(self._turns.looked(submission, found=True))
        elif submission.stage is Stage.CHECKING or (submission.stage is Stage.QUEUED and self._turns.working):
            return False  # somebody looks already; or it waits for the end of a turn
        else:
            waiting = await self._waiting_for_servers(process)
            if waiting:
                return False
            if not self._turns.working and (waiting is None or rounds >= self._bounds.stuck_after):
                _log.warning(
                    LogEvent("Claude Code is stuck; ending it", session=self._store.session_id, pid=process.pid)
                )
                await process.stop(busy=True)
                return False
        if rounds >= self._bounds.skipped_after:
            self._apply(self._turns.overdue(submission))
        return True

    async def _waiting_for_servers(self, process: ClaudeProcess) -> bool | None:
        """Whether the CLI still connects MCP servers, which holds up the first prompt; None when it does not answer at all."""
        try:
            return self._servers.still_connecting(await process.request("mcp_status", bound=self._bounds.answer))
        except ControlError:
            return None

    async def servers(self, process: ClaudeProcess) -> None:
        """Report the client's servers that fail, whether a prompt waits for them or not."""
        with suppress(ControlError):
            for look in range(self._bounds.server_looks):
                await self._tasks.until(lambda: self._process() is not process, self._bounds.servers_again)
                answer = await process.request("mcp_status", bound=self._bounds.answer)
                if self._process() is not process or self._servers.settled(answer, sure=look > 0):
                    return

    async def stored(self, submission: Open, patient: bool) -> None:
        """Decide it by the store: by one complete look, or by the fact that there can be none for now."""
        found: bool | None = None
        deadline = anyio.current_time() + self._bounds.look
        while self._is_open(submission):
            with suppress(AcpError):
                found = await self._store.look(submission.message_id)
            if found or (found is False and not patient) or anyio.current_time() > deadline:
                break
            await self._tasks.until(lambda: not self._is_open(submission), self._bounds.look_again)
        self._apply(self._turns.looked(submission, found=found))

    async def withdrawal(self, submission: Open) -> None:
        """Ask for a prompt back that the CLI has."""
        process = self._process()
        if process is None:
            return
        try:
            answer = await process.request(
                "cancel_async_message", bound=self._bounds.answer, message_uuid=submission.message_id
            )
            if answer.get("cancelled") is True:
                self._apply(self._turns.withdrawn(submission))
                return
            # An idle CLI that waits for its MCP servers holds the prompt outside its queue, for up to 30 s; an interrupt
            # that takes the queue with it is what gets it back (2.1.332).
            over = lambda: self._turns.working or not self._is_open(submission)  # noqa: E731 - as above
            if not await self._tasks.until(over, self._bounds.withdraw_again):
                await process.request("interrupt", bound=self._bounds.answer, cancel_queued=True)
        except ControlError as error:
            _log.warning(LogEvent("a prompt could not be withdrawn", session=self._store.session_id, reason=str(error)))

    def interrupt_again(self) -> None:
        """A turn has begun since the interrupt: the interrupt came too early and is lost."""
        self._interrupt_again = True

    async def interrupt(self) -> None:
        """Ask until the work ends: an interrupt that comes before the turn has begun inside is lost (2.1.332)."""
        left = self._bounds.interrupt
        while self._turns.interrupting and (process := self._process()):
            began = anyio.current_time()
            self._interrupt_again = False
            submission = self._turns.open
            queue_too = bool(submission and submission.withdrawing)
            with suppress(ControlError):
                await process.request("interrupt", bound=self._bounds.interrupt_again, cancel_queued=queue_too)
            await self._tasks.until(
                lambda: self._interrupt_again or not self._turns.interrupting, self._bounds.interrupt_again
            )
            if not process.held_up:  # what ends the work may wait behind a client that does not read
                left -= anyio.current_time() - began
            if self._turns.interrupting and left <= 0:
                session = self._store.session_id
                _log.warning(
                    LogEvent("Claude Code does not react to an interrupt; ending it", session=session, pid=process.pid)
                )
                await process.stop(busy=True)
                return
