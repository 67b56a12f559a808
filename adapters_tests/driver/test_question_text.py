"""What a person approves is shown whole and seen."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.driver.question_text import (
    LONGEST_LABEL,
    LONGEST_TITLE,
    Choices,
    code,
    described,
    fields,
    is_unseen,
    name_of,
    said,
    title_of,
    unseen_note,
    visible,
    whole,
)

TEXT = st.text(st.characters() | st.sampled_from("\u202e\u200b\x1b\r\n\u3164\ufe0f` ~<"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls\n\t-l\r\n", "ls\n\t-l\n"),
        ("a\rb\x1b[2K\x00", "a[U+000D]b[U+001B][2K[U+0000]"),
        ("\u202eabc\u2066\u200b\u200d\ufeff", "[U+202E]abc[U+2066][U+200B][U+200D][U+FEFF]"),
        ("a\u00a0b\u3000c\u2028d", "a[U+00A0]b[U+3000]c[U+2028]d"),
        ("\u3164\u2800\u034f\ufe0f\U000e0041\U000e0100", "[U+3164][U+2800][U+034F][U+FE0F][U+E0041][U+E0100]"),
        ("\ud800", "[U+D800]"),
        ("für 你好 سلام 👍", "für 你好 سلام 👍"),
    ],
)
def test_what_cannot_be_seen_gets_a_name(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(TEXT)
def test_nothing_unseen_is_left(text: str) -> None:
    shown = visible(text)
    assert not any(is_unseen(char) for char in shown)
    assert all(char in "\n\t" or unicodedata.category(char)[0] != "C" for char in shown)
    assert visible(shown) == shown


@given(TEXT)
def test_a_text_is_whole_in_the_title_or_in_the_description(text: str) -> None:
    title = title_of(f"Run {text}")
    assert len(title) <= LONGEST_TITLE
    assert "\n" not in title
    block = whole(text, title)
    if block:
        assert block == code(text)
        assert visible(text).removesuffix("\n") in block
    else:
        assert text.strip() in title
        assert visible(text.strip()) == text.strip()


@given(TEXT, TEXT)
def test_what_a_model_says_hides_nothing_behind_it(text: str, command: str) -> None:
    """Neither an open code block nor an HTML comment swallows the text that follows."""
    shown = said(text)
    fence = shown.split("\n", 1)[0]
    if shown.startswith("```"):
        assert shown.endswith(f"\n{fence}")
        assert fence not in shown.removeprefix(fence).removesuffix(fence)
    else:
        assert not any(sign in shown for sign in ("```", "~~~", "<", "\n"))
    assert (described([shown, code(command)]) or "").endswith(code(command))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/w/a b.txt", "/w/a b.txt"),
        ("/w/__init__.py", "`/w/__init__.py`"),
        ("/w/<!--\n", "`/w/<!--[U+000A]`"),
        ("a``b\t", "``` a``b[U+0009] ```"),
        ("\u202e", "`[U+202E]`"),
    ],
)
def test_a_name_in_a_sentence(name: str, shown: str) -> None:
    """As it is on the disk, whatever Markdown would make of it."""
    assert name_of(name) == shown


def test_the_input_of_a_tool() -> None:
    given_input = {"a": "x", "b": "x\ny", "c": {"d": ["<b>"]}, "e": None, "f": False, "g": 3, "h": "*", "i\n": "\u200b"}
    assert fields(given_input) == [
        "a: x",
        "b:\n```\nx\ny\n```",
        'c:\n```\n{\n  "d": [\n    "<b>"\n  ]\n}\n```',
        "g: 3",
        "h:\n```\n*\n```",
        "i:\n```\n[U+200B]\n```",
    ]


@given(st.dictionaries(st.text(st.characters(categories=["L"]), min_size=1), st.text(min_size=200), max_size=3))
def test_no_member_of_an_input_is_cut(values: dict[str, str]) -> None:
    shown = "\n".join(fields(values))
    assert all(visible(value).removesuffix("\n") in shown for value in values.values())


def test_characters_that_cannot_be_seen_are_named() -> None:
    assert unseen_note("plain\r\n", {"a": ["b"]}, None, 7) == ""
    note = unseen_note({"old": ["a\u202e"]}, "\u200b")
    assert note == "Holds characters that cannot be seen: U+200B, U+202E."
    assert unseen_note("".join(map(chr, range(0x2000, 0x200B)))).endswith("U+2007, ….")
    assert unseen_note(json.loads('"\\ud800"')) == "Holds characters that cannot be seen: U+D800."


def test_a_label_is_never_cut_and_long_ones_are_said_twice() -> None:
    made = Choices()
    made.add("a", "Allow", "allow_once", {})
    made.add("b", "Always {} here", "allow_always", {}, ["one", "two"])
    rules = [f"Bash(command {number} *)" for number in range(20)]
    made.add("c", "Always {} here", "allow_always", {}, rules)
    made.add("d", "x" * (LONGEST_LABEL + 1), "allow_once", {})
    names = [option.name for option in made.options]
    assert names[:2] == ["Allow", "Always one, two here"]
    assert names[2] == f"Always {', '.join(rules)} here"
    assert names[3] == "x" * (LONGEST_LABEL + 1)
    assert len(made.details) == 2
    assert made.details[0].split("\n")[2:-1] == rules
    assert "x" * (LONGEST_LABEL + 1) in made.details[1]


@pytest.mark.parametrize("rule", ["Bash(a), Read", "Bash(a\nb)", "Bash(a  b)", "Bash(\u202e)"])
def test_a_rule_that_a_label_cannot_show_as_it_is_stands_in_the_description(rule: str) -> None:
    made = Choices()
    made.add("a", "Always {}", "allow_always", {}, [rule])
    assert "\n" not in made.options[0].name
    assert visible(rule) in made.details[0]
