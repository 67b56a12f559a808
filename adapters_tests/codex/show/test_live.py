"""Notifications as updates, and stored items as the same picture."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.acp.schema import dump
from adapters.client.view import SessionView
from adapters.codex.show.live import Translator, samples, stored_item

CWD = "/w"
K = "our-message"


class Live:
    """A translator and the view a client builds from it."""

    def __init__(self) -> None:
        self.translator = Translator(CWD, is_ours={K}.__contains__)
        self.view = SessionView()
        self.sent: list[dict[str, Any]] = []

    def hear(self, method: str, **params: Any) -> list[dict[str, Any]]:
        return self.take(self.translator.feed(method, {"threadId": "T", "turnId": "N", **params}))

    def take(self, updates: Any) -> list[dict[str, Any]]:
        wire = [dump(update) for update in updates]
        for update in wire:
            self.view.apply(update)
        self.sent += wire
        return wire

    def item(self, stage: str, item: dict[str, Any], turn_id: str = "N") -> list[dict[str, Any]]:
        return self.hear(f"item/{stage}", item=item, turnId=turn_id)

    def whole(self, item: dict[str, Any], final: dict[str, Any] | None = None) -> None:
        self.item("started", item)
        self.item("completed", {**item, **(final or {})})


def replayed(*items: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    return SessionView.of(dump(u) for item in items for u in stored_item(item, CWD, **how)).snapshot()


def command(**fields: Any) -> dict[str, Any]:
    base = {"type": "commandExecution", "id": "c1", "command": "/bin/sh -c 'ls'", "cwd": CWD, "commandActions": []}
    return {**base, "status": "inProgress", "aggregatedOutput": None, "exitCode": None, "processId": "7", **fields}


def message(text: str = "", item_id: str = "m1") -> dict[str, Any]:
    return {"type": "agentMessage", "id": item_id, "text": text}


def test_a_streamed_message_is_not_repeated() -> None:
    """Known faults: text rendered twice. Chunks, and nothing more when they were the whole."""
    live = Live()
    live.item("started", message())
    live.hear("item/agentMessage/delta", itemId="m1", delta="hel")
    live.hear("item/agentMessage/delta", itemId="m1", delta="lo")
    assert live.item("completed", message("hello")) == []
    assert live.view.snapshot() == replayed(message("hello"))


def test_a_message_without_deltas_comes_whole() -> None:
    """A short answer is no silence."""
    live = Live()
    live.whole(message(), {"text": "3"})
    assert [update["sessionUpdate"] for update in live.sent] == ["agent_message"]
    assert live.view.snapshot() == replayed(message("3"))


def test_a_message_that_ends_otherwise_is_corrected() -> None:
    """UPD-2: what is stored counts."""
    live = Live()
    live.item("started", message())
    live.hear("item/agentMessage/delta", itemId="m1", delta="hel")
    live.item("completed", message("hello"))
    assert live.view.snapshot() == replayed(message("hello"))


@pytest.mark.parametrize("cut", ["steer", "retry", "next answer"])
def test_what_codex_throws_away_is_taken_back(cut: str) -> None:
    """Trap 10: an open message never gets its end; replay lacks it, and so must the screen."""
    live = Live()
    live.item("started", message())
    live.hear("item/agentMessage/delta", itemId="m1", delta="one two")
    if cut == "steer":
        live.item("started", {"type": "userMessage", "id": "u", "clientId": K, "content": []})
    elif cut == "retry":
        live.hear("error", willRetry=True, error={"message": "Reconnecting... 1/1"})
    live.whole(message(item_id="m2"), {"text": "one two three"})
    assert live.view.snapshot() == replayed(message("one two three", "m2"))


def test_what_was_said_before_an_interrupt_stays() -> None:
    """REPLAY-6: a user who stops an answer has read it; it is live-only."""
    live = Live()
    live.item("started", message())
    live.hear("item/agentMessage/delta", itemId="m1", delta="one two")
    live.translator.turn_over("N", interrupted=True)
    live.take(live.translator.finish("cancelled", "N"))
    assert live.view.items("agent")[0].text == "one two"
    live.item("started", message(item_id="m2"), "O")
    assert live.view.items("agent")[0].text == "one two"


def test_a_thought_in_parts() -> None:
    """Summary parts are paragraphs, live and stored."""
    item = {"type": "reasoning", "id": "r1", "summary": ["one", "two"], "content": []}
    live = Live()
    live.item("started", {**item, "summary": []})
    live.hear("item/reasoning/summaryTextDelta", itemId="r1", delta="one", summaryIndex=0)
    live.hear("item/reasoning/summaryTextDelta", itemId="r1", delta="two", summaryIndex=1)
    assert live.item("completed", item) == []
    assert live.view.snapshot() == replayed(item)


def test_raw_reasoning_and_its_summary() -> None:
    """The summary takes the place of the raw text; without one, the raw text is shown."""
    item = {"type": "reasoning", "id": "r1", "summary": ["sum"], "content": ["raw"]}
    live = Live()
    live.item("started", {**item, "summary": []})
    live.hear("item/reasoning/textDelta", itemId="r1", delta="raw", contentIndex=0)
    live.hear("item/reasoning/summaryTextDelta", itemId="r1", delta="sum", summaryIndex=0)
    live.hear("item/reasoning/textDelta", itemId="r1", delta="more", contentIndex=0)
    live.item("completed", item)
    assert live.view.snapshot() == replayed(item)
    raw = {"type": "reasoning", "id": "r2", "summary": [], "content": ["a", "b"]}
    other = Live()
    other.hear("item/reasoning/textDelta", itemId="r2", delta="a", contentIndex=0)
    other.hear("item/reasoning/textDelta", itemId="r2", delta="b", contentIndex=1)
    other.item("completed", raw)
    assert other.view.snapshot() == replayed(raw)


def test_a_thought_without_words_is_none() -> None:
    """Encrypted reasoning shows nothing."""
    live = Live()
    live.whole({"type": "reasoning", "id": "r1", "summary": [], "content": []})
    assert live.sent == []


def test_a_command_with_live_output() -> None:
    """Whole lines as they come; the end brings everything, also what was not streamed."""
    live = Live()
    [begun] = live.item("started", command())
    assert (begun["status"], begun["title"]) == ("in_progress", "ls")
    assert live.hear("item/commandExecution/outputDelta", itemId="c1", delta="tw") == []
    [chunk] = live.hear("item/commandExecution/outputDelta", itemId="c1", delta="o\nthr")
    assert chunk["content"]["content"]["text"] == "```\ntwo\n```"
    final = command(status="completed", aggregatedOutput="one\ntwo\nthree", exitCode=0)
    live.item("completed", final)
    assert live.view.snapshot() == replayed(final)


def test_output_is_bounded() -> None:
    """A command that never stops printing does not fill the client; its end brings what Codex keeps."""
    live = Live()
    live.item("started", command())
    sent = [live.hear("item/commandExecution/outputDelta", itemId="c1", delta="x" * 999 + "\n") for _ in range(400)]
    assert 200 < sum(map(bool, sent)) < 300


def test_output_without_line_ends_is_bounded_too() -> None:
    """Nothing is kept or joined beyond the bound: 40 MiB without a newline once held the event loop for minutes."""
    live = Live()
    live.item("started", command())
    for _ in range(100):
        assert live.hear("item/commandExecution/outputDelta", itemId="c1", delta="x" * 8192) == []
    assert live.hear("item/commandExecution/outputDelta", itemId="c1", delta="\n") == []
    final = command(status="completed", aggregatedOutput="x", exitCode=0)
    live.item("completed", final)
    assert live.view.snapshot() == replayed(final)


@pytest.mark.parametrize(
    "final",
    [
        {"type": "fileChange", "id": "f", "status": "completed", "changes": [{"path": "/w/a", "kind": {}, "diff": ""}]},
        {"type": "mcpToolCall", "id": "x", "server": "s", "tool": "t", "status": "failed", "error": {"message": "no"}},
        {"type": "webSearch", "id": "w", "query": "q", "action": {"type": "search", "query": "q"}},
        {"type": "imageView", "id": "i", "path": "/w/i.png"},
        {"type": "collabAgentToolCall", "id": "a", "tool": "wait", "status": "completed", "agentsStates": {}},
        {"type": "plan", "id": "p", "text": "- one"},
        {"type": "exitedReviewMode", "id": "v", "review": "fine"},
    ],
    ids=lambda item: item["type"],
)  # fmt: skip
def test_live_equals_replay(final: dict[str, Any]) -> None:
    """REPLAY-2: the same picture for every kind of item."""
    live = Live()
    live.whole(final if "status" not in final else {**final, "status": "inProgress"}, final)
    assert live.view.snapshot() == replayed(final)


def test_progress_and_patches_while_it_runs() -> None:
    """TOOL-4: shown as they come, replaced by the end."""
    live = Live()
    live.item("started", {"type": "mcpToolCall", "id": "x", "server": "s", "tool": "t", "status": "inProgress"})
    [progress] = live.hear("item/mcpToolCall/progress", itemId="x", message="half")
    assert progress["content"]["content"]["text"] == "half"
    change = {"path": "/w/a", "kind": {"type": "add"}, "diff": "x"}
    live.item("started", {"type": "fileChange", "id": "f", "changes": [], "status": "inProgress"})
    [patched] = live.hear("item/fileChange/patchUpdated", itemId="f", changes=[change])
    assert patched["content"][0]["changes"] == [{"operation": "add", "path": "/w/a"}]
    assert live.translator.running_items["f"]["changes"] == [change]
    assert live.hear("item/mcpToolCall/progress", itemId="unknown", message="half") == []


def test_a_killed_command_is_cancelled_in_both() -> None:
    """STOP-4: failed with a signal in an interrupted turn: that was the interrupt."""
    killed = command(status="failed", exitCode=-1, aggregatedOutput="a\n")
    live = Live()
    live.item("started", command())
    live.translator.turn_over("N", interrupted=True)
    live.item("completed", killed)
    assert live.view.items("tool_call")[0].fields["status"] == "cancelled"
    assert live.view.snapshot() == replayed(killed, interrupted=True)
    assert replayed(killed)[0]["status"] == "failed"


def test_calls_left_open_get_a_final_status() -> None:
    """STOP-4: those of the turn that ended; what runs in the background goes on."""
    live = Live()
    live.item("started", command(id="old"), "M")
    live.item("started", command(id="new"), "N")
    live.item("started", {"type": "contextCompaction", "id": "k"}, "N")
    live.take(live.translator.finish("failed", "N"))
    statuses = {item.item_id: item.fields["status"] for item in live.view.items()}
    assert statuses == {"old": "in_progress", "new": "failed", "k": "failed"}
    live.take(live.translator.finish("cancelled"))
    assert live.view.item("tool_call", "old").fields["status"] == "cancelled"  # type: ignore[union-attr]
    assert live.translator.finish("cancelled") == []


def test_replay_of_calls_that_are_not_complete() -> None:
    """REPLAY-7: one that runs here goes on; one of a dead process does not."""
    assert replayed(command(), running=True)[0]["status"] == "in_progress"
    assert replayed(command())[0]["status"] == "failed"
    assert replayed(command(), interrupted=True)[0]["status"] == "cancelled"


def test_compaction() -> None:
    """COMP-1, COMP-2: one item, from its beginning to its end; the end alone in replay."""
    live = Live()
    item = {"type": "contextCompaction", "id": "k"}
    live.whole(item)
    assert [update["status"] for update in live.sent] == ["in_progress", "completed"]
    assert live.view.snapshot() == replayed(item)


def test_user_messages_of_others_are_shown_once() -> None:
    """PROMPT-25: ours are the core's; others get their host's id, or Codex's."""
    live = Live()
    content = [{"type": "text", "text": "hi", "text_elements": []}]
    live.whole({"type": "userMessage", "id": "u1", "clientId": K, "content": content})
    assert live.sent == []
    live.whole({"type": "userMessage", "id": "u2", "clientId": "theirs", "content": content})
    live.whole({"type": "userMessage", "id": "u3", "clientId": None, "content": content})
    assert live.view.user_message_ids() == ["theirs", "u3"]


