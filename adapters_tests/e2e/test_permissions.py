"""Permission requests with the real runtime: what each answer does to the tool, to the state and to the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.client import permissions
from adapters.client.permissions import Question
from adapters.scripted.home import work_folder
from adapters.scripted.script import Answer, say
from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.asked import Asked, refusing
from adapters_tests.e2e.rig import Link, Rig, open_rig
from adapters_tests.e2e.runtimes import RuntimeUnderTest

pytestmark = pytest.mark.anyio


def touching(rig: Rig, text: str, name: str) -> Path:
    """Answer this prompt with a command that makes a file, and a text after it."""
    path = rig.project / name
    rig.answer(text, Answer((rig.runtime.asking(f"touch '{path}'"),)), say("Done with it."))
    return path


async def test_allowed(link: Link, asked: Asked, text: str) -> None:
    """PERM-1, PERM-5, STATE-5, STATE-6: the tool runs; requires_action while everything waits, running after it."""
    path = touching(link.rig, text, "allowed")
    session = await link.new()
    await link.turn(session, text)
    assert path.exists()
    [question] = asked.questions
    assert question.session_id == session
    assert {option["kind"] for option in question.options} >= {"allow_once", "reject_once"}
    ids = [option["optionId"] for option in question.options]
    assert len(set(ids)) == len(ids)
    assert link.states(session, every=True) == ["running", "requires_action", "running", "idle:end_turn"]
    [call] = link.client.view(session).items("tool_call")
    assert call.item_id == question.params["subject"]["toolCall"]["toolCallId"]
    assert call.fields["status"] == "completed"


NOT_APPROVED: dict[str, Any] = {
    "rejected": permissions.reject,
    "cancelled": None,
    "unknown-option": "no-such-option",
    "unknown-outcome": {"outcome": {"outcome": "_later"}},
    "malformed-outcome": {"outcome": "selected"},
    "option-of-another-type": {"outcome": {"outcome": "selected", "optionId": 1}},
    "no-outcome": {},
    "an-error": InternalError("the dialog broke"),
}


@pytest.mark.parametrize("answer", NOT_APPROVED.values(), ids=NOT_APPROVED.keys())
async def test_not_approved(link: Link, asked: Asked, text: str, answer: Any) -> None:
    """PERM-2, PERM-3, MAL-1: the operation does not run, the session lives on."""

    async def fixed(question: Question) -> Any:
        return await answer(question) if callable(answer) else answer

    asked.answer = fixed
    path = touching(link.rig, text, f"refused-{link.client.record.mark}")
    session = await link.new()
    call = await link.prompt(session, text)
    await call.message_id()
    idle = await link.client.wait_state(session, "idle", since=call.mark)
    assert idle["stopReason"] in ("end_turn", "cancelled")
    assert not path.exists()
    [tool] = link.client.view(session).items("tool_call")
    assert tool.fields["status"] in ("failed", "cancelled")
    asked.answer = permissions.allow
    await link.turn(session, text)
    assert path.exists()


async def test_always_allowed_is_remembered(link: Link, asked: Asked, text: str) -> None:
    """PERM-7: the second time nobody is asked."""
    asked.answer = permissions.allow_always
    path = touching(link.rig, text, "always")
    session = await link.new()
    await link.turn(session, text)
    assert path.exists()
    path.unlink()
    if asked.questions[0].option("allow_always") is None:
        pytest.skip("the runtime offers no allow_always for this command")
    await link.turn(session, text)
    assert path.exists()
    assert len(asked.questions) == 1


@pytest.mark.parametrize("around", ["repository", "empty .git", "file"])
async def test_a_rule_for_ever_stays_in_the_folder_of_its_test(
    runtime: RuntimeUnderTest, model: ScriptedServer, tmp_path: Path, text: str, around: str
) -> None:
    """Whatever repository a temporary folder is in: runtimes write such rules at the top of the one they find."""
    if around == "repository":
        work_folder(tmp_path)
    elif around == "file":
        (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    else:
        (tmp_path / ".git").mkdir()
    async with open_rig(runtime, model, tmp_path / "h") as rig:
        before = outside(rig)
        async with rig.agent(permissions.allow_always) as link:
            path = touching(rig, text, "for-ever")
            session = await link.new()
            await link.turn(session, text)
            assert path.exists()
        assert outside(rig) == before
        kept = rig.project / ".claude" / "settings.local.json"
        assert kept.exists() == (runtime.name == "claude"), "this test sees where a rule is written"


def outside(rig: Rig) -> dict[str, int]:
    """What is in the folder around a rig's home, with the time of its last change."""
    paths = (path for path in rig.root.parent.rglob("*") if not path.is_relative_to(rig.root))
    return {str(path): path.stat().st_mtime_ns for path in paths}


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_the_work_is_stopped_while_a_request_is_open(link: Link, asked: Asked, text: str, how: str) -> None:
    """PERM-4, PERM-6, RCAN-7, CANCEL-8, CLOSE-5, STATE-7: `$/cancel_request`, idle cancelled; a late yes runs nothing."""
    asked.released = anyio.Event()
    path = touching(link.rig, text, f"stopped-by-{how}")
    session = await link.new()
    call = await link.prompt(session, text)
    await asked.wait()
    await link.client.wait_state(session, "requires_action", since=call.mark)
    if how == "cancel":
        await link.client.cancel(session)
        idle = await link.client.wait_state(session, "idle", since=call.mark, within=8)
    else:
        await link.client.close(session)
        idle = await link.client.wait_state(session, "idle", since=call.mark, within=1)
    assert idle["stopReason"] == "cancelled"
    cancelled = [message.params["requestId"] for message in link.received("$/cancel_request")]
    assert asked.questions[0].request_id in cancelled
    asked.released.set()
    await link.client.list()
    assert not path.exists()
    if how == "cancel":
        await link.turn(session, f"After {text}")
        assert link.states(session)[-2:] == ["running", "idle:end_turn"]


