"""schema.py: reading params, results and updates; what an error says; what a model sends."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.acp import schema
from adapters.acp.errors import AcpError, InvalidParams, InvalidResult, MethodNotFound
from adapters.acp.framing import decode, encode
from adapters.acp.requests import PARAMS
from adapters.acp.results import RESULTS
from adapters.acp.schema import dump, parse_content, parse_params, parse_result, parse_update, selected_option

PRIVATE = "never-shown"
TEXT = {"type": "text", "text": "t"}
STDIO = {"type": "stdio", "name": "n", "command": "/c"}


def prompt(**members: Any) -> Any:
    return parse_params("session/prompt", {"sessionId": "s", "prompt": [TEXT], **members})


def refusal(method: str, params: Any) -> str:
    with pytest.raises(InvalidParams) as raised:
        parse_params(method, params)
    assert raised.value.data is None
    assert PRIVATE not in json.dumps(raised.value.to_wire())
    assert raised.value.__cause__ is None
    return raised.value.message


# --- the key ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [{}, {"idempotencyKey": None}])
def test_omitted_and_null_are_no_key(members: dict[str, Any]) -> None:
    """KEY-2."""
    assert prompt(**members).idempotency_key is None


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "k" * 255,
        "\U0001f600" * 255,
        " ",
        "k ",
        "\u0000",
        "\n",
        "\u200b",
        "\u00e9",
        "e\u0301",
        "Key",
        "key",
        "0b6f7c1e-8d2a-4c57-9a41-5e2f7d90c3cd",
        "\ufeff",
        "\uffff",
    ],
)
def test_a_key_is_taken_untouched(key: str) -> None:
    """KEY-3, KEY-5, E15, E17, E18, E19: code points are counted, nothing is trimmed, folded or normalized."""
    assert prompt(idempotencyKey=key).idempotency_key == key
    line = encode({"sessionId": "s", "prompt": [TEXT], "idempotencyKey": key})
    assert parse_params("session/prompt", decode(line)).idempotency_key == key  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "k" * 256,
        "\U0001f600" * 256,
        0,
        7,
        1.5,
        True,
        False,
        [],
        ["k"],
        {},
        {"key": "k"},
        "\ud800",
        "a\udfffb",
        "\udc00\ud800",
    ],
)
def test_any_other_key_is_invalid(key: Any) -> None:
    """KEY-4, KEY-5, KEY-6, E16: never treated as omitted."""
    message = refusal("session/prompt", {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": key})
    assert "idempotencyKey" in message


def test_other_places_and_spellings_are_no_key() -> None:
    """KEY-7."""
    params = prompt(idempotency_key="k", idempotencykey="k", IdempotencyKey="k", _meta={"idempotencyKey": "k"})
    assert params.idempotency_key is None
    assert params.meta == {"idempotencyKey": "k"}


def test_an_invalid_key_is_found_beside_other_faults() -> None:
    """KEY-8, E41: params are judged before anything else."""
    assert "idempotencyKey" in refusal("session/prompt", {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": 5})
    refusal("session/prompt", {"sessionId": "s", "prompt": [], "idempotencyKey": "k"})


# --- what errors say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("session/prompt", {"prompt": [TEXT]}, "sessionId is required"),
        ("session/prompt", {"sessionId": 5, "prompt": [TEXT]}, "sessionId must be a string"),
        ("session/prompt", {"sessionId": "s", "prompt": []}, "prompt must have at least 1 item"),
        ("session/prompt", {"sessionId": "s", "prompt": PRIVATE}, "prompt must be an array"),
        ("session/prompt", {"sessionId": "s", "prompt": None}, "prompt must be an array"),
        ("session/prompt", {"sessionId": "s", "prompt": [TEXT, {"type": "text"}]}, "prompt[1].text is required"),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [{"type": "text", "text": 5}]},
            "prompt[0].text must be a string",
        ),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [{"type": PRIVATE}]},
            "prompt[0].type must be text, image, audio, resource_link or resource",
        ),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [PRIVATE]},
            "prompt[0].type must be text, image, audio, resource_link or resource",
        ),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [{"type": "resource", "resource": {"uri": "u"}}]},
            "prompt[0].resource.text is required",
        ),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": PRIVATE * 100},
            "idempotencyKey must have at most 255 characters",
        ),
        (
            "session/prompt",
            {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": "\ud800"},
            "idempotencyKey must hold whole Unicode characters",
        ),
        ("session/new", {"cwd": PRIVATE}, "cwd must be an absolute path"),
        ("session/new", {"cwd": "/\ud800"}, "cwd has characters that file names cannot have here (utf-8)"),
        (
            "session/new",
            {"cwd": "/", "additionalDirectories": ["/a", PRIVATE]},
            "additionalDirectories[1] must be an absolute path",
        ),
        (
            "session/new",
            {"cwd": "/", "mcpServers": [{**STDIO, "args": [PRIVATE, 5]}]},
            "mcpServers[0].args[1] must be a string",
        ),
        (
            "session/new",
            {"cwd": "/", "mcpServers": [{**STDIO, "env": [{"name": PRIVATE}]}]},
            "mcpServers[0].env[0].value is required",
        ),
        (
            "session/new",
            {"cwd": "/", "mcpServers": [{"type": "sse", "url": PRIVATE}]},
            "mcpServers[0].type must be stdio or http",
        ),
        ("session/new", [PRIVATE], "params must be an object"),
        ("session/new", PRIVATE, "params must be an object"),
        ("session/list", {"cursor": 5}, "cursor must be a string"),
        ("session/resume", {"sessionId": "s", "cwd": "/", "replayFrom": "start"}, "replayFrom.type must be start"),
        (
            "session/resume",
            {"sessionId": "s", "cwd": "/", "replayFrom": {"type": PRIVATE}},
            "replayFrom.type must be start",
        ),
        (
            "session/set_config_option",
            {"sessionId": "s", "configId": "c", "type": "boolean", "value": PRIVATE},
            "value must be true or false where type is boolean",
        ),
        (
            "session/set_config_option",
            {"sessionId": "s", "configId": "c", "type": PRIVATE, "value": PRIVATE},
            "type must be 'id' or 'boolean'",
        ),
    ],
)
def test_an_error_names_the_field_and_what_is_wanted(method: str, params: Any, message: str) -> None:
    """RPC-15, KEY-30: and never the value."""
    assert refusal(method, params) == f"Invalid params: {message}."


def said(reader: Any, method: str, value: Any) -> str:
    """The message of the error, empty where there is none."""
    try:
        reader(method, value)
    except AcpError as error:
        return error.message
    return ""


JUNK = st.recursive(
    st.sampled_from([PRIVATE, None, True, 5, 1.5, "/" + PRIVATE, "text", "start", "stdio"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "cwd", "sessionId", "prompt", "mcpServers", "env", "value", "name"]), inner
        )
    ),
)


@given(st.sampled_from(sorted(PARAMS)), JUNK)
def test_no_junk_makes_a_reader_fail_or_talk(method: str, params: Any) -> None:
    """RPC-14, RPC-15: params are read or refused, and no value gets into the message."""
    assert PRIVATE not in said(parse_params, method, params)


@given(st.sampled_from(sorted(RESULTS)), JUNK)
def test_no_junk_makes_a_result_reader_fail(method: str, result: Any) -> None:
    """RPC-7."""
    assert PRIVATE not in said(parse_result, method, result)


def test_unknown_methods_have_no_model() -> None:
    """RPC-11."""
    for reader in (parse_params, parse_result):
        with pytest.raises(MethodNotFound):
            reader("session/unknown", {})


# --- params ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [None, {}])
def test_params_may_be_left_out(params: Any) -> None:
    """RPC-9."""
    assert parse_params("session/list", params) == schema.ListSessions()
    assert parse_params("auth/logout", params) == schema.Logout()


@pytest.mark.parametrize("path", ["", "a", "./a", "~", "file:///a", "/a\0b", "/\ud800", None, 5])
def test_a_working_folder_is_an_absolute_path(path: Any) -> None:
    """SETUP-1, LIST-2: that the operating system can be asked about."""
    assert "cwd" in refusal("session/new", {"cwd": path})
    if path is not None:
        assert "cwd" in refusal("session/list", {"cwd": path})


def test_paths_that_are_no_utf8_pass() -> None:
    """Folders of other encodings, as Python spells them."""
    assert parse_params("session/new", {"cwd": "/a\udcff b"}).cwd == "/a\udcff b"  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [None, "absent", []])
def test_null_lists_are_empty_lists(value: Any) -> None:
    """SETUP-3, SETUP-4, SETUP-7."""
    names = ("additionalDirectories", "mcpServers")
    params: Any = parse_params(
        "session/new", {"cwd": "/", **({} if value == "absent" else dict.fromkeys(names, value))}
    )
    assert (params.additional_directories, params.mcp_servers) == ([], [])
    server = {**STDIO, **({} if value == "absent" else {"args": value, "env": value})}
    params = parse_params("session/new", {"cwd": "/", "mcpServers": [server]})
    assert (params.mcp_servers[0].args, params.mcp_servers[0].env) == ([], [])


@pytest.mark.parametrize(
    "server",
    [
        None,
        5,
        {},
        {"name": "n", "command": "/c"},
        {"type": "sse", "name": "n", "url": "u"},
        {"type": "_x", "name": "n"},
        {"type": "acp", "name": "n"},
        {**STDIO, "command": "npx"},
        {**STDIO, "name": None},
        {**STDIO, "args": "a"},
        {**STDIO, "env": {"A": "b"}},
        {"type": "http", "name": "n"},
        {"type": "http", "name": "n", "url": "u", "headers": [{"name": "n", "value": 5}]},
    ],
)
def test_one_malformed_server_refuses_the_request(server: Any) -> None:
    """SETUP-3, SETUP-4: none is skipped."""
    refusal("session/new", {"cwd": "/", "mcpServers": [STDIO, server]})


@pytest.mark.parametrize("cursor", ["", "p2"])
def test_any_string_is_a_list_cursor(cursor: str) -> None:
    """LIST-3."""
    assert parse_params("session/list", {"cursor": cursor}) == schema.ListSessions(cursor=cursor)


@pytest.mark.parametrize(
    "replay_from", ["start", 5, True, [], {}, {"type": None}, {"type": "message", "messageId": "m"}, {"type": "_x"}]
)
def test_other_replay_cursors_are_refused(replay_from: Any) -> None:
    """RESUME-3, MAL-1: never ignored."""
    refusal("session/resume", {"sessionId": "s", "cwd": "/", "replayFrom": replay_from})


@pytest.mark.parametrize("members", [{}, {"replayFrom": None}])
def test_no_replay_unless_asked(members: Any) -> None:
    """RESUME-3."""
    params: Any = parse_params("session/resume", {"sessionId": "s", "cwd": "/", **members})
    assert params.replay_from is None
    params = parse_params("session/resume", {"sessionId": "s", "cwd": "/", "replayFrom": {"type": "start", "more": 1}})
    assert params.replay_from is not None


@pytest.mark.parametrize(("kind", "value", "valid"), [
    ("id", "v", True), ("id", True, False), ("id", None, False), ("id", 5, False),
    ("boolean", True, True), ("boolean", False, True), ("boolean", "true", False), ("boolean", 1, False),
    ("boolean", None, False),
    ("_x", "v", False), (None, "v", False),
])  # fmt: skip
def test_an_option_value_is_of_its_type(kind: Any, value: Any, valid: bool) -> None:
    """CFG-4, CFG-5."""
    params = {"sessionId": "s", "configId": "c", "type": kind, "value": value}
    if valid:
        assert parse_params("session/set_config_option", params).value is value  # type: ignore[attr-defined]
    else:
        refusal("session/set_config_option", params)


@pytest.mark.parametrize("block", [
    {"type": "_custom", "x": 1}, {"type": "video"}, {"type": 5}, {}, None, "text", {"text": "t"},
    {"type": "image", "data": "x"}, {"type": "resource_link", "name": "n"}, {"type": "resource", "resource": {"text": "t"}},
    {"type": "resource", "resource": {"uri": "u", "blob": 5}}, {"type": "resource"}, {"type": "text", "text": None},
])  # fmt: skip
def test_a_block_that_is_unknown_or_malformed_refuses_the_prompt(block: Any) -> None:
    """PROMPT-13: blocks are never skipped."""
    refusal("session/prompt", {"sessionId": "s", "prompt": [TEXT, block]})


def test_hints_of_a_block_are_salvaged() -> None:
    """CONT-1: the block itself is kept."""
    junk = {
        "annotations": 5,
        "title": 5,
        "size": -1,
        "icons": [5, {"src": "u"}],
        "mimeType": [],
        "description": {},
        "_meta": 5,
    }
    params = prompt(prompt=[{"type": "resource_link", "name": "n", "uri": "u", **junk}])
    assert dump(params.prompt[0]) == {"type": "resource_link", "name": "n", "uri": "u", "icons": [{"src": "u"}]}


def test_free_text_may_hold_lone_surrogates() -> None:
    """JSON can say them, and no text of a user is lost."""
    params = prompt(sessionId="s\ud800", prompt=[{"type": "text", "text": "\udfff"}], _meta={"\ud800": ["\udc00"]})
    assert (params.session_id, params.prompt[0].text, params.meta) == ("s\ud800", "\udfff", {"\ud800": ["\udc00"]})
    assert decode(encode(dump(params))) == dump(params)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (5, 5),
        (5.0, 5),
        (2**60, 2**60),
        (2**70, 2**70),
        (5.5, None),
        (True, None),
        ("5", None),
        (-1, None),
        (float("inf"), None),
    ],
)
def test_whole_numbers_are_integers(value: Any, read: int | None) -> None:
    """MAL-3."""
    (block,) = prompt(prompt=[{"type": "resource_link", "name": "n", "uri": "u", "size": value}]).prompt
    assert block.size == read
    assert type(block.size) is type(read)


# --- results -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [
    None, 5, "selected", [], {}, {"outcome": None}, {"outcome": "selected"}, {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "selected", "optionId": None}}, {"outcome": {"outcome": "selected", "optionId": 5}},
    {"outcome": {"outcome": "selected", "optionId": "other"}}, {"outcome": {"outcome": "cancelled", "optionId": "y"}},
    {"outcome": {"outcome": "_deferred", "optionId": "y"}}, {"outcome": {"outcome": 5, "optionId": "y"}},
    {"outcome": {"optionId": "y"}}, {"outcome": [{"outcome": "selected", "optionId": "y"}]},
    {"outcome": {"outcome": "selected", "option_id": "y"}}, InvalidParams("No."),
])  # fmt: skip
def test_everything_but_a_well_formed_choice_is_no_approval(result: Any) -> None:
    """PERM-2, PERM-3, MAL-1."""
    assert selected_option(result, ["y"]) is None


def test_a_well_formed_choice_is_found() -> None:
    assert selected_option({"outcome": {"outcome": "selected", "optionId": "y", "more": 1}, "_meta": 5}, {"y"}) == "y"


@pytest.mark.parametrize("result", [{}, {"messageId": None}, {"messageId": 12}, {"stopReason": "end_turn"}, None, []])
def test_a_prompt_result_has_a_message_id(result: Any) -> None:
    """PROMPT-3."""
    with pytest.raises(InvalidResult):
        parse_result("session/prompt", result)


def test_a_list_keeps_its_good_rows() -> None:
    """LIST-1, LIST-3: `sessions` must be there; bad rows are dropped; the cursor is strict."""
    read: Any = parse_result(
        "session/list", {"sessions": [{"sessionId": "s", "cwd": "/"}, {"cwd": "/"}, 5], "nextCursor": ""}
    )
    assert [row.session_id for row in read.sessions] == ["s"]
    assert read.next_cursor == ""
    assert parse_result("session/list", {"sessions": 5}).sessions == []  # type: ignore[attr-defined]
    for result in ({}, {"sessions": [], "nextCursor": 5}):
        with pytest.raises(InvalidResult):
            parse_result("session/list", result)


@pytest.mark.parametrize("members", [
    {}, {"sessionId": "s", "requestId": 1}, {"sessionId": "s", "mode": "form"},
    {"requestId": 1, "mode": "form", "requestedSchema": 5},
    {"sessionId": "s", "mode": "url"}, {"sessionId": "s", "mode": "url", "url": "u"}, {"requestId": 1.5}, {"requestId": True},
])  # fmt: skip
def test_an_elicitation_has_one_scope_and_what_its_mode_needs(members: dict[str, Any]) -> None:
    """ELIC-1..4: the shape alone; what the client advertised is checked by who asks."""
    refusal("elicitation/create", {"mode": "_x", "message": "m", **members})


@pytest.mark.parametrize("members", [
    {"sessionId": "s"}, {"requestId": 1}, {"requestId": "r"}, {"requestId": 1, "toolCallId": 5},
    {"sessionId": "s", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}},
    {"requestId": 1, "mode": "url", "url": "u", "elicitationId": "e"},
])  # fmt: skip
def test_a_complete_elicitation_is_read(members: dict[str, Any]) -> None:
    """ELIC-1..4: the shape alone; what the client advertised is checked by who asks."""
    params = {"mode": "_x", "message": "m", **members}
    read = dump(parse_params("elicitation/create", params))
    assert read == {name: value for name, value in params.items() if value != 5}


@pytest.mark.parametrize("content", [5, [], "x", {"a": {"b": 1}}, {"a": [5]}])
def test_elicitation_content_is_strict(content: Any) -> None:
    """ELIC-3, MAL-1."""
    with pytest.raises(InvalidResult):
        parse_result("elicitation/create", {"action": "accept", "content": content})


def test_elicitation_content_keeps_its_types() -> None:
    content = {"a": "t", "b": 1, "c": True, "d": 1.5, "e": ["x"]}
    read: Any = parse_result("elicitation/create", {"action": "accept", "content": content})
    assert {name: (type(value), value) for name, value in read.content.items()} == {
        name: (type(value), value) for name, value in content.items()
    }


# --- updates and blocks --------------------------------------------------------------------------------------------------


def test_absent_null_and_a_value_are_three_things() -> None:
    """EXT-7."""
    for members in ({}, {"title": None}, {"title": "t"}):
        wire = {"sessionUpdate": "session_info_update", **members}
        update = parse_update(wire)
        assert dump(update) == wire
        assert "title" in update.model_fields_set or "title" not in members
    assert dump(schema.ToolCallUpdate(tool_call_id="t", title=None)) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "title": None,
    }


def test_a_known_variant_with_a_malformed_payload_is_malformed() -> None:
    """EXT-3, UPD-7."""
    with pytest.raises(InvalidParams, match=r"update\.content is required"):
        parse_update({"sessionUpdate": "agent_message_chunk", "messageId": "m"})
    with pytest.raises(InvalidParams, match=r"content\.text is required"):
        parse_content({"type": "text"})


@pytest.mark.parametrize("wire", [
    {"sessionUpdate": "_vendor", "n": {"x": None}, "_meta": {"a": 1}},
    {"sessionUpdate": "subagent_update", "sessionId": "c", "state": {"state": "running"}},
    {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "x"}},
    {"sessionUpdate": "agent_message", "messageId": "m", "content": [{"type": "video", "uri": "u", "snake_case": 1}]},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t", "kind": "teleport", "status": "_stuck", "rawInput": None},
    {"sessionUpdate": "state_update", "state": "_dreaming"},
])  # fmt: skip
def test_what_is_unknown_is_preserved(wire: Any) -> None:
    """CONT-1, EXT-2."""
    assert dump(parse_update(wire)) == wire


def test_variants_of_version_one_are_no_known_ones() -> None:
    """UPD-6."""
    assert isinstance(parse_update({"sessionUpdate": "tool_call", "toolCallId": "t"}), schema.OtherUpdate)


def test_an_error_belongs_to_its_stop_reason() -> None:
    """STOP-3: also in what we send."""
    error = schema.ErrorInfo(code=-32000, message="m")
    assert dump(schema.StateUpdate(state="idle", stop_reason="error", error=error))["error"] == {
        "code": -32000,
        "message": "m",
    }
    assert "error" not in dump(schema.StateUpdate(state="idle", stop_reason="cancelled", error=error))
    assert dump(schema.StateUpdate(state="running", stop_reason="end_turn")) == {
        "sessionUpdate": "state_update",
        "state": "running",
    }


def test_constructors_take_python_names_only() -> None:
    with pytest.raises(ValidationError):
        schema.AgentMessage(messageId="m")  # type: ignore[call-arg]


def test_a_malformed_hint_does_not_cost_an_update() -> None:
    """D11: what a runtime reports is checked as what a peer sends."""
    location = schema.ToolCallLocation(path="/a", line=0)
    assert dump(location) == {"path": "/a"}


def test_models_do_not_change() -> None:
    update = schema.UserMessage(message_id="m")
    with pytest.raises(ValidationError):
        update.message_id = "n"  # type: ignore[misc]


def test_a_tool_call_in_a_permission_request_is_no_update() -> None:
    """PERM-1: only its fields travel."""
    update = schema.ToolCallUpdate(tool_call_id="t", title="Run", kind="execute")
    request = schema.RequestPermission(
        session_id="s",
        title="Run?",
        subject=schema.ToolCallSubject(tool_call=update),
        options=[schema.PermissionOption(option_id="y", name="Yes", kind="allow_once")],
    )
    assert dump(request)["subject"] == {
        "type": "tool_call",
        "toolCall": {"toolCallId": "t", "title": "Run", "kind": "execute"},
    }


def test_errors_of_readers_are_wire_errors() -> None:
    for reader in (parse_update, parse_content):
        with pytest.raises(AcpError):
            reader(5)
