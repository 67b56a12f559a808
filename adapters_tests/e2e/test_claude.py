"""What only Claude Code has: its own tools, background work, questions of its own, a store that cannot be read."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.scripted.script import Answer, Text, ToolUse, say
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CLAUDE, REPOSITORY
from adapters_tests.e2e.stored import claude_transcripts

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session"),
]


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
    view = await shared.replays_alike(session)
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
    view = await shared.replays_alike(session)
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
    view = await shared.replays_alike(session)
    assert view.user_message_ids() == [message_id]
    assert "The subagent is done." in [item.text for item in view.items("agent")]
    assert "Inner result." not in [item.text for item in view.items("agent")]


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
    view = await shared.replays_alike(session)
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
    await shared.replays_alike(session)


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


async def test_an_unknown_model_in_the_environment_is_told(rig: Rig, text: str) -> None:
    """E34, STOP-3: a failure of the runtime's own configuration does not hang the prompt."""
    rig.fail(text, 404, "model not found")
    async with rig.agent(ANTHROPIC_MODEL="no-such-model") as link:
        session = await link.new()
        call = await link.prompt(session, text)
        await call.message_id()
        assert (await link.client.wait_state(session, "idle", since=call.mark))["stopReason"] == "error"


@pytest.mark.parametrize("variable", ["ACP_ADAPTERS_STATE_DIR", "XDG_STATE_HOME"])
async def test_agents_with_other_state_folders_share_one_lock(
    rig: Rig, text: str, tmp_path: Path, variable: str
) -> None:
    """ADP-14, E45: a container may mount Claude Code's folder only. The work of the holder is left alone."""
    other = {"ACP_ADAPTERS_STATE_DIR": "", variable: str(tmp_path / "other")}
    async with rig.agent() as first, rig.agent(**other) as second:
        session = await first.new()
        tool = rig.tool(text)
        message_id = await (await first.prompt(session, text, "one-key-to-both")).message_id()
        await tool.started()
        with pytest.raises(AcpError, match=f"active in process {first.process.pid}"):
            await second.resume(session)
        tool.release()
        await first.ended(session, message_id)
        await first.client.close(session)
        await second.resume(session)
        assert await (await second.prompt(session, text, "one-key-to-both")).message_id() == message_id
        assert rig.stored_ids(session) == [message_id]
        assert rig.in_conversation(text) == 1


async def test_a_lock_folder_that_is_removed_lets_nobody_in_beside_work(rig: Rig, text: str, tmp_path: Path) -> None:
    """The second agent sees the first one by its Claude Code; the first one locks again before the next prompt."""
    async with rig.agent() as first, rig.agent(ACP_ADAPTERS_STATE_DIR=str(tmp_path / "other")) as second:
        session = await first.new()
        tool = rig.tool(text)
        message_id = await (await first.prompt(session, text, "one-key-to-both")).message_id()
        await tool.started()
        shutil.rmtree(claude_transcripts(rig.root, session)[0].parents[2] / "acp-adapters")
        with pytest.raises(AcpError, match=f"active in process {first.process.pid}"):
            await second.resume(session)
        tool.release()
        await first.ended(session, message_id)
        await first.turn(session, f"{text} again", "another-key")
        assert (claude_transcripts(rig.root, session)[0].parents[2] / "acp-adapters" / f"{session}.lock").exists()
        assert await (await first.prompt(session, text, "one-key-to-both")).message_id() == message_id


OTHER_CONTAINER = """
import os
def readlink(path, *args, real=os.readlink, **named):
    return "pid:[1]" if str(path) == f"/proc/{os.getpid()}/ns/pid" else real(path, *args, **named)
os.readlink = readlink
"""
"""For an agent: pids of other processes mean nothing to it."""


