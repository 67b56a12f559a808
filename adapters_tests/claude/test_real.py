"""The driver with the real Claude Code against a scripted model: what no fake can prove, because we wrote the fake.

Kills, races with insertion, other writers and shutdown are in the end-to-end suite, over the wire.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.acp.schema import ResumeSession, UserMessage, parse_params
from adapters.claude.cli.program import MARK
from adapters.claude.runtime import ClaudeRuntime
from adapters.claude.session import ClaudeSession
from adapters.core.port import (
    Output,
    PermissionRequested,
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    SessionSetup,
    WorkEnded,
    WorkStarted,
)
from adapters.driver import procfs
from adapters.scripted import (
    Answer,
    Rule,
    Script,
    ScriptedModel,
    Shell,
    Spread,
    Text,
    ToolUse,
    isolated_claude_home,
    say,
)
from adapters.scripted.home import work_folder
from adapters_tests.claude.driving import Sink, text

pytestmark = [pytest.mark.anyio, pytest.mark.real]

QUESTIONS = {
    "questions": [
        {
            "question": "Which?",
            "header": "H",
            "options": [{"label": "A", "description": "first"}, {"label": "B", "description": "second"}],
            "multiSelect": False,
        }
    ]
}


def tool(name: str, arguments: dict[str, Any], prompt: str) -> Rule:
    return Rule((Answer((ToolUse(name, arguments),)), say("done")), exact=prompt)


SCRIPT = Script(
    (
        Rule((Answer((Shell("sleep 0"),)), say("done")), exact="tool"),
        Rule((Answer((Text("tick ", Spread(repeat=100)),), delta_delay=0.1),), exact="slow"),
        tool("AskUserQuestion", QUESTIONS, "ask"),
        Rule((Answer((ToolUse("ExitPlanMode", {}),), gate="plan file"), say("done")), exact="plan"),
        tool("Bash", {"command": "sleep 0.2", "run_in_background": True}, "background"),
        tool("Bash", {"command": "sleep 60", "run_in_background": True}, "long background"),
    )
)


@dataclass
class World:
    """A runtime with the real CLI in an isolated home."""

    root: Path
    runtime: ClaudeRuntime
    model: ScriptedModel
    environ: dict[str, str]
    sink: Sink = field(default_factory=Sink)
    turns: int = 0

    @property
    def setup(self) -> SessionSetup:
        return SessionSetup(str(self.root / "w"))

    @property
    def config(self) -> Path:
        return Path(self.environ["CLAUDE_CONFIG_DIR"])

    def settings(self, **settings: Any) -> None:
        (self.config / "settings.json").write_text(json.dumps(settings))

    async def new(self) -> ClaudeSession:
        return await self.runtime.new_session(self.setup, self.sink)

    async def submit(self, session: ClaudeSession, *texts: str, message_id: str | None = None) -> str:
        message_id = message_id or str(uuid4())
        await session.submit(message_id, [block for part in texts for block in text(part)])
        return message_id

    async def turn(self, session: ClaudeSession, *texts: str, message_id: str | None = None) -> str:
        """A prompt to its end: outcome and idle."""
        self.turns += 1
        message_id = await self.submit(session, *texts, message_id=message_id)
        await self.sink.until(WorkEnded, self.turns)
        with anyio.fail_after(10):
            while session._turns.open:
                await self.sink.changed()
        return message_id


@asynccontextmanager
async def world(root: Path) -> AsyncIterator[World]:
    work_folder(root / "w")
    with anyio.fail_after(90):
        async with ScriptedModel(SCRIPT) as model, anyio.create_task_group() as tasks:
            environ = isolated_claude_home(root / "h", model.base_url)
            made = World(root, ClaudeRuntime(tasks, environ), model, environ)
            try:
                yield made
            finally:
                with anyio.CancelScope(shield=True):
                    await made.runtime.aclose()


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def test_everything_our_process_stores_is_announced(real: World) -> None:
    """D6: else each prompt would restart the process. Tools, local commands, hooks, background work, compaction."""
    block = "grep -q BLOCKME && { echo no way >&2; exit 2; } || true"
    hook = {"hooks": [{"type": "command", "command": block}]}
    real.settings(permissions={"allow": ["Bash(sleep:*)"]}, hooks={"UserPromptSubmit": [hook]})
    session = await real.new()
    assert session._process is not None
    pid = session._process.pid
    for prompt in ("hello", "tool", "/help", "/context", "BLOCKME", "background"):
        await real.turn(session, prompt)
    real.turns += 1
    await real.sink.until(WorkEnded, real.turns)  # the report of the background task
    await real.turn(session, "/compact")
    last = await real.turn(session, "after")
    assert await session.is_recorded(last)
    assert session._process.pid == pid
    assert not session._store.overtaken
    inserted, failed = real.sink.of(PromptInserted), real.sink.of(PromptFailed)
    assert (len(inserted), len(failed)) == (7, 1)
    assert "no way" in failed[0].error.message


async def test_a_blocked_id_runs_when_it_comes_again(real: World) -> None:
    """E52, D5."""
    flag = real.root / "blocked"
    flag.touch()
    hook = {"hooks": [{"type": "command", "command": f"test -e {flag} && exit 2 || true"}]}
    real.settings(hooks={"UserPromptSubmit": [hook]})
    session = await real.new()
    message_id = await real.turn(session, "hello")
    assert len(real.sink.of(PromptFailed)) == 1
    flag.unlink()
    await real.turn(session, "hello", message_id=message_id)
    assert real.sink.of(PromptInserted) == [PromptInserted(message_id)]
    assert real.model.calls("hello") == 1


async def test_an_interrupt_at_any_moment_of_the_start_of_a_turn_ends_it(real: World) -> None:
    """D7: an interrupt that comes before the turn has begun inside is lost, and sent again. No process is killed for it."""
    session = await real.new()
    assert session._process is not None
    pid = session._process.pid
    for round_, delay in enumerate((0, 0.005, 0.02, 0.05, 0.1, 0.2), 1):
        await real.submit(session, "slow")
        await real.sink.until(WorkStarted, round_)
        await anyio.sleep(delay)
        await session.interrupt()
        ended = await real.sink.until(WorkEnded, round_)
        assert ended.interrupted
        await real.sink.until(PromptInserted, round_)
        assert session._process.pid == pid


async def test_a_prompt_that_waits_for_a_server_can_be_withdrawn(real: World) -> None:
    """The CLI holds it for 30 s and refuses `cancel_async_message`."""
    (real.root / "silent.py").write_text("import time\ntime.sleep(60)\n")
    server = {"type": "stdio", "name": "silent", "command": sys.executable, "args": [str(real.root / "silent.py")]}
    parsed = parse_params("session/resume", {"sessionId": "x", "cwd": "/", "mcpServers": [server]})
    assert isinstance(parsed, ResumeSession)
    setup = SessionSetup(str(real.root / "w"), (), tuple(parsed.mcp_servers))
    session = await real.runtime.new_session(setup, real.sink)
    message_id = await real.submit(session, "hello")
    await real.sink.until(Output)  # the notice that names the server
    assert real.sink.of(WorkStarted) == []
    await session.withdraw(message_id)
    with anyio.fail_after(15):
        assert await real.sink.until(PromptFailed) == PromptFailed(message_id, None)
    assert real.model.total_calls == 0


async def test_a_question_is_answered_by_a_choice(real: World) -> None:
    session = await real.new()
    await real.submit(session, "ask")
    asked = await real.sink.until(PermissionRequested)
    assert [option.name for option in asked.options] == ["A", "B", "Do not answer"]
    await session.answer_permission(asked.request_id, "answer_2")
    await real.sink.until(WorkEnded)
    assert '\\"Which?\\"=\\"B\\"' in json.dumps(real.model.records[-1].body)


async def test_a_plan_is_shown_and_started_by_a_choice(real: World) -> None:
    """The CLI puts the content of its plan file into the request."""
    real.settings(permissions={"defaultMode": "plan"})
    session = await real.new()
    await real.submit(session, "plan")
    gate = real.model.gate("plan file")
    await gate.wait_arrival()
    named = re.search(r"/\S+/plans/[^\s/]+\.md", json.dumps(real.model.records[-1].body))
    assert named is not None
    write(Path(named[0]), "1. do it\n")
    gate.release()
    asked = await real.sink.until(PermissionRequested)
    assert asked.description == "1. do it"
    await session.answer_permission(asked.request_id, "allow_once")
    assert await real.sink.until(WorkEnded) == WorkEnded("end_turn")
    assert "approved your plan" in json.dumps(real.model.records[-1].body)


async def test_a_store_that_cannot_be_written_makes_prompts_live_only(real: World) -> None:
    """D2: everything looks normal, only the mirror frame is missing."""
    session = await real.new()
    message_id = await real.submit(session, "hello")
    await real.sink.until(PromptTaken)
    folder = real.config / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", real.setup.cwd)
    (folder / f"{session.session_id}.jsonl").mkdir(parents=True)
    assert await real.sink.until(PromptLiveOnly) == PromptLiveOnly(message_id)
    assert real.sink.of(PromptInserted) == []


async def test_without_a_key_the_work_ends_with_a_call_to_log_in(real: World) -> None:
    """AUTH-5, STOP-5."""
    del real.runtime._environ["ANTHROPIC_API_KEY"]
    session = await real.new()
    await real.turn(session, "hello")
    [ended] = real.sink.of(WorkEnded)
    assert ended.error["code"] == -32000
    assert "claude auth login" in ended.error["message"]


async def test_clear_in_the_last_block_is_text(real: World) -> None:
    """D8: the CLI would take it for the command and leave the session."""
    session = await real.new()
    first = await real.turn(session, "look at this:", "/clear")
    second = await real.turn(session, "hello")
    assert await session.is_recorded(first)
    assert await session.is_recorded(second)
    assert len(real.sink.of(PromptInserted)) == 2


async def test_closing_ends_background_work(real: World) -> None:
    """CLOSE-1; the CLI alone would wait for it at the end of its input."""
    real.settings(permissions={"allow": ["Bash(sleep:*)"]})
    session = await real.new()
    await real.turn(session, "long background")
    assert len(marked(session.session_id)) >= 2
    with anyio.fail_after(15):
        await session.close()
    assert marked(session.session_id) == []


def write(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)


def marked(session_id: str) -> list[procfs.Process]:
    return [process for process in procfs.everybody() if procfs.has_variable(process.pid, MARK, session_id)]


# --- several files of one session ------------------------------------------------------------------------------------


async def replayed(session: ClaudeSession) -> list[str]:
    """The ids of the user messages in a replay."""
    return [update.message_id async for update in session.replay() if isinstance(update, UserMessage)]


def copied(real: World, session: ClaudeSession, folder: str, written: int) -> Path:
    """A copy of the session's file in another project folder."""
    [path] = real.config.glob(f"projects/*/{session.session_id}.jsonl")
    copy = real.config / "projects" / folder / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    os.utime(copy, (written, written))
    return copy


