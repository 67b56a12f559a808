"""Scripts as JSON: everything can be said, and every mistake is named with its place in one sentence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapters.scripted import (
    Answer,
    Drop,
    GateOpening,
    HttpFailure,
    Rule,
    Script,
    ScriptError,
    Shell,
    Spread,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    Usage,
    load_script,
    parse_script,
    say,
)

EVERYTHING: dict[str, Any] = {
    "rules": [
        {"exact": "a", "steps": ["plain", {"blocks": ["text", {"type": "shell", "command": "ls", "gate": "g"}]}]},
        {
            "contains": "b",
            "joins": True,
            "steps": [
                {
                    "blocks": [
                        {"type": "thinking", "thinking": "hm", "deltas": 2},
                        {"type": "text", "text": "xy", "repeat": 3, "delta_size": 2, "gate": "g", "gate_after": 1},
                        {"type": "tool_use", "name": "n", "input": {"k": 1}, "id": "i", "namespace": "m", "deltas": 2},
                        {"type": "tool_use", "name": "n", "input": "free"},
                    ],
                    "delay": 1,
                    "delta_delay": 0.5,
                    "gate": "f",
                    "stop_reason": "max_tokens",
                    "usage": {"input_tokens": 1, "output_tokens": 2, "cached_input_tokens": 3},
                }
            ],
        },
        {
            "regex": "^c",
            "steps": [
                {"error": {"status": 429, "type": "t", "message": "m", "times": 2, "retry_after": 1}},
                {"blocks": ["x"], "stream_error": {"type": "t", "message": "m", "after_events": 2, "times": 1}},
                {"blocks": ["x"], "drop": {"after_bytes": 5, "times": 1, "gate": "g"}},
            ],
        },
    ],
    "default": ["d"],
    "after_steps": "over",
    "compaction": {"blocks": ["sum"]},
    "gates": {"g": {"file": "go"}, "f": {"seconds": 2}},
}


def test_everything_can_be_said(tmp_path: Path) -> None:
    spread = Spread(repeat=3, delta_size=2, gate="g", gate_after=1)
    tools = (ToolUse("n", {"k": 1}, "i", "m", 2), ToolUse("n", "free"))
    long = Answer(
        (Thinking("hm", Spread(deltas=2)), Text("xy", spread), *tools),
        delay=1,
        delta_delay=0.5,
        gate="f",
        stop_reason="max_tokens",
        usage=Usage(1, 2, 3),
    )
    faults = (
        Answer(failure=HttpFailure(429, "t", "m", 2, 1)),
        Answer((Text("x"),), stream_failure=StreamFailure("t", "m", 2, 1)),
        Answer((Text("x"),), drop=Drop(after_bytes=5, times=1, gate="g")),
    )
    expected = Script(
        (
            Rule((say("plain"), Answer((Text("text"), Shell("ls", "g")))), exact="a"),
            Rule((long,), contains="b", joins=True),
            Rule(faults, regex="^c"),
        ),
        (say("d"),),
        say("over"),
        say("sum"),
        {"g": GateOpening(file=str(tmp_path / "go")), "f": GateOpening(seconds=2)},
    )
    assert parse_script(EVERYTHING, tmp_path) == expected
    file = tmp_path / "script.json"
    file.write_text(json.dumps(EVERYTHING))
    assert load_script(file) == expected


def test_an_empty_script_is_the_default() -> None:
    assert parse_script({}) == Script()


def answer(**fields: Any) -> dict[str, Any]:
    return {"default": [fields]}


def block(**fields: Any) -> dict[str, Any]:
    return answer(blocks=[fields])


MISTAKES: list[tuple[Any, str]] = [
    ([], "the script must be an object, not []"),
    ({"rule": []}, "rule is no field of this object, which has after_steps, compaction, default, gates, rules"),
    ({"rules": {}}, "rules must be a list, not {}"),
    ({"rules": [3]}, "rules[0] must be an object, not 3"),
    ({"rules": [{"steps": ["x"]}]}, "rules[0]: a rule needs exactly one of exact, contains and regex"),
    (
        {"rules": [{"exact": "a", "regex": "a", "steps": ["x"]}]},
        "rules[0]: a rule needs exactly one of exact, contains and regex",
    ),
    ({"rules": [{"exct": "a", "steps": ["x"]}]}, "rules[0].exct is no field of this object, which has contains, exact"),
    ({"rules": [{"exact": "a"}]}, "rules[0]: steps must not be empty"),
    ({"rules": [{"exact": "a", "steps": "x"}]}, 'rules[0].steps must be a list, not "x"'),
    (
        {"rules": [{"regex": "(", "steps": ["x"]}]},
        "rules[0]: regex is not a regular expression (missing ), unterminated subpattern",
    ),
    ({"rules": [{"exact": "a", "steps": ["x"], "joins": 1}]}, "rules[0].joins must be true or false, not 1"),
    ({"default": []}, "default must not be empty"),
    (answer(delay="2"), 'default[0].delay must be a number, not "2"'),
    (answer(delay=-1), "default[0]: delay must be from 0 to 3600 seconds"),
    (answer(delta_delay=5000), "default[0]: delta_delay must be from 0 to 3600 seconds"),
    (answer(delay=True), "default[0].delay must be a number, not true"),
    (block(), "default[0].blocks[0].type is missing; it must be a string"),
    (block(type="image"), 'default[0].blocks[0].type must be one of text, thinking, tool_use, shell, not "image"'),
    (block(type="text"), "default[0].blocks[0].text is missing; it must be a string"),
    (
        block(type="text", text="ab", deltas=3),
        "default[0].blocks[0]: deltas must not exceed the 2 characters of the text",
    ),
    (block(type="text", text="ab", deltas=2.5), "default[0].blocks[0].deltas must be an integer, not 2.5"),
    (
        block(type="text", text="ab", deltas=1, delta_size=1),
        "default[0].blocks[0]: give deltas or delta_size, not both",
    ),
    (block(type="text", text="ab", repeat=0), "default[0].blocks[0]: repeat must be from 1 to 1000000"),
    (block(type="text", text="ab", delta_size=0), "default[0].blocks[0]: delta_size must be at least 1"),
    (block(type="text", text="ab", gate_after=1), "default[0].blocks[0]: gate_after needs a gate"),
    (block(type="text", text="ab", txet=1), "default[0].blocks[0].txet is no field of this object"),
    (block(type="tool_use", name=""), "default[0].blocks[0]: name must not be empty"),
    (block(type="tool_use", name="n", input=[]), "default[0].blocks[0].input must be an object or a string, not []"),
    (block(type="tool_use", name="n", id=""), "default[0].blocks[0]: id must not be empty"),
    (block(type="shell", command=""), "default[0].blocks[0]: command must not be empty"),
    (answer(error={}), "default[0].error.status is missing; it must be an integer"),
    (answer(error={"status": 200}), "default[0].error: status must be from 400 to 599"),
    (answer(error={"status": 500, "times": 0}), "default[0].error: times must be at least 1"),
    (answer(error=500), "default[0].error must be an object, not 500"),
    (answer(stream_error={"after_events": -1}), "default[0].stream_error: after_events must be at least 0"),
    (answer(drop={}), "default[0].drop: a drop needs either after_events or after_bytes"),
    (
        answer(drop={"after_events": 1, "after_bytes": 1}),
        "default[0].drop: a drop needs either after_events or after_bytes",
    ),
    (answer(usage={"input_tokens": -1}), "default[0].usage: input_tokens must be at least 0"),
    ({"gates": {"g": {}}}, "gates.g: a gate needs either file or seconds"),
    ({"gates": {"g": 1}}, "gates.g must be an object, not 1"),
    ({"after_steps": None}, "after_steps must be an object, not null"),
    (
        {"compaction": "x" * 10, "default": ["y"], "gates": "z" * 100},
        'gates must be an object, not "' + "z" * 36 + "...",
    ),
]


@pytest.mark.parametrize(("value", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(value)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_script_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    for content, message in [
        (b"{\n  x", "line 2, column 3 is not JSON"),
        (b"\xff", "the script is not UTF-8 text"),
        (b"[" * 200_000, "the script is nested too deeply"),
        (b'{"x": 1}', "x is no field of this object"),
    ]:
        file.write_bytes(content)
        with pytest.raises(ScriptError) as caught:
            load_script(file)
        assert str(caught.value).startswith(f"{file}: {message}")
    with pytest.raises(ScriptError, match="cannot be read"):
        load_script(tmp_path / "missing.json")


def test_the_scripts_in_the_documentation_are_scripts() -> None:
    page = Path(__file__).parents[2] / "docs" / "scripted-model.md"
    scripts = re.findall(r"^```json\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(scripts) >= 3
    for script in scripts:
        parse_script(json.loads(script))


def test_rules_match_as_told() -> None:
    exact, contains, regex = (
        Rule((say("x"),), exact=" a\n"),
        Rule((say("x"),), contains="b"),
        Rule((say("x"),), regex="^c+$"),
    )
    assert [rule.matches("a ") for rule in (exact, contains, regex)] == [True, False, False]
    assert [rule.matches("A") for rule in (exact, contains, regex)] == [False, False, False]
    assert [rule.matches("abc") for rule in (exact, contains, regex)] == [False, True, False]
    assert [rule.matches("cc") for rule in (exact, contains, regex)] == [False, False, True]


def test_the_first_rule_that_matches_answers() -> None:
    script = Script((Rule((say("1"),), contains="a"), Rule((say("2"),), exact="ab")), default=(say("3"),))
    assert [script.answer(prompt, 0) for prompt in ("ab", "b", None)] == [say("1"), say("3"), say("3")]
