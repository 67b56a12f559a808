"""The scripted model against the real Codex: what it sends is understood, what it is sent it takes.

These tests pin measured behaviour of app-server 0.163.0; after a bump they say what has changed.
"""

import base64
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
    Usage,
    say,
)
from adapters_tests.scripted.claude_cli import claude, claude_binary
from adapters_tests.scripted.codex_server import Codex, codex, codex_binary

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(codex_binary() is None, reason="openai-codex-cli-bin is not installed"),
]

FULL = Usage(input_tokens=300_000)
"""More than the context window of an unknown model: Codex compacts before it asks again."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def escalated(command: str) -> ToolUse:
    """A command for which Codex asks."""
    return ToolUse(
        "exec_command", {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "a test"}
    )


async def answer_approval(server: Codex, decision: str, number: int = 0) -> None:
    asked = await server.wait(lambda frame: frame.get("id") == number and "requestApproval" in frame.get("method", ""))
    await server.send(id=asked["id"], result={"decision": decision})


async def test_text_reasoning_and_many_deltas() -> None:
    answer = Answer((Thinking("hm so", Spread(deltas=2)), Text("x ", Spread(repeat=500))), usage=Usage(40, 7, 30))
    async with ScriptedModel(Script((Rule((answer,), exact="hello"),))) as model, codex(model) as server:
        assert await server.said("hello") == "x " * 500
        assert len(server.events("item/agentMessage/delta")) == 500
        thoughts = [params["delta"] for params in server.events("item/reasoning/summaryTextDelta")]
        assert "".join(thoughts) == "hm so"
        assert len(thoughts) == 2
        assert server.items("reasoning")[0]["summary"] == ["hm so"]
        used = server.events("thread/tokenUsage/updated")[0]["tokenUsage"]["last"]
        assert (used["inputTokens"], used["outputTokens"], used["cachedInputTokens"]) == (40, 7, 30)
        assert await server.said("other") == "This is a scripted answer; no model was asked."
        assert model.prompts_seen() == ["hello", "other"]
        assert model.total_calls == 2
        assert {(call.asked.session, call.asked.agent) for call in model.records} == {(server.thread, None)}


async def test_a_home_in_the_temp_folder_is_quiet_and_commands_get_helpers() -> None:
    async with ScriptedModel() as model, codex(model) as server:
        await server.said("hello")
        complaints = [line for line in server.errors.splitlines() if line and "bubblewrap" not in line]
        assert complaints == []  # a machine without bubblewrap is told so
        assert any((server.root / "home" / "codex" / "tmp").glob("arg0*/*"))


async def test_commands_run_and_their_results_are_steps(tmp_path: Path) -> None:
    calls = Answer((Text("I look."), Shell("echo a > file; cat file"), Shell("echo b")))
    script = Script((Rule((calls, Answer((Shell("cat file"),)), say("done")), exact="go"),))
    async with ScriptedModel(script) as model, codex(model, root=tmp_path) as server:
        assert await server.said("go") == "done"
        assert sorted(item["aggregatedOutput"] for item in server.items("commandExecution")) == ["a\n", "a\n", "b\n"]
        assert [call.step for call in model.records] == [0, 1, 2]
        assert model.calls("go") == 1
        assert (tmp_path / "cwd" / "file").read_text() == "a\n"


@pytest.mark.parametrize(("decision", "status"), [("accept", "completed"), ("decline", "declined")])
async def test_an_escalated_command_asks_first(decision: str, status: str) -> None:
    script = Script((Rule((Answer((escalated("echo asked"),)), say("done")), exact="go"),))
    async with ScriptedModel(script) as model, codex(model) as server:
        turn = await server.prompt("go")
        await answer_approval(server, decision)
        assert (await server.ended(turn))["status"] == "completed"
        assert [item["status"] for item in server.items("commandExecution")] == [status]
        assert [call.step for call in model.records] == [0, 1]


PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"


@pytest.mark.parametrize(
    ("model_name", "call"),
    [
        ("scripted", Shell(f"apply_patch <<'EOF'\n{PATCH}\nEOF")),
        ("gpt-5.5", ToolUse("apply_patch", PATCH, deltas=4)),
    ],
    ids=["through the shell", "free-form tool of a known model"],
)
async def test_a_patch_becomes_a_file_change(model_name: str, call: Shell | ToolUse) -> None:
    script = Script((Rule((Answer((call,)), say("done")), exact="go"),))
    async with ScriptedModel(script) as model, codex(model, model=model_name) as server:
        assert await server.said("go") == "done"
        changes = [change for item in server.items("fileChange") for change in item["changes"]]
        assert [(Path(change["path"]).name, change["kind"]["type"]) for change in changes] == [("new.txt", "add")]
        assert (server.root / "cwd" / "new.txt").read_text() == "hello\n"


async def test_an_unknown_tool_is_a_step_too() -> None:
    calls = Answer((ToolUse("Bash", {"command": "ls"}), ToolUse("x", namespace="mcp__none", id="mine", deltas=2)))
    script = Script((Rule((calls, say("done")), exact="go"),))
    async with ScriptedModel(script) as model, codex(model) as server:
        assert await server.said("go") == "done"
        outputs = [item for item in model.records[1].body["input"] if item["type"] == "function_call_output"]
        assert [output["output"].split(":")[0] for output in outputs] == ["unsupported call"] * 2
        assert outputs[1]["call_id"] == "mine"


@pytest.mark.parametrize("joins", [False, True])
async def test_a_prompt_steered_into_a_stream_counts_once(joins: bool) -> None:
    held = Answer((Text("complete"), Text("one two three", Spread(deltas=4, gate="mid", gate_after=2))))
    rules = (Rule((held, say("goes on")), exact="go"), Rule((say("steered"),), exact="steer", joins=joins))
    async with ScriptedModel(Script(rules)) as model, codex(model) as server:
        turn = await server.prompt("go")
        await model.gate("mid").wait_arrival()
        await server.event("item/agentMessage/delta", lambda params: params["delta"] == "one")
        await server.steer(turn, "steer")
        ended = await server.ended(turn)
        # "complete" was stored before, so it is an answer: the rule that goes on is at its second step
        assert ended["items"][-1]["text"] == ("goes on" if joins else "steered")
        assert model.prompts_seen() == ["go", "steer"]
        assert [call.outcome for call in model.records] == ["left", "answered"]
        assert model.records[1].asked.mid_turn == (False, True)
        assert not model.records[1].retry


async def test_prompts_steered_during_a_command_count_once_each(tmp_path: Path) -> None:
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    rules = (Rule((Answer((Shell(wait),)), say("goes on")), exact="go"), Rule((say("steered"),), exact="two"))
    async with ScriptedModel(Script(rules)) as model, codex(model, root=tmp_path) as server:
        turn = await server.prompt("go")
        await server.event("item/started", lambda params: params["item"]["type"] == "commandExecution")
        await server.steer(turn, "one")
        await server.steer(turn, "two")
        (tmp_path / "go").touch()
        assert (await server.ended(turn))["items"][-1]["text"] == "steered"
        assert model.prompts_seen() == ["go", "one", "two"]
        assert model.total_calls == 2
        assert model.records[1].asked.mid_turn == (False, True, True)


async def test_an_interrupted_call_is_left_and_not_asked_again() -> None:
    held = Answer((Text("one two", Spread(deltas=4, gate="mid", gate_after=2)),))
    async with ScriptedModel(Script((Rule((held,), exact="go"),))) as model, codex(model) as server:
        turn = await server.prompt("go")
        await model.gate("mid").wait_arrival()
        await server.ask("turn/interrupt", threadId=server.thread, turnId=turn)
        assert (await server.ended(turn))["status"] == "interrupted"
        await model.wait_ended(1)
        assert model.records[0].outcome == "left"
        await server.said("next")
        assert model.prompts_seen() == ["go", "next"]
        assert model.in_conversation("go") == 1


async def test_what_codex_adds_is_no_prompt(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "AGENTS.md").write_text("Be kind.\n")
    image = tmp_path / "image.png"
    image.write_bytes(base64.b64decode(PIXEL))
    async with ScriptedModel() as model, codex(model, root=tmp_path) as server:
        await server.turn("look", "here", images=[image])
        await server.turn(images=[image])
        await server.ask("thread/shellCommand", threadId=server.thread, command="echo mine")
        await server.event("turn/completed", start=len(server.frames))
        skill = (await server.ask("skills/list", cwds=[str(tmp_path)]))["data"][0]["skills"][0]
        content = [{"type": "text", "text": "skill"}, {"type": "skill", "name": skill["name"], "path": skill["path"]}]
        new = {"approvalPolicy": "never", "cwd": str(tmp_path)}
        turn = (await server.ask("turn/start", threadId=server.thread, input=content, **new))["turn"]
        await server.ended(turn["id"])
        assert model.prompts_seen() == ["look\nhere", "", "skill"]
        texts = str(model.records[-1].body["input"])
        assert all(mark in texts for mark in ("Be kind.", "echo mine", "<skill>", "[Image #1]"))


async def test_a_subagent_is_told_apart() -> None:
    spawn = ToolUse("spawn_agent", {"message": "child"}, namespace="multi_agent_v1")
    script = Script((Rule((Answer((spawn,)), say("spawned")), exact="go"),))
    async with ScriptedModel(script) as model, codex(model) as server:
        await server.said("go")
        await model.wait_prompt("child")
        child = next(call for call in model.records if call.prompt == "child")
        assert child.asked.session == server.thread
        assert child.asked.agent not in (None, server.thread)
        await server.said("next")
        assert model.in_conversation("child") == 0
        assert sorted(model.prompts_seen()) == ["child", "go", "next"]


@pytest.mark.parametrize("phase", ["before the next prompt", "in a turn", "asked for"])
async def test_a_compaction_is_no_prompt_and_takes_the_place_of_the_answers(phase: str) -> None:
    steps: dict[str, tuple[Answer, ...]] = {
        "before the next prompt": (Answer((Text("much"),), usage=FULL),),
        "in a turn": (Answer((Shell("echo much"),), usage=FULL), say("and on")),
        "asked for": (say("little"),),
    }
    script = Script((Rule(steps[phase], exact="go"),), compaction=say("a summary"))
    async with ScriptedModel(script) as model, codex(model) as server:
        await server.said("first")
        await server.said("go")
        if phase == "asked for":
            start = len(server.frames)
            await server.ask("thread/compact/start", threadId=server.thread)
            await server.event("turn/completed", start=start)
        await server.said("next")
        assert [call.asked.compaction for call in model.records].count(True) == 1
        assert model.prompts_seen() == ["first", "go", "next"]
        assert [model.in_conversation(text) for text in ("first", "go", "next")] == [1, 1, 1]
        assert "a summary" in str(model.records[-1].body["input"])
        if phase == "in a turn":
            assert [(call.prompt, call.step) for call in model.records[1:4]] == [("go", 0), ("go", 1), ("go", 1)]
            assert [params["turn"]["items"][-1]["text"] for params in server.events("turn/completed")][1] == "and on"


async def test_prompts_stay_known_through_a_kill_a_resume_and_a_fork(tmp_path: Path) -> None:
    script = Script((Rule((Answer((Text("never", Spread(gate="held")),)),), exact="killed"),))
    async with ScriptedModel(script) as model:
        async with codex(model, root=tmp_path) as server:
            await server.said("first")
            await server.prompt("killed")
            await model.gate("held").wait_arrival()
            server.process.kill()
            await server.process.wait()
            thread = server.thread
        async with codex(model, root=tmp_path) as server:
            await server.ask("thread/resume", threadId=thread)
            server.thread = thread
            await server.said("next")
            assert model.prompts_seen() == ["first", "killed", "next"]
            assert model.in_conversation("killed") == 1
            assert not model.records[-1].retry
            server.thread = (await server.ask("thread/fork", threadId=thread))["thread"]["id"]
            await server.said("in the fork")
            assert model.prompts_seen() == ["first", "killed", "next", "in the fork"]
            assert model.records[-1].asked.session == server.thread


FAILURES: list[tuple[str, Answer, int, Any]] = [
    ("400", Answer(failure=HttpFailure(400)), 1, "other"),
    ("401", Answer(failure=HttpFailure(401)), 2, {"httpConnectionFailed": {"httpStatusCode": 401}}),
    ("429", Answer(failure=HttpFailure(429)), 1, {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}),
    ("500", Answer(failure=HttpFailure(500)), 4, "internalServerError"),
    ("529", Answer(failure=HttpFailure(529)), 4, {"httpConnectionFailed": {"httpStatusCode": 529}}),
    ("full", Answer(stream_failure=StreamFailure("context_length_exceeded")), 1, "contextWindowExceeded"),
    ("limit", Answer(stream_failure=StreamFailure("rate_limit_error")), 2, "rateLimitExceeded"),
    ("quota", Answer(stream_failure=StreamFailure("insufficient_quota")), 1, "usageLimitExceeded"),
    ("busy", Answer(stream_failure=StreamFailure("overloaded_error")), 1, "serverOverloaded"),
    ("refused", Answer(stream_failure=StreamFailure("invalid_request_error")), 1, "other"),
    ("broken", Answer(stream_failure=StreamFailure()), 2, "other"),
    ("cut", Answer((Text("one two", Spread(deltas=2)),), drop=Drop(after_events=3)), 2, "other"),
    ("incomplete", Answer((Text("cut short"),), stop_reason="max_tokens"), 1, "other"),
]


async def test_failures_fail_the_turn_and_their_retries_are_no_new_prompts() -> None:
    rules = tuple(Rule((answer,), exact=name) for name, answer, *_ in FAILURES)
    async with ScriptedModel(Script(rules)) as model, codex(model) as server:
        for name, _, calls, info in FAILURES:
            await server.start_thread()
            before = model.total_calls
            turn = await server.turn(name)
            assert (name, turn["status"], turn["error"]["codexErrorInfo"]) == (name, "failed", info)
            assert (name, model.total_calls - before) == (name, calls)
            assert [call.retry for call in model.records[before:]] == [False] + [True] * (calls - 1)
        assert model.prompts_seen() == [name for name, *_ in FAILURES]


async def test_a_failed_prompt_is_not_asked_again_with_the_next() -> None:
    async with (
        ScriptedModel(Script((Rule((Answer(failure=HttpFailure(400)),), exact="fails"),))) as model,
        codex(model) as server,
    ):
        assert (await server.turn("fails"))["status"] == "failed"
        await server.said("next")
        assert model.prompts_seen() == ["fails", "next"]
        assert model.records[1].asked.mid_turn == (False, False)


PASSING: list[tuple[str, Answer, int]] = [
    ("http", Answer((Text("there"),), failure=HttpFailure(500, times=2)), 3),
    ("retry-after", Answer((Text("there"),), failure=HttpFailure(429, retry_after=1, times=1)), 2),
    ("failed response", Answer((Text("there"),), stream_failure=StreamFailure(after_events=3, times=1)), 2),
    ("cut", Answer((Text("there"),), drop=Drop(after_bytes=300, times=1)), 2),
]


async def test_a_failure_that_passes_gives_the_answer() -> None:
    rules = tuple(Rule((answer,), exact=name) for name, answer, _ in PASSING)
    async with ScriptedModel(Script(rules)) as model, codex(model) as server:
        for name, _, calls in PASSING:
            before = model.total_calls
            assert await server.said(name) == "there"
            assert [(name, call.attempt) for call in model.records[before:]] == [(name, n + 1) for n in range(calls)]
        assert model.prompts_seen() == [name for name, *_ in PASSING]


async def test_a_stream_cut_after_a_complete_call_goes_on_with_the_next_step(tmp_path: Path) -> None:
    cut = Answer((Shell("echo once >> ran"), Text("lost", Spread(deltas=2))), drop=Drop(after_events=6, times=1))
    async with (
        ScriptedModel(Script((Rule((cut, say("goes on")), exact="go"),))) as model,
        codex(model, root=tmp_path) as server,
    ):
        assert await server.said("go") == "goes on"
        assert (tmp_path / "cwd" / "ran").read_text() == "once\n"
        assert [(call.step, call.outcome) for call in model.records] == [(0, "failed"), (1, "answered")]
        assert model.prompts_seen() == ["go"]


@pytest.mark.skipif(claude_binary() is None, reason="claude-agent-sdk is not installed")
async def test_one_script_serves_both_runtimes() -> None:
    script = Script((Rule((Answer((Thinking("hm"), Shell("echo a"))), say("done")), exact="go"),))
    async with (
        ScriptedModel(script) as model,
        codex(model) as server,
        claude(model, "--permission-mode=bypassPermissions") as cli,
    ):
        results: list[str] = []

        async def ask_codex() -> None:
            results.append(await server.said("go"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask_codex)
            results.append((await cli.turn("go"))["result"])
        assert results == ["done", "done"]
        assert model.calls("go") == 2
        assert sorted(call.step for call in model.records) == [0, 0, 1, 1]
