"""Updates of v2 as updates of v1, for one session on one connection (V1-UPD-*). Owns what the client was told of the session.

Every kind of update that is shown is in one table; what is not in it is not sent. A client of v1 learns no state: here
`state_update` only says that history is through, and whether work goes on.

    history       everything is shown, what the user wrote too
    work goes on  everything is shown, but not what the user wrote: the client shows its own prompts
    no work       as before, but news of a tool call that the client never heard of are dropped: they would be a card of their own
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from adapters.acp.fences import fenced
from adapters.acp.v1 import closed
from adapters.acp.v1.closed import Wire
from adapters.acp.v1.terminals import Terminal
from adapters.acp.v1.tool_calls import ToolCall, fields, text_item

_COMPACTING: Final = "Compact the conversation"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a client says that it shows (V1-INIT-3)."""

    terminals: bool = False
    """Terminals of the agent's own, by `_meta.terminal_info`, `terminal_output` and `terminal_exit`."""
    notices: bool = False
    compaction: bool = False
    plans: bool = False
    """Plans that are text, by `plan_update`."""
    boolean_options: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, as v1 puts it."""

    tool_call: Wire
    """Of the params of `session/request_permission`."""
    updates: Sequence[Wire]
    """To be sent before it."""
    call_id: str
    of_its_own: bool
    """The call was made for the question only: its end has to be told (`Renderer.answered`)."""


class _Message:
    """How much of a message was sent."""

    __slots__ = ("check", "length", "name", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions = 1
        self.length = 0
        self.check = 0

    @property
    def held(self) -> bool:
        return self.length > 0

    def sent(self, text: str) -> None:
        self.length += len(text)
        self.check = zlib.crc32(text.encode("utf-8", "surrogatepass"), self.check)

    def begins(self, text: str) -> bool:
        """Whether a whole text goes on where what was sent ends."""
        sent = text[: self.length].encode("utf-8", "surrogatepass")
        return 0 < self.length < len(text) and zlib.crc32(sent) == self.check


class Renderer:
    """The updates of one session for one client, in order."""

    def __init__(self, can: Abilities) -> None:
        self._can = can
        self._idle = False
        """No work goes on, as far as is known."""
        self._replaying = False
        self._last_id = 0
        self._forget()
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], list[Wire]]] = {
            "user_message": self._whole,
            "user_message_chunk": self._chunk,
            "agent_message": self._whole,
            "agent_message_chunk": self._chunk,
            "agent_thought": self._whole,
            "agent_thought_chunk": self._chunk,
            "state_update": self._state,
            "tool_call_update": self._tool_call,
            "tool_call_content_chunk": self._tool_call_chunk,
            "terminal_update": self._terminal_update,
            "terminal_output_chunk": self._terminal_chunk,
            "plan_update": self._plan,
            "available_commands_update": self._commands,
            "config_option_update": self._options,
            "session_info_update": self._info,
            "usage_update": self._usage,
            "notice": self._notice,
            "compaction_update": self._compaction,
            "compaction_summary_chunk": self._summary,
        }

    def _forget(self) -> None:
        self._messages: dict[str, _Message] = {}
        self._calls: dict[str, ToolCall] = {}
        self._kept: dict[str, ToolCall] = {}
        """Those whose content may still grow."""
        self._terminals: dict[str, Terminal] = {}
        self._plans: dict[str, list[Wire]] = {}

    def begin_replay(self) -> None:
        """The whole history follows, up to the next state."""
        self._forget()
        self._replaying = True

    def begin_joining(self) -> None:
        """What goes on follows, up to the next state, which says whether anything does."""
        self._idle = False

    def render(self, update: Mapping[str, Any]) -> list[Wire]:
        """The updates to send for one of v2."""
        render = self._kinds.get(str(update.get("sessionUpdate")))
        return [] if render is None else render(update)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _chunk(self, update: Mapping[str, Any]) -> list[Wire]:
        kind = str(update["sessionUpdate"])
        if kind.startswith("user_") and not self._replaying:
            return []
        message = self._message(update)
        return self._pieces(kind, message, [update.get("content")], update)

    def _whole(self, update: Mapping[str, Any]) -> list[Wire]:
        """A chunk for each block, where the client holds nothing; else what is new behind what it holds.

        A message that is cleared is gone in v2. Here it stays, and what comes under its name is another message.
        """
        kind = f"{update['sessionUpdate']}_chunk"
        if "content" not in update or (kind.startswith("user_") and not self._replaying):
            return []
        message, blocks = self._message(update), cast("list[Any]", update["content"] or [])
        if not blocks and message.held:
            message.versions += 1
            message.length = message.check = 0
        elif message.held:
            text = "".join(str(block.get("text", "")) for block in blocks)
            blocks = [{"type": "text", "text": text[message.length :]}] if message.begins(text) else []
        return self._pieces(kind, message, blocks, update)

    def _message(self, update: Mapping[str, Any]) -> _Message:
        name = str(update["messageId"])
        return self._messages.setdefault(name, _Message(name))

    @staticmethod
    def _pieces(kind: str, message: _Message, blocks: Sequence[Any], update: Mapping[str, Any]) -> list[Wire]:
        name = message.name if message.versions == 1 else f"{message.name}-{message.versions}"
        shown: list[Wire] = []
        for block in map(closed.block, blocks):
            if block is not None:
                message.sent(block["text"] if block["type"] == "text" else "\ufffc")
                piece = {"sessionUpdate": kind, "messageId": name, "content": block}
                shown.append({**piece, **closed.only(update)})
        return shown

    # --- tool calls --------------------------------------------------------------------------------------------------

    def _tool_call(self, update: Mapping[str, Any]) -> list[Wire]:
        call = self._call(str(update["toolCallId"]))
        if call is None:
            return []
        if "content" in update:
            call.replace(update["content"] or [])
        updates = self._call_updates(call, fields(update), closed.only(update).get("_meta") or {})
        if self._replaying:
            self._release(call)
        return updates

    def _tool_call_chunk(self, update: Mapping[str, Any]) -> list[Wire]:
        call = self._call(str(update["toolCallId"]))
        if call is None or not call.append(update.get("content")):
            return []
        return self._call_updates(call, {}, {})

    def _call(self, call_id: str) -> ToolCall | None:
        """A call that the client knows, or hears of now."""
        call = self._calls.get(call_id)
        if call is None and (self._replaying or not self._idle):
            call = self._calls[call_id] = ToolCall(call_id)
        return call

    def _release(self, call: ToolCall) -> None:
        """Forget the content of a call that is over and shown; not that it is known. A command in the background is not over."""
        runs_on = not self._replaying and any(self._terminal(name).exit is None for name in call.terminals())
        if call.final and not (call.content_due or call.title_due or runs_on):
            for name in call.release():
                self._terminal(name).release()
            self._kept.pop(call.call_id, None)

    def _call_updates(self, call: ToolCall, news: Wire, meta: Wire) -> list[Wire]:
        """The update with these news, and what follows from it for the terminals of the call."""
        self._kept[call.call_id] = call
        was_final = call.final
        call.learn(news)
        if call.final and not was_final and not self._can.terminals:
            call.content_due |= any(not self._terminal(name).exit_told for name in call.terminals())
        meta = {**meta, **self._introduced(call, news)}
        if call.content_due:
            content = call.content(lambda name: self._shown(call, name))
            if content or call.told:
                news["content"] = content
        updates: list[Wire] = []
        if update := self._call_update(call, news, meta):
            updates.append(update)
        for name in call.terminals():
            updates += self._terminal_news(self._terminals[name])
        return updates

    @staticmethod
    def _call_update(call: ToolCall, news: Wire, meta: Wire) -> Wire | None:
        if call.title_due:
            call.title_due = False
            news["title"] = call.title
        if call.told and not news and not meta:
            return None
        head: Wire = {"sessionUpdate": "tool_call_update" if call.told else "tool_call", "toolCallId": call.call_id}
        if not call.told:
            call.told = True
            news = {"title": call.title, "status": "pending", **news}
            news["title"] = call.title
        return {**head, **news, **({"_meta": meta} if meta else {})}

    # --- terminals ---------------------------------------------------------------------------------------------------

    def _introduced(self, call: ToolCall, news: Wire) -> Wire:
        """`_meta` for the terminals that the call shows from now on.

        Clients make a terminal when `tool_call` comes, and only then. So one is announced with each command, in case that it
        gets one later.
        """
        if not self._can.terminals:
            for name in call.terminals():
                self._terminal(name).call_id = call.call_id
            return {}
        meta: Wire = {}
        for name in call.terminals():
            terminal = self._terminal(name)
            if terminal.call_id is None:
                terminal.call_id = call.call_id
                if call.announced is not None:
                    terminal.shown_id, call.announced = call.announced, None
                else:
                    meta = terminal.info()
        if not call.told and not meta and news.get("kind") == "execute":
            call.announced = call.call_id
            meta = {"terminal_info": {"terminal_id": call.call_id}}
        return meta

    def _shown(self, call: ToolCall, name: str) -> Wire | None:
        terminal = self._terminal(name)
        if self._can.terminals:
            return {"type": "terminal", "terminalId": terminal.shown_id}
        text = terminal.text() if call.final or terminal.exit is not None else ""
        return text_item(text) if text else None

    def _terminal(self, name: str) -> Terminal:
        return self._terminals.setdefault(name, Terminal(name, live=self._can.terminals))

    def _terminal_update(self, update: Mapping[str, Any]) -> list[Wire]:
        terminal = self._terminal(str(update["terminalId"]))
        terminal.update(update)
        return self._terminal_news(terminal)

    def _terminal_chunk(self, update: Mapping[str, Any]) -> list[Wire]:
        terminal = self._terminal(str(update["terminalId"]))
        terminal.append(update.get("data"))
        return self._terminal_news(terminal)

    def _terminal_news(self, terminal: Terminal) -> list[Wire]:
        """What has become of a terminal, as an update of the call that shows it; before there is one, nothing."""
        call = self._calls.get(terminal.call_id) if terminal.call_id is not None else None
        if call is None:
            return []
        if not self._can.terminals:
            if terminal.exit is None or terminal.exit_told or call.released:
                return []
            terminal.exit_told = True
            news: Wire = {"content": call.content(lambda name: self._shown(call, name))}
            update = self._call_update(call, news, {})
        else:
            meta = terminal.news()
            update = self._call_update(call, {}, meta) if meta else None
        return [] if update is None else [update]

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _state(self, update: Mapping[str, Any]) -> list[Wire]:
        """History is through. At the end of work, what was held back of growing content is sent."""
        self._replaying = False
        self._idle = update.get("state") == "idle"
        if not self._idle:
            return []
        due = [call for call in self._kept.values() if call.content_due]
        updates = [update for call in due for update in self._call_updates(call, {}, {})]
        for call in list(self._kept.values()):
            self._release(call)
        return updates

    def _plan(self, update: Mapping[str, Any]) -> list[Wire]:
        """v1 has one plan: the steps of all plans, in order."""
        plan = cast(Wire, update.get("plan") or {})
        if plan.get("type") == "markdown" and self._can.plans:
            shown = closed.only(plan, "type", "planId", "content")
            return [{"sessionUpdate": "plan_update", "plan": shown}]
        if plan.get("type") != "items":
            return []
        self._plans[str(plan.get("planId"))] = [
            {
                "content": entry["content"],
                "priority": entry["priority"] if entry.get("priority") in closed.PLAN_PRIORITIES else "medium",
                "status": closed.PLAN_STATUSES.get(str(entry.get("status")), "pending"),
            }
            for entry in plan.get("entries") or ()
            if entry.get("status") != "cancelled"
        ]
        entries = [entry for plan in self._plans.values() for entry in plan]
        return [{"sessionUpdate": "plan", "entries": entries}]

    def _commands(self, update: Mapping[str, Any]) -> list[Wire]:
        entries = cast("list[Wire]", update.get("availableCommands") or [])
        shown = [command for entry in entries if (command := closed.command(entry)) is not None]
        return [{"sessionUpdate": "available_commands_update", "availableCommands": shown}]

    def _options(self, update: Mapping[str, Any]) -> list[Wire]:
        options = closed.config_options(update.get("configOptions"), booleans=self._can.boolean_options)
        return [{"sessionUpdate": "config_option_update", "configOptions": options}]

    def _info(self, update: Mapping[str, Any]) -> list[Wire]:
        """Null clears a title, here too."""
        shown = {name: update[name] for name in ("title", "updatedAt") if name in update}
        return [{"sessionUpdate": "session_info_update", **shown, **closed.only(update)}]

    def _usage(self, update: Mapping[str, Any]) -> list[Wire]:
        shown = closed.only(update, "sessionUpdate", "used", "size")
        if isinstance(cost := update.get("cost"), dict):
            shown["cost"] = closed.only(cast(Wire, cost), "amount", "currency")
        return [shown]

    def _notice(self, update: Mapping[str, Any]) -> list[Wire]:
        """A client that knows no notices is told in words: a message of its own."""
        severity = str(update.get("severity"))
        severity = severity if severity in closed.SEVERITIES else "info"
        if self._can.notices:
            return [{**closed.only(update, "sessionUpdate", "title", "description"), "severity": severity}]
        text = ": ".join(str(update[name]) for name in ("title", "description") if update.get(name))
        block = {"type": "text", "text": f"**{closed.SEVERITIES[severity]}:** {text}\n\n"}
        self._last_id += 1
        return [
            {"sessionUpdate": "agent_message_chunk", "messageId": f"notice-{self._last_id}", "content": block},
        ]

    def _compaction(self, update: Mapping[str, Any]) -> list[Wire]:
        status = str(update.get("status"))
        if self._can.compaction:
            shown = closed.only(update, "sessionUpdate", "compactionId", "error")
            if "summary" in update:
                blocks = map(closed.block, cast("list[Any]", update["summary"] or []))
                shown["summary"] = [block for block in blocks if block is not None]
            if status not in closed.COMPACTION_STATUSES:
                status = "in_progress"
            return [{**shown, "status": status}]
        call = self._call(_compaction_call(update))
        if call is None:
            return []
        news: Wire = {} if call.told else {"title": _COMPACTING, "kind": "think"}
        if status in closed.TOOL_STATUSES:
            news["status"] = closed.TOOL_STATUSES[status]
        texts = list(cast("list[Any]", update.get("summary") or []))
        if error := update.get("error"):
            texts.append({"type": "text", "text": str(error)})
        if texts:
            call.replace([{"type": "content", "content": text} for text in texts])
        return self._call_updates(call, news, {})

    def _summary(self, update: Mapping[str, Any]) -> list[Wire]:
        if self._can.compaction:
            block = closed.block(update.get("content"))
            shown = closed.only(update, "sessionUpdate", "compactionId")
            return [] if block is None else [{**shown, "content": block}]
        call = self._call(_compaction_call(update))
        if call is None or not call.append({"type": "content", "content": update.get("content")}):
            return []
        return self._call_updates(call, {} if call.told else {"title": _COMPACTING, "kind": "think"}, {})

    # --- questions ---------------------------------------------------------------------------------------------------

    def ask(
        self,
        request_id: str,
        title: str,
        *,
        tool_call: Mapping[str, Any] | None = None,
        description: str | None = None,
        command: tuple[str, str] | None = None,
    ) -> Asked:
        """A question. v1 asks about a tool call only, whose title carries the question's text (V1-PERM-1).

        A call that the client does not know is told first; one is made where there is none. Its own title and content come
        back with its next update.
        """
        source: Wire = dict(tool_call or {})
        if tool_call is None:
            source["kind"] = "other" if command is None else "execute"
            if command is not None:
                source["rawInput"] = {"command": command[0], "cwd": command[1]}
                source["content"] = [text_item(fenced(command[0]))]
        call_id = str(source.get("toolCallId") or f"question-{request_id}")
        call = self._calls.setdefault(call_id, ToolCall(call_id))
        if "content" in source:
            call.replace(source["content"] or [])
        news = fields(source)
        updates: list[Wire] = []
        if not call.told:
            updates = self._call_updates(call, {"title": title, **news}, {})
        elif call.content_due:
            updates = self._call_updates(call, {}, {})
        call.learn(news)
        asked: Wire = {"toolCallId": call_id, "status": "pending", **call.known, **news, "title": title}
        content = call.content(lambda name: self._shown(call, name))
        if description is not None:
            content = [text_item(description), *content]
            call.content_due = True
        if content:
            asked["content"] = content
        call.title_due = call.title != title
        return Asked(asked, updates, call_id, tool_call is None)

    def answered(self, call_id: str, *, approved: bool) -> list[Wire]:
        """The question of a call that was made for it is over. A replay since then has not shown the call."""
        call = self._calls.get(call_id)
        return [] if call is None else self._call_updates(call, {"status": "completed" if approved else "failed"}, {})


def _compaction_call(update: Mapping[str, Any]) -> str:
    return f"compaction-{update['compactionId']}"
