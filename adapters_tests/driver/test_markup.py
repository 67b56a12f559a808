"""Markup: read back exactly, and nothing else is ever taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.driver.markup import Markup, escape, read, spoken, unescape, write

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


# --- what a title shows ----------------------------------------------------------------------------------------------------

LINK = Markup("resource_link", {"name": "a.py", "uri": "file:///x/a.py"})
FILE = Markup("resource", {"uri": "file:///x/b.py", "mimeType": "text/x-python"}, body="x = 1\ny = 2\n")
PICTURE = Markup("image", {"uri": "file:///x/c.png"})
PDF = Markup("resource", {"uri": "file:///x/d.pdf"}, frozenset({"follows"}))


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((LINK, "Explain this"), "Explain this"),
        (("Explain ", LINK, "please"), "Explain  please"),
        ((FILE, LINK, PICTURE, PDF, "What is it?"), "What is it?"),
        (("Explain",), "Explain"),
        ((LINK, FILE, PICTURE, PDF), "a.py, b.py, c.png, d.pdf"),
        (("1 <resource_link> 2 <resource x> 3 <image",), "1 <resource_link> 2 <resource x> 3 <image"),
        ((escape(write(LINK)),), write(LINK)),
        ((escape("\\" + write(LINK)),), "\\" + write(LINK)),
        (("\\d is a digit",), "\\d is a digit"),
        (("",), ""),
    ],
)
def test_a_title_shows_what_the_user_wrote(parts: tuple[Markup | str, ...], shown: str) -> None:
    """LIST-4: the parts of a prompt are joined where a runtime shows the beginning of a session."""
    joined = "".join(part if isinstance(part, str) else write(part) for part in parts)
    assert spoken(joined) == shown


@given(_MARKUP, st.integers(0, 400))
def test_a_title_that_was_cut_in_markup_shows_none_of_it(markup: Markup, left: int) -> None:
    """LIST-4: wherever it was cut behind the first attribute's name."""
    written = write(markup)
    first = next(iter(markup.attributes))
    cut = written[: max(left, len(f"<{markup.tag} {first}="))]
    assert "<" not in spoken("Look: " + cut).replace("Look: ", "", 1) or "<" in (markup.body or "")
    assert spoken("Look: " + cut).startswith("Look:")


@given(st.text())
def test_text_without_markup_is_its_own_title(text: str) -> None:
    """LIST-4: nothing of it is taken away but blanks."""
    if "<resource" not in text and "<image" not in text:
        assert spoken(text) == (text if text.strip() else "")
