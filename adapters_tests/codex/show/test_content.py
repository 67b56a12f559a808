"""Prompts to user input and back: exactly, or refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import dump, parse_content
from adapters.codex.show.content import from_input, to_input

PNG = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()

BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "hello\n\u2028 \U0001f600 \x00 \r\n end "},
    "empty": {"type": "text", "text": ""},
    "looks-written": {"type": "text", "text": '<resource_link name="a" uri="b"/>'},
    "looks-escaped": {"type": "text", "text": '\\\\<resource_link name="a" uri="b"/>'},
    "nearly-written": {"type": "text", "text": '<resource_link name="a" uri="b" />'},
    "link": {"type": "resource_link", "name": 'no"tes', "uri": "file:///a b.md", "size": 3, "title": "<x>"},
    "resource": {"type": "resource", "resource": {"uri": "file:///a.py", "text": "print()\n", "mimeType": "text/x"}},
    "annotated": {
        "type": "resource",
        "resource": {"uri": "u", "text": "</resource>"},
        "annotations": {"priority": 0.5},
    },
    "text-blob": {"type": "resource", "resource": {"uri": "u", "blob": base64.b64encode(b"a\nb").decode()}},
    "image": {"type": "image", "data": PNG, "mimeType": "image/png"},
    "named-image": {"type": "image", "data": PNG, "mimeType": "image/png", "uri": "file:///i.png"},
    "image-blob": {"type": "resource", "resource": {"uri": "u", "blob": PNG, "mimeType": "image/png"}},
}


def blocks(*given_blocks: dict[str, Any]) -> list[Any]:
    return [parse_content(block) for block in given_blocks]


def round_trip(*given_blocks: dict[str, Any]) -> list[dict[str, Any]]:
    stored = [{**part, "detail": None} if part["type"] == "image" else part for part in to_input(blocks(*given_blocks))]
    return [dump(block) for block in from_input(stored)]


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
def test_a_block_comes_back_as_it_was_sent(block: dict[str, Any]) -> None:
    """REPLAY-3, PROMPT-20: what replay shows is what was sent."""
    assert round_trip(block) == [block]


def test_all_blocks_together_keep_their_order() -> None:
    """PROMPT-7: one message."""
    assert round_trip(*BLOCKS.values()) == list(BLOCKS.values())


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_comes_back(texts: list[str]) -> None:
    """PROMPT-20: also text that looks like our own markup."""
    given_blocks = [{"type": "text", "text": text} for text in texts]
    assert round_trip(*given_blocks) == given_blocks


@given(st.integers(0, 3), st.sampled_from(["resource_link", "resource", "image"]), st.text(max_size=5))
def test_text_that_looks_written_comes_back(slashes: int, tag: str, name: str) -> None:
    """PROMPT-20: escaped, however often."""
    for body in (f'<{tag} name="{name}"/>', f'<{tag} name="{name}">\nx\n</{tag}>', f"<{tag} follows/>"):
        block = {"type": "text", "text": "\\" * slashes + body}
        assert round_trip(block) == [block]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "surrogate": ({"type": "text", "text": "a\ud800b"}, "surrogate"),
    "surrogate-in-link": ({"type": "resource_link", "name": "\udcff", "uri": "u"}, "surrogate"),
    "audio": ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "cannot take"),
    "binary": ({"type": "resource", "resource": {"uri": "u", "blob": "AP8="}}, "binary"),
    "no-image": ({"type": "image", "data": base64.b64encode(b"<html>").decode(), "mimeType": "image/png"}, "none of"),
    "empty-image": ({"type": "image", "data": "", "mimeType": "image/png"}, "empty"),
    "no-base64": ({"type": "image", "data": "!", "mimeType": "image/png"}, "base64"),
}


@pytest.mark.parametrize(("block", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_codex_cannot_take_is_refused_by_name(block: dict[str, Any], why: str) -> None:
    """PROMPT-13: the whole prompt, before anything is sent; never a replaced character."""
    with pytest.raises(InvalidParams) as caught:
        to_input(blocks({"type": "text", "text": "fine"}, block))
    assert "prompt[1]" in caught.value.message
    assert why in caught.value.message


def test_input_of_other_hosts_is_shown() -> None:
    """ADP-5, D11: whatever wrote it; what shows nothing is left out."""
    stored: list[Any] = [
        {"type": "text", "text": "hi", "text_elements": [{"byteRange": {}}]},
        {"type": "localImage", "path": "/a/b.png"},
        {"type": "mention", "name": "f", "path": "/a/f.py"},
        {"type": "mention", "path": "app://x"},
        {"type": "skill", "name": "tidy", "path": "/s"},
        {"type": "image", "url": "https://x/y.png"},
        {"type": "image", "fileId": "f1"},
        {"type": "new"},
        None,
        {"type": "text", "text": 7},
    ]
    shown = [dump(block) for block in from_input(stored)]
    assert shown == [
        {"type": "text", "text": "hi"},
        {"type": "resource_link", "name": "b.png", "uri": "file:///a/b.png"},
        {"type": "resource_link", "name": "f", "uri": "file:///a/f.py"},
        {"type": "resource_link", "name": "x", "uri": "app://x"},
        {"type": "text", "text": "$tidy"},
        {"type": "resource_link", "name": "image", "uri": "https://x/y.png"},
    ]
    assert from_input("no list") == []
