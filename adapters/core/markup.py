"""How content that a runtime has no block for is written into a prompt's text, and read back from it exactly.

Owns the markup: one text block of a prompt stands for one block of the client. Reading recognises only text that writing
would give, byte for byte; a user's own text that looks like that is written with one more backslash in front. So nothing a
user typed is ever taken for markup, or changed. Works on plain JSON objects; knows no models and no runtime.

    <resource_link name="notes.md" uri="file:///home/u/notes.md"/>
    <resource uri="file:///home/u/a.py" mimeType="text/x-python">
    print("hello")
    </resource>
    <resource uri="file:///home/u/a.pdf" mimeType="application/pdf" follows/>     and then a file, where a runtime takes it
    <image uri="file:///home/u/a.png"/>                                           and then an image

Attribute values are JSON, so every field of a block fits.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_ESCAPE: Final = "\\"
_ATTRIBUTE: Final = re.compile(r" ([A-Za-z_][A-Za-z0-9_.-]*)(=?)")
_OPEN: Final = re.compile(r"<(resource_link|resource|image)(?= )")
_LONGEST_TAG: Final = 64 * 1024
"""Characters: attributes beyond this are no markup of ours. Bounds the look at a user's own text."""

_decoder: Final = json.JSONDecoder()


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
    """The markup that a text is, None for every other text."""
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


def is_written(text: str) -> bool:
    """Whether a text is markup."""
    return read(text) is not None


def escape(text: str, is_written: Callable[[str], bool] = is_written) -> str:
    """A user's text as it is written: itself, except that text which would be read as markup gets a backslash.

    `is_written` says which texts (that begin with `<`) a reader would not take for a user's own.
    """
    return _ESCAPE + text if _looks_written(text, is_written) else text


def unescape(text: str, is_written: Callable[[str], bool] = is_written) -> str:
    """The user's text of written text: the inverse of `escape`."""
    return text[1:] if text.startswith(_ESCAPE) and _looks_written(text, is_written) else text


def _looks_written(text: str, is_written: Callable[[str], bool]) -> bool:
    bare = text.lstrip(_ESCAPE)
    return bare.startswith("<") and is_written(bare)


def _json(value: Any) -> str:
    # Lone surrogates stay as they are here; whoever writes the frame escapes them.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
