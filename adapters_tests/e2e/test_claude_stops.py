"""Why a model stopped, as a user is told. On the real Claude Code, which asks again by itself before it gives up."""

from __future__ import annotations

import pytest

from adapters.scripted.script import Answer, HttpFailure, Text
from adapters_tests.e2e.rig import Link
from adapters_tests.e2e.runtimes import CLAUDE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session"),
]


def stopping(reason: str) -> Answer:
    return Answer((Text("As far as I came."),), stop_reason=reason)


@pytest.mark.parametrize(
    ("reason", "stop_reason", "told"),
    [
        ("max_tokens", "max_tokens", ""),
        ("refusal", "refusal", ""),
        ("pause_turn", "end_turn", "paused in the middle of its turn"),
        ("frobnicated", "end_turn", "a reason that this agent does not know: frobnicated."),
        ("model_context_window_exceeded", "error", ""),
    ],
)
async def test_the_end_of_the_work_says_why_the_model_stopped(
    shared: Link, text: str, reason: str, stop_reason: str, told: str
) -> None:
    """STOP-1, STOP-3: with what was said until then."""
    shared.rig.answer(text, *[stopping(reason)] * 6)
    session = await shared.new()
    call = await shared.prompt(session, text)
    idle = await shared.client.wait_state(session, "idle", since=call.mark, within=60)
    assert idle["stopReason"] == stop_reason
    assert "As far as I came." in shared.client.view(session).items("agent")[0].text
    notices = [u["title"] for u in shared.client.updates(session, call.mark) if u["sessionUpdate"] == "notice"]
    assert (told == "") or any(told in title for title in notices)
    if stop_reason == "error":
        assert "/compact" in idle["error"]["message"]


async def test_a_prompt_that_is_too_long_for_the_model_says_what_to_do(shared: Link, text: str) -> None:
    failure = HttpFailure(400, message="prompt is too long: 210000 tokens > 200000 maximum")
    shared.rig.answer(text, Answer((), failure=failure))
    session = await shared.new()
    call = await shared.prompt(session, text)
    idle = await shared.client.wait_state(session, "idle", since=call.mark, within=60)
    assert idle["error"]["data"]["category"] == "prompt_too_long"
    assert "/compact" in idle["error"]["message"]
