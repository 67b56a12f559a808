"""The fold of session updates: upsert, append and patch semantics of `adapters.client.view`."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from adapters.client.view import MalformedUpdateError, SessionView, join_text, patch_meta


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def update(variant: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": variant, **fields}


@pytest.mark.parametrize(
    ("kind", "whole", "chunk"),
    [
        ("user", "user_message", "user_message_chunk"),
        ("agent", "agent_message", "agent_message_chunk"),
        ("thought", "agent_thought", "agent_thought_chunk"),
    ],
)
def test_an_upsert_replaces_what_chunks_accumulated_and_later_chunks_append(kind: str, whole: str, chunk: str) -> None:
    """UPD-2, UPD-4."""
    view = SessionView.of(
        [
            update(chunk, messageId="m", content=text("lost")),
            update(whole, messageId="m", content=[text("a")]),
            update(chunk, messageId="m", content=text("b")),
        ]
    )
    assert view.snapshot() == [{"is": kind, "id": "m", "content": [text("ab")]}]


def test_messages_of_one_id_in_different_spaces_are_different() -> None:
    """PROMPT-6."""
    view = SessionView.of(
        [
            update("user_message", messageId="1", content=[text("u")]),
            update("agent_message_chunk", messageId="1", content=text("a")),
            update("agent_thought_chunk", messageId="1", content=text("t")),
        ]
    )
    assert [(item.kind, item.text) for item in view.items()] == [("user", "u"), ("agent", "a"), ("thought", "t")]


def test_interleaved_chunks_go_to_their_own_messages() -> None:
    """UPD-3."""
    chunks = [("a", "1"), ("b", "x"), ("a", "2"), ("b", "y")]
    view = SessionView.of(update("agent_message_chunk", messageId=i, content=text(t)) for i, t in chunks)
    assert [(item.item_id, item.text) for item in view.items("agent")] == [("a", "12"), ("b", "xy")]


@pytest.mark.parametrize("content", [[], None])
def test_empty_or_null_content_retracts_a_message(content: object) -> None:
    """REPLAY-4: `[]` and null clear; the message keeps its place but shows nothing."""
    view = SessionView.of(
        [
            update("user_message", messageId="m", content=[text("gone")]),
            update("user_message", messageId="m", content=content),
        ]
    )
    assert view.snapshot() == []
    assert view.user_message_ids() == []
    view.apply(update("user_message_chunk", messageId="m", content=text("back")))
    assert view.user_message_ids() == ["m"]


def test_absent_fields_stay_null_fields_reset_values_replace() -> None:
    """EXT-7, TOOL-3, TOOL-4."""
    view = SessionView.of([update("tool_call_update", toolCallId="t", title="run", locations=[{"path": "/a"}])])
    call = view.item("tool_call", "t")
    assert call is not None
    assert call.fields == {"kind": "other", "status": "pending", "title": "run", "locations": [{"path": "/a"}]}
    view.apply(update("tool_call_update", toolCallId="t", kind="execute", status="in_progress", rawInput={"x": None}))
    view.apply(update("tool_call_update", toolCallId="t", kind=None, title=None, locations=None))
    assert call.fields == {
        "kind": "other",
        "status": "in_progress",
        "title": None,
        "locations": [],
        "rawInput": {"x": None},
    }
    item = {"type": "content", "content": text("out")}
    view.apply(update("tool_call_content_chunk", toolCallId="t", content=item))
    view.apply(update("tool_call_content_chunk", toolCallId="t", content=item))
    assert call.fields["content"] == [item, item]
    view.apply(update("tool_call_update", toolCallId="t", content=[item]))
    assert call.fields["content"] == [item]


def test_a_chunk_does_not_change_the_senders_list() -> None:
    """UPD-4: what was received stays as it was received (the record shares these values)."""
    sent = update("agent_message", messageId="m", content=[text("a")])
    SessionView.of([sent, update("agent_message_chunk", messageId="m", content=text("b"))])
    assert sent["content"] == [text("a")]


def test_meta_is_a_patch_on_upserts_and_scoped_on_chunks() -> None:
    """EXT-6: omitted, null, null key, value, {}."""
    view = SessionView()
    view.apply(update("agent_message", messageId="m", content=[text("x")], _meta={"a": {"deep": 1}, "b": 2}))
    view.apply(update("agent_message_chunk", messageId="m", content=text("y"), _meta={"c": 3}))
    view.apply(update("agent_message", messageId="m", _meta={"a": {"other": 1}, "b": None}))
    view.apply(update("agent_message", messageId="m", _meta={}))
    item = view.item("agent", "m")
    assert item is not None
    assert item.meta == {"a": {"other": 1}}
    assert item.text == "xy"
    view.apply(update("agent_message", messageId="m", _meta=None))
    assert item.meta == {}


def test_a_malformed_meta_counts_as_omitted() -> None:
    """EXT-6; "any `_meta`" is salvaged."""
    meta = {"a": 1}
    patch_meta(meta, "nonsense")
    assert meta == {"a": 1}


def test_state_snapshots_replace_the_previous_one() -> None:
    """STATE-8, STOP-3: stopReason and error belong to the idle update that carries them."""
    view = SessionView()
    assert view.state == "idle"
    view.apply(update("state_update", state="running", background=[]))
    assert (view.state, view.background, view.stop_reason) == ("running", [], None)
    error = {"code": -32000, "message": "login"}
    view.apply(update("state_update", state="idle", stopReason="error", error=error))
    assert (view.state, view.background, view.stop_reason, view.error) == ("idle", None, "error", error)
    view.apply(update("state_update", state="idle", stopReason="end_turn", error=error))
    assert view.error is None
    view.apply(update("state_update", state="running", stopReason="end_turn"))
    assert view.stop_reason is None


def test_terminal_output_is_bytes_that_chunks_append_to() -> None:
    """TERM-2, TERM-3: a chunk may split a character."""
    snow = "\u2603".encode()
    view = SessionView()
    for part in (snow[:1], snow[1:]):
        view.apply(update("terminal_output_chunk", terminalId="t", data=base64.b64encode(part).decode()))
    view.apply(update("terminal_update", terminalId="t", exitStatus={}))
    assert view.snapshot() == [{"is": "terminal", "id": "t", "output": "\u2603", "exitStatus": {}}]
    view.apply(update("terminal_update", terminalId="t", output={"data": ""}))
    item = view.item("terminal", "t")
    assert item is not None
    assert item.fields["output"] == b""


def test_plans_are_replaced_whole_by_their_id() -> None:
    """PLAN-1, PLAN-2."""
    view = SessionView()
    for plan_id, entry in (("p", "one"), ("q", "two"), ("p", "three")):
        view.apply(update("plan_update", plan={"type": "items", "planId": plan_id, "entries": [{"content": entry}]}))
    plans = [(item.item_id, item.fields["plan"]["entries"]) for item in view.items("plan")]
    assert plans == [("p", [{"content": "three"}]), ("q", [{"content": "two"}])]


def test_a_compaction_starts_in_progress_with_its_first_chunk() -> None:
    """COMP-1."""
    view = SessionView.of([update("compaction_summary_chunk", compactionId="c", content=text("so far"))])
    item = view.item("compaction", "c")
    assert item is not None
    assert item.fields == {"status": "in_progress", "summary": [text("so far")]}
    view.apply(update("compaction_update", compactionId="c", status="completed"))
    assert item.fields["status"] == "completed"


def test_usage_replaces_sizes_and_patches_cost() -> None:
    """USAGE-1, USAGE-2."""
    view = SessionView()
    view.apply(update("usage_update", used=1, size=10, cost={"amount": 1, "currency": "USD"}))
    view.apply(update("usage_update", used=2, size=10))
    assert view.usage == {"used": 2, "size": 10, "cost": {"amount": 1, "currency": "USD"}}
    view.apply(update("usage_update", used=2, size=10, cost=None))
    assert view.usage["cost"] is None


def test_lists_info_and_notices() -> None:
    """CMD-2, CFG-7, INFO-1, NOTE-2."""
    view = SessionView()
    view.apply(update("available_commands_update", availableCommands=[{"name": "a"}]))
    view.apply(update("available_commands_update", availableCommands=[]))
    view.apply(update("config_option_update", configOptions=[{"configId": "m"}]))
    view.apply(update("session_info_update", title="t", _meta={"k": 1}))
    view.apply(update("session_info_update", updatedAt=None))
    for _ in range(2):
        view.apply(update("notice", severity="info", title="n"))
    assert view.commands == []
    assert view.config_options == [{"configId": "m"}]
    assert view.info == {"title": "t", "updatedAt": None}
    assert view.info_meta == {"k": 1}
    assert len(view.notices) == 2
    assert view.snapshot() == []


def test_unknown_variants_are_passed_over() -> None:
    """EXT-2: custom, unstable and future variants change nothing."""
    view = SessionView.of([update("_mine", messageId="m"), update("plan_removed", planId="p"), update("new_thing")])
    assert view.snapshot() == []


@pytest.mark.parametrize(
    "bad",
    [
        {},
        update("user_message"),
        update("user_message", messageId=None),
        update("user_message", messageId="m", content="text"),
        update("user_message_chunk", messageId="m", content=[text("x")]),
        update("tool_call_update", toolCallId=7),
        update("terminal_output_chunk", terminalId="t", data="%"),
        update("terminal_update", terminalId="t", output="raw"),
        update("plan_update", plan={"type": "items"}),
        update("usage_update", used=True, size=1),
        update("state_update"),
        update("notice", severity="info"),
        update("available_commands_update", availableCommands=None),
    ],
)
def test_a_malformed_known_variant_is_refused_and_changes_nothing(bad: dict[str, Any]) -> None:
    """EXT-3, UPD-1, UPD-7."""
    view = SessionView.of([update("agent_message", messageId="a", content=[text("kept")])])
    before = view.snapshot()
    with pytest.raises(MalformedUpdateError):
        view.apply(bad)
    assert view.snapshot() == before
    assert view.items("user") == view.items("terminal") == []


def test_a_permission_requests_tool_call_is_folded_like_an_update() -> None:
    """PERM-1."""
    view = SessionView()
    view.apply_permission({"subject": {"type": "tool_call", "toolCall": {"toolCallId": "t", "title": "rm"}}})
    view.apply_permission({"subject": {"type": "command", "command": "ls"}})
    view.apply_permission({})
    assert [(item.item_id, item.fields["title"]) for item in view.items("tool_call")] == [("t", "rm")]


def test_joining_keeps_annotated_and_other_blocks_apart() -> None:
    """REPLAY-2: chunks and whole messages look alike; nothing else is merged."""
    link = {"type": "resource_link", "name": "n", "uri": "file:///n"}
    noted = {**text("c"), "annotations": {"priority": 1}}
    blocks = [text("a"), text("b"), noted, text("d"), link, text(""), text("e")]
    assert join_text(blocks) == [text("ab"), noted, text("d"), link, text("e")]
    assert blocks[0] == text("a")


def test_live_chunks_and_a_replayed_whole_message_look_equal_and_a_second_replay_changes_nothing() -> None:
    """REPLAY-2, REPLAY-4, RESUME-5."""
    replayed = [
        update("user_message", messageId="u", content=[text("hello")], _meta=None),
        update("agent_message", messageId="a", content=[], _meta=None),
        update("agent_message_chunk", messageId="a", content=text("hi there")),
    ]
    live = SessionView.of(
        [
            update("user_message", messageId="u", content=[text("hello")]),
            update("agent_message_chunk", messageId="a", content=text("hi ")),
            update("agent_message_chunk", messageId="a", content=text("there")),
        ]
    )
    assert live.snapshot() == SessionView.of(replayed).snapshot()
    for again in replayed:
        live.apply(again)
    assert live.snapshot() == SessionView.of(replayed).snapshot()
