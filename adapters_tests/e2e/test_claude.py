"""What only Claude Code has: its own tools, images, background work, a process that hangs, a store that cannot be read."""

from __future__ import annotations

import base64
import os
import signal
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Text, ToolUse, say
from adapters_tests.e2e.rig import Link, Rig, id_or_none
from adapters_tests.e2e.runtimes import RuntimeUnderTest
from adapters_tests.e2e.stored import claude_transcripts

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def only_claude(runtime: RuntimeUnderTest) -> None:
    if runtime.name != "claude":
        pytest.skip("of Claude Code only")


def png(width: int = 2, height: int = 2) -> str:
    """A valid picture, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * width) * height))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")).decode()


async def replays_alike(link: Link, session: str) -> SessionView:
    """The live view, after a check that a replay here and one after the session was closed look the same."""
    live = link.client.view(session)
    before = live.snapshot()
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    assert SessionView.of(link.client.updates(session, mark)).snapshot() == before
    await link.client.close(session)
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    assert SessionView.of(link.client.updates(session, mark)).snapshot() == before
    assert live.snapshot() == before
    return live


async def test_files_written_read_and_edited(shared: Link, text: str) -> None:
    """REPLAY-2, TOOL-1, TOOL-5, DIFF-1, DIFF-3: kinds, locations and diffs, live and replayed alike."""
    path = str(shared.rig.project / "poem.txt")
    steps = (
        Answer((Text("I write."), ToolUse("Write", {"file_path": path, "content": "one\ntwo\nthree\n"}))),
        Answer((ToolUse("Read", {"file_path": path}),)),
        Answer((ToolUse("Edit", {"file_path": path, "old_string": "two", "new_string": "2"}),)),
        Answer((ToolUse("Read", {"file_path": "/no/such/file"}),)),
        say("Edited."),
    )
    shared.rig.answer(text, *steps)
    session = await shared.new()
    await shared.turn(session, text)
    assert Path(path).read_text() == "one\n2\nthree\n"  # noqa: ASYNC240
    view = await replays_alike(shared, session)
    calls = view.items("tool_call")
    assert [(call.fields["kind"], call.fields["status"]) for call in calls] == [
        ("edit", "completed"),
        ("read", "completed"),
        ("edit", "completed"),
        ("read", "failed"),
    ]
    diffs = [block for call in calls for block in call.fields.get("content", ()) if block["type"] == "diff"]
    assert [change["operation"] for diff in diffs for change in diff["changes"]] == ["add", "modify"]
    assert [item.text for item in view.items("agent")] == ["I write.", "Edited."]


async def test_a_plan(shared: Link, text: str) -> None:
    """PLAN-1, PLAN-2: the todo list is a plan, replaced whole; the replay ends with the latest."""
    todos = [
        [{"content": "Look", "status": status, "activeForm": "Looking"}] for status in ("in_progress", "completed")
    ]
    steps = tuple(Answer((ToolUse("TodoWrite", {"todos": todo}),)) for todo in todos)
    shared.rig.answer(text, *steps, say("Planned."))
    session = await shared.new()
    await shared.turn(session, text)
    view = await replays_alike(shared, session)
    assert [entry["status"] for plan in view.items("plan") for entry in plan.fields["plan"]["entries"]] in (
        [],  # this version of the runtime has no such tool
        ["completed"],
    )


async def test_a_subagent(shared: Link, text: str) -> None:
    """REPLAY-2, PROMPT-25: what a subagent says is no message of the conversation; its tool call is."""
    inner = f"Inner work of {text}"
    task = {"description": "inner", "prompt": inner, "subagent_type": "general-purpose"}
    shared.rig.answer(text, Answer((ToolUse("Task", task),)), say("The subagent is done."))
    shared.rig.answer(inner, say("Inner result."))
    session = await shared.new()
    message_id = await shared.turn(session, text)
    live = shared.client.view(session)
    # The runtime starts it in the background and works once more when it has ended.
    await shared.client.wait_update(session, lambda _: any(item.text == "Done." for item in live.items("agent")))
    await shared.client.wait_state(session, "idle")
    view = await replays_alike(shared, session)
    assert view.user_message_ids() == [message_id]
    assert "The subagent is done." in [item.text for item in view.items("agent")]
    assert "Inner result." not in [item.text for item in view.items("agent")]


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
    view = await replays_alike(shared, session)
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


async def test_background_work_that_ends_after_the_turn(shared: Link, text: str) -> None:
    """STATE-1, STATE-2, STATE-4, UPD-8, PROMPT-25: idle; then running and idle again; each end once."""
    go = shared.rig.project / "background.go"
    command = f"while [ ! -e '{go}' ]; do sleep 0.02; done; echo finished"
    shared.rig.answer(
        text, Answer((ToolUse("Bash", {"command": command, "run_in_background": True}),)), say("Started it.")
    )
    session = await shared.new()
    call = await shared.prompt(session, text, "background-work")
    message_id = await call.message_id()
    await shared.client.wait_state(session, "idle", since=call.mark)
    mark = shared.client.record.mark
    go.touch()
    await shared.client.wait_state(session, "idle", since=mark)
    assert shared.states(session) == ["running", "idle:end_turn", "running", "idle:end_turn"]
    after = await shared.turn(session, f"After {text}")
    assert shared.rig.stored_ids(session) == [message_id, after]
    view = await replays_alike(shared, session)
    assert view.user_message_ids() == [message_id, after]


async def test_a_question_to_the_user(shared: Link, text: str) -> None:
    """ELIC-1, PERM-3, STATE-6: without elicitation the runtime's question has a fallback; the turn ends."""
    questions = [
        {
            "question": "Which?",
            "header": "Choice",
            "multiSelect": False,
            "options": [{"label": "This", "description": "this one"}, {"label": "That", "description": "that one"}],
        }
    ]
    shared.rig.answer(text, Answer((ToolUse("AskUserQuestion", {"questions": questions}),)), say("Understood."))
    session = await shared.new()
    await shared.turn(session, text)
    assert shared.states(session)[-1] == "idle:end_turn"
    await replays_alike(shared, session)


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


