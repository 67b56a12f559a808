"""A client's prompt as Codex's user input, and stored input as the client's blocks again.

Owns the parts of Codex's input. `driver.prompt_parts` says which block of the client they stand for. Knows no items.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ContentBlock, ResourceLinkBlock, TextBlock
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.driver.prompt_parts import File, Part, from_parts, to_parts


def to_input(prompt: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    """The prompt as user input, in order.

    Raises `InvalidParams` for a block that Codex cannot take in truthfully: see `to_parts`; and for half surrogate pairs, which
    make Codex drop the whole request without a word. Nothing is skipped or replaced (PROMPT-13).
    """
    content: list[dict[str, Any]] = []
    for index, block in enumerate(prompt):
        for part in to_parts(block, f"prompt[{index}]", runtime="Codex"):
            if isinstance(part, str) and not _is_unicode(part):
                raise InvalidParams(
                    f"prompt[{index}] holds half of a surrogate pair, which Codex cannot read: remove that character."
                )
            content.append(_written(part))
    return content


def from_input(content: Any) -> list[ContentBlock]:
    """The client's blocks of stored user input, of any shape. The inverse of `to_input`; reads what other hosts wrote too."""
    return from_parts([_read(as_mapping(part)) for part in as_list(content)])


def _written(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part, "text_elements": []}
    return {"type": "image", "url": f"data:{part.media_type};base64,{part.data}"}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(part: Mapping[str, Any]) -> Part | ContentBlock | None:
    kind, text, path = part.get("type"), part.get("text"), as_text(part.get("path"))
    if kind == "text" and isinstance(text, str):
        return text
    if kind in ("image", "audio"):
        url = as_text(part.get("url"))
        media_type, data = _data_url(url)
        if kind == "image" and data:
            return File("image", media_type, data)
        return ResourceLinkBlock(name=kind, uri=url) if url and not data else None
    if kind in ("localImage", "localAudio") and path:
        return ResourceLinkBlock(name=PurePath(path).name or path, uri=f"file://{path}")
    if kind == "mention" and path:
        uri = path if "://" in path else f"file://{path}"
        return ResourceLinkBlock(name=as_text(part.get("name")) or PurePath(path).name or path, uri=uri)
    if kind == "skill" and (name := as_text(part.get("name"))):
        return TextBlock(text=f"${name}")
    return None


def _data_url(url: str) -> tuple[str, str]:
    """Media type and base64 data of a data URL; empty data for every other URL."""
    head, found, data = url.partition(";base64,")
    return (head.removeprefix("data:"), data) if found and head.startswith("data:") else ("", "")