async def test_an_agent_that_lost_its_lock_hands_nothing_over_beside_another(
    rig: Rig, text: str, tmp_path: Path
) -> None:
    """The other one is in another container, where nobody can see who works on the session."""
    (tmp_path / "sitecustomize.py").write_text(OTHER_CONTAINER)
    elsewhere = {
        "ACP_ADAPTERS_STATE_DIR": str(tmp_path / "other"), "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}",
    }  # fmt: skip
    async with rig.agent() as first, rig.agent(**elsewhere) as second:
        session = await first.new()
        one = await first.turn(session, text, "the-first-key")
        shutil.rmtree(claude_transcripts(rig.root, session)[0].parents[2] / "acp-adapters")
        await second.resume(session)
        error = await first.error(await first.prompt(session, f"{text} 2", "a-key-to-both"), inserted=None)
        assert "is active in an agent in another container" in error.message
        assert await (await first.prompt(session, text, "the-first-key")).message_id() == one
        two = await second.turn(session, f"{text} 2", "a-key-to-both")
        await second.client.close(session)
        assert await (await first.prompt(session, f"{text} 2", "a-key-to-both")).message_id() == two
        three = await first.turn(session, f"{text} 3", "the-third-key")
        assert rig.stored_ids(session) == [one, two, three]
        with pytest.raises(AcpError, match="is active in an agent in another container"):
            await second.resume(session)


async def test_what_a_killed_agent_left_is_ended_by_one_with_another_state_folder(
    rig: Rig, text: str, tmp_path: Path
) -> None:
    """ADP-15: on proof that its agent is dead, without any record of it."""
    async with rig.agent() as first:
        session = await first.new()
        tool = rig.tool(text)
        message_id = await (await first.prompt(session, text, "the-key")).message_id()
        await tool.started()
        first.process.kill()
        async with rig.agent(ACP_ADAPTERS_STATE_DIR=str(tmp_path / "other")) as second:
            await second.resume(session)
            [left] = rig.runtimes()
            assert left == rig.runtime_of(session)
            assert await (await second.prompt(session, text, "the-key")).message_id() == message_id
            assert rig.stored_ids(session) == [message_id]


async def test_bad_entries_among_the_projects_cost_themselves_only(rig: Rig, text: str) -> None:
    """A pipe in a session's place (as a dead mount would be), a loop of links, a folder of a session's name."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "the-first-key")
        [path] = claude_transcripts(rig.root, session)
        projects = path.parents[1]
        (projects / "loop").symlink_to("loop")
        (projects / "-other").mkdir()
        for number, name in enumerate(("11111111", "22222222", "33333333")):
            for folder in (path.parent, projects / "-other"):
                os.mkfifo(folder / f"{name}-0000-4000-8000-00000000000{number}.jsonl")
        os.mkfifo(projects / "-other" / path.name)
        (path.parent / "44444444-0000-4000-8000-000000000000.jsonl").mkdir()
        for _ in range(5):
            assert [row["sessionId"] for row in await link.client.list()] == [session]
        await link.client.close(session)
        await link.resume(session, replay=True)
        assert link.user_messages(session, 0)[:1] == [first]
        assert await (await link.prompt(session, text, "the-first-key")).message_id() == first
        other = await link.new()
        await link.turn(other, text, "another-key")
        await link.client.delete(other)
        assert [row["sessionId"] for row in await link.client.list()] == [session]


DEAD_MOUNT = """
import os, time
for name in ("stat", "open", "scandir"):
    def call(path, *args, real=getattr(os, name), **named):
        while "-dead" in str(path):
            time.sleep(1)
        return real(path, *args, **named)
    setattr(os, name, call)
"""
"""For an agent: what is in a folder of this name does not answer, as with a network mount whose server is gone."""


async def test_a_project_folder_that_does_not_answer_costs_itself_only(rig: Rig, text: str, tmp_path: Path) -> None:
    """Lists and prompts are answered, a session that it may hold is refused, and the agent ends."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, text, "the-first-key")
    [path] = claude_transcripts(rig.root, session)
    (path.parents[1] / "-dead").mkdir()
    (tmp_path / "sitecustomize.py").write_text(DEAD_MOUNT)
    async with rig.agent(PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}") as link:
        assert [row["sessionId"] for row in await link.client.list()] == [session]
        await link.resume(session)
        assert await (await link.prompt(session, text, "the-first-key")).message_id() == first
        other = await link.new()
        await link.turn(other, text, "another-key")
        with pytest.raises(AcpError, match="does not answer"):
            await link.resume("11111111-0000-4000-8000-000000000000")
        link.process.signal(signal.SIGTERM)
        with anyio.fail_after(5):
            await link.process.wait()
