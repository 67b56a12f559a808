"""What a terminal shows in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.v1.terminal_text import readable


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("plain\n\ttext\n", "plain\n\ttext\n"),
        ("\x1b[1;31mred\x1b[0m and \x1b[38;2;1;2;3mmore\x1b[m", "red and more"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("longer\rab", "abnger"),
        ("longer\r\x1b[Kab", "ab"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("abc\b\bX", "aXc"),
        ("one\ntwo\n\x1b[2A\x1b[2Kuno\n", "uno\ntwo\n"),
        ("one\ntwo\x1b[2J\x1b[Hnew", "new"),
        ("one\ntwo\x1b[1A\r\x1b[Jx", "x"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\!", "link!"),
        ("\x1b(Bx\x1b=y\x07\x00z", "xyz"),
        ("a\x1b[3Cb\x1b[2Gc", "ac  b"),
        ("cut \x1b[", "cut"),
        ("\x1b[999999999Cx\x1b[1G.", ".x"),
        ("a\x85b\x9fc", "a\nbc"),
    ],
)
def test_what_is_seen(printed: str, seen: str) -> None:
    assert readable(printed) == seen


@given(st.text(alphabet=st.sampled_from("ab \n\r\t\b\x1b[]0;123mKJHAG\x07\x9b\x00")))
def test_nothing_but_text_is_left(printed: str) -> None:
    seen = readable(printed)
    assert all(char in "\n\t" or char.isprintable() for char in seen)
    assert readable(seen) == seen


def test_a_long_redraw_is_cheap() -> None:
    """A progress bar of many steps: what is kept is one line."""
    assert (
        readable("".join(f"\r{step:6d} of 100000 \x1b[32m#\x1b[0m" for step in range(100_000))) == " 99999 of 100000 #"
    )
