"""Every update model sends what the published schema allows, whichever of its fields are given."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp import schema, updates
from adapters.acp.framing import decode, encode
from adapters.acp.schema import dump, parse_update
from adapters_tests.schema import validate_agent_message

TEXT = schema.TextBlock(
    text="\U0001f600 \ud800 \u2028", annotations=schema.Annotations(audience=["user"], priority=0.5)
)
BLOCKS = [
    TEXT,
    schema.ImageBlock(data="iVBORw0KGgo=", mime_type="image/png", uri="file:///a.png"),
    schema.AudioBlock(data="AAAA", mime_type="audio/wav"),
    schema.ResourceLinkBlock(
        name="n", uri="file:///a", title="t", size=3, icons=[schema.Icon(src="https://x/i", theme="dark")]
    ),
    schema.ResourceBlock(resource=schema.TextResource(uri="file:///a", text="x", mime_type="text/plain")),
    schema.ResourceBlock(resource=schema.BlobResource(uri="file:///a", blob="AAAA")),
]
CHANGES: list[schema.DiffChange] = [
    schema.AddChange(path="/a", file_type="text"),
    schema.DeleteChange(path="/a", mime_type="text/plain"),
    schema.ModifyChange(path="/a"),
    schema.MoveChange(path="/a", old_path="/b"),
    schema.CopyChange(path="/a", old_path="/b"),
]
ITEMS: list[schema.ToolCallContent] = [
    schema.ContentItem(content=TEXT),
    schema.DiffItem(changes=CHANGES, patch=schema.DiffPatch(format="git_patch", text="diff --git")),
    schema.TerminalItem(terminal_id="t"),
]
CANCEL = schema.CancelCapability(cancel=schema.Marker())
CONFIG: list[schema.ConfigOption] = [
    schema.ConfigSelect(
        config_id="m",
        name="Mode",
        category="mode",
        current_value="a",
        options=[schema.ConfigChoice(value="a", name="A", description="d")],
    ),
    schema.ConfigSelect(
        config_id="n",
        name="Model",
        current_value="a",
        options=[schema.ConfigGroup(group_id="g", name="G", options=[schema.ConfigChoice(value="a", name="A")])],
    ),
    schema.ConfigBoolean(config_id="f", name="Fast", current_value=False),
]
COMMANDS = [
    schema.AvailableCommand(name="status", description="d"),
    schema.AvailableCommand(name="review", description="d", input=schema.CommandInput(hint="what")),
]
BACKGROUND: list[schema.BackgroundWork] = [
    schema.BackgroundTerminal(terminal_id="t"),
    schema.BackgroundToolCall(tool_call_id="c"),
]

MESSAGE = ({"message_id": "m"}, {"content": BLOCKS, "meta": {"a": None}})
CHUNK = ({"message_id": "m", "content": TEXT}, {"meta": {}})

FULL: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, Any]]] = {
    schema.UserMessage: MESSAGE,
    schema.AgentMessage: MESSAGE,
    schema.AgentThought: MESSAGE,
    schema.UserMessageChunk: CHUNK,
    schema.AgentMessageChunk: CHUNK,
    schema.AgentThoughtChunk: CHUNK,
    schema.StateUpdate: (
        {"state": "idle"},
        {
            "stop_reason": "error",
            "error": schema.ErrorInfo(code=-32000, message="m", data={"x": 1}),
            "background": BACKGROUND,
        },
    ),
    schema.ToolCallUpdate: (
        {"tool_call_id": "t"},
        {
            "name": "Bash",
            "title": "t",
            "kind": "switch_mode",
            "status": "paused",
            "content": ITEMS,
            "locations": [schema.ToolCallLocation(path="/a", line=1), schema.ToolCallLocation(path="/b")],
            "raw_input": {"x": [1]},
            "raw_output": "text",
            "capabilities": CANCEL,
            "meta": {"x": 1},
        },
    ),
    schema.ToolCallContentChunk: ({"tool_call_id": "t", "content": ITEMS[1]}, {}),
    schema.TerminalUpdate: (
        {"terminal_id": "t"},
        {
            "command": "ls",
            "cwd": "/a",
            "output": schema.TerminalOutput(data="AAAA"),
            "exit_status": schema.TerminalExitStatus(exit_code=-9, signal="KILL"),
            "size": schema.TerminalSize(cols=80, rows=24),
            "capabilities": CANCEL,
        },
    ),
    schema.TerminalOutputChunk: ({"terminal_id": "t", "data": "AAAA"}, {}),
    schema.PlanUpdate: (
        {
            "plan": schema.PlanItems(
                plan_id="p",
                entries=[schema.PlanEntry(content="c", priority="high", status="in_progress")],
            )
        },
        {},
    ),
    schema.AvailableCommandsUpdate: ({"available_commands": COMMANDS}, {}),
    schema.ConfigOptionUpdate: ({"config_options": CONFIG}, {}),
    schema.SessionInfoUpdate: ({}, {"title": "t", "updated_at": "2026-11-20T10:05:00Z", "meta": {"x": None}}),
    schema.UsageUpdate: ({"used": 1, "size": 2}, {"cost": schema.Cost(amount=0.5, currency="USD")}),
    schema.Notice: ({"severity": "warning", "title": "t"}, {"description": "d"}),
    schema.CompactionUpdate: ({"compaction_id": "c", "status": "completed"}, {"summary": [TEXT], "error": "e"}),
    schema.CompactionSummaryChunk: ({"compaction_id": "c", "content": TEXT}, {}),
}
"""Model -> its required and its optional fields."""


def sent(update: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": dump(update)}}
    return decode(encode(message))


def test_every_variant_is_tried() -> None:
    variants = {
        value
        for value in vars(updates).values()
        if isinstance(value, type) and "session_update" in getattr(value, "model_fields", {})
    }
    assert variants == {*FULL, schema.OtherUpdate}


@pytest.mark.parametrize("model", FULL)
@pytest.mark.parametrize("given_fields", ["required", "all", "null"])
def test_an_update_is_valid_and_reads_back(model: Callable[..., Any], given_fields: str) -> None:
    """UPD-7, EXT-1, EXT-7."""
    required, optional = FULL[model]
    extra = {"required": {}, "all": optional, "null": dict.fromkeys(optional)}[given_fields]
    update = model(**required, **extra)
    message = sent(update)
    validate_agent_message(message)
    assert len(message["params"]["update"]) == 1 + len(required) + len(update.model_fields_set & optional.keys())
    copy = parse_update(message["params"]["update"])
    assert (copy, copy.model_fields_set) == (update, update.model_fields_set)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_choice_of_fields_is_valid_and_reads_back(data: st.DataObject) -> None:
    """UPD-7, EXT-7."""
    model = data.draw(st.sampled_from(list(FULL)))
    required, optional = FULL[model]
    chosen = {
        name: data.draw(st.sampled_from([None, value])) for name, value in optional.items() if data.draw(st.booleans())
    }
    update = model(**required, **chosen)
    message = sent(update)
    validate_agent_message(message)
    copy = parse_update(message["params"]["update"])
    assert (copy, copy.model_fields_set) == (update, update.model_fields_set)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_valid(block: Any) -> None:
    """CONT-2."""
    validate_agent_message(sent(schema.UserMessageChunk(message_id="m", content=block)))
    assert schema.parse_content(dump(block)) == block


@pytest.mark.parametrize(
    "subject",
    [
        None,
        schema.CommandSubject(command="ls", cwd="/a", tool_call_id="t"),
        schema.ToolCallSubject(tool_call=schema.ToolCallUpdate(tool_call_id="t", content=ITEMS, kind="edit")),
    ],
)
def test_a_permission_request_is_valid(subject: Any) -> None:
    """PERM-1."""
    request = schema.RequestPermission(
        session_id="s",
        title="Run?",
        description="d",
        subject=subject,
        options=[schema.PermissionOption(option_id="y", name="Yes", kind="allow_always")],
    )
    validate_agent_message({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": dump(request)})