def test_retries_are_notices() -> None:
    """STOP-6: work goes on. What repeats while the network is away is said once."""
    live = Live()
    away = {"message": "Reconnecting... waiting for network", "additionalDetails": "refused"}
    for _ in range(3):
        live.hear("error", willRetry=True, error=away)
    live.hear("error", willRetry=True, error={"message": "Reconnecting... 2/5"})
    assert [notice["title"] for notice in live.view.notices] == [away["message"], "Reconnecting... 2/5"]
    assert live.hear("error", willRetry=False, error={"message": "boom"}) == []


def test_warnings_are_said_once() -> None:
    """Codex repeats one at every turn."""
    live = Live()
    for _ in range(3):
        live.hear("warning", message="Model metadata not found")
    live.hear("model/rerouted", toModel="other")
    assert [notice["severity"] for notice in live.view.notices] == ["warning", "info"]


def test_usage() -> None:
    """USAGE-1: of the last call; nothing while the size is unknown."""
    live = Live()
    usage = {"last": {"totalTokens": 15}, "total": {"totalTokens": 30}, "modelContextWindow": None}
    assert live.hear("thread/tokenUsage/updated", tokenUsage=usage) == []
    live.hear("thread/tokenUsage/updated", tokenUsage={**usage, "modelContextWindow": 1000})
    assert live.view.usage == {"used": 15, "size": 1000}


