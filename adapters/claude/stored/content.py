"""A client's prompt as Claude Code's message content, and stored content as the client's blocks again.

Owns the blocks of Claude Code's content. `driver.prompt_parts` says which block of the client they stand for. Images come back as
Claude Code stored them: it scales large ones down. Knows no frames and no entries.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.acp.schema import ContentBlock, ResourceBlock, ResourceLinkBlock, TextBlock, TextResource
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.stored import edges
from adapters.claude.stored.cli_texts import command_output, typed_command
from adapters.driver import markup
from adapters.driver.markup import Markup
from adapters.driver.prompt_parts import PDF, File, Part, from_parts, to_parts


def to_content(prompt: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    """The prompt as content blocks of a user frame, in order.

    Raises `InvalidParams` for a block that Claude Code cannot take in truthfully: see `to_parts`. Nothing is skipped (PROMPT-13).
    """
    content: list[dict[str, Any]] = []
    for index, block in enumerate(prompt):
        parts = to_parts(block, f"prompt[{index}]", runtime="Claude Code", takes_pdf=True, escape=escape)
        content.extend(map(_written, parts))
    return content


def to_message(content: Sequence[Mapping[str, Any]], *, literal: bool) -> str | list[Mapping[str, Any]]:
    """The content of a user frame from which the stored session shows again what was sent (measured with 2.1.332).

    `content` may begin a command with its last text unless it is `literal`. Behind a running tool Claude Code strips the white
    space around the text of a list. Text that is no list stays as it is, also a command in the note of it, but is stored
    twice, and not at all when it is only white space. So a single text goes as it is where that matters; white space alone
    and several blocks get marks.
    """
    texts = [index for index, block in enumerate(content) if block.get("type") == "text"]
    if not texts:
        return list(content)
    first, last = as_text(content[texts[0]].get("text")), as_text(content[texts[-1]].get("text"))
    if len(content) == 1 and not edges.is_blank(first):
        return first if first.startswith("/") or edges.strip(first) != first else list(content)
    marked = list(content)
    if literal or not last.startswith("/"):
        marked[texts[-1]] = {**marked[texts[-1]], "text": edges.mark_end(last)}
        first = as_text(marked[texts[0]].get("text"))
        marked[texts[0]] = {**marked[texts[0]], "text": edges.mark_start(first)}
    return marked


def from_content(content: Any) -> list[ContentBlock]:
    """The client's blocks of stored (or echoed) message content: a string or a list of blocks, of any shape.

    The inverse of `to_content` and `to_message`; also reads what other hosts wrote. A slash command reads as what was typed.
    Blocks that show nothing to a user are left out.
    """
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [_read(block) for block in _unmarked(list(map(as_mapping, as_list(content))))]
    return from_parts(parts, read=_read_markup, unescape=unescape)


def escape(text: str) -> str:
    """A user's text as it is sent: with a backslash when it would be read as markup, a command or its output."""
    return markup.escape(text, _is_written)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return markup.unescape(text, _is_written)


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


def _written(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": part.kind, "source": source}


def _unmarked(blocks: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The blocks without the marks that `to_message` puts around them."""
    texts = [index for index, block in enumerate(blocks) if isinstance(block.get("text"), str)]
    if texts and (len(blocks) > 1 or edges.is_blank(blocks[0]["text"])):
        first, last = texts[0], texts[-1]
        blocks[first] = {**blocks[first], "text": edges.unmark_start(blocks[first]["text"])}
        blocks[last] = {**blocks[last], "text": edges.unmark_end(blocks[last]["text"])}
    return blocks


def _read(block: Mapping[str, Any]) -> Part | ContentBlock | None:
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and isinstance(text, str):
        command = typed_command(text)
        return text if command is None else TextBlock(text=command)
    source = as_mapping(block.get("source"))
    data, media_type = as_text(source.get("data")), as_text(source.get("media_type"))
    if kind == "image":
        if data:
            return File("image", media_type or "image/png", data)
        url = as_text(source.get("url"))
        return ResourceLinkBlock(name="image", uri=url) if url else None
    if kind == "document" and data:
        uri = as_text(block.get("title")) or "attachment:document"
        if source.get("type") == "text":
            return ResourceBlock(resource=TextResource(uri=uri, text=data, mime_type=media_type or PDF))
        return File("document", media_type or PDF, data, uri)
    return None


def _read_markup(text: str) -> Markup | None:
    return markup.read(_without_join(text))


def _without_join(text: str) -> str:
    """Markup without the newline that Claude Code appends when it merges a prompt with the next; other text as it is."""
    bare = text.removesuffix("\n")
    return bare if bare != text and _is_stored_form(bare) else text


def _is_written(text: str) -> bool:
    return _is_stored_form(text) or _is_stored_form(text.removesuffix("\n"))


def _is_stored_form(text: str) -> bool:
    """Whether a reader of the store takes this text for something else than a user's words."""
    return markup.is_written(text) or typed_command(text) is not None or command_output(text) is not None
