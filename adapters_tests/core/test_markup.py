"""Markup: read back exactly, and nothing else is ever taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.core.markup import Markup, escape, read, unescape, write

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_NAMES = st.sampled_from(["uri", "name", "mimeType", "_meta", "a.b", "x-y"])
_MARKUP = st.builds(
    Markup,
    st.sampled_from(["resource_link", "resource", "image"]),
    st.dictionaries(_NAMES, _JSON, min_size=1, max_size=4),
    st.frozensets(st.sampled_from(["base64", "follows"])),
    st.none() | st.text(),
)


@given(_MARKUP)
def test_what_is_written_is_read(markup: Markup) -> None:
    """PROMPT-20: every field of a block comes back."""
    assert read(write(markup)) == markup


@given(st.text(), _MARKUP, st.integers(0, 3))
def test_no_text_is_changed(text: str, markup: Markup, slashes: int) -> None:
    """A user's text that looks written is escaped, however often, and comes back."""
    for own in (text, "\\" * slashes + write(markup), write(markup) + text):
        assert unescape(escape(own)) == own
        if read(own) is not None:
            assert read(escape(own)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<resource_link/>",
        '<resource_link name="a" />',
        '<resource_link name= "a"/>',
        '<resource_link  name="a"/>',
        '<resource name="a">x</resource>',
        '<other name="a"/>',
        '<image name={"a":1 }/>',
        "<image " + "a" * 70_000,
        '<image name="a"/> and more',
        "<image a=" + "[" * 5000 + "/>",
    ],
)
def test_other_text_is_no_markup(text: str) -> None:
    """Byte for byte as writing gives it, or not at all."""
    assert read(text) is None


def test_values_keep_their_kind() -> None:
    """Absent, null and a value are three things."""
    attributes: dict[str, Any] = {"title": None, "size": 0, "on": False}
    found = read(write(Markup("resource_link", attributes)))
    assert found is not None
    assert dict(found.attributes) == attributes
