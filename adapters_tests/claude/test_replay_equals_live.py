"""A resumed session looks as it looked live, for recordings of the real Claude Code (see `fixtures/README.md`)."""

from collections import Counter
from typing import Any

import pytest

from adapters.acp.framing import decode, encode
from adapters.acp.schema import dump
from adapters.claude.show.replay import replay
from adapters.claude.stored.session_files import Files
from adapters.claude.stored.transcript import Transcript
from adapters_tests import schema
from adapters_tests.claude.recorded import NAMES, Scenario, view

LIVE_ONLY = {"cut": 1}
"""Calls that the model began to write in an answer that was cut: cancelled live, never stored."""


@pytest.fixture(params=NAMES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return Scenario.load(request.param)


def test_same_picture(scenario: Scenario) -> None:
    """REPLAY-2, REPLAY-3, REPLAY-7: same messages, thoughts, calls and compactions, same ids, texts, statuses, same order."""
    live = view(scenario.live()).snapshot()
    begun_only = [item for item in live if item.get("status") == "cancelled" and item["rawInput"] == {}]
    assert len(begun_only) == LIVE_ONLY.get(scenario.name, 0)
    assert [item for item in live if item not in begun_only] == view(scenario.replayed()).snapshot()


def test_replaying_twice_changes_nothing(scenario: Scenario) -> None:
    """REPLAY-4: every update of a replay is whole."""
    once = view(scenario.replayed())
    twice = view(iter([*scenario.replayed(), *scenario.replayed()]))
    assert once.snapshot() == twice.snapshot()
    over_live = view(iter([*scenario.live(), *scenario.replayed()]))
    assert over_live.snapshot() == view(scenario.live()).snapshot()


def test_every_prompt_is_shown_once_with_its_id(scenario: Scenario) -> None:
    """REPLAY-3, KEY-*: what look-up finds and what replay shows are the same messages, those that were sent."""
    transcript = Transcript(lambda: Files(scenario.stored))
    transcript.refresh()
    sent = list(scenario.prompts)
    assert all(transcript.holds(message_id) for message_id in sent)
    assert [item.item_id for item in view(scenario.replayed()).items("user")] == sent


def test_each_text_once(scenario: Scenario) -> None:
    """UPD-5: no text of the assistant appears twice, in whatever pieces it came."""
    texts = Counter(item.text for item in view(scenario.live()).items("agent") if item.text)
    said = Counter(item.text for item in view(scenario.replayed()).items("agent"))
    assert texts == said


def test_no_call_stays_open(scenario: Scenario) -> None:
    """REPLAY-7: every call ends, live and replayed."""
    for updates in (scenario.live(), scenario.replayed()):
        for item in view(updates).items("tool_call"):
            assert item.fields["status"] in ("completed", "failed", "cancelled")


def test_updates_are_well_formed(scenario: Scenario) -> None:
    """UPD-7: everything sent is valid by the published schema, and survives the wire."""
    for updates in (scenario.live(), scenario.replayed()):
        for update in updates:
            params = {"sessionId": "s", "update": dump(update)}
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": "session/update", "params": params}
            schema.validate_agent_message(message)
            assert decode(encode(message).rstrip(b"\n")) == message


def test_notices_are_live_only(scenario: Scenario) -> None:
    """NOTE-2: no notice and no usage is replayed."""
    replayed = view(scenario.replayed())
    assert (replayed.notices, replayed.usage) == ([], {})


def test_calls_that_go_on_are_not_ended_by_a_replay() -> None:
    """REPLAY-7: only dead calls get a final status; one that still runs stays open."""
    scenario = Scenario.load("killed")
    (call,) = view(scenario.replayed()).items("tool_call")
    assert call.fields["status"] == "failed"
    (call,) = view(replay(scenario.stored, scenario.cwd, [call.item_id])).items("tool_call")
    assert call.fields["status"] == "in_progress"


# --- what the scenarios show ------------------------------------------------------------------------------------------


def shown(name: str, kind: str) -> list[str]:
    return [item.text for item in view(Scenario.load(name).replayed()).items(kind)]


def test_folded_and_merged_prompts_are_shown_apart() -> None:
    """ADP-5: a prompt sent into a running turn, and two that the runtime stored as one entry."""
    assert shown("fold", "user") == ["run slowly", "and also"]
    assert shown("merged", "user") == ["answer slowly", "first", "second"]


def test_interruption_markers_are_no_messages() -> None:
    assert shown("interrupt", "user") == ["answer slowly", "run slowly", "touch a file", "hello"]


def test_commands_show_what_was_typed_and_printed() -> None:
    """Slash commands: the user's words, the output as an agent's message; what the host itself had set is no message."""
    users = shown("commands", "user")
    assert users == [
        "hello",
        "/usage",
        "with context/usage",
        "/help",
        "/no-such command",
        "/model <a> & b",
        "/greet the <world>",
        "/compact keep all",
        "hello",
    ]
    agents = shown("commands", "agent")
    assert any("/help isn't available" in text for text in agents)
    assert "Compacted" in agents
    assert not any("opus" in text for text in agents if text.startswith("Set model"))


@pytest.mark.parametrize("name", ["commands", "auto_compaction"])
def test_history_before_a_compaction_is_replayed(name: str) -> None:
    """COMP-1, COMP-3: the compaction is one completed item with the readable part of its summary, after what caused it."""
    items = view(Scenario.load(name).replayed()).items()
    kinds = [item.kind for item in items]
    at = kinds.index("compaction")
    assert kinds[:at].count("user") == (2 if name == "auto_compaction" else 8)
    assert items[at - 1].kind == "user"
    assert items[at].fields["summary"] == [{"type": "text", "text": "The conversation so far was scripted."}]


def test_subagents_do_not_speak_in_the_conversation() -> None:
    """Text and tools of a subagent stay inside its call; its report is the call's content."""
    replayed = view(Scenario.load("subagent").replayed())
    assert [item.text for item in replayed.items("agent")] == ["It is done.", "Started.", "Done."]
    agent, _ = replayed.items("tool_call")
    assert agent.fields["content"] == [{"type": "content", "content": {"type": "text", "text": "Sub *report*."}}]


def test_usage_of_the_last_call_with_the_reported_size() -> None:
    """USAGE-1, USAGE-2: a compaction shrinks it, the size is the runtime's, the cost is the session's."""
    usages = [dump(update) for update in Scenario.load("auto_compaction").live() if dump(update).get("used")]
    assert [usage["used"] for usage in usages] == [990_005, usages[1]["used"], 15, 15]
    assert usages[1]["used"] < 10_000
    assert {usage["size"] for usage in usages} == {1_000_000}
    assert usages[-1]["cost"]["amount"] > usages[0]["cost"]["amount"] > 0