async def test_a_stored_session_that_cannot_be_read(shared: Link, text: str) -> None:
    """E43, ADP-6, ERR-5: -32603, never taken for unused, and no claim that it is not inserted; later the key is known."""
    session = await shared.new()
    first = await shared.turn(session, text, "e43-the-key")
    await shared.client.close(session)
    await shared.resume(session)
    [path] = claude_transcripts(shared.rig.root, session)
    away = path.with_suffix(".away")
    path.rename(away)
    path.mkdir()
    calls = shared.rig.model.total_calls
    try:
        error = await shared.error(await shared.prompt(session, text, "e43-the-key"), inserted=None)
    finally:
        path.rmdir()
        away.rename(path)
    assert error.code == -32603
    assert shared.rig.model.total_calls == calls
    assert await (await shared.prompt(session, text, "e43-the-key")).message_id() == first
    assert shared.rig.stored_ids(session) == [first]


async def test_a_runtime_that_hangs_is_stopped_within_a_bound(shared: Link, text: str) -> None:
    """D7, CANCEL-1, STOP-1: it ignores the interrupt; the work ends all the same, and the next prompt is served."""
    session = await shared.new()
    gate = shared.rig.hold_model(text)
    call = await shared.prompt(session, text, "hangs-in-the-turn")
    message_id = await call.message_id()
    await gate.wait_arrival()
    os.kill(shared.rig.runtime_of(session).pid, signal.SIGSTOP)
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
    os.kill(shared.rig.runtime_of(session).pid, signal.SIGSTOP)
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
        os.kill(rig.runtime_of(session).pid, signal.SIGSTOP)
        if how == "close":
            await link.client.close(session)
            assert not rig.runtimes()
        else:
            await link.process.transport.aclose()
            assert await link.process.wait(6) == 0
            await rig.all_gone()


async def test_an_unknown_model_in_the_environment_is_told(rig: Rig, text: str) -> None:
    """E34, STOP-3: a failure of the runtime's own configuration does not hang the prompt."""
    rig.fail(text, 404, "model not found")
    async with rig.agent(ANTHROPIC_MODEL="no-such-model") as link:
        session = await link.new()
        call = await link.prompt(session, text)
        await call.message_id()
        assert (await link.client.wait_state(session, "idle", since=call.mark))["stopReason"] == "error"


async def test_a_new_session_whose_runtime_cannot_start(rig: Rig) -> None:
    """AUTH-5, RPC-14: an error that says why, within a bound; the agent lives on."""
    async with rig.agent(CLAUDE_CODE_EXECUTABLE="/bin/false") as link:
        with pytest.raises(AcpError) as caught:
            await link.new()
        assert caught.value.message
        assert await link.client.list() == []
