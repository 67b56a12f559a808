"""`idempotencyKey` as a field: which values are keys, which are refused, which are the same."""

from __future__ import annotations

import json
from typing import Any

from adapters.acp.errors import AcpError
from adapters.check.bench import Bench
from adapters.check.link import Json, Link
from adapters.check.verdict import Broken, Need, NotApplicable, Rule

FACE = "\U0001f600"
RFD = "idempotency-key RFD"
INVALID = -32602


async def every_string_up_to_255_is_a_key(bench: Bench) -> None:
    """KEY-3, KEY-5: opaque, counted in characters."""
    await _each_its_own(bench, "x", "k" * 255, FACE * 255, " ", "\u0000", "\n")


async def keys_are_compared_exactly(bench: Bench) -> None:
    """KEY-3, E17, E18, E19: no trimming, no case folding, no normalization."""
    exact = bench.key("Exact")
    await _each_its_own(bench, exact, f"{exact} ", exact.upper(), f"caf\u00e9 {exact}", f"cafe\u0301 {exact}")


async def _each_its_own(bench: Bench, *keys: str) -> None:
    """Each is a message of its own, and is known when it comes again."""
    link = bench.link
    session, text = await link.new(), bench.text("under several keys")
    first = [await link.turn(session, text, key) for key in keys]
    for key, message_id in zip(keys, first, strict=True):
        again = await link.prompt(session, text, key)
        if await link.message_id(again) != message_id:
            await _settle(link, session, again.mark)
            raise Broken(f"the key {_shown(key)} was not recognized: the prompt was inserted again", link.shown(again))
    if len(set(first)) != len(keys):
        raise Broken("two different keys were taken for the same one")


async def anything_else_is_refused(bench: Bench) -> None:
    """KEY-4, E16: with -32602, and nothing is inserted."""
    link = bench.link
    session = await link.new()
    for key in ("", "k" * 256, FACE * 256, 7, 1.5, True, False, [], ["key"], {}, {"key": "value"}):
        call = await link.prompt(session, bench.text("under no key"), key)
        outcome = await link.outcome(call)
        if not isinstance(outcome, AcpError):
            await _settle(link, session, call.mark)
            raise Broken(f"the value {_shown(key)} is no key, and the prompt was inserted", link.shown(call))
        if outcome.code != INVALID:
            raise Broken(
                f"the value {_shown(key)} was refused with {outcome.code} instead of {INVALID}", link.shown(call)
            )
        if link.user_messages(session, call.mark):
            raise Broken("the refused prompt was reported as a message", link.shown(call))


async def lone_surrogates_are_refused(bench: Bench) -> None:
    """E16: -32602, or no JSON at all; nothing is inserted."""
    link = bench.link
    session = await link.new()
    params = json.dumps(
        {"sessionId": session, "prompt": [{"type": "text", "text": bench.text("under half a character")}]}
    )[:-1]
    line = f'{{"jsonrpc":"2.0","id":"half","method":"session/prompt","params":{params},"idempotencyKey":"\\ud800"}}}}'
    mark = link.mark
    call = await link.raw(line, expecting="half")
    await link.fence()
    await link.fence()
    if call.done and not isinstance(await link.outcome(call), AcpError):
        await _settle(link, session, mark)
        raise Broken("half a character was taken for a key", [f"-> {line}", *link.shown(call)])
    if link.user_messages(session, mark):
        raise Broken("the prompt was reported as a message", [f"-> {line}"])


async def null_is_no_key(bench: Bench) -> None:
    """KEY-2, E39."""
    link = bench.link
    text, null = bench.text("without a key"), {"idempotencyKey": None}
    ids = await _ids_of(link, await link.new(), text, null, null, {})
    if len(set(ids)) != len(ids):
        raise Broken("prompts without a key were taken for the same submission")


async def elsewhere_is_no_key(bench: Bench) -> None:
    """KEY-7."""
    link = bench.link
    text, key = bench.text("with a key in the wrong place"), bench.key("elsewhere")
    misplaced = {"_meta": {"idempotencyKey": key}, "idempotency_key": key}
    ids = await _ids_of(link, await link.new(), text, misplaced, misplaced)
    if ids[0] == ids[1]:
        raise Broken("a key in _meta, or under another name, was taken for a key")


async def _ids_of(link: Link, session: str, text: str, *extras: Json) -> list[str]:
    """The ids of the prompt, sent once with each of these fields beside it."""
    ids: list[str] = []
    for extra in extras:
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], **extra}
        ids.append((await link.finished(session, await link.ask("session/prompt", params))).message_id)
    return ids


async def spellings_are_one_key(bench: Bench) -> None:
    """E15: escaped and raw JSON."""
    link = bench.link
    session, text, key = await link.new(), bench.text("spelled twice"), f"{FACE} {bench.key('spelled')}"
    first = await link.turn(session, text, key)  # sent with escapes
    request = {
        "jsonrpc": "2.0",
        "id": "raw",
        "method": "session/prompt",
        "params": {"sessionId": session, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key},
    }
    call = await link.raw(json.dumps(request, ensure_ascii=False), expecting="raw")
    outcome = await link.outcome(call)
    if isinstance(outcome, AcpError) or outcome.get("messageId") != first:
        await _settle(link, session, call.mark)
        raise Broken(
            "the same key in another JSON spelling was not recognized", [f"-> {json.dumps(request)}", *link.shown(call)]
        )


async def invalid_prompts_leave_the_key_unused(bench: Bench) -> None:
    """E40, KEY-14."""
    link = bench.link
    session, key = await link.new(), bench.key("invalid-prompt")
    call = await link.prompt(session, [{"type": "no-such-block"}], key)
    if not isinstance(await link.outcome(call), AcpError):
        raise NotApplicable("the agent took a prompt with an unknown block")
    await link.turn(session, bench.text("after an invalid one"), key)


async def _settle(link: Link, session: str, since: int) -> None:
    """The prompt that should not have been inserted runs: let it end before the next one."""
    try:
        await link.idle(session, since)
    except Broken:
        link.suspect = True


def _shown(key: Any) -> str:
    text = json.dumps(key)
    return text if len(text) <= 40 else f"{text[:20]}... ({len(key)} characters)"  # noqa: PLR2004 - fits a line


RULES = (
    Rule("KEY-2", "null is no key, like a missing one", RFD, null_is_no_key, Need.PROMPT),
    Rule("KEY-3", "Any text of 1 to 255 characters is a key", RFD, every_string_up_to_255_is_a_key, Need.PROMPT),
    Rule("KEY-3b", "Keys are compared exactly", RFD, keys_are_compared_exactly, Need.PROMPT),
    Rule("KEY-4", "Any other value is refused with -32602, never ignored", RFD, anything_else_is_refused, Need.PROMPT),
    Rule("KEY-7", "A key in another place is no key", RFD, elsewhere_is_no_key, Need.PROMPT),
    Rule("E15", "One key in two JSON spellings is one key", RFD, spellings_are_one_key, Need.PROMPT),
    Rule("E16", "Half a surrogate pair is no key and inserts nothing", RFD, lone_surrogates_are_refused, Need.PROMPT),
    Rule(
        "E40", "A prompt that is refused leaves its key unused", RFD, invalid_prompts_leave_the_key_unused, Need.PROMPT
    ),
)
