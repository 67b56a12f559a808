"""The scripted model against the real Claude Code: what it sends is understood, what it is sent it takes.

These tests pin measured behaviour of CLI 2.1.332; after a bump they say what has changed.
"""

from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.scripted import (
    Answer,
    Drop,
    HttpFailure,
    Rule,
    Script,
    ScriptedModel,
    Shell,
    Spread,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    say,
)
from adapters_tests.scripted.claude_cli import Cli, Frame, claude, claude_binary

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(claude_binary() is None, reason="claude-agent-sdk is not installed"),
]

BYPASS = "--permission-mode=bypassPermissions"
IMAGE = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    },
}


def block(kind: str) -> Any:
    """Whether a frame is an assistant frame with a block of this kind."""
    return lambda frame: frame["type"] == "assistant" and frame["message"]["content"][0]["type"] == kind


def streamed(cli: Cli) -> list[Frame]:
    """The events of the model's streams that it has read."""
    return [frame["event"] for frame in cli.frames if frame["type"] == "stream_event"]


def deltas(cli: Cli, kind: str) -> list[Frame]:
    found = [event["delta"] for event in streamed(cli) if event["type"] == "content_block_delta"]
    return [delta for delta in found if delta["type"] == kind]


async def test_text_thinking_and_many_deltas() -> None:
    answer = Answer((Thinking("hm"), Text("x ", Spread(repeat=500))))
    async with ScriptedModel(Script((Rule((answer,), exact="hello"),))) as model, claude(model) as cli:
        result = await cli.turn("hello")
        assert (result["subtype"], result["result"]) == ("success", "x " * 500)
        assert len(deltas(cli, "text_delta")) == 500
        assert [delta["thinking"] for delta in deltas(cli, "thinking_delta")] == ["hm"]
        assert (await cli.turn("other"))["result"] == "This is a scripted answer; no model was asked."
        assert model.prompts_seen() == ["hello", "other"]
        assert model.total_calls == 2
        ids = {frame["message"]["id"] for frame in cli.frames if frame["type"] == "assistant"}
        assert len(ids) == 2
        session = next(frame["session_id"] for frame in cli.frames if frame.get("subtype") == "init")
        assert {call.asked.session for call in model.records} == {session}


async def test_tools_ask_for_permission_and_their_results_are_steps() -> None:
    calls = Answer(
        (Text("I look."), Shell("echo a > file; cat file"), ToolUse("Bash", {"command": "echo b > other"}, deltas=3))
    )
    script = Script((Rule((calls, say("done")), exact="go"),))
    async with ScriptedModel(script) as model, claude(model) as cli:
        await cli.prompt("go")
        for number, behavior in enumerate(("allow", "deny")):
            asked = [frame for frame in cli.frames if frame["type"] == "control_request"]
            while len(asked) <= number:
                await cli.wait(lambda frame: frame["type"] == "control_request", len(cli.frames))
                asked = [frame for frame in cli.frames if frame["type"] == "control_request"]
            assert asked[number]["request"]["subtype"] == "can_use_tool"
            answer = {"behavior": behavior, "message": "no"} if behavior == "deny" else {"behavior": behavior}
            response = {"subtype": "success", "request_id": asked[number]["request_id"], "response": answer}
            await cli.write({"type": "control_response", "response": response})
        assert (await cli.next_result())["result"] == "done"
        results = [frame["message"]["content"][0] for frame in cli.frames if frame["type"] == "user"]
        assert {(result["content"], result["is_error"]) for result in results} == {("a", False), ("no", True)}
        assert [call.step for call in model.records] == [0, 1]
        assert model.calls("go") == 1


