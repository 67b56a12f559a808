"""How prompts are found in the requests of Claude Code; the shapes are those that the real CLI was seen to send."""

from typing import Any

import pytest

from adapters.scripted.http import BadRequest
from adapters.scripted.messages_input import read_request

REMINDER = {"type": "text", "text": "<system-reminder>\nmind this\n</system-reminder>\n"}
FOLD = (
    "The user sent a new message while you were working:\n{}\n\nThis is how Claude Code surfaces messages the user sends"
    " mid-turn — within the running turn. Address the message above as you continue this turn."
)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def read(*messages: Any, **headers: str) -> Any:
    return read_request({"messages": list(messages), "stream": True}, headers)


TOOL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
ANSWER = {"role": "assistant", "content": [text("hi")]}


def test_reminders_and_system_messages_are_no_prompts() -> None:
    asked = read(user(REMINDER, text("hello")), {"role": "system", "content": "# Environment"})
    assert asked.prompts == ("hello",)
    assert asked.steps == (0,)
    assert asked.fresh == 1


def test_a_plain_string_is_a_prompt() -> None:
    asked = read({"role": "user", "content": "one"}, ANSWER, {"role": "user", "content": "two"})
    assert asked.prompts == ("one", "two")
    assert asked.fresh == 1


def test_a_step_is_an_answer_since_the_prompt() -> None:
    asked = read(user(text("go")), TOOL, user(RESULT), TOOL, user(RESULT))
    assert asked.steps == (2,)
    assert asked.fresh == 0


def test_folded_prompts_lose_their_wrapping() -> None:
    asked = read(user(text("go")), TOOL, user(RESULT, text(FOLD.format("one") + "\n"), text(FOLD.format("two"))))
    assert asked.prompts == ("go", "one", "two")
    assert asked.steps == (1, 0, 0)
    assert asked.fresh == 2


def test_a_folded_prompt_with_an_image_ends_where_the_next_begins() -> None:
    asked = read(
        user(text("go")), TOOL, user(RESULT, text(FOLD.format("look")), {"type": "image"}, text(FOLD.format("two")))
    )
    assert asked.prompts == ("go", "look", "two")
    assert asked.mid_turn == (False, True, True)


def test_blocks_of_one_prompt_are_one_prompt() -> None:
    assert read(user(text("a"), text("b"))).prompts == ("a\nb",)


def test_entries_merged_into_one_message_are_several_prompts() -> None:
    asked = read(user(text("fail\n"), text("[Request interrupted by user]\n"), text("next")))
    assert asked.prompts == ("fail", "next")


def test_an_image_alone_is_a_prompt_and_its_source_line_is_not() -> None:
    image = {"type": "image", "source": {}}
    assert read(user(image)).prompts == ("",)
    assert read(user(text("see"), image, text("after\n"), text("[Image: source: x]"))).prompts == ("see\nafter",)


def test_a_command_that_became_a_prompt_is_what_the_user_typed() -> None:
    record = "<command-message>c</command-message>\n<command-name>/c</command-name>\n<command-args>a b</command-args>\n"
    assert read(user(text(record), text("Do it: a b\n"))).prompts == ("/c a b",)


def test_a_local_command_is_no_prompt() -> None:
    record = text("<command-name>/context</command-name>\n  <command-args></command-args>\n")
    caveat = text("<local-command-caveat>x</local-command-caveat>\n")
    out = text("<local-command-stdout>x</local-command-stdout>\n")
    assert read(user(caveat, record, out, text("next"))).prompts == ("next",)


def test_a_compaction_is_no_prompt() -> None:
    asked = read(user(text("go")), ANSWER, user(text("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.")))
    assert asked.compaction
    assert asked.prompts == ("go",)
    assert asked.fresh == 0


def test_session_and_subagent_come_from_the_headers() -> None:
    asked = read(user(text("go")), **{"x-claude-code-session-id": "S", "x-claude-code-agent-id": "A"})
    assert (asked.session, asked.agent) == ("S", "A")


def test_malformed_entries_are_passed_over() -> None:
    asked = read(None, 3, {"role": "user"}, {"role": "user", "content": [None, {"type": "text"}, text("go")]})
    assert asked.prompts == ("go",)


def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(BadRequest):
        read_request({}, {})
