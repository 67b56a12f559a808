"""Stops the work of a thread: its turn, the turns of its sub-agents, and the commands that outlive them (D7).

Owns the bounds. An interrupt is requested once, and its effect counts, not its answer. Work that does not stop is ended with its
process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from adapters.acp.shapes import as_mapping, as_text
from adapters.codex.bounds import Bounds
from adapters.codex.server.process import Answer, AppServer, RequestFailed
from adapters.codex.server.signals import Signal, TurnEnded, TurnStarted
from adapters.codex.show.live import Translator
from adapters.codex.thread.loaded import Thread
from adapters.codex.turn_types import Effect
from adapters.codex.turns import Turns
from adapters.driver.tasks import Tasks
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)


class Stopper:
    """Stops what one session's thread does."""

    def __init__(
        self,
        thread: Thread,
        turns: Turns,
        translator: Translator,
        tasks: Tasks,
        apply: Callable[[Sequence[Effect]], None],
        *,
        bounds: Bounds,
    ) -> None:
        self._thread = thread
        self._turns = turns
        self._translator = translator
        self._tasks = tasks
        self._bounds = bounds
        self._apply = apply
        self._children: dict[str, str] = {}
        """Running turns of sub-agents: thread -> turn."""

    def heard(self, thread_id: str, signal: Signal | None) -> None:
        """A sub-agent does not speak in the conversation (its call in the parent's turn shows it), but can be stopped."""
        match signal:
            case TurnStarted(turn_id):
                self._children[thread_id] = turn_id
            case TurnEnded():
                self._children.pop(thread_id, None)
            case _:
                pass

    def forget(self) -> None:
        """The process is gone."""
        self._children.clear()

    async def interrupt(self, turn_id: str) -> None:
        """End a turn. A second interrupt of an interrupted turn is never answered; one that was refused was none."""
        server = self._thread.server
        if server is None:
            return
        self.stop_children(server)
        left = self._bounds.interrupt
        while left > 0 and self._turns.runs(turn_id):
            began = anyio.current_time()
            await self._interrupt_once(server, turn_id, left)
            if not server.held_up:  # what ends the turn may wait behind a client that does not read
                left -= anyio.current_time() - began
        if self._turns.runs(turn_id) and server is self._thread.server:
            _log.warning(
                LogEvent(
                    "Codex does not react to an interrupt; ending it", session=self._thread.thread_id, pid=server.pid
                )
            )
            server.kill()

    async def _interrupt_once(self, server: AppServer, turn_id: str, bound: float) -> None:
        refused = anyio.Event()

        def take(answer: Answer) -> None:
            if isinstance(answer, RequestFailed):
                refused.set()
                self._tasks.changed()

        def over() -> bool:
            return not self._turns.runs(turn_id)

        server.ask("turn/interrupt", {"threadId": self._thread.thread_id, "turnId": turn_id}, take)
        await self._tasks.until(lambda: over() or refused.is_set(), bound)
        if refused.is_set():
            await self._tasks.until(over, self._bounds.interrupt_again)

    def stop_children(self, server: AppServer) -> None:
        """Interrupt the sub-agents."""
        for thread_id, turn_id in self._children.items():
            server.post("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})

    async def end_commands(self, turn_id: str, item_ids: Sequence[str]) -> None:
        """An interrupt leaves commands running. Commands of earlier turns, which were not to be stopped, go on."""
        if server := self._thread.server:
            items = self._translator.running_items
            for item_id in item_ids:
                if process_id := as_text(as_mapping(items.get(item_id)).get("processId")):
                    params = {"threadId": self._thread.thread_id, "processId": process_id}
                    server.post("thread/backgroundTerminals/terminate", params)
        await self._tasks.until(lambda: self._turns.turn_id != turn_id, self._bounds.commands)
        self._apply(self._turns.commands_over(turn_id))