@pytest.mark.parametrize(
    ("folded", "seen"),
    [
        (["fold"], ["fold"]),
        (["one", "two\n"], ["one", "two\n"]),
        ([[{"type": "text", "text": "look"}, IMAGE]], ["look"]),
    ],
    ids=["one", "two in one tool call", "with an image"],
)
async def test_prompts_in_a_running_turn_are_seen_once_each(folded: list[Any], seen: list[str], tmp_path: Path) -> None:
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    rules = (Rule((Answer((Shell(wait),)), say("goes on")), exact="go"), Rule((say("joined"),), exact=seen[-1]))
    async with ScriptedModel(Script(rules)) as model, claude(model, BYPASS) as cli:
        await cli.prompt("go")
        await cli.wait(block("tool_use"))
        for content in folded:
            uuid = await cli.prompt(content)
            await cli.wait(
                lambda frame, uuid=uuid: (
                    frame["type"] == "command_lifecycle"
                    and frame["command_uuid"] == uuid
                    and frame["state"] == "queued"
                )
            )
        await anyio.Path(tmp_path / "go").touch()
        assert (await cli.next_result())["result"] == "joined"
        assert model.prompts_seen() == ["go", *seen]
        assert (await cli.turn("after"))["subtype"] == "success"
        assert [model.in_conversation(text) for text in ("go", *seen, "after")] == [1] * (2 + len(seen))
        assert model.total_calls == 3


@pytest.mark.parametrize(("status", "calls"), [(500, 2), (401, 2), (429, 2), (529, 2), (403, 1)])
async def test_http_failures_are_retried_and_told(status: int, calls: int) -> None:
    rule = Rule((Answer(failure=HttpFailure(status)),), exact="fail")
    environ = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    async with ScriptedModel(Script((rule,))) as model, claude(model, environ=environ) as cli:
        result = await cli.turn("fail")
        assert (result["is_error"], result["terminal_reason"], result["api_error_status"]) == (
            True,
            "api_error",
            status,
        )
        assert [call.attempt for call in model.records] == list(range(1, calls + 1))
        assert model.calls("fail") == 1
        await cli.turn("next")
        assert model.prompts_seen() == ["fail", "next"], (
            "the failed prompt comes along in one message and is not counted again"
        )
        assert model.in_conversation("fail") == 1


async def test_a_failure_that_ends_is_survived() -> None:
    script = Script((Rule((Answer((Text("ok"),), failure=HttpFailure(529, times=1)),), exact="p"),))
    async with ScriptedModel(script) as model, claude(model) as cli:
        assert (await cli.turn("p"))["result"] == "ok"
        assert [call.retry for call in model.records] == [False, True]
        assert model.calls("p") == 1


PIECES = Spread(deltas=5)
FAILED, ALONE = (0, True, "failed"), (0, False, "answered")
BROKEN: dict[str, tuple[Answer, str, list[tuple[int, bool, str]]]] = {
    "cut before the answer": (Answer((Text("ok"),), drop=Drop(after_events=0)), "ok", [FAILED, FAILED, ALONE]),
    "cut in the first block": (
        Answer((Text("ok ok", PIECES),), drop=Drop(after_events=4)),
        "ok ok",
        [FAILED, FAILED, ALONE],
    ),
    "cut in bytes": (Answer((Text("ok ok", PIECES),), drop=Drop(after_bytes=600)), "ok ok", [FAILED, FAILED, ALONE]),
    "cut once": (Answer((Text("ok"),), drop=Drop(after_events=2, times=1)), "ok", [FAILED, (0, True, "answered")]),
    "error event": (Answer((Text("ok"),), stream_failure=StreamFailure(after_events=3)), "ok", [FAILED, ALONE]),
    "cut in the second block": (
        Answer((Text("one"), Text("ok ok", PIECES)), drop=Drop(after_events=7, gate="read")),
        "goes on",
        [FAILED, (1, True, "answered")],
    ),
    "cut after the tool": (
        Answer((Shell("echo"), Text("ok")), drop=Drop(after_events=5, gate="read")),
        "goes on",
        [FAILED, (1, True, "answered")],
    ),
    "cut after the stop reason": (Answer((Text("ok"),), drop=Drop(after_events=5, gate="read")), "ok", [FAILED]),
}
"""What Claude Code makes of a broken stream: it tries again, and at last without streaming, when no block was complete; else
it keeps the complete blocks and asks for the rest."""


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_streams(name: str) -> None:
    answer, text, calls = BROKEN[name]
    rule = Rule((answer, say("goes on")), exact="p")
    environ = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    async with ScriptedModel(Script((rule,))) as model, claude(model, BYPASS, environ=environ) as cli:
        await cli.prompt("p")
        if (drop := answer.drop) and drop.gate:  # what counts is what it has read when the stream breaks
            await cli.wait_for(lambda: len(streamed(cli)) == drop.after_events)
            model.gate(drop.gate).release()
        assert (await cli.next_result())["result"] == text
        assert [(call.step, call.asked.streaming, call.outcome) for call in model.records] == calls
        assert [call.fallback for call in model.records] == [call == ALONE for call in calls]
        assert model.prompts_seen() == ["p"]


