"""One connection to one started agent, as rules use it: every wait has a bound, and every surprise is a `Broken`.

Owns the sentences for wrong answers and for silence, and how messages are shown. Knows no rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from adapters.acp.errors import AcpError
from adapters.check.launch import Running
from adapters.check.verdict import Broken, Silence
from adapters.client import permissions
from adapters.client.calls import Call, MalformedAnswerError, PromptCall, RequestId
from adapters.client.client import Client, as_blocks
from adapters.client.record import ConnectionLostError, Message, as_object

Json = dict[str, Any]

_LONGEST_SHOWN = 400
"""Characters of a message in a report."""
_MOST_NO_JSON = 3
"""Lines that are no JSON and are shown for want of an answer."""

MESSAGES = ("user_message", "user_message_chunk")
OUTPUT = (
    "agent_message",
    "agent_message_chunk",
    "agent_thought",
    "agent_thought_chunk",
    "tool_call_update",
    "tool_call_content_chunk",
)
"""Variants that belong to foreground work, background tool calls aside."""
FINAL = ("completed", "failed", "cancelled")
"""Statuses of a tool call that has ended."""


@dataclass(frozen=True)
class Finished:
    """A prompt that was answered, and whose work has ended."""

    call: Call
    message_id: str
    idle: Message
    """The update that ended it."""


class Link:
    """A started agent and the client that talks to it."""

    def __init__(self, running: Running, client: Client, cwd: str, bound: float) -> None:
        self.running = running
        self.client = client
        self.cwd = cwd
        self.bound = bound
        self.closed: set[str] = set()
        """Sessions that were closed here."""
        self.suspect = False
        """Something was not as it should be: the next rule gets a fresh agent."""
        self.opened: list[str] = []
        """Sessions that were made here and not closed again."""
        self._spare: str | None = None

    @property
    def mark(self) -> int:
        """The index of the next message."""
        return self.client.record.mark

    async def kill(self) -> None:
        """Kill the agent, and wait until it is gone."""
        self.running.kill()
        await self.running.wait(self.bound)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, request_id: RequestId | None = None
    ) -> Call:
        """Send a request."""
        return await self.client.request(method, params, request_id)

    async def raw(self, text: str | bytes, expecting: RequestId | None = None) -> Call:
        """Send a line as it is."""
        return await self.client.send_line(text.encode() if isinstance(text, str) else text, expecting)

    async def outcome(self, call: Call, within: float | None = None) -> Json | AcpError:
        """The one answer to a request, whatever it is. Raises `Broken` when there is none that can be read."""
        bound = within or self.bound
        name = call.method or "the request"
        try:
            return await call.result(bound)
        except AcpError as error:
            return error
        except MalformedAnswerError as error:
            raise Broken(f"the answer to {name} is malformed: {error}", self.shown(call)) from None
        except ConnectionLostError:
            raise Broken(f"{await self.how_it_ended()} before it answered {name}", self.shown(call)) from None
        except TimeoutError:
            self.suspect = True
            sentence = f"{name} was not answered within {bound:g} s"
            if self.running.returncode is not None:  # and something it has started holds its output open
                sentence = f"{await self.how_it_ended()} before it answered {name}"
            raise Silence(sentence, self.shown(call)) from None

    async def result(self, call: Call, within: float | None = None) -> Json:
        """The result of a request that must succeed."""
        outcome = await self.outcome(call, within)
        if isinstance(outcome, AcpError):
            raise Broken(f"{call.method} was answered with error {outcome.code}", self.shown(call))
        if call.method == "session/new" and isinstance(outcome.get("sessionId"), str):
            self.opened.append(outcome["sessionId"])
        return outcome

    async def error(self, call: Call, *codes: int, within: float | None = None) -> AcpError:
        """The error of a request that must fail, with one of these codes if any are given."""
        outcome = await self.outcome(call, within)
        wanted = " or ".join(map(str, codes)) or "an error"
        if not isinstance(outcome, AcpError):
            raise Broken(
                f"{call.method or 'the line'} succeeded instead of being refused with {wanted}", self.shown(call)
            )
        if codes and outcome.code not in codes:
            raise Broken(f"the error code is {outcome.code} instead of {wanted}", self.shown(call))
        return outcome

    async def refused(self, method: str, params: Mapping[str, Any], *codes: int) -> AcpError:
        """Ask something that must be refused with one of these codes."""
        return await self.error(await self.ask(method, params), *codes)

    async def fence(self) -> None:
        """A request and its answer: what the agent sent because of earlier messages has come by now, or much of it."""
        await self.outcome(await self.ask("session/list", {}))

    async def answers_to(self, line: str, wanted: Callable[[Message], bool]) -> list[Message]:
        """Send a line that is no request; gives what comes of the wanted kind. Raises `Broken` when nothing does."""
        mark, sent = self.mark, f"-> {line}"
        await self.raw(line)
        try:
            await self.client.record.wait(wanted, mark, self.bound)
        except TimeoutError:
            raise Silence("the line got no answer", [sent]) from None
        except ConnectionLostError:
            raise Broken(f"{await self.how_it_ended()} after the line", [sent]) from None
        await self.fence()
        return [message for message in self.client.record.since(mark, sent=False) if wanted(message)]

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def new(self, **more: Any) -> str:
        """A new session in the folder of the check."""
        call = await self.ask("session/new", {"cwd": self.cwd, "mcpServers": [], **more})
        result = await self.result(call)
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            raise Broken("the result of session/new has no sessionId", self.shown(call))
        return session_id

    async def spare(self) -> str:
        """A session for rules that insert nothing; one per connection."""
        if self._spare is None or self._spare in self.closed:
            self._spare = await self.new()
        return self._spare

    async def resume(self, session: str, *, replay: bool = False, **more: Any) -> Call:
        """Ask to resume; the call is answered when this returns."""
        params: Json = {"sessionId": session, "cwd": self.cwd, "mcpServers": [], **more}
        if replay:
            params["replayFrom"] = {"type": "start"}
        call = await self.ask("session/resume", params)
        await self.result(call)
        self.closed.discard(session)
        return call

    async def close(self, session: str) -> Call:
        """Close; the call is answered when this returns."""
        call = await self.ask("session/close", {"sessionId": session})
        await self.result(call)
        self.closed.add(session)
        return call

    async def tidy(self, method: str = "session/close") -> None:
        """Close the sessions of a rule that is done, or delete them; whatever the agent says to that."""
        sessions = [session for session in self.opened if session != self._spare]
        self.opened = [session for session in self.opened if session == self._spare]
        calls = [await self.ask(method, {"sessionId": session}) for session in sessions]
        for call in calls:
            try:
                await self.outcome(call)
            except Broken:
                self.suspect = True
                return

    async def prompt(
        self,
        session: str,
        text: str | Sequence[Mapping[str, Any]],
        key: Any = None,
        request_id: RequestId | None = None,
    ) -> PromptCall:
        """Send a prompt; does not wait for its answer."""
        return await self.client.prompt(session, as_blocks(text), key, request_id)

    async def message_id(self, call: Call, within: float | None = None) -> str:
        """The message id that a prompt is answered with."""
        value = (await self.result(call, within)).get("messageId")
        if not isinstance(value, str):
            raise Broken("the result of session/prompt has no messageId", self.shown(call))
        return value

    async def id_or_code(self, call: Call) -> str | int:
        """The message id, or the code of the error."""
        outcome = await self.outcome(call)
        return outcome.code if isinstance(outcome, AcpError) else await self.message_id(call)

    async def finished(self, session: str, call: Call) -> Finished:
        """Wait for the answer to a prompt, and for the end of its work."""
        message_id = await self.message_id(call)
        return Finished(call, message_id, await self._ended(session, call.mark))

    async def turn(self, session: str, text: str | Sequence[Mapping[str, Any]], key: Any = None) -> str:
        """Send a prompt and wait for the end of its work; gives the message id."""
        return (await self.finished(session, await self.prompt(session, text, key))).message_id

    # --- updates -----------------------------------------------------------------------------------------------------

    def updates(self, session: str, since: int = 0) -> list[Message]:
        """The messages with updates of the session from a mark on."""
        return [message for message in self.client.record.since(since, sent=False) if update_of(message, session)]

    async def until(
        self, session: str, wanted: Callable[[Json], bool], since: int, what: str, within: float | None = None
    ) -> Message:
        """The first update that is wanted. Raises `Broken` when none comes."""
        bound = within or self.bound
        try:
            return await self.client.record.wait(
                lambda message: bool(update := update_of(message, session)) and wanted(update), since, bound
            )
        except ConnectionLostError:
            sentence = f"{await self.how_it_ended()} before {what}"
        except TimeoutError:
            self.suspect = True
            raise Silence(f"{what}: not within {bound:g} s", show(self.tail(session, since))) from None
        raise Broken(sentence, show(self.tail(session, since))) from None

    async def idle(self, session: str, since: int, within: float | None = None) -> Json:
        """The idle update that ends the work begun since then."""
        return update_of(await self._ended(session, since, within), session)

    async def _ended(self, session: str, since: int, within: float | None = None) -> Message:
        return await self.until(session, is_state("idle"), since, "the work ends with an idle state_update", within)

    def states(self, session: str, since: int = 0) -> list[str]:
        """State changes as `running` and `idle:end_turn`; repeated snapshots are left out."""
        seen: list[str] = []
        for message in self.updates(session, since):
            update = update_of(message, session)
            if is_state("running", "idle")(update) and (not seen or seen[-1].partition(":")[0] != update["state"]):
                seen.append(":".join(str(part) for part in (update["state"], update.get("stopReason")) if part))
        return seen

    def user_messages(self, session: str, since: int = 0) -> list[str]:
        """Ids of user messages shown with content since then, each once, in order."""
        found: dict[str, None] = {}
        for message in self.updates(session, since):
            update = update_of(message, session)
            if (
                update.get("sessionUpdate") in MESSAGES
                and update.get("content")
                and isinstance(update.get("messageId"), str)
            ):
                found[update["messageId"]] = None
        return list(found)

    def user_texts(self, session: str, since: int = 0) -> dict[str, str]:
        """Id and text of the user messages shown since then, in order of their first appearance; empty ones are left out."""
        texts: dict[str, str] = {}
        for message in self.updates(session, since):
            update = update_of(message, session)
            message_id: Any = update.get("messageId")
            if update.get("sessionUpdate") in MESSAGES and isinstance(message_id, str) and "content" in update:
                whole = update["sessionUpdate"] == "user_message"
                texts[message_id] = ("" if whole else texts.get(message_id, "")) + _text_of(update["content"])
        return {message_id: text for message_id, text in texts.items() if text}

    def tool_statuses(self, session: str, since: int = 0) -> dict[str, Any]:
        """The last status of each tool call that was reported since then, by its id."""
        statuses: dict[str, Any] = {}
        for message in self.updates(session, since):
            update = update_of(message, session)
            if update.get("sessionUpdate") == "tool_call_update":
                tool_call = str(update.get("toolCallId"))
                statuses[tool_call] = update.get("status", statuses.get(tool_call))
        return statuses

    async def replay(self, session: str) -> dict[str, str]:
        """Id and text of the user messages that a replay of the stored session shows now, in order."""
        mark = self.mark
        await self.resume(session, replay=True)
        return self.user_texts(session, mark)

    def agent_requests(self, method: str, since: int = 0) -> list[Message]:
        """Requests of the agent."""
        messages = self.client.record.since(since, sent=False)
        return [message for message in messages if message.method == method and "id" in as_object(message.value)]

    # --- showing -----------------------------------------------------------------------------------------------------

    def shown(self, *calls: Call) -> tuple[str, ...]:
        """Requests and their answers, as lines; for want of an answer, what came instead that is no JSON."""
        wanted = {index for call in calls for index in (call.mark, call.answered_at) if index is not None}
        record = self.client.record
        if any(call.answered_at is None for call in calls):
            wanted |= {message.index for message in islice(filter(no_json, record.since()), _MOST_NO_JSON)}
        messages = (message for message in record.since() if message.index in wanted)
        return show(m for m in messages if m.value is not None or no_json(m))  # raw lines of ours have no value

    def tail(self, session: str, since: int, most: int = 6) -> list[Message]:
        """The latest messages about a session since then."""
        found = [m for m in self.client.record.since(since) if m.params.get("sessionId") == session]
        return found[-most:]

    async def how_it_ended(self) -> str:
        """A sentence about an agent whose connection ended."""
        try:
            status = await self.running.wait(2)
        except TimeoutError:
            return "the agent closed its output"
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        last = [line for line in self.running.stderr.splitlines() if line.strip()][-1:]
        return f"the agent {how}" + (f' (last line on stderr: "{last[0].strip()[:200]}")' if last else "")


def update_of(message: Message, session: str) -> Json:
    """The update that a message carries for this session; empty when it carries none."""
    if message.sent or message.method != "session/update" or message.params.get("sessionId") != session:
        return {}
    return as_object(message.params.get("update"))


def _text_of(content: Any) -> str:
    """The text of a block, or of a list of blocks."""
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    return "".join(str(as_object(block).get("text", "")) for block in blocks)


def is_answer(message: Message) -> bool:
    """Whether a message of the agent answers something."""
    value = as_object(message.value)
    return not message.sent and bool(value) and "method" not in value


def is_state(*states: str) -> Callable[[Json], bool]:
    """A predicate for `Link.until`."""
    return lambda update: update.get("sessionUpdate") == "state_update" and update.get("state") in states


def show(messages: Iterable[Message]) -> tuple[str, ...]:
    """Messages as lines of a report: `->` what the check sent, `<-` what the agent sent."""
    return tuple(f"{'->' if message.sent else '<-'} {_text(message)}" for message in messages)


def no_json(message: Message) -> bool:
    """Whether a message is a line of the agent that is no JSON."""
    return not message.sent and bool(message.line)


def _text(message: Message) -> str:
    if no_json(message):
        return f"{message.line.decode('utf-8', 'backslashreplace')!r}, which is no JSON ({message.size} bytes)"
    value = message.value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


async def allow(question: permissions.Question) -> str | None:
    """Allow once, whatever shape the request has."""
    return _choose(question, "allow_once", "allow_always")


async def reject(question: permissions.Question) -> str | None:
    """Refuse once, whatever shape the request has."""
    return _choose(question, "reject_once", "reject_always")


def _choose(question: permissions.Question, *kinds: str) -> str | None:
    options: Any = question.params.get("options")
    offered = [as_object(option) for option in cast("list[Any]", options)] if isinstance(options, list) else []
    for kind in kinds:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return option["optionId"]
    return None