@pytest.mark.parametrize("written", [1, 2_000_000_000])
async def test_a_copy_in_another_project_folder_is_not_taken_for_the_session(real: World, written: int) -> None:
    """Claude Code works with the file in its own folder, whatever the times say: so do look-up, replay and list."""
    session = await real.new()
    first = await real.turn(session, "hello")
    copied(real, session, "-copy", written)
    second = await real.turn(session, "hello again")
    await session.close()
    session = await real.runtime.open_session(session.session_id, real.setup, real.sink)
    await session.started()
    assert await replayed(session) == [first, second]
    third = await real.turn(session, "and again")
    assert [await session.is_recorded(message_id) for message_id in (first, second, third)] == [True] * 3
    assert await replayed(session) == [first, second, third]
    [row] = (await real.runtime.list_sessions(None, None)).sessions
    assert row.cwd == real.setup.cwd


async def test_the_only_file_is_the_session_from_every_folder(real: World) -> None:
    session = await real.new()
    first = await real.turn(session, "hello")
    await session.close()
    (real.root / "other").mkdir()
    session = await real.runtime.open_session(session.session_id, SessionSetup(str(real.root / "other")), real.sink)
    await session.started()
    second = await real.turn(session, "hello again")
    assert await replayed(session) == [first, second]
    assert await session.is_recorded(second)


