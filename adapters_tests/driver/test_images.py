"""Images are judged by their first bytes."""

from __future__ import annotations

import base64

import pytest

from adapters.driver.images import fault_of, type_of

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def fault(head: bytes) -> str | None:
    return fault_of(base64.b64encode(head).decode())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "is empty"),
        ("not base64!", "is not valid base64"),
        (PNG[:-3], "is not valid base64"),
        (base64.b64encode(b"<html>hello").decode(), "is none of image/png, image/jpeg, image/gif, image/webp"),
    ],
)
def test_what_is_no_image_is_told(data: str, reason: str) -> None:
    """It would fail this turn and every later one."""
    assert fault_of(data) == reason


def test_a_whole_image_has_no_fault() -> None:
    assert fault_of(PNG) is None


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x23\x28\0\0\0\x14"),
        ("image/jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF" + b"\0" * 10 + b"\xff\xc0\0\x11\x08\x00\x10\x23\x28"),
        ("image/gif", b"GIF89a\x28\x23\x10\x00"),
        ("image/webp", b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x27\x23\0\x0f\0\0"),
        ("image/webp", b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x28\x23\x10\0"),
        ("image/webp", b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x27\xe3\x03\0"),
    ],
)
def test_size_is_read_from_every_image_type(kind: str, head: bytes) -> None:
    """An image 9000 pixels wide is refused whatever its type."""
    assert type_of(head) == kind
    assert fault(head) == "is larger than 8000 pixels on a side"


@pytest.mark.parametrize(
    "head",
    [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0\0\x02\0\0\0\0\0\0\0\0",
        b"GIF87a",
        b"RIFF\0\0\0\0WEBPnew ",
        b"RIFF\0\0\0\0WEBPVP8L",
    ],
)
def test_an_image_whose_size_is_not_told_passes(head: bytes) -> None:
    """Only what is known to be wrong is refused; the runtime looks at the rest."""
    assert fault(head) is None


def test_an_image_without_pixels_is_refused() -> None:
    assert fault(b"GIF89a\0\0\x10\0") == "has no pixels"
