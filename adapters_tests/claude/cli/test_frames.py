"""Frames as Claude Code 2.1.332 writes them, trimmed, and frames as nobody should write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude.cli import frames
from adapters.claude.cli.frames import (
    AskedOther,
    AskedPermission,
    AskWithdrawn,
    Blocked,
    ControlAnswer,
    Echo,
    Lifecycle,
    LimitReached,
    Spoke,
    Stored,
    Strayed,
    TurnBegan,
    TurnEnded,
    control_answer_of,
    is_known,
    kind_of,
    signal_of,
)

CASES: list[tuple[dict[str, Any], Any]] = [
    ({"type": "command_lifecycle", "command_uuid": "U", "state": "started"}, Lifecycle("U", "started")),
    (
        {
            "type": "system",
            "subtype": "init",
            "user_message_uuids": ["U"],
            "mcp_servers": [{"name": "m", "status": "failed", "source": "dynamic"}],
        },
        TurnBegan(frozenset("U"), (("m", "failed"),)),
    ),
    ({"type": "system", "subtype": "init"}, TurnBegan()),
    ({"type": "system", "subtype": "status", "status": "requesting"}, None),
    (
        {
            "type": "system",
            "subtype": "informational",
            "prompt_submit_outcome": {"kind": "blocked_by_hook", "prompt_kept": False, "reason": "no way"},
        },
        Blocked("no way"),
    ),
    (
        {
            "type": "system",
            "subtype": "informational",
            "prompt_submit_outcome": {"kind": "blocked_by_hook", "prompt_kept": True},
        },
        None,
    ),
    ({"type": "user", "uuid": "U", "isReplay": True, "message": {"content": "hi"}}, Echo("U")),
    ({"type": "user", "uuid": "X", "message": {"content": [{"type": "tool_result"}]}}, None),
    ({"type": "assistant", "message": {"content": []}}, Spoke()),
    ({"type": "assistant", "error": "rate_limit", "message": {}}, Spoke("rate_limit")),
    ({"type": "assistant", "parent_tool_use_id": "toolu_1", "message": {}}, None),
    (
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1700000000}},
        LimitReached(1700000000.0),
    ),
    (
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 1700000000}},
        LimitReached(None),
    ),
    (
        {
            "type": "result",
            "subtype": "success",
            "is_error": True,
            "terminal_reason": "api_error",
            "api_error_status": 401,
            "result": "Failed to authenticate.",
            "user_message_uuid": "U",
            "user_message_uuids": ["U", "V"],
        },
        TurnEnded(frozenset("UV"), "success", True, "api_error", "", "Failed to authenticate.", 401),
    ),
    (
        {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["a", "b"]},
        TurnEnded(frozenset(), "error_during_execution", True, text="a\nb"),
    ),
    (
        {
            "type": "transcript_mirror",
            "filePath": "/c/projects/-w/S.jsonl",
            "entries": [
                {"type": "queue-operation", "operation": "remove", "commandUuid": "W"},
                {"type": "user", "uuid": "U", "mergedSendUuids": ["M"], "message": {"content": "hi"}},
                {"type": "attachment", "uuid": "X", "attachment": {"type": "queued_command", "source_uuid": "F"}},
                {"type": "system", "uuid": "Y", "subtype": "local_command", "submitUuid": "L"},
                None,
            ],
        },
        Stored("/c/projects/-w/S.jsonl", "S", frozenset("UMFL"), frozenset("UXY")),
    ),
    (
        {"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}},
        AskedPermission("r", {"subtype": "can_use_tool", "tool_name": "Bash"}),
    ),
    (
        {"type": "control_request", "request_id": "r", "request": {"subtype": "hook_callback"}},
        AskedOther("r", "hook_callback"),
    ),
    ({"type": "control_cancel_request", "request_id": "r"}, AskWithdrawn("r")),
    ({"type": "conversation_reset", "trigger": "clear", "new_conversation_id": "x"}, Strayed()),
    ({"type": "something_new", "uuid": "U"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("frame", "signal"), CASES, ids=[str(kind_of(frame)) for frame, _ in CASES])
def test_a_frame_says(frame: dict[str, Any], signal: Any) -> None:
    assert signal_of(frame) == signal


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ({"subtype": "success", "request_id": "r", "response": {"a": 1}}, ControlAnswer("r", {"a": 1}, None)),
        ({"subtype": "error", "request_id": "r", "error": "bad"}, ControlAnswer("r", {}, "bad")),
        ({"subtype": "error", "request_id": "r", "error_code": "invalid_mode"}, ControlAnswer("r", {}, "invalid_mode")),
        ("nonsense", ControlAnswer("", {}, "refused")),
    ],
)
def test_an_answer_to_a_control_request(response: Any, answer: ControlAnswer) -> None:
    assert control_answer_of({"type": "control_response", "response": response}) == answer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(
    {name for frame, _ in CASES for name in frame}
    | {"rate_limit_info", "prompt_submit_outcome", "entries", "request", "user_message_uuids"}
)


@given(
    kind=st.sampled_from(sorted(frames._READERS)),
    subtype=st.sampled_from(["init", "informational", "success", "can_use_tool"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON),
)
def test_malformed_frames_are_passed_over(kind: str, subtype: str, fields: dict[str, Any]) -> None:
    """D11: whatever the fields hold, reading a frame never fails."""
    signal_of({"subtype": subtype, **fields, "type": kind})
    control_answer_of({**fields, "type": "control_response"})


def test_control_requests_have_ids_of_their_own() -> None:
    first, frame = frames.control_request("interrupt", cancel_queued=True)
    second, _ = frames.control_request("interrupt")
    assert first != second
    assert frame == {
        "type": "control_request",
        "request_id": first,
        "request": {"subtype": "interrupt", "cancel_queued": True},
    }


def test_a_prompt_carries_our_id_and_is_literal_only_when_told() -> None:
    content = [{"type": "text", "text": "hi"}]
    frame = frames.user_frame("U", content, literal=False)
    assert frame["uuid"] == "U"
    assert frame["message"] == {"role": "user", "content": content}
    assert "client_composed" not in frame
    assert frames.user_frame("U", content, literal=True)["client_composed"] is True


def test_only_unknown_kinds_are_worth_a_log_line() -> None:
    """D11: passed over, told once."""
    assert [
        kind for kind in ("stream_event", "result", "keep_alive", "something_new", "") if is_known({"type": kind})
    ] == [
        "stream_event",
        "result",
        "keep_alive",
    ]