async def test_two_files_and_none_of_this_folder_are_refused_by_name(real: World) -> None:
    """Claude Code would say that there is no such session."""
    session = await real.new()
    await real.turn(session, "hello")
    await session.close()
    copy = copied(real, session, "-copy", 1)
    (real.root / "other").mkdir()
    with pytest.raises(InternalError, match="several project folders") as refused:
        await real.runtime.open_session(session.session_id, SessionSetup(str(real.root / "other")), real.sink)
    assert str(copy) in refused.value.message


# --- entries of another session in the file --------------------------------------------------------------------------


async def test_what_stands_there_of_another_session_is_neither_listed_nor_replayed(real: World) -> None:
    """Claude Code passes over it, too: the model does not see it."""
    session = await real.new()
    first = await real.turn(session, "hello")
    [path] = real.config.glob(f"projects/*/{session.session_id}.jsonl")
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    said = next(entry for entry in entries if entry["type"] == "user")
    other = {"sessionId": str(uuid4()), "uuid": str(uuid4()), "timestamp": "2031-01-01T00:00:00.000Z"}
    foreign = {**said, **other, "message": {"role": "user", "content": "Payroll migration"}}
    title = {"type": "custom-title", "customTitle": "Payroll migration", "sessionId": other["sessionId"]}
    with path.open("a") as file:
        file.writelines(json.dumps(entry, separators=(",", ":")) + "\n" for entry in (foreign, title))
    [row] = (await real.runtime.list_sessions(None, None)).sessions
    assert row.title == "hello"
    assert row.updated_at is not None
    assert not row.updated_at.startswith("2031")
    assert await replayed(session) == [first]
    await session.close()
    session = await real.runtime.open_session(session.session_id, real.setup, real.sink)
    await session.started()
    second = await real.turn(session, "hello again")
    assert "Payroll" not in json.dumps(real.model.records[-1].body["messages"])
    assert await replayed(session) == [first, second]
