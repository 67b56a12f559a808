"""Rules about every message that the agent sent in the whole run. They are checked last, over all connections.

`judge` works on any record: tests and soaks of an agent call it at the end of a connection.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, cast

import anyio

from adapters.check.bench import Bench
from adapters.check.link import is_answer, show
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.record import Message, as_object
from adapters.installing import install_command

V1_ONLY = ("tool_call", "plan", "current_mode_update")
TRACE = re.compile(r"Traceback \(most recent call last\)|\n\s+at .+[:(]\d+|File \".+\", line \d+")
_TELLING = 8
"""Characters; shorter keys occur in other text by chance."""
_LONGEST_LIST = 6
_NOTHING = json.dumps([None, None, None])


async def lines_are_messages(bench: Bench) -> None:
    """STDIO-1, STDIO-2."""
    for message in _received(bench):
        if not as_object(message.value):
            raise Broken("a line on stdout is no JSON object", show([message]))
    noise = [fault for link in bench.links for fault in link.client.faults if fault.startswith("a line")]
    if noise:
        raise Broken(f"stdout carries {noise[0]}")


async def messages_are_valid(bench: Bench) -> None:
    """UPD-7, EXT-1, EXT-2, CONT-2: under the stable schema, or the unstable one."""
    try:
        from adapters.check.wire import WireError, update_variants, validate  # noqa: PLC0415 - needs jsonschema, the extra `check`
    except ImportError:
        raise NotApplicable(f"jsonschema is not installed: {install_command('jsonschema')}") from None
    wrong: dict[str, Message] = {}
    valid: set[str] = set()
    for link in bench.links:
        asked = _methods_asked(link.client.record.since(0, sent=True))
        for message in link.client.record.since(0, sent=False):
            value = as_object(message.value)
            if not value:
                continue  # told by STDIO-1
            method = None if "method" in value else asked.get(_key(value.get("id")))
            await anyio.lowlevel.checkpoint()
            body = json.dumps([method, value.get("result"), message.params.get("update")])
            if value.keys() & {"result", "method"} and body != _NOTHING and body in valid:
                continue  # the same list of commands, again
            valid.add(body)
            variant = as_object(message.params.get("update")).get("sessionUpdate")
            if (
                isinstance(variant, str)
                and variant not in update_variants(unstable=True)
                and not variant.startswith("_")
            ):
                wrong.setdefault(f"{variant} is no update of the schema, and no extension", message)  # EXT-2
            try:
                validate(value, "agent", method)
            except WireError as stable:
                try:
                    validate(value, "agent", method, unstable=True)
                except WireError:
                    wrong.setdefault(str(stable), message)
    if wrong:
        shown = [
            line for what, message in list(wrong.items())[:_LONGEST_LIST] for line in (f"   {what}", *show([message]))
        ]
        raise Broken(f"{len(wrong)} kinds of messages break the schema", shown)


async def one_answer_each(bench: Bench) -> None:
    """RPC-6: at most one; a missing one is told where it was waited for."""
    for link in bench.links:
        asked = _methods_asked(link.client.record.since(0, sent=True))
        answers: Counter[str] = Counter()
        for message in link.client.record.since(0, sent=False):
            if is_answer(message):
                answers[_key(as_object(message.value).get("id"))] += 1
        for key, count in answers.items():
            if count > 1 and key in asked:
                twice = [m for m in link.client.record.since(0) if _key(as_object(m.value).get("id")) == key]
                raise Broken(f"a request was answered {count} times", show(twice))


async def no_method_of_version_1(bench: Bench) -> None:
    """UPD-6, INIT-4."""
    for message in _received(bench):
        variant = as_object(message.params.get("update")).get("sessionUpdate")
        if variant in V1_ONLY or (message.method or "").startswith(("fs/", "terminal/")):
            raise Broken("a message of protocol version 1 was sent", show([message]))


async def errors_show_no_insides(bench: Bench) -> None:
    """RPC-14."""
    for message in _received(bench):
        error: Any = as_object(message.value).get("error")
        if error is not None and TRACE.search(json.dumps(error).replace("\\n", "\n")):
            raise Broken("an error holds a stack trace", show([message]))


async def keys_are_not_told(bench: Bench) -> None:
    """KEY-30, UPD-9: in no message and no log."""
    keys = [key for key in bench.keys if len(key) >= _TELLING]
    for message in _received(bench):
        text = json.dumps(message.value, ensure_ascii=False)
        if any(key in text for key in keys):
            raise Broken("a key was told to the client", show([message]))
    for link in bench.links:
        told = [line for line in link.running.stderr.splitlines() if any(key in line for key in keys)]
        if told:
            raise Broken("a key stands in the log on stderr", told[:3])


async def options_are_consistent(bench: Bench) -> None:
    """CFG-2, SETUP-11."""
    seen = False
    for message, options in _lists(bench, "configOptions"):
        for option in map(as_object, options):
            seen = True
            if option.get("type") != "select":
                continue
            values = list(_values(option.get("options")))
            if option.get("currentValue") not in values:
                raise Broken(
                    f"the current value of option {option.get('configId')} is not among its values", show([message])
                )
            if len(set(values)) != len(values):
                raise Broken(f"option {option.get('configId')} has a value twice", show([message]))
    if not seen:
        raise NotApplicable("the agent offers no options")


async def commands_are_well_named(bench: Bench) -> None:
    """CMD-1."""
    seen = False
    for message, commands in _lists(bench, "availableCommands"):
        names = [str(as_object(command).get("name")) for command in commands]
        seen = seen or bool(names)
        wrong = [name for name in names if name.startswith("/") or not name or re.search(r"\s", name)]
        if wrong:
            raise Broken(f"the command name {wrong[0]!r} has a slash or white space", show([message]))
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise Broken(f"the command {twice[0]!r} is listed twice", show([message]))
    if not seen:
        raise NotApplicable("the agent offers no commands")


async def background_is_complete(bench: Bench) -> None:
    """STATE-9."""
    seen = False
    for link in bench.links:
        first: dict[Any, Message] = {}
        for message in link.client.record.since(0, sent=False):
            if as_object(message.params.get("update")).get("sessionUpdate") != "state_update":
                continue
            before = first.setdefault(message.params.get("sessionId"), message)
            seen = seen or _background(message)
            if _background(before) != _background(message):
                sentence = "background work is listed in some state updates of a session and not in others"
                raise Broken(sentence, show([before, message]))
    if not seen:
        raise NotApplicable("the agent reports no background work")


def _background(message: Message) -> bool:
    return as_object(message.params.get("update")).get("background") is not None


async def tool_calls_keep_their_end(bench: Bench) -> None:
    """TOOL-1, TOOL-5: a finished call does not begin again."""
    final = ("completed", "failed", "cancelled")
    seen = False
    for link in bench.links:
        ended: dict[Any, Message] = {}
        resuming: set[Any] = set()
        for message in link.client.record.since(0):
            if message.sent and message.method == "session/resume":
                resuming.add(message.params.get("sessionId"))
            update = as_object(message.params.get("update"))
            if message.sent or update.get("sessionUpdate") != "tool_call_update":
                continue
            seen = True
            name, status = (message.params.get("sessionId"), update.get("toolCallId")), update.get("status")
            if status in final:
                ended[name] = message
            elif status is not None and name in ended and name[0] not in resuming:
                raise Broken("a finished tool call was reported as unfinished again", show([ended[name], message]))
    if not seen:
        raise NotApplicable("the agent reported no tool call")


async def prompts_have_ids_of_their_own(bench: Bench) -> None:
    """PROMPT-5, PROMPT-6: over all sessions of a connection, answers without a common key share no id."""
    for link in bench.links:
        by_id: dict[tuple[Any, str], set[Any]] = {}
        keys = {
            _key(as_object(m.value).get("id")): m
            for m in link.client.record.since(0, sent=True)
            if m.method == "session/prompt"
        }
        for message in link.client.record.since(0, sent=False):
            request = keys.get(_key(as_object(message.value).get("id")))
            message_id = as_object(as_object(message.value).get("result")).get("messageId")
            if request is not None and is_answer(message) and isinstance(message_id, str):
                key = request.params.get("idempotencyKey") or request.index
                holders = by_id.setdefault((request.params.get("sessionId"), message_id), set())
                holders.add(key)
                if len(holders) > 1:
                    raise Broken(f"two submissions have the id {message_id}", show([request, message]))


def _received(bench: Bench) -> Iterator[Message]:
    for link in bench.links:
        yield from link.client.record.since(0, sent=False)


def _methods_asked(sent: Iterable[Message]) -> dict[str, str]:
    """Id and its type -> the method that was asked under it."""
    values = [as_object(message.value) for message in sent]
    return {_key(value["id"]): str(value["method"]) for value in values if "id" in value and "method" in value}


def _key(request_id: Any) -> str:
    return json.dumps(request_id)


def _lists(bench: Bench, name: str) -> Iterator[tuple[Message, list[Any]]]:
    """Every list of this name in results and updates."""
    for message in _received(bench):
        for holder in (as_object(as_object(message.value).get("result")), as_object(message.params.get("update"))):
            if isinstance(holder.get(name), list):
                yield message, cast("list[Any]", holder[name])


def _values(options: Any) -> Iterator[Any]:
    for entry in map(as_object, cast("list[Any]", options) if isinstance(options, list) else []):
        if "groupId" in entry:
            yield from _values(entry.get("options"))
        else:
            yield entry.get("value")


RULES = (
    Rule("STDIO-1", "Every line on stdout is one message", "guides of August 2026", lines_are_messages, Need.VERSION),
    Rule("UPD-7", "Every message is valid under the schema", "schema 2.4.0", messages_are_valid, Need.VERSION),
    Rule(
        "UPD-6", "Nothing of protocol version 1 is sent", "guides of August 2026", no_method_of_version_1, Need.VERSION
    ),
    Rule("RPC-2", "No request is answered twice", "guides of August 2026", one_answer_each, Need.VERSION),
    Rule("RPC-14", "Errors hold no stack traces", "error page", errors_show_no_insides, Need.VERSION),
    Rule("CFG-2", "The current value of an option is one of its values", "schema 2.4.0", options_are_consistent),
    Rule("CMD-1", "Command names are unique, without slash and white space", "schema 2.4.0", commands_are_well_named),
    Rule(
        "STATE-9",
        "Background work is listed in every state update, or in none",
        "schema 2.4.0",
        background_is_complete,
        Need.PROMPT,
    ),
    Rule("TOOL-1", "A finished tool call stays finished", "schema 2.4.0", tool_calls_keep_their_end, Need.PROMPT),
    Rule(
        "PROMPT-6",
        "No two submissions in a session share an id",
        "message-ID RFD",
        prompts_have_ids_of_their_own,
        Need.PROMPT,
    ),
    Rule("KEY-30", "Keys are told in no message and no log", "idempotency-key RFD", keys_are_not_told, Need.PROMPT),
)
