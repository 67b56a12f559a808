"""Titles, code blocks and paths of tool calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.driver.tool_text import absolute, fenced, one_line, relative


def test_one_line() -> None:
    """A title is one line of bounded length."""
    assert one_line(" a\n  b\u2028c ") == "a b c"
    assert one_line("x" * 201) == "x" * 199 + "…"
    assert one_line("abcdef", 3) == "ab…"


@pytest.mark.parametrize(("text", "fence"), [("a\n", "```"), ("```\na\n```", "````"), ("`````", "``````")])
def test_a_block_holds_any_backticks(text: str, fence: str) -> None:
    """Whatever a tool prints stays inside."""
    assert fenced(text, "x") == f"{fence}x\n{text.removesuffix(chr(10))}\n{fence}"


@given(st.text(st.sampled_from("`a\n ")) | st.text())
def test_a_fence_is_longer_than_any_in_the_text(text: str) -> None:
    block = fenced(text)
    fence = block.split("\n", 1)[0]
    assert block.startswith(fence + "\n")
    assert block.endswith("\n" + fence)
    assert fence not in text


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/../b", "/b"), ("c", "/w/c"), ("../c", "/c"), ("", ""), (None, ""), (7, "")],
)
def test_absolute(path: object, expected: str) -> None:
    """TOOL-7, DIFF-1: absolute, or none."""
    assert absolute(path, "/w") == expected


def test_nothing_is_absolute_below_a_folder_that_is_not() -> None:
    assert absolute("x", "relative") == ""
    assert absolute("/\udcb2", "/w") == "/\udcb2"


def test_relative() -> None:
    """As a reader in the folder names it."""
    assert relative("/w/a/b", "/w") == "a/b"
    assert relative("/w", "/w") == "/w"
    assert relative("/wx/a", "/w/") == "/wx/a"
