"""Whether a model takes an image, judged by its first bytes. Decodes no pixels.

An image that the model refuses stays in the stored session and makes every later turn fail, so it must be refused first.
"""

import binascii
import struct
from typing import Final

TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The image types that the models' APIs take."""

LONGEST_SIDE: Final = 8000
"""Pixels; the APIs refuse larger images."""


def fault_of(data: str) -> str | None:
    """The fault of a base64 image, as the end of a sentence; None for a good image."""
    if not data:
        return "is empty"
    try:
        image = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return "is not valid base64"
    found = type_of(image)
    if found is None:
        return f"is none of {', '.join(TYPES)}"
    size = _size(image, found)
    if size and max(size) > LONGEST_SIDE:
        return f"is larger than {LONGEST_SIDE} pixels on a side"
    return "has no pixels" if size and min(size) == 0 else None


def type_of(head: bytes) -> str | None:
    """The image type that the first bytes of a file show."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else None


def _size(head: bytes, kind: str) -> tuple[int, int] | None:
    """Width and height in pixels, None when these bytes do not tell."""
    try:
        if kind == "image/png":
            return struct.unpack_from(">II", head, 16)
        if kind == "image/gif":
            return struct.unpack_from("<HH", head, 6)
        return _jpeg_size(head) if kind == "image/jpeg" else _webp_size(head)
    except struct.error:
        return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:  # noqa: PLR2004 - every JPEG segment starts so
            return None
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004 - start of frame
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        at += 2 + length
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None