async def test_two_tools_of_one_answer_are_asked_about_and_run(link: Link, asked: Asked, text: str) -> None:
    """STATE-5, STATE-6, PERM-2: overlapping or one after the other; each answer decides about its own tool."""
    first, second = link.rig.project / "two-first", link.rig.project / "two-second"
    commands = [link.rig.runtime.asking(f"touch '{path}'") for path in (first, second)]
    link.rig.answer(text, Answer(tuple(commands)), say("Both."))
    asked.answer = refusing("two-first")
    session = await link.new()
    await link.turn(session, text)
    assert (first.exists(), second.exists()) == (False, True)
    assert len(asked.questions) == 2
    assert link.states(session)[-1] == "idle:end_turn"
    statuses = [item.fields["status"] for item in link.client.view(session).items("tool_call")]
    assert sorted(statuses) in (["cancelled", "completed"], ["completed", "failed"])


async def test_a_prompt_sent_while_a_request_is_open_is_held_and_inserted_once(
    link: Link, asked: Asked, text: str
) -> None:
    """KEY-10, PROMPT-16, STATE-4: the permission decides the tool, the prompt follows it."""
    asked.released = anyio.Event()
    path = touching(link.rig, f"Tool of {text}", "asked-and-held")
    session = await link.new()
    work = await link.prompt(session, f"Tool of {text}")
    await asked.wait()
    calls = [await link.prompt(session, text, "held-behind-a-question") for _ in range(2)]
    await link.client.list()
    assert not any(call.done for call in calls)
    asked.released.set()
    ids = {await call.message_id() for call in calls}
    await link.client.wait_state(session, "idle", since=calls[0].mark)
    assert path.exists()
    assert link.rig.stored_ids(session) == [await work.message_id(), *ids]


async def test_a_resume_while_a_request_is_open_asks_again_or_settles_it(link: Link, asked: Asked, text: str) -> None:
    """PERM-9, REPLAY-10, RESUME-5: on a connection that resumes, no question is lost and the tool runs once."""
    asked.released = anyio.Event()
    log = link.rig.project / "ran.log"
    link.rig.answer(text, Answer((link.rig.runtime.asking(f"echo ran >> '{log}'"),)), say("Done."))
    session = await link.new()
    call = await link.prompt(session, text)
    await asked.wait()
    await link.resume(session, replay=True)
    assert link.client.view(session).state == "requires_action"
    asked.released.set()
    await link.client.wait_state(session, "idle", since=call.mark)
    assert log.read_text() == "ran\n"
