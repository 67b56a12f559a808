"""Codex's questions and what each choice answers. The params are those that Codex 0.163.0 sent."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from adapters.codex.questions import Ask, ask_of, declined

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
    """PERM-7: for once, for the session, for the prefix; reject, reject and stop."""
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


# --- what is approved is shown whole ---------------------------------------------------------------------------------

LONG = "set -e\n" + "\n".join(f"echo step {number} of the build" for number in range(40)) + "\nrm -rf build"
PATCH = [
    {"path": "/w/a.txt", "kind": {"type": "add"}, "diff": "one\n"},
    {"path": "/x/b.txt", "kind": {"type": "update", "move_path": "/x/c.txt"}, "diff": "@@ -1 +1 @@\n-x\n+y\n"},
    {"path": "/x/d.txt", "kind": {"type": "delete"}, "diff": "gone\n"},
]


@pytest.mark.parametrize("shown", [True, False])
def test_a_long_command_is_in_the_description(shown: bool) -> None:
    """A title is one cut line: the rest of the command must be read somewhere."""
    ask = ask_of(COMMAND, {"command": f"/bin/bash -lc {shlex.quote(LONG)}", "itemId": "c"}, {}, CWD, shown=shown)
    assert isinstance(ask, Ask)
    assert f"```\n{LONG}\n```" in (ask.description or "")
    assert ask.command == LONG


def test_characters_of_a_command_that_cannot_be_seen_are_shown() -> None:
    ask = asked(COMMAND, command="ls \u202e\u200b; echo\x1b[2K", reason="<!--")
    assert ask.title == "Run ls [U+202E][U+200B]; echo[U+001B][2K"
    assert ask.description == (
        "```\n<!--\n```\n```\nls [U+202E][U+200B]; echo[U+001B][2K\n```\n"
        "Holds characters that cannot be seen: U+001B, U+200B, U+202E."
    )
    assert ask.command == ""


def test_a_shell_that_is_not_the_systems_is_shown() -> None:
    """Whoever approves `ls` must not get another program of the name `sh`."""
    assert asked(COMMAND, command="/usr/bin/zsh -lc ls").title == "Run ls"
    assert asked(COMMAND, command="/w/bin/sh -c ls").title == "Run /w/bin/sh -c ls"


def test_input_is_shown_whole_and_is_never_for_the_session() -> None:
    """What Codex 0.163.0 sent; it asks again although it was told not to."""
    running = {"c": {"type": "commandExecution", "command": "/bin/bash -lc python", "status": "inProgress"}}
    text = "import os\nos.remove('x')\n"
    command = f"write_stdin --session-id 7 {shlex.quote(text)}"
    ask = asked(COMMAND, running, kind="writeStdin", itemId="c", command=command)
    assert ask.title == "Write to the running command python"
    assert f"```\n{text}```" in (ask.description or "")
    assert set(kinds(ask)) == {"accept", "decline", "cancel"}
    assert (ask.item_id, ask.item_runs, ask.command) == ("c", True, "")
    unknown = asked(COMMAND, kind="writeStdin", command=command)
    assert unknown.title == "Write to a running command"
    assert f"```\n{text}```" in (unknown.description or "")


def test_a_question_that_says_too_little_says_so() -> None:
    assert "does not say which command" in (asked(COMMAND).description or "")
    assert "does not say which change" in (asked(FILES).description or "")
    assert "does not say which permissions" in (asked(PERMISSIONS).description or "")


@pytest.mark.parametrize("status", ["inProgress", "completed"])
@pytest.mark.parametrize("shown", [True, False])
def test_a_change_whose_call_nobody_sees_is_in_the_description(shown: bool, status: str) -> None:
    """PERM-1: the request names an item; a sub-agent's, or one that is over, is on no screen."""
    item = {"type": "fileChange", "changes": PATCH, "status": status}
    ask = ask_of(FILES, {"itemId": "f"}, {"f": item}, CWD, shown=shown)
    assert isinstance(ask, Ask)
    assert ask.title == "Change a.txt, /x/b.txt, /x/c.txt, /x/d.txt"
    told = (
        "Add a.txt:\n```\none\n```\n"
        "Edit /x/b.txt, move it to /x/c.txt:\n```diff\n@@ -1 +1 @@\n-x\n+y\n```\n"
        "Delete /x/d.txt:\n```\ngone\n```"
    )
    assert ask.description == (None if shown and status == "inProgress" else told)


def test_a_change_that_no_patch_can_say_is_in_the_description() -> None:
    """The diff of the call has no text then."""
    item = {"type": "fileChange", "changes": [{"path": "/w/a", "kind": {"type": "update"}, "diff": "odd"}]}
    assert asked(FILES, {"f": item}, itemId="f").description == "Edit a:\n```diff\nodd\n```"


