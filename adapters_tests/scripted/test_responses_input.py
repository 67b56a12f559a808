"""How prompts are found in the requests of Codex; the shapes are those that the real app-server was seen to send."""

import json
from typing import Any

import pytest

from adapters.scripted.http import BadRequest
from adapters.scripted.responses_input import read_request

TURN = "01a22b69-fae6-7841-9a03-46b2abad3edc"
BEFORE, FIRST, SECOND = (f"msg_01a22b69-{time}-7000-8000-000000000000" for time in ("fad0", "fb0e", "fb24"))


def message(role: str, *texts: str, **fields: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts], **fields}


def user(*texts: str, **fields: Any) -> dict[str, Any]:
    return message("user", *texts, **fields)


ANSWER = message("assistant", "hi")
REASONING = {"type": "reasoning", "summary": []}
CALL = {"type": "function_call", "call_id": "c", "name": "exec_command", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "out"}
CONTEXT = user("<environment_context>\n  <cwd>/x</cwd>")
SUMMARY = user(
    "Another language model started to solve this problem and produced a summary of its thinking process. ..."
)
COMPACT = user("You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary ...")


def read(*items: Any, **metadata: Any) -> Any:
    return read_request({"input": list(items), "stream": True, "client_metadata": metadata}, {})


@pytest.mark.parametrize(
    "texts",
    [
        ["<environment_context>\n  <cwd>/x</cwd>"],
        ["# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nBe kind.", "<environment_context>\n  <cwd>/x</cwd>"],
        ["# AGENTS.md instructions\n\n<INSTRUCTIONS>\nThe previously provided AGENTS.md instructions no longer apply."],
        ["<turn_aborted>\nThe user interrupted the previous turn on purpose."],
        ["<subagent_notification>\n{}\n</subagent_notification>"],
        ["<user_shell_command>\n<command>\nls\n</command>"],
        ["<skill>\n<name>x</name>"],
    ],
)
def test_what_codex_says_in_the_users_name_is_no_prompt(texts: list[str]) -> None:
    asked = read(message("developer", "base"), user(*texts), user("hello"), user(*texts))
    assert asked.prompts == ("hello",)
    assert (asked.steps, asked.fresh) == ((0,), 1)


def test_a_prompt_about_a_mark_is_a_prompt() -> None:
    assert read(user("<environment_context> is what?")).prompts == ("<environment_context> is what?",)


def test_an_answer_is_a_run_of_items_and_a_step() -> None:
    run = (REASONING, ANSWER, CALL, {**CALL, "type": "custom_tool_call"}, OUTPUT, {"type": "custom_tool_call_output"})
    asked = read(user("before"), ANSWER, user("go"), *run, *run)
    assert asked.prompts == ("before", "go")
    assert asked.steps == (3, 2)
    assert asked.fresh == 0


def test_prompts_after_the_last_answer_are_fresh() -> None:
    assert read(user("a"), ANSWER, user("b"), user("c")).fresh == 2


def test_parts_of_one_prompt_are_one_prompt_without_its_images() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    item = user("look", '<image name=[Image #1] path="/x/i.png">', "</image>", "here")
    item["content"].insert(2, image)
    assert read(item).prompts == ("look\nhere",)
    assert read({"role": "user", "content": [image]}).prompts == ("",)
    assert read({"role": "user", "content": "plain"}).prompts == ("plain",)


@pytest.mark.parametrize("sign", ["text", "metadata"])
def test_the_request_for_a_summary_is_no_prompt(sign: str) -> None:
    metadata = {"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})} if sign == "metadata" else {}
    asked = read(user("go"), ANSWER, *([COMPACT] if sign == "text" else []), **metadata)
    assert asked.compaction
    assert asked.prompts == ("go",)
    assert not read(user("go"), **{"x-codex-turn-metadata": '{"request_kind": "turn"}'}).compaction


def test_a_summary_is_the_answer_to_all_before_it() -> None:
    asked = read(user("a"), CONTEXT, user("b"), SUMMARY, user("c"))
    assert asked.prompts == ("a", "b", "c")
    assert asked.steps == (1, 1, 0)
    assert asked.fresh == 1
    assert read(user("a"), SUMMARY).fresh == 0


def test_prompts_of_this_turn_but_the_first_came_into_it() -> None:
    old, first, second = user("old", id=BEFORE), user("go", id=FIRST), user("more", id=SECOND)
    assert read(old, ANSWER, first, second, turn_id=TURN).mid_turn == (False, False, True)
    assert read(old, first, turn_id=TURN).mid_turn == (False, False)  # the one before has failed
    assert read(old, first, second).mid_turn == (False, False, False)
    assert read(user("go"), user("more"), turn_id=TURN).mid_turn == (False, False)


def test_prompts_are_known_by_their_ids() -> None:
    assert read(user("a", id="x"), user("b")).ids == ("x", "1")


def test_a_thread_of_a_session_is_its_subagent() -> None:
    assert (read(session_id="S", thread_id="S").session, read(session_id="S", thread_id="S").agent) == ("S", None)
    assert (read(session_id="S", thread_id="T").session, read(session_id="S", thread_id="T").agent) == ("S", "T")
    assert (read(thread_id="T").session, read(thread_id="T").agent) == ("T", None)


@pytest.mark.parametrize("metadata", [None, [], {"x-codex-turn-metadata": "{", "thread_id": 3}])
def test_malformed_parts_are_passed_over(metadata: Any) -> None:
    items = [None, 3, {"role": "user"}, {"role": "user", "content": [None, {"type": "input_text"}]}, user("go")]
    asked = read_request({"input": items, "client_metadata": metadata, "model": 3}, {})
    assert asked.prompts == ("", "", "go")
    assert (asked.session, asked.model, asked.streaming, asked.compaction) == (None, "scripted", False, False)


def test_a_request_without_input_is_refused() -> None:
    with pytest.raises(BadRequest):
        read_request({}, {})
