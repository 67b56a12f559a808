"""The key as a field of `session/prompt`: which values are keys, which are refused, which are the same."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters_tests.e2e.rig import Link

pytestmark = pytest.mark.anyio

FACE = "\U0001f600"


@pytest.mark.parametrize(
    "keys",
    [
        ("x",),
        ("k" * 255, "k" * 254),
        (FACE * 255,),
        (" ", "\u0000", "\n", "\u200b", "\t \u0000 "),
        ("spaced-out-key", "spaced-out-key ", " spaced-out-key"),
        ("caf\u00e9-caf\u00e9", "cafe\u0301-cafe\u0301"),
        ("CaseOfTheKey", "caseofthekey", "CASEOFTHEKEY"),
        ("0B6F7C1E-8D2A-4C57-9A41-5E2F7D90C3CD", "0b6f7c1e-8d2a-4c57-9a41-5e2f7d90c3cd"),
    ],
    ids=["one", "255", "255-emoji", "white-and-control", "blanks", "normal-forms", "case", "uuid-case"],
)
async def test_every_string_of_1_to_255_characters_is_a_key_of_its_own(
    shared: Link, text: str, keys: tuple[str, ...]
) -> None:
    """KEY-3, KEY-5, E15, E17, E18, E19: opaque, exact, counted in code points."""
    session = await shared.new()
    ids = [await shared.turn(session, text, key) for key in keys]
    again = [await (await shared.prompt(session, text, key)).message_id() for key in keys]
    assert again == ids
    assert len(set(ids)) == len(keys)
    assert shared.rig.stored_ids(session) == ids
    assert shared.rig.model.calls(text) == len(keys)


@pytest.mark.parametrize(
    "key",
    ["", "k" * 256, FACE * 256, "\ud800", "a\udfffb", 7, 0, 1.5, True, False, [], ["key"], {}, {"key": "value"}],
    ids=repr,
)
async def test_any_other_value_is_refused_and_nothing_is_inserted(shared: Link, text: str, key: Any) -> None:
    """KEY-4, KEY-6, KEY-8, E16: `-32602`, never treated as omitted."""
    session = await shared.quiet_session()
    before = shared.rig.stored_ids(session)
    call = await shared.client.prompt(session, text, key=key)
    error = await shared.error(call)
    assert error.code == -32602
    unknown = await shared.client.prompt(str(uuid.uuid4()), text, key=key)
    assert (await shared.error(unknown)).code in (-32602, -32002)  # E41
    assert shared.rig.stored_ids(session) == before
    assert shared.rig.model.calls(text) == 0


async def test_null_and_absent_are_no_key(shared: Link, text: str) -> None:
    """KEY-2, PROMPT-22, E39: each is a submission of its own, also after a keyed one."""
    session = await shared.new()
    first = await shared.turn(session, text, "first-with-a-key")
    nulls: list[str] = []
    for _ in range(2):
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], "idempotencyKey": None}
        call = await shared.client.request("session/prompt", params)
        nulls.append((await call.result())["messageId"])
        await shared.client.wait_state(session, "idle", since=call.mark)
    absent = await shared.turn(session, text)
    assert shared.rig.stored_ids(session) == [first, *nulls, absent]
    assert len({first, *nulls, absent}) == 4


async def test_a_key_elsewhere_is_no_key(shared: Link, text: str) -> None:
    """KEY-7: not in `_meta`, not under another spelling, not the request id."""
    session = await shared.new()
    ids: list[str] = []
    for _ in range(2):
        params = {
            "sessionId": session,
            "prompt": [{"type": "text", "text": text}],
            "_meta": {"idempotencyKey": "somewhere-else"},
            "idempotency_key": "somewhere-else",
            "idempotencykey": "somewhere-else",
        }
        call = await shared.client.request("session/prompt", params)
        ids.append((await call.result())["messageId"])
        await shared.client.wait_state(session, "idle", since=call.mark)
    assert len(set(ids)) == 2
    assert shared.rig.stored_ids(session) == ids


async def test_escaped_and_raw_spellings_in_the_json_are_one_key(shared: Link, text: str) -> None:
    r"""E15: `\ud83d\ude00` is the same character as the raw one."""
    session = await shared.new()
    key = f"{FACE} caf\u00e9 spelled twice"
    shared.rig.keys.add(key)
    first = await shared.turn(session, text, key)
    message = {
        "jsonrpc": "2.0",
        "id": "raw-spelling",
        "method": "session/prompt",
        "params": {"sessionId": session, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key},
    }
    call = await shared.client.send_line(json.dumps(message, ensure_ascii=False).encode(), expecting="raw-spelling")
    assert (await call.result())["messageId"] == first
    assert shared.rig.stored_ids(session) == [first]


async def test_of_a_duplicate_member_the_last_value_counts(shared: Link, text: str) -> None:
    """E42: never two keys."""
    session = await shared.new()
    shared.rig.keys |= {"duplicate-member-1", "duplicate-member-2"}
    prompt = json.dumps({"sessionId": session, "prompt": [{"type": "text", "text": text}]})[:-1]
    members = '"idempotencyKey":"duplicate-member-1","idempotencyKey":"duplicate-member-2"'
    line = f'{{"jsonrpc":"2.0","id":"dup","method":"session/prompt","params":{prompt},{members}}}}}'
    call = await shared.client.send_line(line.encode(), expecting="dup")
    first = (await call.result())["messageId"]
    await shared.client.wait_state(session, "idle", since=call.mark)
    assert await (await shared.prompt(session, text, "duplicate-member-2")).message_id() == first
    assert await shared.turn(session, text, "duplicate-member-1") != first


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [{"type": "audio", "data": "", "mimeType": "audio/wav"}],
        [{"type": "text"}],
        [{"type": "_mine", "text": "x"}],
        [{"type": "text", "text": "x"}, {"type": "video", "uri": "file:///v"}],
        "text",
        None,
    ],
    ids=["empty", "unadvertised", "malformed", "custom", "unknown-second", "string", "null"],
)
async def test_a_key_with_an_invalid_prompt_stays_unused(shared: Link, text: str, prompt: Any) -> None:
    """E40, PROMPT-13, PROMPT-14: `-32602`, and the same key inserts a valid prompt afterwards."""
    session = await shared.new()
    key = str(uuid.uuid4())
    shared.rig.keys.add(key)
    params = {"sessionId": session, "prompt": prompt, "idempotencyKey": key}
    call = await shared.client.request("session/prompt", params)
    with pytest.raises(AcpError) as caught:
        await call.result()
    assert caught.value.code == -32602
    assert shared.rig.stored_ids(session) == []
    message_id = await shared.turn(session, text, key)
    assert shared.rig.stored_ids(session) == [message_id]


async def test_a_key_that_equals_a_visible_message_id_is_just_a_key(shared: Link, text: str) -> None:
    """E47, KEY-31: the id on the wire is derived one way from the key."""
    session = await shared.new()
    first = await shared.turn(session, text, "any-first-key")
    second = await shared.client.prompt(session, text, key=first)
    second_id = await second.message_id()
    await shared.client.wait_state(session, "idle", since=second.mark)
    assert second_id != first
    assert shared.rig.stored_ids(session) == [first, second_id]


async def test_the_message_id_is_the_uuid5_of_the_key_in_the_sessions_namespace(shared: Link, text: str) -> None:
    """ADP-1, ADP-9, ADP-12: any adapter that follows the derivation finds the same message."""
    session = await shared.new()
    key = "frozen derivation \u2603"
    assert await shared.turn(session, text, key) == str(uuid.uuid5(uuid.UUID(session), key))