def test_a_change_of_files_is_for_these_files() -> None:
    """Codex 0.163.0 remembers each path, not the change; which ones must be read."""
    paths = [f"/w/src/module_{number}.py" for number in range(30)]
    changes = [{"path": path, "kind": {"type": "add"}, "diff": "x"} for path in paths]
    ask = asked(FILES, {"f": {"type": "fileChange", "changes": changes}}, itemId="f")
    [name] = [option.name for option in ask.options if option.kind == "allow_always"]
    assert all(path.removeprefix("/w/") in name for path in paths)
    assert all(path.removeprefix("/w/") in (ask.description or "") for path in paths)
    assert "accept_for_session" not in kinds(asked(FILES, itemId="unknown"))


@pytest.mark.parametrize("words", [["curl"], ["sh", "-c", "a  b\nc"], [f"--flag-{number}" for number in range(60)]])
def test_a_prefix_is_readable_whole(words: list[str]) -> None:
    ask = asked(COMMAND, command="x", proposedExecpolicyAmendment=words)
    [name] = [option.name for option in ask.options if option.option_id == "accept_prefix"]
    assert "all projects" in name
    assert shlex.join(words) in (name if len(words) == 1 else ask.description or "")


def test_every_permission_is_listed() -> None:
    """Special places and denials too; what is unknown as it came."""
    wanted = {
        "network": {"enabled": None, "ports": [80]},
        "fileSystem": {
            "read": ["/x/y"],
            "entries": [
                {"path": {"type": "path", "path": "/x"}, "access": "read"},
                {"path": {"type": "special", "value": {"kind": "root"}}, "access": "write"},
                {"path": {"type": "special", "value": {"kind": "project_roots", "subpath": "sub"}}, "access": "write"},
                {"path": {"type": "glob_pattern", "pattern": "**/.env"}, "access": "deny"},
                {"path": {"type": "later"}, "access": "write"},
            ],
        },
        "camera": True,
    }
    assert (asked(PERMISSIONS, permissions=wanted, cwd="/y").description or "").split("\n") == [
        "Read /x/y",
        "Read /x",
        "Write everything on this machine",
        "Write the folders of the session, below sub",
        "Deny `**/.env`",
        'Write {"type": "later"}',
        "camera: true",
        *("ports:", "```", "[", "  80", "]", "```"),
        "In /y",
    ]


def test_always_is_not_offered_where_codex_keeps_it_nowhere() -> None:
    """It would hold for the session only: a server of the client is in no configuration that Codex could write it to."""
    meta = {"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"]}
    params = {"serverName": "one", "message": "Allow it?", "_meta": meta}
    for given, ids in ((["one"], {"accept_session"}), (["other"], {"accept_session", "accept_always"})):
        ask = ask_of(ELICITATION, params, {}, CWD, given=given)
        assert isinstance(ask, Ask)
        assert {option.option_id for option in ask.options if option.kind == "allow_always"} == ids


def test_the_input_of_an_mcp_tool_is_shown_whole_and_the_right_call_is_named() -> None:
    """Two calls of one server can wait: the question says the input, so that call is shown with it."""
    running = {
        "x1": {"type": "mcpToolCall", "server": "one", "tool": "send", "arguments": {"text": LONG}},
        "x2": {"type": "mcpToolCall", "server": "one", "tool": "send", "arguments": {"text": "b"}},
    }
    meta = {"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"], "tool_params": {"text": LONG}}
    ask = asked(ELICITATION, running, serverName="one", message="Allow it?", _meta=meta)
    assert ask.item_id == "x1"
    assert ask.description == f"text:\n```\n{LONG}\n```"
    names = [option.name for option in ask.options if option.kind == "allow_always"]
    assert names == [
        "Allow every use of the tool send of one for this session",
        "Always allow every use of the tool send of one (in all projects)",
    ]


@pytest.mark.parametrize("method", [QUESTIONS, ELICITATION])
def test_a_long_question_and_long_answers_are_readable_whole(method: str) -> None:
    text, answer = "Why " + "so " * 200 + "long?", "Because " + "of " * 100 + "this."
    if method == QUESTIONS:
        ask = asked(method, questions=[question(question=text, options=[{"label": answer}])])
    else:
        schema = {"properties": {"a": {"type": "string", "enum": [answer]}}}
        ask = asked(method, serverName="s", mode="form", message=text, requestedSchema=schema)
    assert ask.options[0].name == answer
    assert text in (ask.description or "")
    assert answer in (ask.description or "")
