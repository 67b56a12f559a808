"""Permission requests of 2.1.332 as choices, and choices as answers."""

from typing import Any

import pytest

from adapters.claude.questions import Ask, ask_of, denied

TOUCH: dict[str, Any] = {
    "subtype": "can_use_tool",
    "tool_name": "Bash",
    "display_name": "Bash",
    "input": {"command": "touch b", "description": "d"},
    "description": "d",
    "permission_suggestions": [
        {
            "type": "addRules",
            "rules": [{"toolName": "Bash", "ruleContent": "touch b *"}],
            "behavior": "allow",
            "destination": "localSettings",
        },
        {"type": "addDirectories", "directories": ["/w"], "destination": "session"},
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    ],
    "blocked_path": "/w/b",
    "tool_use_id": "toolu_7",
}
QUESTION: dict[str, Any] = {
    "tool_name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": "Which?",
                "header": "H",
                "options": [{"label": "A", "description": "first"}, {"label": "B", "description": "second"}],
                "multiSelect": False,
            }
        ]
    },
}


def asked(request: dict[str, Any]) -> Ask:
    ask = ask_of(request)
    assert isinstance(ask, Ask)
    return ask


def test_a_tool_can_be_allowed_once_or_by_each_suggestion_or_rejected() -> None:
    ask = asked(TOUCH)
    assert [(option.kind, option.name) for option in ask.options] == [
        ("allow_once", "Allow"),
        ("allow_always", "Always allow Bash(touch b *) in this project"),
        ("allow_always", "Allow access to /w for this session"),
        ("allow_always", "Accept all edits for this session"),
        ("reject_once", "Reject"),
    ]
    assert ask.title == "Bash: touch b"
    assert ask.description == "d\nPath: /w/b"


def test_a_choice_is_answered_with_the_suggestion_as_it_came() -> None:
    """PERM-7: what is remembered is what was offered."""
    ask = asked(TOUCH)
    once = {"behavior": "allow", "updatedInput": TOUCH["input"]}
    assert ask.answer("allow_once") == once
    rules, folders, mode = ([suggestion] for suggestion in TOUCH["permission_suggestions"])
    assert ask.answer("allow_always_1") == {**once, "updatedPermissions": rules}
    assert ask.answer("allow_always_2") == {**once, "updatedPermissions": folders}
    assert ask.answer("allow_always_3") == {**once, "updatedPermissions": mode}


@pytest.mark.parametrize("choice", [None, "allow", "reject_once", "allow_always_4", ""])
def test_everything_else_denies(choice: str | None) -> None:
    """PERM-2, PERM-3."""
    for request in (TOUCH, QUESTION, {"tool_name": "ExitPlanMode", "input": {"plan": "x"}}):
        assert asked(request).answer(choice)["behavior"] == "deny"


def test_rules_for_one_place_are_one_choice() -> None:
    rule = {"type": "addRules", "behavior": "allow", "destination": "session"}
    request = {
        "tool_name": "Bash",
        "input": {"command": "a | b"},
        "permission_suggestions": [
            {**rule, "rules": [{"toolName": "Bash", "ruleContent": "a"}, {"toolName": "Read"}]},
            rule,
        ],
    }
    assert [option.name for option in asked(request).options[1:-1]] == ["Always allow Bash(a), Read for this session"]


@pytest.mark.parametrize(
    "suggestions", [None, "x", [None, 7, {"type": "novel"}, {"type": "addRules", "behavior": "deny"}]]
)
def test_suggestions_that_nobody_understands_are_not_offered(suggestions: Any) -> None:
    """D11."""
    ask = asked({"tool_name": "Odd", "permission_suggestions": suggestions})
    assert [option.kind for option in ask.options] == ["allow_once", "reject_once"]
    assert ask.title == "Use Odd"


def test_options_are_unique() -> None:
    for request in (TOUCH, QUESTION):
        ids = [option.option_id for option in asked(request).options]
        assert len(set(ids)) == len(ids)


def test_a_plan_shows_itself_and_can_be_started_in_two_ways() -> None:
    ask = asked({"tool_name": "ExitPlanMode", "input": {"plan": "1. do it"}})
    assert ask.description == "1. do it"
    assert [option.kind for option in ask.options] == ["allow_once", "allow_always", "reject_once"]
    mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    assert ask.answer("allow_always_1")["updatedPermissions"] == [mode]


