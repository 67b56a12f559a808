"""What a user approves is the plan that they were shown. On the real Claude Code."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from adapters.scripted.script import Answer, ToolUse, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.rig import Rig
from adapters_tests.e2e.runtimes import CLAUDE
from adapters_tests.e2e.stored import claude_entries

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.parametrize("runtime", [CLAUDE], indirect=True, scope="session"),
]


async def test_a_plan_that_changes_under_the_question_is_asked_for_again(rig: Rig, text: str) -> None:
    """PERM-1: neither a text that was never shown nor one that came in the place of no plan is approved."""
    leave, enter = Answer((ToolUse("ExitPlanMode", {}),)), Answer((ToolUse("EnterPlanMode", {}),))
    gate = rig.model.gate(text)
    rig.answer(text, enter, leave, enter, replace(leave, gate=text), leave, say("Done."))
    user = Asked()
    async with rig.agent(user) as link:
        session = await link.new()
        call = await link.prompt(session, text)
        await user.wait()
        nothing = user.questions[0].params
        assert nothing["title"] == "Start without a plan? None was written."
        assert "description" not in nothing
        results = await link.client.wait_update(session, lambda update: _plan_file(update) is not None, within=30)
        file = Path(_plan_file(results) or "")
        _write(file, "# The plan\n")
        user.released = anyio.Event()  # from here on the user takes their time
        gate.release()
        await user.wait(2)
        assert user.questions[1].params["description"] == "# The plan"
        _write(file, "# Another plan\n")
        user.released.set()
        await user.wait(3)
        assert user.questions[2].params["description"] == "# Another plan"
        await link.client.wait_state(session, "idle", since=call.mark, within=60)
        outputs = [
            (update["status"], update.get("rawOutput"))
            for update in link.client.updates(session)
            if update["sessionUpdate"] == "tool_call_update" and update.get("status") in ("completed", "failed")
        ]
        titles = [u["title"] for u in link.client.updates(session) if u["sessionUpdate"] == "notice"]
    assert titles == ["The plan changed while you were asked, so it is not approved. You will be asked again."]
    assert [status for status, _ in outputs] == ["completed", "completed", "completed", "failed", "completed"]
    assert outputs[-1][1]["plan"] == "# Another plan\n"


async def test_a_plan_that_comes_into_a_folder_of_the_project_is_not_approved_unseen(rig: Rig, text: str) -> None:
    """The user's settings say where plans are; the file came from elsewhere and is older than the question."""
    settings = rig.root / "claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"plansDirectory": "our plans"}))
    folder = rig.project / "our plans"
    folder.mkdir()
    enter, leave = (Answer((ToolUse(name, {}),)) for name in ("EnterPlanMode", "ExitPlanMode"))
    rig.answer(text, enter, leave, leave, say("Done."))
    user = Asked()
    user.released = anyio.Event()
    async with rig.agent(user) as link:
        session = await link.new()
        call = await link.prompt(session, text)
        await user.wait()
        [named] = {
            entry["attachment"]["planFilePath"]
            for entry in claude_entries(rig.root, session)
            if entry.get("attachment", {}).get("type") == "plan_mode"
        }
        assert Path(named).parent == folder
        older = rig.project / "older.md"
        older.write_text("# Not seen\n")
        os.utime(older, (1, 1))
        older.rename(named)
        user.released.set()
        await user.wait(2)
        assert [question.params.get("description") for question in user.questions] == [None, "# Not seen"]
        await link.client.wait_state(session, "idle", since=call.mark, within=60)


def _plan_file(update: dict[str, object]) -> str | None:
    output = update.get("rawOutput")
    found = output.get("filePath") if isinstance(output, dict) else None
    return found if isinstance(found, str) and "plans" in found else None


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
