"""Codex's questions and what each choice answers. The params are those that Codex 0.163.0 sent."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.codex.approvals import Ask, ask_of, declined

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
QUESTIONS = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"

CWD = "/w"


def asked(method: str, running: dict[str, Any] | None = None, **params: Any) -> Ask:
    ask = ask_of(method, params, running or {}, CWD)
    assert isinstance(ask, Ask)
    ids = [option.option_id for option in ask.options]
    assert len(set(ids)) == len(ids)
    assert {option.kind for option in ask.options} >= {"allow_once", "reject_once"}
    assert ask.answer(None) == ask.answer("never offered") == ask.refusal
    return ask


def kinds(ask: Ask) -> dict[str, str]:
    return {option.option_id: option.kind for option in ask.options}


def command(**params: Any) -> Ask:
    return asked(
        COMMAND,
        kind="command",
        itemId="c1",
        command="/bin/bash -lc 'touch x1'",
        cwd="/w/sub",
        reason="I need it",
        proposedExecpolicyAmendment=["touch", "x1"],
        availableDecisions=["accept", "cancel"],
        **params,
    )


def test_a_command_with_all_decisions() -> None:
    """PERM-7, section 6: for once, for the session, for the prefix; reject, reject and stop."""
    ask = command()
    assert (ask.title, ask.item_id) == ("Run touch x1", "c1")
    assert ask.description == "I need it\nIn /w/sub"
    assert ask.answer("accept") == {"decision": "accept"}
    assert ask.answer("accept_for_session") == {"decision": "acceptForSession"}
    assert ask.answer("accept_prefix") == {
        "decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x1"]}}
    }
    assert ask.answer("decline") == {"decision": "decline"}
    assert ask.answer("cancel") == {"decision": "cancel"}
    assert kinds(ask) == {
        "accept": "allow_once",
        "accept_for_session": "allow_always",
        "accept_prefix": "allow_always",
        "decline": "reject_once",
        "cancel": "reject_once",
    }
    assert ask.approvals == {"accept", "accept_for_session", "accept_prefix"}


def test_the_first_way_to_reject_lets_the_turn_go_on() -> None:
    """Trap 9: on doubt decline, not cancel."""
    assert next(option.option_id for option in command().options if option.kind == "reject_once") == "decline"
    assert command().refusal == {"decision": "decline"}


def test_a_connection() -> None:
    """Network approvals name the host and can be remembered either way."""
    amendments = [
        {"host": "x.org", "action": "allow"},
        {"host": "x.org", "action": "deny"},
        {"host": "y", "action": "?"},
    ]
    ask = asked(
        COMMAND,
        command="curl x.org",
        networkApprovalContext={"host": "x.org", "protocol": "https"},
        proposedNetworkPolicyAmendments=amendments,
    )
    assert ask.title == "Connect to x.org"
    assert ask.description == "curl x.org"
    assert kinds(ask)["allow_host_1"] == "allow_always"
    assert kinds(ask)["deny_host_2"] == "reject_always"
    assert "deny_host_2" not in ask.approvals
    assert ask.answer("deny_host_2") == {
        "decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendments[1]}}
    }


def test_input_to_a_running_command() -> None:
    """Not a command to be run."""
    assert asked(COMMAND, kind="writeStdin", command="python").title == "Write to the running command python"


@pytest.mark.parametrize("params", [{}, {"command": 7, "cwd": 7, "proposedExecpolicyAmendment": [1]}])
def test_a_command_without_its_fields(params: dict[str, Any]) -> None:
    """D11: still a question, still no yes."""
    assert asked(COMMAND, **params).title == "Run a command"


def test_a_file_change() -> None:
    """The request has no diff: what is asked about is the running item."""
    item = {"type": "fileChange", "changes": [{"path": "/w/a.txt"}, {"path": "/x/b.txt"}]}
    ask = asked(FILES, {"f1": item}, itemId="f1", reason="why", grantRoot="/x")
    assert (ask.title, ask.item_id) == ("Change a.txt, /x/b.txt", "f1")
    assert ask.description == "why\nAsks to write under /x for the rest of the session"
    assert ask.answer("accept") == {"decision": "accept"}
    assert ask.answer("accept_for_session") == {"decision": "acceptForSession"}
    assert ask.answer("cancel") == {"decision": "cancel"}
    assert asked(FILES, itemId="gone").title == "Change files"


def test_more_permissions() -> None:
    """What is asked for is granted as it was asked for, or nothing is."""
    wanted = {
        "network": {"enabled": True},
        "fileSystem": {
            "read": None,
            "write": ["/x"],
            "entries": [{"path": {"type": "path", "path": "/x"}, "access": "write"}],
        },
    }
    ask = asked(PERMISSIONS, permissions=wanted, reason="why", cwd="/w")
    assert ask.description == "why\nAccess to the network\nWrite /x"
    assert ask.answer("grant_turn") == {"permissions": wanted, "scope": "turn"}
    assert ask.answer("grant_session") == {"permissions": wanted, "scope": "session"}
    assert ask.refusal == {"permissions": {}, "scope": "turn"}
    only_network = asked(PERMISSIONS, permissions={"network": {"enabled": True}, "fileSystem": None})
    assert only_network.answer("grant_turn")["permissions"] == {"network": {"enabled": True}}


def question(**fields: Any) -> dict[str, Any]:
    options = [{"label": "A", "description": "the a"}, {"label": "B", "description": ""}]
    return {"id": "q1", "question": "Which?", "isOther": True, "isSecret": False, "options": options, **fields}


def test_a_question_with_choices() -> None:
    """One question with one answer: its choices are the options."""
    ask = asked(QUESTIONS, questions=[question()])
    assert (ask.title, ask.description) == ("Which?", "A: the a")
    assert ask.answer("answer_2") == {"answers": {"q1": {"answers": ["B"]}}}
    assert "not answer" in str(ask.refusal)


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [question(), question(id="q2")],
        [question(isSecret=True)],
        [question(options=None)],
        [question(options=[{"label": "A"}, {"label": "A"}])],
        [question(options=[{"label": str(number)} for number in range(30)])],
        [question(question="")],
    ],
)
def test_questions_that_no_client_can_show_are_told_so(questions: list[Any]) -> None:
    """Honest: nobody chose, and the model learns why where free text is an answer."""
    answer = ask_of(QUESTIONS, {"questions": questions}, {}, CWD)
    assert isinstance(answer, dict)
    told = answer["answers"]
    assert set(told) == {entry["id"] for entry in questions}
    assert all("did not see" in entry["answers"][0] for entry in told.values())
    silent = ask_of(QUESTIONS, {"questions": [question(isSecret=True, isOther=False)]}, {}, CWD)
    assert silent == {"answers": {}}


def test_an_mcp_tool() -> None:
    """Section 6: asked through an elicitation, with what may be remembered; the call that waits is named."""
    running = {
        "x0": {"type": "mcpToolCall", "server": "other"},
        "x1": {"type": "mcpToolCall", "server": "one"},
        "c": {"type": "commandExecution"},
    }
    meta = {
        "codex_approval_kind": "mcp_tool_call",
        "persist": ["session", "always"],
        "tool_description": "echo",
        "tool_params_display": [{"name": "x", "value": "1", "display_name": "The x"}],
    }
    ask = asked(ELICITATION, running, serverName="one", mode="form", message="Allow it?", _meta=meta)
    assert (ask.title, ask.description, ask.item_id) == ("Allow it?", "echo\nThe x: 1", "x1")
    assert ask.answer("accept") == {"action": "accept", "content": {}, "_meta": None}
    assert ask.answer("accept_session") == {"action": "accept", "content": {}, "_meta": {"persist": "session"}}
    assert ask.answer("accept_always") == {"action": "accept", "content": {}, "_meta": {"persist": "always"}}
    assert ask.refusal == {"action": "decline", "content": None, "_meta": None}
    once = asked(ELICITATION, serverName="one", _meta={"codex_approval_kind": "mcp_tool_call"})
    assert set(kinds(once)) == {"accept", "decline", "cancel"}


@pytest.mark.parametrize(
    ("schema", "choices"),
    [
        ({"properties": {"a": {"type": "string", "enum": ["x", "y"]}}}, [{"a": "x"}, {"a": "y"}]),
        (
            {"properties": {"a": {"type": "string", "oneOf": [{"const": "x", "title": "The x"}]}}},
            [{"a": "x"}],
        ),
        ({"properties": {"a": {"type": "boolean"}}}, [{"a": True}, {"a": False}]),
        ({"properties": {}}, [{}]),
    ],
)
def test_forms_that_are_a_choice(schema: dict[str, Any], choices: list[Any]) -> None:
    """An MCP server's own question."""
    ask = asked(ELICITATION, serverName="s", mode="form", message="Which?", requestedSchema=schema)
    accepted = [ask.answers[option_id] for option_id, kind in kinds(ask).items() if kind == "allow_once"]
    assert [answer["content"] for answer in accepted] == choices
    assert all(answer["action"] == "accept" for answer in accepted)


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "form", "requestedSchema": {"properties": {"a": {"type": "string"}}}},
        {"mode": "form", "requestedSchema": {"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}},
        {"mode": "openai/form", "requestedSchema": {}},
        {"mode": "openai/userVerification"},
        {"mode": "url"},
        {},
    ],
)
def test_forms_that_no_client_can_show_are_declined(params: dict[str, Any]) -> None:
    """Never an automatic yes."""
    assert ask_of(ELICITATION, {"serverName": "s", **params}, {}, CWD) == {
        "action": "decline",
        "content": None,
        "_meta": None,
    }


def test_a_page_to_open() -> None:
    """The address is shown; nothing is opened."""
    ask = asked(ELICITATION, serverName="s", mode="url", message="Log in", url="https://x")
    assert ask.description == "Asked by the MCP server s\nhttps://x"


@pytest.mark.parametrize("method", ["item/tool/call", "currentTime/read", "applyPatchApproval", "new/thing", ""])
def test_unknown_requests_are_not_answered_here(method: str) -> None:
    """Trap 9: refused with an error by the caller."""
    assert ask_of(method, {}, {}, CWD) is None
    assert declined(method, {}) is None


@pytest.mark.parametrize(
    ("method", "params", "refusal"),
    [
        (COMMAND, {}, {"decision": "decline"}),
        (FILES, {}, {"decision": "decline"}),
        (PERMISSIONS, {}, {"permissions": {}, "scope": "turn"}),
        (QUESTIONS, {"questions": []}, {"answers": {}}),
        (ELICITATION, {}, {"action": "decline", "content": None, "_meta": None}),
    ],
)
def test_declining_without_asking(method: str, params: dict[str, Any], refusal: Any) -> None:
    """Known faults: questions of stopped work are answered at once."""
    assert declined(method, params) == refusal