@pytest.mark.parametrize(
    ("plan", "description"),
    [
        ("# Plan\n\n1. do `x` < 2\n", "# Plan\n\n1. do `x` < 2"),
        ("do it\n<!-- and more -->", "```\ndo it\n<!-- and more -->\n```"),
        ("do it\n[x]: y 'and more'", "```\ndo it\n[x]: y 'and more'\n```"),
        ("do\u202eit", "do[U+202E]it"),
        ("\ufeffdo it", "do it"),
    ],
)
def test_nothing_of_a_plan_is_hidden(plan: str, description: str) -> None:
    """Markdown leaves out comments, HTML and definitions of links; some characters have no picture."""
    assert asked({"tool_name": "ExitPlanMode", "input": {"plan": plan}}).description == description


def test_a_question_with_one_answer_becomes_choices() -> None:
    ask = asked(QUESTION)
    assert ask.title == "Which?"
    assert [option.name for option in ask.options] == ["A", "B", "Do not answer"]
    assert ask.description == "A: first\nB: second"
    assert ask.answer("answer_2")["updatedInput"] == {**QUESTION["input"], "answers": {"Which?": "B"}}


@pytest.mark.parametrize(
    "questions",
    [
        [],
        QUESTION["input"]["questions"] * 2,
        [{**QUESTION["input"]["questions"][0], "multiSelect": True}],
        [{"question": "Which?", "options": []}],
        [{"question": "Which?", "options": [{"label": "A"}, {"label": "A"}]}],
        ["nonsense"],
    ],
)
def test_questions_that_no_client_can_show_are_answered_honestly(questions: list[Any]) -> None:
    answer = ask_of({"tool_name": "AskUserQuestion", "input": {"questions": questions}})
    assert not isinstance(answer, Ask)
    assert answer["behavior"] == "deny"
    assert "cannot show" in answer["message"]


def test_stopped_work_is_denied_with_the_reason() -> None:
    assert denied()["behavior"] == "deny"
    assert "stopped" in denied()["message"]


# --- what is approved is shown whole ---------------------------------------------------------------------------------

LONG = "set -e\n" + "\n".join(f"echo step {number} of the build" for number in range(40)) + "\nrm -rf build"


def bash(command: str, **request: Any) -> Ask:
    return asked({"tool_name": "Bash", "input": {"command": command}, **request})


def test_a_long_command_is_in_the_description() -> None:
    ask = bash(LONG, description=LONG[:20] + "…", decision_reason="It must.")
    assert "\n" not in ask.title
    assert ask.description == f"It must.\n```\n{LONG}\n```"
    assert ask.command == LONG


def test_characters_of_a_command_that_cannot_be_seen_are_shown() -> None:
    ask = bash("ls \u202e\x1b[2K")
    assert ask.title == "Bash: ls [U+202E][U+001B][2K"
    assert ask.description == (
        "```\nls [U+202E][U+001B][2K\n```\nHolds characters that cannot be seen: U+001B, U+202E."
    )
    assert ask.command == ""


def test_what_else_a_command_is_given_is_shown() -> None:
    tool_input = {"command": "ls", "dangerouslyDisableSandbox": True, "run_in_background": False, "timeout": 9}
    assert asked({"tool_name": "Bash", "input": tool_input}).description == "dangerouslyDisableSandbox: true"


@pytest.mark.parametrize(
    ("name", "tool_input", "told"),
    [
        (
            "Edit",
            {"file_path": "/w/a", "old_string": "a\n", "new_string": "b\n"},
            "old_string:\n```\na\n```\nnew_string:\n```\nb\n```",
        ),
        ("Write", {"file_path": "/w/a", "content": LONG}, f"content:\n```\n{LONG}\n```"),
        ("WebFetch", {"url": "https://x", "prompt": "Read it."}, "prompt: Read it."),
    ],
)
def test_a_call_that_nobody_sees_is_in_the_description(name: str, tool_input: dict[str, Any], told: str) -> None:
    """A subagent's; the content of a call that the client sees is not said twice."""
    request = {"tool_name": name, "input": tool_input}
    assert asked(request).description is None
    ask = ask_of(request, call_shown=False)
    assert isinstance(ask, Ask)
    assert ask.description == told


