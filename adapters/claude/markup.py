"""How content that Claude Code has no block for is written into a prompt's text, and read back from it exactly.

Owns the markup: one text block of a prompt stands for one block of the client. Reading recognises only text that writing
would give, byte for byte; a user's own text that happens to look like that is written with one more backslash in front.
So nothing a user typed is ever taken for markup, or changed. Works on plain JSON objects; knows no models.

    <resource_link name="notes.md" uri="file:///home/u/notes.md"/>
    <resource uri="file:///home/u/a.py" mimeType="text/x-python">
    print("hello")
    </resource>
    <resource uri="file:///home/u/a.pdf" mimeType="application/pdf" follows/>     and then a document block
    <image uri="file:///home/u/a.png"/>                                           and then an image block

Attribute values are JSON, so every field of a block fits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.claude.shapes import as_mapping
from adapters.claude.wrappers import command_output

_ESCAPE = "\\"
_ATTRIBUTE = re.compile(r" ([A-Za-z_][A-Za-z0-9_.-]*)(=?)")
_OPEN = re.compile(r"<(resource_link|resource|image)(?= )")
_COMMAND = re.compile(
    r"(?:<command-name>(?P<name>[^<\n]+)</command-name>\s*<command-message>[^<]*</command-message>"
    r"|<command-message>[^<]*</command-message>\s*<command-name>(?P<name2>[^<\n]+)</command-name>)"
    r"(?:\s*<command-args>(?P<args>.*)</command-args>)?\s*",
    re.DOTALL,
)
_LONGEST_TAG = 64 * 1024
"""Characters: attributes beyond this are no markup of ours. Bounds the look at a user's own text."""

_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Markup:
    """One piece of markup. `body` None: an empty element (`/>`)."""

    tag: str
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    flags: frozenset[str] = frozenset()
    """Attributes without a value, written last."""
    body: str | None = None


def write(markup: Markup) -> str:
    """The text of a piece of markup. Values must be JSON; names as in `_ATTRIBUTE`."""
    values = (f" {name}={_json(value)}" for name, value in markup.attributes.items())
    head = f"<{markup.tag}{''.join(values)}{''.join(f' {flag}' for flag in sorted(markup.flags))}"
    return f"{head}/>" if markup.body is None else f"{head}>\n{markup.body}\n</{markup.tag}>"


def read(text: str) -> Markup | None:
    """The markup that a text block is, None for every other text."""
    opening = _OPEN.match(text)
    if opening is None:
        return None
    tag = opening[1]
    attributes: dict[str, Any] = {}
    flags: set[str] = set()
    at = opening.end()
    while at < _LONGEST_TAG and (attribute := _ATTRIBUTE.match(text, at)):
        at = attribute.end()
        if not attribute[2]:
            flags.add(attribute[1])
            continue
        try:
            attributes[attribute[1]], at = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
    body = None if text.startswith("/>", at) else text[at + 2 : -len(f"\n</{tag}>")]
    found = Markup(tag, attributes, frozenset(flags), body)
    try:
        return found if write(found) == text else None
    except (ValueError, RecursionError):
        return None


def read_command(text: str) -> str | None:
    """What a user typed to get this stored slash command ("/name arguments"), None for every other text.

    Claude Code stores a command as tags, under the command's own name when an alias was typed.
    """
    if not text.startswith("<command-"):
        return None
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    name = found["name"] or found["name2"]
    return f"/{name.strip().removeprefix('/')} {(found['args'] or '').strip()}".rstrip()


def escape(text: str) -> str:
    """A user's text as it is written: itself, except that text which would be read as markup gets a backslash."""
    return _ESCAPE + text if _looks_written(text) else text


def unescape(text: str) -> str:
    """The user's text of written text: the inverse of `escape`."""
    return text[1:] if text.startswith(_ESCAPE) and _looks_written(text) else text


def without_join(text: str) -> str:
    """Markup without the newline that Claude Code appends when it merges a prompt with the next; other text as it is."""
    bare = text.removesuffix("\n")
    return bare if bare != text and _is_written(bare) else text


def _looks_written(text: str) -> bool:
    bare = text.lstrip(_ESCAPE)
    return bare.startswith("<") and (_is_written(bare) or _is_written(bare.removesuffix("\n")))


def _is_written(text: str) -> bool:
    return read(text) is not None or read_command(text) is not None or command_output(text) is not None


def _json(value: Any) -> str:
    # Lone surrogates stay as they are here; whoever writes the frame escapes them.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fields_of(markup: Markup, name: str) -> Mapping[str, Any]:
    """An attribute that holds an object, empty when it does not."""
    return as_mapping(markup.attributes.get(name))
