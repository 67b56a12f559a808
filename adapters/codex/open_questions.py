"""The questions of a session that wait for the user, from Codex's request to its answer.

Owns which request is open. `questions` owns the question and what an answer allows. The core owns how it looks to a client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.codex.asked_items import AskedItems
from adapters.codex.questions import Ask, ask_of, declined
from adapters.codex.server.process import AppServer, RequestId
from adapters.codex.server.signals import thread_of
from adapters.codex.show.live import Translator
from adapters.codex.turn_types import Effect
from adapters.codex.turns import Turns
from adapters.core.port import Output, PermissionRequested, PermissionWithdrawn
from adapters.driver.tool_text import absolute


@dataclass(frozen=True, slots=True)
class _Open:
    server: AppServer
    request_id: RequestId
    ask: Ask


class Questions:
    """All open questions of one session. `apply` takes what follows from them, in order.

    `given`: the keys of the client's MCP servers.
    """

    def __init__(
        self,
        turns: Turns,
        translator: Translator,
        items: AskedItems,
        refuse: Callable[[AppServer, RequestId, str], None],
        apply: Callable[[Sequence[Effect]], None],
        *,
        given: Callable[[], Collection[str]],
    ) -> None:
        self._turns = turns
        self._translator = translator
        self._items = items
        self._refuse = refuse
        self._apply = apply
        self._given = given
        self._open: dict[str, _Open] = {}

    def ask(
        self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any], cwd: str, *, own: bool
    ) -> None:
        """Take a request of Codex: it is shown, or answered at once. `own`: about the session's thread, not a sub-agent's."""
        items = self._items.of(thread_of(params))
        running = {**items, **self._translator.running_items} if own else items
        stopped = self._turns.closing or (own and self._turns.interrupting)
        given = self._given()
        ask = declined(method, params) if stopped else ask_of(method, params, running, cwd, shown=own, given=given)
        if ask is None:
            self._refuse(server, request_id, method)
        elif not isinstance(ask, Ask):
            server.respond(request_id, ask)
        elif (key := _key(server, request_id)) not in self._open:  # Codex repeats it to whoever resumes the thread
            self._open[key] = _Open(server, request_id, ask)
            if own:
                self._turns.asked(key, ask.item_id)
            call = self._translator.asked_call(ask.item_id, waits=not ask.item_runs) if own else None
            folder = absolute(params.get("cwd"), cwd) or cwd
            about: dict[str, Any] = {
                "tool_call": call,
                "description": ask.description,
                "foreground": self._turns.working,
                "command": (ask.command, folder) if ask.command and call is None else None,
            }
            self._apply([PermissionRequested(key, ask.title, ask.options, **about)])

    def answer(self, key: str, option_id: str | None) -> None:
        """Answer Codex; a question that it no longer waits for is ignored."""
        question = self._open.pop(key, None)
        if question is None:
            return
        question.server.respond(question.request_id, question.ask.answer(option_id))
        effects: list[Effect] = []
        if option_id in question.ask.approvals:
            effects += map(Output, self._translator.running(question.ask.item_id))
        self._apply([*effects, *self._turns.answered(key)])

    def resolved(self, server: AppServer, request_id: Any) -> None:
        """Codex no longer waits for this answer."""
        key = _key(server, request_id)
        if self._open.pop(key, None):
            self._apply([PermissionWithdrawn(key), *self._turns.answered(key)])

    def drop_all(self) -> None:
        """The process is gone, so no question needs an answer."""
        dropped, self._open = self._open, {}
        self._apply([PermissionWithdrawn(key) for key in dropped])


def _key(server: AppServer, request_id: Any) -> str:
    return f"{server.pid}:{request_id}"
