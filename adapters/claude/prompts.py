"""A client's prompt as Claude Code's message content, and stored content as the client's blocks again.

Owns both directions, so that a message looks the same live and in replay: text, resource links and embedded resources come
back exactly; images as the runtime stored them (it scales large ones down); what it did not get (annotations of text) is lost.
Knows no frames or entries.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ContentBlock, ImageBlock, ResourceBlock, ResourceLinkBlock, TextBlock, dump
from adapters.claude import images, markup
from adapters.claude.markup import Markup
from adapters.claude.shapes import as_list, as_mapping, as_text

_PDF = "application/pdf"
_Block = TypeVar("_Block", ImageBlock, ResourceBlock, ResourceLinkBlock)


def to_content(prompt: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    """The prompt as content blocks of a user frame, in order.

    Raises `InvalidParams` for a block that Claude Code cannot take in truthfully: audio, unknown types, files that are
    neither text, image nor PDF, images that would make every later turn fail. Nothing is skipped (PROMPT-13).
    """
    content: list[dict[str, Any]] = []
    for index, block in enumerate(prompt):
        content.extend(_written(dump(block), f"prompt[{index}]"))
    return content


def from_content(content: Any) -> list[ContentBlock]:
    """The client's blocks of stored (or echoed) message content: a string or a list of blocks, of any shape.

    The inverse of `to_content`; also reads what other hosts wrote. A slash command reads as what was typed. Blocks that
    show nothing to a user are left out.
    """
    if isinstance(content, str):
        return [_read_text(content)]
    blocks: list[ContentBlock] = []
    stored = [as_mapping(block) for block in as_list(content)]
    at = 0
    while at < len(stored):
        following = as_mapping(stored[at + 1]) if at + 1 < len(stored) else as_mapping(None)
        described = _read_described(stored[at], following)
        if described is not None:
            blocks.append(described)
            at += 2
            continue
        blocks.extend(_read(stored[at]))
        at += 1
    return blocks


def split_merged(content: Any, merged: int) -> list[Any] | None:
    """The contents of `merged` + 1 prompts that Claude Code stored as one, None when that cannot be told for certain.

    It joins with one newline after each prompt. Only where there are exactly as many newlines in question as joins, none
    of them can be a user's own.
    """
    if isinstance(content, str):
        parts: list[Any] = content.split("\n")
        return parts if len(parts) == merged + 1 else None
    blocks = as_list(content)
    if not all(as_mapping(block).get("type") == "text" for block in blocks):
        return None  # no newline is added after an image
    prompts: list[Any] = [[]]
    for index, block in enumerate(blocks):
        text = as_text(block.get("text"))
        if text.endswith("\n") and index + 1 < len(blocks):
            prompts[-1].append({"type": "text", "text": text[:-1]})
            prompts.append([])
        else:
            prompts[-1].append(block)
    return prompts if len(prompts) == merged + 1 else None


# --- writing ---------------------------------------------------------------------------------------------------------


def _written(block: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    if kind == "text":
        yield _text(markup.escape(block["text"]))
    elif kind == "resource_link":
        yield _text(markup.write(Markup("resource_link", _without(block, "type"))))
    elif kind == "resource":
        yield from _written_resource(block, where)
    elif kind == "image":
        description = _without(block, "type", "data", "mimeType")
        if description:
            yield _text(markup.write(Markup("image", description)))
        yield _image(block["data"], f"The image in {where}")
    else:
        raise InvalidParams(f"{where} has a type that Claude Code cannot take: send text, an image or a resource.")


def _written_resource(block: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    resource: Mapping[str, Any] = block["resource"]
    outer = _without(block, "type", "resource")
    attributes = _without(resource, "text", "blob") | ({"block": outer} if outer else {})
    if "blob" not in resource:
        yield _text(markup.write(Markup("resource", attributes, body=resource["text"])))
        return
    blob: str = resource["blob"]
    kind = as_text(resource.get("mimeType")).lower()
    if kind.startswith("image/"):
        yield _text(markup.write(Markup("resource", attributes, frozenset({"follows"}))))
        yield _image(blob, f"The image in {where}")
        return
    if kind == _PDF:
        if not _decoded(blob).startswith(b"%PDF-"):
            raise InvalidParams(f"The resource in {where} is not a PDF although its mimeType says so.")
        yield _text(markup.write(Markup("resource", attributes, frozenset({"follows"}))))
        yield {"type": "document", "source": {"type": "base64", "media_type": _PDF, "data": blob}}
        return
    text = _as_utf8(blob)
    if text is None:
        raise InvalidParams(f"The resource in {where} is binary: Claude Code takes text, images and PDF only.")
    yield _text(markup.write(Markup("resource", attributes, frozenset({"base64"}), text)))


def _image(data: str, name: str) -> dict[str, Any]:
    fault = images.fault_of(data)
    if fault:
        raise InvalidParams(f"{name} {fault}.")
    # The type that the bytes show: the model's API refuses an image that is called something else.
    media_type = images.type_of(_decoded(data[:64]))
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


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


def _read(block: Mapping[str, Any]) -> Iterator[ContentBlock]:
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        yield _read_text(text)
        return
    source = as_mapping(block.get("source"))
    data = as_text(source.get("data"))
    media_type = as_text(source.get("media_type"))
    if kind == "image":
        if data:
            yield ImageBlock(data=data, mime_type=media_type or "image/png")
        elif url := as_text(source.get("url")):
            yield ResourceLinkBlock(name="image", uri=url)
    elif kind == "document" and data:
        uri = as_text(block.get("title")) or "attachment:document"
        member = "text" if source.get("type") == "text" else "blob"
        resource = {"uri": uri, "mimeType": media_type or _PDF, member: data}
        yield from _optional(ResourceBlock, {"type": "resource", "resource": resource})


def _read_text(text: str) -> ContentBlock:
    command = markup.read_command(text)
    if command is not None:
        return TextBlock(text=command)
    found = markup.read(markup.without_join(text))
    for block in _blocks_of(found) if found else ():
        return block
    return TextBlock(text=markup.unescape(text))


def _blocks_of(found: Markup) -> Iterator[ContentBlock]:
    if found.tag == "resource_link" and found.body is None and not found.flags:
        yield from _optional(ResourceLinkBlock, {**found.attributes, "type": "resource_link"})
    elif found.tag == "resource" and found.body is not None and found.flags <= {"base64"}:
        content = {"blob": _as_blob(found.body)} if found.flags else {"text": found.body}
        yield from _resource(found, content)


def _read_described(block: Mapping[str, Any], following: Mapping[str, Any]) -> ContentBlock | None:
    """The block that markup and the image or document after it stand for together."""
    if block.get("type") != "text" or following.get("type") not in ("image", "document"):
        return None
    found = markup.read(as_text(block.get("text")))
    data = as_mapping(following.get("source")).get("data")
    if found is None or found.body is not None or not isinstance(data, str):
        return None
    media_type = as_text(as_mapping(following.get("source")).get("media_type"))
    if found.tag == "image" and not found.flags:
        image = {**found.attributes, "type": "image", "data": data, "mimeType": media_type}
        return next(_optional(ImageBlock, image), None)
    if found.tag == "resource" and found.flags == frozenset({"follows"}):
        return next(_resource(found, {"blob": data}), None)
    return None


def _resource(found: Markup, content: Mapping[str, Any]) -> Iterator[ContentBlock]:
    resource = {**_without(found.attributes, "block"), **content}
    outer = markup.fields_of(found, "block")
    yield from _optional(ResourceBlock, {**outer, "type": "resource", "resource": resource})


def _optional(model: type[_Block], fields: Mapping[str, Any]) -> Iterator[_Block]:
    """The block that these fields make exactly, nothing when they do not: then the text stays text."""
    try:
        block = model.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError:
        return
    if dump(block) == fields:
        yield block
