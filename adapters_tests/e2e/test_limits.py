"""What a prompt can hold, a compaction, and a runtime that hangs or cannot be started."""

from __future__ import annotations

import base64
import signal
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters.scripted.script import Answer, Text
from adapters_tests.e2e.rig import Link, Rig, id_or_none

pytestmark = pytest.mark.anyio


def png(width: int = 2, height: int = 2) -> str:
    """A valid picture, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * width) * height))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")).decode()


async def test_pictures_and_embedded_files(shared: Link, text: str) -> None:
    """PROMPT-7, PROMPT-13, REPLAY-2, CONT-1: one user message with what was sent, live and replayed."""
    prompt = [
        {"type": "text", "text": f"{text} a picture:"},
        {"type": "image", "data": png(), "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "# Notes\n", "mimeType": "text/markdown"}},
        {"type": "resource_link", "name": "far.txt", "uri": "https://example.invalid/far.txt"},
    ]
    session = await shared.new()
    message_id = await shared.turn(session, prompt, "with-a-picture")
    view = await shared.replays_alike(session)
    assert view.user_message_ids() == [message_id]
    [item] = view.items("user")
    assert [block["type"] for block in item.fields["content"]] == ["text", "image", "resource", "resource_link"]
    assert item.fields["content"] == prompt
    assert await (await shared.prompt(session, prompt, "with-a-picture")).message_id() == message_id


BAD_PICTURES: dict[str, dict[str, Any]] = {
    "html-as-png": {"type": "image", "data": base64.b64encode(b"<html></html>").decode(), "mimeType": "image/png"},
    "no-base64": {"type": "image", "data": "%%%", "mimeType": "image/png"},
    "empty": {"type": "image", "data": "", "mimeType": "image/png"},
    "9000-pixels": {"type": "image", "data": png(9000, 1), "mimeType": "image/png"},
}


@pytest.mark.parametrize("picture", BAD_PICTURES.values(), ids=BAD_PICTURES.keys())
async def test_a_bad_picture_does_not_poison_the_session(shared: Link, text: str, picture: dict[str, Any]) -> None:
    """PROMPT-13, E40: refused before the insertion; the key stays unused and the session usable."""
    session = await shared.new()
    call = await shared.prompt(session, [{"type": "text", "text": text}, picture], "a-bad-picture")
    assert (await shared.error(call)).code == -32602
    message_id = await shared.turn(session, text, "a-bad-picture")
    assert shared.rig.stored_ids(session) == [message_id]


async def test_a_compaction_that_runs(shared: Link, text: str) -> None:
    """E27, COMP-1, COMP-2: a recorded key is answered at once, a new one twice is one insertion after it."""
    session = await shared.new()
    first = await shared.turn(session, text, "e27-before-the-compaction")
    script = shared.rig.model.script
    shared.rig.model.script = replace(script, compaction=Answer((Text("A summary."),), gate="compaction"))
    gate = shared.rig.model.gate("compaction")
    compact = await shared.prompt(session, "/compact", "e27-compact")
    await gate.wait_arrival()
    assert await (await shared.prompt(session, text, "e27-before-the-compaction")).message_id(2) == first
    calls = [await shared.prompt(session, f"After {text}", "e27-in-the-compaction") for _ in range(2)]
    await shared.client.list()
    gate.release()
    shared.rig.model.script = replace(shared.rig.model.script, compaction=script.compaction)
    ids = {await call.message_id() for call in calls}
    await compact.message_id()
    await shared.ended(session, *ids)
    assert len(ids) == 1
    assert shared.rig.stored_ids(session).count(*ids) == 1
    assert shared.rig.model.calls(f"After {text}") == 1
    assert [item.fields["status"] for item in shared.client.view(session).items("compaction")] == ["completed"]


async def test_a_runtime_that_hangs_is_stopped_within_a_bound(shared: Link, text: str) -> None:
    """D7, CANCEL-1, STOP-1: it ignores the interrupt; the work ends all the same, and the next prompt is served."""
    session = await shared.new()
    gate = shared.rig.hold_model(text)
    call = await shared.prompt(session, text, "hangs-in-the-turn")
    message_id = await call.message_id()
    await gate.wait_arrival()
    shared.rig.runtime_of(session).kill(signal.SIGSTOP)
    await shared.client.cancel(session)
    idle = await shared.client.wait_state(session, "idle", since=call.mark, within=12)
    assert idle["stopReason"] in ("cancelled", "error")
    gate.release()
    after = await shared.turn(session, f"After {text}", "after-the-hang")
    assert shared.rig.stored_ids(session) == [message_id, after]
    assert shared.rig.model.in_conversation(text) == 1


async def test_a_prompt_to_a_runtime_that_hangs_is_answered_within_a_bound(shared: Link, text: str) -> None:
    """D7, KEY-17, PROMPT-23: no request waits for ever; whatever it says is true."""
    session = await shared.new()
    first = await shared.turn(session, f"{text} start")
    shared.rig.runtime_of(session).kill(signal.SIGSTOP)
    call = await shared.prompt(session, text, "to-a-hanging-runtime")
    message_id = await id_or_none(call, -32603)
    assert shared.rig.stored_ids(session) == [first, *filter(None, [message_id])]
    second = await shared.turn(session, text, "to-a-hanging-runtime")
    assert message_id in (None, second)
    assert shared.rig.stored_ids(session) == [first, second]


@pytest.mark.parametrize("how", ["close", "eof"])
async def test_closing_a_runtime_that_hangs(rig: Rig, text: str, how: str) -> None:
    """CLOSE-1, STDIO-11: bounded, and nothing is left."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, text)
        rig.runtime_of(session).kill(signal.SIGSTOP)
        if how == "close":
            await link.client.close(session)
            assert not rig.runtimes()
        else:
            await link.process.transport.aclose()
            assert await link.process.wait(6) == 0
            await rig.all_gone()


async def test_a_new_session_whose_runtime_cannot_start(rig: Rig) -> None:
    """AUTH-5, RPC-14: an error that says why, within a bound; the agent lives on and says it again."""
    async with rig.agent(**{rig.runtime.executable: "/bin/false"}) as link:
        for _ in range(2):
            with pytest.raises(AcpError) as caught:
                await link.new()
            assert caught.value.message
