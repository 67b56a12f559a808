"""What a user reads before they approve: whole, whoever asks. On the real runtimes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.client import permissions
from adapters.scripted.script import Answer, Block, Shell, ToolUse, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig

pytestmark = pytest.mark.anyio

WORDS = " ".join(f"word{number}" for number in range(120))


def delegating(rig: Rig, text: str, *steps: Answer) -> None:
    """Answer this prompt with a sub-agent that does these steps."""
    task = f"Task of {text}"
    if rig.runtime.name == "codex":
        spawn: Block = ToolUse("spawn_agent", {"message": task}, namespace="multi_agent_v1")
    else:
        spawn = ToolUse("Agent", {"description": "d", "prompt": task, "subagent_type": "general-purpose"})
    rig.answer(text, Answer((spawn,)), say("Delegated."), say("Seen."))
    rig.answer(task, *steps, say("Done with it."))


def read_by_a_user(question: Mapping[str, Any]) -> str:
    """The texts that every client shows."""
    return f"{question['title']}\n{question.get('description', '')}"


async def written(path: Path) -> str:
    """What stands in a file, once it is there."""
    await wait_for(path.exists, 20, f"{path.name} is written")
    return await anyio.Path(path).read_text()


async def test_a_command_of_a_sub_agent_is_shown_whole(link: Link, asked: Asked, text: str) -> None:
    """PERM-1: its call is on no screen, so the question says all of it, and makes no call that would stay open."""
    path = link.rig.project / "by-a-sub-agent"
    command = f"echo {WORDS}\necho 'hidden \u202e'\ntouch '{path}'"
    delegating(link.rig, text, Answer((link.rig.runtime.asking(command),)))
    session = await link.new()
    await link.prompt(session, text)
    await asked.wait()
    [question] = [question.params for question in asked.questions]
    assert f"echo {WORDS}\necho 'hidden [U+202E]'\ntouch '{path}'" in read_by_a_user(question)
    assert "toolCall" not in question.get("subject", {})
    assert await written(path) == ""


async def test_a_change_of_a_sub_agent_is_shown_whole(link: Link, asked: Asked, text: str) -> None:
    """PERM-1: files, and every line that would be written."""
    lines = [f"line {number} of the file" for number in range(60)]
    if link.rig.runtime.name == "codex":
        protected = link.rig.project / ".git"  # a patch may change everything else in the project
        protected.mkdir(exist_ok=True)
        path = protected / "new.txt"
        added = "\n".join(f"+{line}" for line in lines)
        step: Block = Shell(f"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {path}\n{added}\n*** End Patch\nEOF")
    else:
        path = link.rig.project / "new.txt"
        step = ToolUse("Write", {"file_path": str(path), "content": "\n".join(lines)})
    delegating(link.rig, text, Answer((step,)))
    session = await link.new()
    await link.prompt(session, text)
    await asked.wait()
    [question] = [question.params for question in asked.questions]
    read = read_by_a_user(question)
    assert str(path.relative_to(link.rig.project)) in read
    assert "\n".join(lines) in read
    assert "toolCall" not in question.get("subject", {})
    assert (await written(path)).split("\n")[: len(lines)] == lines


async def test_a_long_command_of_the_session_is_shown_whole(link: Link, asked: Asked, text: str) -> None:
    """The call's title is one line too."""
    command = f"echo {WORDS}\ntouch '{link.rig.project / 'long'}'"
    link.rig.answer(text, Answer((link.rig.runtime.asking(command),)), say("Done with it."))
    session = await link.new()
    await link.turn(session, text)
    [question] = [question.params for question in asked.questions]
    assert command in read_by_a_user(question)
    assert question["subject"]["type"] == "tool_call"


async def test_every_rule_that_an_option_grants_can_be_read(link: Link, asked: Asked, text: str) -> None:
    """PERM-7: what is remembered is what was shown, in the name of the option."""
    command = " && ".join(f"curl https://example.invalid/{number}/{'x' * 30}" for number in range(5))
    link.rig.answer(text, Answer((link.rig.runtime.asking(command),)), say("Done with it."))
    asked.answer = permissions.reject
    session = await link.new()
    await link.turn(session, text)
    [question] = [question.params for question in asked.questions]
    lasting = [option["name"] for option in question["options"] if option["kind"] == "allow_always"]
    assert lasting
    assert not any("…" in name for name in lasting)
    assert command in read_by_a_user(question)
    assert "…" not in json.dumps(question.get("description", ""), ensure_ascii=False)
