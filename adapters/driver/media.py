"""Images and sounds of tools as blocks that a client can draw, play or at least save.

A client draws the image types that models take, and cannot draw an unknown type. So everything else is a resource: text if it is
text (SVG), otherwise bytes. Knows no tool and no runtime.
"""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from adapters.acp.schema import (
    AudioBlock,
    BlobResource,
    ContentBlock,
    ImageBlock,
    ResourceBlock,
    ResourceLinkBlock,
    TextBlock,
    TextResource,
)
from adapters.core.file_calls import open_file
from adapters.driver import images

MOST_SHOWN: Final = 4_000_000
"""Bytes of an image file that are sent; of a larger one, its name."""

_SOUNDS: Final = frozenset(
    f"audio/{name}" for name in ("aac", "flac", "mp3", "mp4", "mpeg", "ogg", "opus", "wav", "wave", "webm", "x-wav")
)
_SVG: Final = "image/svg+xml"
_SVG_START: Final = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:svg[\s>]|\?xml\b|!--|!DOCTYPE svg)", re.IGNORECASE)
_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.ASCII)
_HEAD: Final = 256  # characters of base64, a multiple of four


def shown(block: ContentBlock) -> ContentBlock:
    """A block of a tool's result as clients can show it: an image or a sound of a known type, a resource, or what it is."""
    if isinstance(block, ImageBlock):
        return _image(block)
    if isinstance(block, AudioBlock):
        mime, data = _parts(block)
        if mime in _SOUNDS:
            return AudioBlock(data=data, mime_type=mime)
        return _resource("audio", mime, data)
    return block


def image_file(path: str, seen: int = 0) -> ContentBlock | None:
    """The image in a file. A link to it if clients cannot draw it, if it is large, or if it cannot be read. None for no path.

    `seen`: when somebody looked at it, milliseconds since the epoch. What was written after that is another image. Blocks for as
    long as it takes to read a file.
    """
    try:
        link: dict[str, Any] = {"name": os.path.basename(path), "uri": Path(path).as_uri()}  # noqa: PTH119
    except ValueError:
        return None
    with suppress(OSError, ValueError), open_file(path) as opened:
        found = os.fstat(opened.fileno())
        link["size"] = found.st_size
        if found.st_size <= MOST_SHOWN and not (seen and found.st_mtime_ns >= (seen + 1) * 1_000_000):
            content = opened.read(MOST_SHOWN)
            if mime := images.type_of(content):
                return ImageBlock(data=b64encode(content).decode(), mime_type=mime, uri=link["uri"])
    return ResourceLinkBlock(**link)


def image_of(data: str) -> ContentBlock:
    """The block of a base64 image of unknown type."""
    return _image(ImageBlock(data=data, mime_type=""))


def _image(block: ImageBlock) -> ContentBlock:
    mime, data = _parts(block)
    head = _decoded(data[:_HEAD])
    if head and _SVG_START.match(head):
        return _resource("image", _SVG, data)
    if mime in images.TYPES:
        return block if (mime, data) == (block.mime_type, block.data) else ImageBlock(data=data, mime_type=mime)
    if found := images.type_of(head or b""):
        return ImageBlock(data=data, mime_type=found)
    return _resource("image", mime, data)


def _parts(block: ImageBlock | AudioBlock) -> tuple[str, str]:
    """Type and data in the usual spelling: some servers give whole `data:` URLs."""
    mime, data = block.mime_type, block.data
    if found := _DATA_URL.match(data):
        mime, data = mime or found["type"] or "", data[found.end() :]
    return mime.partition(";")[0].strip().lower(), data


def _resource(kind: str, mime: str, data: str) -> ContentBlock:
    content = _decoded(data)
    if content is None:
        return TextBlock(text=f"(The tool gave something of the type {mime or kind} that is not valid base64.)")
    subtype = mime.partition("/")[2]
    uri = f"attachment:{kind}.{re.sub(r'^x-|[+].*$|[^a-z0-9-]', '', subtype) or 'bin'}"
    if mime == _SVG:
        with suppress(UnicodeDecodeError):
            return ResourceBlock(resource=TextResource(uri=uri, mime_type=mime, text=content.decode("utf-8-sig")))
    return ResourceBlock(resource=BlobResource(uri=uri, mime_type=mime or "application/octet-stream", blob=data))


def _decoded(data: str) -> bytes | None:
    try:
        return binascii.a2b_base64(data.encode("ascii"))
    except ValueError:
        return None