def test_plan_and_name() -> None:
    """PLAN-1, PLAN-2, INFO-1."""
    live = Live()
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "inProgress"}, {"step": "c", "status": "?"}]
    live.hear("turn/plan/updated", plan=steps)
    [plan] = live.view.items("plan")
    assert [entry["status"] for entry in plan.fields["plan"]["entries"]] == ["completed", "in_progress", "pending"]
    live.hear("thread/name/updated", threadName="A name")
    assert live.view.info == {"title": "A name"}


@pytest.mark.parametrize("method", ["turn/diff/updated", "something/new", "", "account/rateLimits/updated"])
@pytest.mark.parametrize("params", [{}, {"item": 7}, {"item": {"type": []}}])
def test_unknown_notifications_pass_by(method: str, params: dict[str, Any]) -> None:
    """D11."""
    live = Live()
    assert live.hear(method, **params) == []


@pytest.mark.parametrize(
    "method",
    [
        "item/started", "item/completed", "item/agentMessage/delta", "item/reasoning/summaryTextDelta",
        "item/reasoning/textDelta", "item/commandExecution/outputDelta", "item/mcpToolCall/progress",
        "item/fileChange/patchUpdated", "error", "warning", "model/rerouted", "turn/plan/updated",
        "thread/tokenUsage/updated", "thread/name/updated",
    ],
)  # fmt: skip
@pytest.mark.parametrize("junk", [None, 7, [7], {"x": 1}])
def test_fields_of_any_shape_break_nothing(method: str, junk: Any) -> None:
    """D11."""
    names = ("item", "itemId", "delta", "changes", "error", "message", "plan", "tokenUsage", "summaryIndex", "turnId")
    Live().hear(method, **dict.fromkeys(names, junk))


def test_the_samples_are_updates() -> None:
    """They are made at the start, so that no turn waits for their models."""
    assert all(dump(update)["sessionUpdate"] for update in samples())