def test_an_edit_with_characters_that_cannot_be_seen_says_so() -> None:
    ask = asked({"tool_name": "Edit", "input": {"file_path": "/w/a", "old_string": "a", "new_string": "b\u202e"}})
    assert ask.description == "Holds characters that cannot be seen: U+202E."


def test_the_input_of_an_mcp_tool_is_in_the_description() -> None:
    """Its call's content is empty, and not every client shows a raw input."""
    ask = asked({"tool_name": "mcp__box__send", "input": {"to": "a@b", "body": LONG, "description": "x"}})
    assert ask.title == "box: send: x"
    assert ask.description == f"to: a@b\nbody:\n```\n{LONG}\n```"


# --- what is remembered is readable whole ----------------------------------------------------------------------------


def rules(*contents: Any, **update: Any) -> dict[str, Any]:
    given = [{"toolName": "Bash", "ruleContent": content} for content in contents]
    return {"type": "addRules", "behavior": "allow", "destination": "session", "rules": given, **update}


def always(*suggestions: Any) -> tuple[list[str], str]:
    ask = bash("x", permission_suggestions=list(suggestions))
    return [option.name for option in ask.options if option.kind == "allow_always"], ask.description or ""


def test_many_rules_are_all_in_the_label_and_in_the_description() -> None:
    contents = [f"curl https://example.org/{number} *" for number in range(5)]
    [name], description = always(rules(*contents))
    assert all(f"Bash({content})" in name for content in contents)
    assert name.endswith("for this session")
    assert all(f"\nBash({content})\n" in description for content in contents)


def test_rules_for_several_places_are_several_choices() -> None:
    names, _ = always(rules("a"), rules("b", destination="userSettings"), rules("c", destination="projectSettings"))
    assert names == [
        "Always allow Bash(a) for this session",
        "Always allow Bash(b) in all projects",
        "Always allow Bash(c) in this project, for everybody",
    ]


@pytest.mark.parametrize(
    "suggestion",
    [
        rules("a", destination="elsewhere"),
        rules("a", destination=None),
        rules("a", 7),
        rules("a", behavior="deny"),
        {**rules("a"), "rules": [{"toolName": "Bash"}, {"ruleContent": "b"}]},
        {**rules("a"), "rules": [{"toolName": "Bash"}, "Read"]},
        {**rules("a"), "type": "removeRules"},
        {**rules("a"), "type": "replaceRules"},
        {"type": "addDirectories", "directories": ["/w", 7], "destination": "session"},
        {"type": "removeDirectories", "directories": ["/w"], "destination": "session"},
        {"type": "setMode", "mode": "later", "destination": "session"},
        {"type": "setMode", "mode": "acceptEdits"},
    ],
)
def test_what_cannot_be_read_whole_is_not_offered(suggestion: Any) -> None:
    """The update would be passed back as it came: a part of it would be granted that nobody saw."""
    assert always(suggestion) == ([], "")


def test_long_answers_of_a_question_are_readable_whole() -> None:
    answer = "Because " + "of " * 100 + "this."
    options = [{"label": answer}, {"label": "No"}]
    text = "Why " + "so " * 200 + "long?"
    ask = asked({"tool_name": "AskUserQuestion", "input": {"questions": [{"question": text, "options": options}]}})
    assert ask.options[0].name == answer
    assert text in (ask.description or "")
    assert answer in (ask.description or "")


def test_a_tool_of_a_server_is_named_with_the_clients_name_of_that() -> None:
    """The CLI's own name for it is the tool's alone; what it spells out is shown as the client wrote it."""
    rule = {"type": "addRules", "rules": [{"toolName": "mcp__my-box-0x20__open"}], "behavior": "allow"}
    request = {
        "tool_name": "mcp__my-box-0x20__open",
        "display_name": "Open",
        "input": {"path": "/x"},
        "permission_suggestions": [{**rule, "destination": "localSettings"}],
        "decision_reason": "mcp__my-box-0x20__open is asked about",
    }
    ask = asked(request)
    assert ask.title == "my box: open: /x"
    assert ask.options[1].name == "Always allow mcp__my box__open in this project"
    assert ask.answers["allow_always_1"]["updatedPermissions"] == [{**rule, "destination": "localSettings"}]
    assert ask.description == "mcp__my box__open is asked about"
    assert asked({**request, "input": {}}).title == "Use my box: open"
