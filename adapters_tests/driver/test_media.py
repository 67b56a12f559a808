"""What a tool gives to look at or to hear: drawn, played, or saved; never a block that no client can use."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.schema import AudioBlock, ContentBlock, ImageBlock, TextBlock, dump
from adapters.driver import images, media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>ä</text></svg>'


def base64(content: bytes | str) -> str:
    return b64encode(content.encode() if isinstance(content, str) else content).decode()


def image(mime: str, content: bytes | str) -> dict[str, Any]:
    return dump(media.shown(ImageBlock(data=base64(content), mime_type=mime)))


@pytest.mark.parametrize(
    "mime", ["image/png", "IMAGE/PNG", "image/png; x=y", "", "image/x-png", "application/octet-stream"]
)
def test_an_image_that_every_client_draws_stays_one(mime: str) -> None:
    assert image(mime, PNG) == {"type": "image", "data": base64(PNG), "mimeType": "image/png"}


@pytest.mark.parametrize("mime", ["image/svg+xml", "image/svg+xml;charset=utf-8", "image/png", "text/xml", ""])
@pytest.mark.parametrize("before", ["", "\ufeff", '<?xml version="1.0"?>\n', "\n <!-- a -->"])
def test_an_svg_is_text(mime: str, before: str) -> None:
    """Also one that pretends to be something else."""
    assert image(mime, before + SVG) == {
        "type": "resource",
        "resource": {
            "uri": "attachment:image.svg",
            "mimeType": "image/svg+xml",
            "text": before.removeprefix("\ufeff") + SVG,
        },
    }


@pytest.mark.parametrize(
    ("mime", "uri"),
    [
        ("image/tiff", "attachment:image.tiff"),
        ("image/x-icon", "attachment:image.icon"),
        ("image/../../x", "attachment:image.x"),
        ("image/", "attachment:image.bin"),
    ],
)
def test_another_image_is_bytes(mime: str, uri: str) -> None:
    resource = image(mime, b"II*\0")["resource"]
    assert resource == {"uri": uri, "mimeType": mime, "blob": base64(b"II*\0")}


def test_sounds() -> None:
    """Known ones are played, others can be saved."""
    for mime, kind in (("audio/mpeg", "audio"), ("Audio/WAV", "audio"), ("audio/x-aiff", "resource"), ("", "resource")):
        assert dump(media.shown(AudioBlock(data=base64(b"x"), mime_type=mime)))["type"] == kind


def test_a_whole_data_url_is_taken_apart() -> None:
    url = f"data:image/png;base64,{base64(PNG)}"
    assert dump(media.image_of(url)) == {"type": "image", "data": base64(PNG), "mimeType": "image/png"}


def test_what_is_no_base64_is_said_in_words() -> None:
    block = media.shown(ImageBlock(data="a", mime_type="image/tiff"))
    assert isinstance(block, TextBlock)
    assert "image/tiff" in block.text


def test_other_blocks_stay() -> None:
    assert media.shown(TextBlock(text="x")) == TextBlock(text="x")


@given(st.text(), st.binary() | st.just(PNG) | st.just(SVG.encode()))
def test_no_client_gets_an_image_that_it_cannot_draw(mime: str, content: bytes) -> None:
    block = media.shown(ImageBlock(data=base64(content), mime_type=mime))
    assert not isinstance(block, ImageBlock) or block.mime_type in images.TYPES


def link(block: ContentBlock | None) -> dict[str, Any]:
    assert block is not None
    shown = dump(block)
    assert shown.pop("type") == "resource_link"
    return shown


def test_an_image_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    path.write_bytes(PNG)
    block = media.image_file(str(path))
    assert block is not None
    assert dump(block) == {"type": "image", "data": base64(PNG), "mimeType": "image/png", "uri": path.as_uri()}


def test_a_file_that_is_not_drawn_is_a_link(tmp_path: Path) -> None:
    """Large, of another type, gone, no file at all."""
    large, other = tmp_path / "large.png", tmp_path / "a.svg"
    large.write_bytes(PNG + bytes(media.MOST_SHOWN))
    other.write_text(SVG)
    os.mkfifo(tmp_path / "pipe")
    assert link(media.image_file(str(large))) == {
        "name": "large.png",
        "uri": large.as_uri(),
        "size": large.stat().st_size,
    }
    assert link(media.image_file(str(other)))["name"] == "a.svg"
    for path in (tmp_path / "none.png", tmp_path / "pipe", tmp_path):
        assert link(media.image_file(str(path))) == {"name": path.name, "uri": path.as_uri()}
    assert media.image_file("relative.png") is None


def test_an_image_that_was_written_since_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    written = path.stat().st_mtime_ns // 1_000_000
    assert isinstance(media.image_file(str(path), written), ImageBlock)
    assert link(media.image_file(str(path), written - 1000))["name"] == "a.png"
