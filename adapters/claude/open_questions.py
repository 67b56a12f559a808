"""The questions that Claude Code waits for: passed to the client, answered once, withdrawn when they are obsolete.

Owns which requests are open. `questions` owns what their options are and mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from adapters.acp.schema import Notice
from adapters.acp.shapes import as_text
from adapters.claude.cli.frames import AskedOther, AskedPermission, AskWithdrawn, control_error, control_success
from adapters.claude.cli.process import ClaudeProcess
from adapters.claude.questions import Ask, ask_of, denied
from adapters.claude.show.live import Translator
from adapters.claude.shown_plan import CHANGED, Plans, ShownPlan
from adapters.core.file_calls import in_thread
from adapters.core.file_change import FileChange
from adapters.core.port import Event, Output, PermissionRequested, PermissionWithdrawn

_PLAN_CHANGED: Final = "The plan changed while you were asked, so it is not approved. You will be asked again."


class Asking:
    """The open requests of one session.

    `deliver` takes events for the core; `plans` is where its plans are; `predicted` tells what a call will change.
    """

    def __init__(
        self,
        translator: Translator,
        cwd: str,
        plans: Plans,
        deliver: Callable[[Event], None],
        predicted: Callable[[str], FileChange | None],
    ) -> None:
        self._translator = translator
        self._cwd = cwd
        self._plans = plans
        self._deliver = deliver
        self._predicted = predicted
        self._open: dict[str, tuple[Ask, ClaudeProcess]] = {}

    def take(
        self,
        process: ClaudeProcess,
        signal: AskedPermission | AskedOther | AskWithdrawn,
        *,
        stopped: bool,
        foreground: bool,
    ) -> None:
        """One request of the CLI. `stopped`: its work is being stopped, so the answer is no; `foreground`: work runs."""
        match signal:
            case AskedOther(request_id, subtype):
                process.send(control_error(request_id, f"this client does not support {subtype}"))
            case AskWithdrawn(request_id):
                if self._open.pop(request_id, None):
                    self._deliver(PermissionWithdrawn(request_id))
            case AskedPermission(request_id, request):
                name, tool_input = as_text(request.get("tool_name")), request.get("input")
                tool_use_id = as_text(request.get("tool_use_id"))
                # What a subagent does is no call of the conversation: a call that was never begun would never end either.
                by_agent = bool(request.get("agent_id"))
                shown = tool_use_id in self._translator.open_calls and not by_agent
                ask = denied() if stopped else ask_of(request, call_shown=shown)
                if not isinstance(ask, Ask):
                    process.send(control_success(request_id, ask))
                    return
                self._open[request_id] = ask, process
                change = self._predicted(tool_use_id)
                about: dict[str, Any] = {
                    "tool_call": self._translator.tool_call_of(name, tool_use_id, tool_input, change)
                    if shown
                    else None,
                    "description": ask.description,
                    "foreground": foreground and (not by_agent or self._translator.waits_for_agent),
                    "command": (ask.command, self._cwd) if ask.command and not shown else None,
                }
                self._deliver(PermissionRequested(request_id, ask.title, ask.options, **about))

    async def answer(self, request_id: str, option_id: str | None) -> None:
        """The client's choice; a request that is not open any more is ignored."""
        if request_id not in self._open:
            return
        ask, _ = self._open[request_id]
        answer = ask.answer(option_id)
        if ask.plan and answer.get("behavior") == "allow" and not await self._stands(ask.plan):
            answer = denied(CHANGED)
            self._deliver(Output(Notice(severity="warning", title=_PLAN_CHANGED)))
        opened = self._open.pop(request_id, None)
        if opened is None:
            return  # withdrawn while the plan was looked at
        _, process = opened
        process.send(control_success(request_id, answer))
        if answer.get("behavior") == "allow":
            for update in self._translator.running(ask.tool_use_id):
                self._deliver(Output(update))

    async def _stands(self, plan: ShownPlan) -> bool:
        try:
            return await in_thread(partial(plan.stands, self._plans))
        except OSError:
            return False  # a disk that does not answer

    def withdraw_all(self) -> None:
        """No question needs an answer any more."""
        for request_id in list(self._open):
            del self._open[request_id]
            self._deliver(PermissionWithdrawn(request_id))
