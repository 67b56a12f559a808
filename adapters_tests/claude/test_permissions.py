"""Permission requests of 2.1.332 as choices, and choices as answers."""

from typing import Any

import pytest

from adapters.claude.permissions import Ask, ask_of, denied

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