async def test_a_compaction_is_told_from_prompts() -> None:
    async with ScriptedModel() as model, claude(model) as cli:
        await cli.turn("before")
        await cli.turn("/compact")
        assert [call.asked.compaction for call in model.records] == [False, True]
        await cli.turn("after")
        assert model.prompts_seen() == ["before", "after"]
        assert model.records[-1].asked.prompts == ("after",)
        assert "The conversation so far was scripted." in str(model.records[-1].body["messages"])


async def test_a_conversation_that_is_too_long_is_compacted() -> None:
    too_long = Answer(
        (Text("ok"),), failure=HttpFailure(400, message="prompt is too long: 300000 tokens > 200000 maximum", times=1)
    )
    async with ScriptedModel(Script((Rule((too_long,), exact="long"),))) as model, claude(model) as cli:
        await cli.turn("before")
        result = await cli.turn("long")
        assert result["result"] == "ok"
        assert [call.asked.compaction for call in model.records] == [False, False, True, False]
        assert model.prompts_seen() == ["before", "long"]


async def test_commands_and_odd_prompts_are_seen_as_the_user_sent_them() -> None:
    async with ScriptedModel() as model, claude(model, commands={"cust": "Do it: $ARGUMENTS\n"}) as cli:
        await cli.turn("/context")
        assert model.total_calls == 0
        await cli.turn("/cust a b")
        await cli.turn("/nosuch thing")
        await cli.turn([{"type": "text", "text": "see"}, IMAGE, {"type": "text", "text": "after"}])
        await cli.turn([IMAGE])
        await cli.turn("  spaced\u2028 \udcb2\n\n")
        assert model.prompts_seen() == ["/cust a b", "/nosuch thing", "see\nafter", "", "  spaced\u2028 \ufffd\n\n"]


async def test_interrupted_and_cut_off_answers_are_followed_by_ordinary_prompts() -> None:
    rules = (
        Rule((Answer((Text("slow"),), gate="never"),), exact="slow"),
        Rule((Answer((Text("half"),), stop_reason="max_tokens"), say(" whole")), exact="max"),
    )
    async with ScriptedModel(Script(rules)) as model, claude(model) as cli:
        await cli.prompt("slow")
        await model.gate("never").wait_arrival()
        await cli.control(subtype="interrupt")
        assert (await cli.next_result())["terminal_reason"] == "aborted_streaming"
        assert model.records[0].outcome == "left"
        assert (await cli.turn("max"))["result"] == " whole"
        assert model.prompts_seen() == ["slow", "max"]
        assert [call.step for call in model.records] == [0, 0, 1]


async def test_prompts_that_waited_together_are_found_by_their_lines() -> None:
    async with (
        ScriptedModel(Script((Rule((Answer((Text("ok"),), gate="g"),), exact="first"),))) as model,
        claude(model) as cli,
    ):
        await cli.prompt("first")
        await model.gate("g").wait_arrival()
        uuids = [await cli.prompt("second"), await cli.prompt("third")]
        await cli.wait(lambda frame: frame["type"] == "command_lifecycle" and frame["command_uuid"] == uuids[1])
        model.gate("g").release()
        await cli.next_result()
        await cli.next_result()
        assert model.total_calls == 2
        assert [model.calls(text) for text in ("first", "second", "third")] == [1, 1, 1]


async def test_a_subagent_is_told_from_the_conversation() -> None:
    task = ToolUse("Agent", {"description": "d", "prompt": "subtask", "subagent_type": "general-purpose"})
    script = Script((Rule((Answer((task,)), say("started"), say("finished")), exact="go"),))
    async with ScriptedModel(script) as model, claude(model, BYPASS) as cli:
        await cli.turn("go")
        await model.wait_prompt("subtask")
        assert (await cli.next_result())["result"] == "finished"
        assert {call.prompt: call.asked.agent is None for call in model.records} == {"go": True, "subtask": False}
        assert model.in_conversation("go") == 1
