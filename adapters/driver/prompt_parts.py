"""A client's prompt as the parts that runtimes take (text and files), and stored parts as the client's blocks again.

Owns both directions, so that a message looks the same live and in a replay. Text, resource links, embedded resources and images
come back exactly. What no runtime takes (annotations of text) is lost. A driver turns parts into its runtime's content and back.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ContentBlock, ImageBlock, ResourceBlock, ResourceLinkBlock, TextBlock, dump
from adapters.acp.shapes import as_mapping, as_text
from adapters.driver import images, markup
from adapters.driver.markup import Markup

__all__ = [
    "PDF",
    "File",
    "Part",
    "from_parts",
    "to_parts",
]

PDF: Final = "application/pdf"

_Block = TypeVar("_Block", ImageBlock, ResourceBlock, ResourceLinkBlock)


@dataclass(frozen=True, slots=True)
class File:
    """An image or document that a runtime takes beside text."""

    kind: Literal["image", "document"]
    media_type: str
    """Of an image that is written: the type that its bytes show."""
    data: str
    """Base64, not empty."""
    uri: str = "attachment:document"
    """The name of a stored document that no markup describes."""


Part = str | File
"""A part of a prompt: text, or a file."""


def to_parts(
    block: ContentBlock,
    where: str,
    *,
    runtime: str,
    takes_pdf: bool = False,
    escape: Callable[[str], str] = markup.escape,
) -> Iterator[Part]:
    """The parts of one block of a prompt, in order. `where` and `runtime` are names for error messages.

    Raises `InvalidParams` for a block that cannot be taken in truthfully: audio, unknown types, files that are neither text
    nor image (nor PDF), images that would make every later turn fail. Nothing is skipped (PROMPT-13).
    """
    fields = dump(block)
    kind = fields["type"]
    if kind == "text":
        yield escape(fields["text"])
    elif kind == "resource_link":
        yield markup.write(Markup("resource_link", _without(fields, "type")))
    elif kind == "resource":
        yield from _resource_parts(fields, where, runtime, takes_pdf=takes_pdf)
    elif kind == "image":
        if description := _without(fields, "type", "data", "mimeType"):
            yield markup.write(Markup("image", description))
        yield _image(fields["data"], where)
    else:
        raise InvalidParams(f"{where} has a type that {runtime} cannot take: send text, an image or a resource.")


def from_parts(
    parts: Sequence[Part | ContentBlock | None],
    *,
    read: Callable[[str], Markup | None] = markup.read,
    unescape: Callable[[str], str] = markup.unescape,
) -> list[ContentBlock]:
    """The client's blocks of stored parts, the inverse of `to_parts`. A block stands for itself, None for nothing to show."""
    blocks: list[ContentBlock] = []
    at = 0
    while at < len(parts):
        part, following = parts[at], parts[at + 1] if at + 1 < len(parts) else None
        at += 1
        if part is None:
            continue
        if isinstance(part, File):
            blocks.extend(_undescribed(part))
        elif not isinstance(part, str):
            blocks.append(part)
        else:
            found = read(part)
            described = _described(found, following) if found and isinstance(following, File) else None
            at += described is not None
            blocks.append(described or _embedded(found) or TextBlock(text=unescape(part)))
    return blocks


# --- writing ---------------------------------------------------------------------------------------------------------


def _resource_parts(block: Mapping[str, Any], where: str, runtime: str, *, takes_pdf: bool) -> Iterator[Part]:
    resource: Mapping[str, Any] = block["resource"]
    outer = _without(block, "type", "resource")
    attributes = _without(resource, "text", "blob") | ({"block": outer} if outer else {})
    if "blob" not in resource:
        yield markup.write(Markup("resource", attributes, body=resource["text"]))
        return
    blob: str = resource["blob"]
    kind = as_text(resource.get("mimeType")).lower()
    if kind.startswith("image/"):
        yield markup.write(Markup("resource", attributes, frozenset({"follows"})))
        yield _image(blob, where)
    elif kind == PDF and takes_pdf:
        if not _decoded(blob).startswith(b"%PDF-"):
            raise InvalidParams(f"The resource in {where} is not a PDF although its mimeType says so.")
        yield markup.write(Markup("resource", attributes, frozenset({"follows"})))
        yield File("document", PDF, blob)
    elif (text := _as_utf8(blob)) is not None:
        yield markup.write(Markup("resource", attributes, frozenset({"base64"}), text))
    else:
        takes = "text, images and PDF" if takes_pdf else "text and images"
        raise InvalidParams(f"The resource in {where} is binary: {runtime} takes {takes} only.")


def _image(data: str, where: str) -> File:
    if fault := images.fault_of(data):
        raise InvalidParams(f"The image in {where} {fault}.")
    # The type that the bytes show: a model's API refuses an image that is called something else.
    return File("image", images.type_of(_decoded(data[:64])) or "", data)


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _decoded(data: str) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return b""


def _as_utf8(blob: str) -> str | None:
    """The text of a blob, None when it is no text or would not give the same blob again."""
    try:
        text = _decoded(blob).decode()
    except UnicodeDecodeError:
        return None
    return text if _as_blob(text) == blob else None


def _as_blob(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


# --- reading ---------------------------------------------------------------------------------------------------------


def _undescribed(file: File) -> Iterator[ContentBlock]:
    if file.kind == "image":
        yield ImageBlock(data=file.data, mime_type=file.media_type)
    else:
        resource = {"uri": file.uri, "mimeType": file.media_type, "blob": file.data}
        yield from _exactly(ResourceBlock, {"type": "resource", "resource": resource})


def _described(found: Markup, file: File) -> ContentBlock | None:
    """The block that markup and the file behind it stand for together."""
    if found.body is None and found.tag == file.kind == "image" and not found.flags:
        fields = {**found.attributes, "type": "image", "data": file.data, "mimeType": file.media_type}
        return next(_exactly(ImageBlock, fields), None)
    if found.body is None and found.tag == "resource" and found.flags == frozenset({"follows"}):
        return next(_resource(found, {"blob": file.data}), None)
    return None


def _embedded(found: Markup | None) -> ContentBlock | None:
    """The block that markup stands for alone; None for text that is none."""
    if found is None:
        return None
    if found.tag == "resource_link" and found.body is None and not found.flags:
        return next(_exactly(ResourceLinkBlock, {**found.attributes, "type": "resource_link"}), None)
    if found.tag == "resource" and found.body is not None and found.flags <= {"base64"}:
        content = {"blob": _as_blob(found.body)} if found.flags else {"text": found.body}
        return next(_resource(found, content), None)
    return None


def _resource(found: Markup, content: Mapping[str, Any]) -> Iterator[ContentBlock]:
    resource = {**_without(found.attributes, "block"), **content}
    outer = as_mapping(found.attributes.get("block"))
    yield from _exactly(ResourceBlock, {**outer, "type": "resource", "resource": resource})


def _exactly(model: type[_Block], fields: Mapping[str, Any]) -> Iterator[_Block]:
    """The block that these fields make exactly, nothing when they do not: then the text stays text."""
    try:
        block = model.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError:
        return
    if dump(block) == fields:
        yield block
