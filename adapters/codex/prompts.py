"""A client's prompt as Codex's user input, and stored input as the client's blocks again.

Owns both directions, so that a message looks the same live and in replay: text, resource links, embedded resources and images
come back exactly; what Codex did not get (annotations of text) is lost. Knows no items.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

from pydantic import ValidationError

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ContentBlock, ImageBlock, ResourceBlock, ResourceLinkBlock, TextBlock, dump
from adapters.core import images, markup
from adapters.core.markup import Markup
from adapters.core.shapes import as_list, as_mapping, as_text

_Block = TypeVar("_Block", ImageBlock, ResourceBlock, ResourceLinkBlock)


def to_input(prompt: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    """The prompt as user input, in order.

    Raises `InvalidParams` for a block that Codex cannot take in truthfully: audio, unknown types, binary files that are no
    images, images that would make every later turn fail, and half surrogate pairs, which make Codex drop the whole request
    without a word. Nothing is skipped or replaced (PROMPT-13).
    """
    content: list[dict[str, Any]] = []
    for index, block in enumerate(prompt):
        written = list(_written(dump(block), f"prompt[{index}]"))
        if any(not _is_unicode(as_text(part.get("text"))) for part in written):
            raise InvalidParams(f"prompt[{index}] holds half of a surrogate pair, which Codex cannot read: remove it.")
        content.extend(written)
    return content


def from_input(content: Any) -> list[ContentBlock]:
    """The client's blocks of stored user input, of any shape. The inverse of `to_input`; reads what other hosts wrote too."""
    blocks: list[ContentBlock] = []
    stored = [as_mapping(part) for part in as_list(content)]
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
        if description := _without(block, "type", "data", "mimeType"):
            yield _text(markup.write(Markup("image", description)))
        yield _image(block["data"], f"The image in {where}")
    else:
        raise InvalidParams(f"{where} has a type that Codex cannot take: send text, an image or a resource.")


def _written_resource(block: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    resource: Mapping[str, Any] = block["resource"]
    outer = _without(block, "type", "resource")
    attributes = _without(resource, "text", "blob") | ({"block": outer} if outer else {})
    if "blob" not in resource:
        yield _text(markup.write(Markup("resource", attributes, body=resource["text"])))
        return
    blob: str = resource["blob"]
    if as_text(resource.get("mimeType")).lower().startswith("image/"):
        yield _text(markup.write(Markup("resource", attributes, frozenset({"follows"}))))
        yield _image(blob, f"The image in {where}")
        return
    text = _as_utf8(blob)
    if text is None:
        raise InvalidParams(f"The resource in {where} is binary: Codex takes text and images only.")
    yield _text(markup.write(Markup("resource", attributes, frozenset({"base64"}), text)))


def _image(data: str, name: str) -> dict[str, Any]:
    fault = images.fault_of(data)
    if fault:
        raise InvalidParams(f"{name} {fault}.")
    # The type that the bytes show: a model's API refuses an image that is called something else.
    return {"type": "image", "url": f"data:{images.type_of(_decoded(data[:64]))};base64,{data}"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "text_elements": []}


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    return base64.b64encode(text.encode()).decode()


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(part: Mapping[str, Any]) -> Iterator[ContentBlock]:
    kind, text, path = part.get("type"), part.get("text"), as_text(part.get("path"))
    if kind == "text" and isinstance(text, str):
        yield _read_text(text)
    elif kind in ("image", "audio"):
        url = as_text(part.get("url"))
        media_type, data = _data_url(url)
        if kind == "image" and data:
            yield ImageBlock(data=data, mime_type=media_type)
        elif url and not data:
            yield ResourceLinkBlock(name=kind, uri=url)
    elif kind in ("localImage", "localAudio") and path:
        yield ResourceLinkBlock(name=PurePath(path).name or path, uri=f"file://{path}")
    elif kind == "mention" and path:
        uri = path if "://" in path else f"file://{path}"
        yield ResourceLinkBlock(name=as_text(part.get("name")) or PurePath(path).name or path, uri=uri)
    elif kind == "skill" and (name := as_text(part.get("name"))):
        yield TextBlock(text=f"${name}")


def _read_text(text: str) -> ContentBlock:
    found = markup.read(text)
    for block in _blocks_of(found) if found else ():
        return block
    return TextBlock(text=markup.unescape(text))


def _blocks_of(found: Markup) -> Iterator[ContentBlock]:
    if found.tag == "resource_link" and found.body is None and not found.flags:
        yield from _optional(ResourceLinkBlock, {**found.attributes, "type": "resource_link"})
    elif found.tag == "resource" and found.body is not None and found.flags <= {"base64"}:
        content = {"blob": _as_blob(found.body)} if found.flags else {"text": found.body}
        yield from _resource(found, content)


def _read_described(part: Mapping[str, Any], following: Mapping[str, Any]) -> ContentBlock | None:
    """The block that markup and the image after it stand for together."""
    if part.get("type") != "text" or following.get("type") != "image":
        return None
    found = markup.read(as_text(part.get("text")))
    media_type, data = _data_url(as_text(following.get("url")))
    if found is None or found.body is not None or not data:
        return None
    if found.tag == "image" and not found.flags:
        image = {**found.attributes, "type": "image", "data": data, "mimeType": media_type}
        return next(_optional(ImageBlock, image), None)
    if found.tag == "resource" and found.flags == frozenset({"follows"}):
        return next(_resource(found, {"blob": data}), None)
    return None


def _data_url(url: str) -> tuple[str, str]:
    """Media type and base64 data of a data URL; empty data for every other URL."""
    head, found, data = url.partition(";base64,")
    return (head.removeprefix("data:"), data) if found and head.startswith("data:") else ("", "")


def _resource(found: Markup, content: Mapping[str, Any]) -> Iterator[ContentBlock]:
    resource = {**_without(found.attributes, "block"), **content}
    outer = as_mapping(found.attributes.get("block"))
    yield from _optional(ResourceBlock, {**outer, "type": "resource", "resource": resource})


def _optional(model: type[_Block], fields: Mapping[str, Any]) -> Iterator[_Block]:
    """The block that these fields make exactly, nothing when they do not: then the text stays text."""
    try:
        block = model.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError:
        return
    if dump(block) == fields:
        yield block
