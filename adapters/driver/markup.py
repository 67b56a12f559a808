"""Content that a runtime has no block for, written into a prompt's text and read back from it exactly.

Owns the markup: one text block of a prompt stands for one block of the client. The reader accepts only text that the writer would
produce, byte for byte. A user's own text that looks like markup is written with one more backslash in front. So text of a user is
never taken for markup, and never changed. Works on plain JSON objects. Knows no models and no runtime.

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

_LONGEST_TOKEN: Final = 6
"""Characters of JSON that can be cut in the middle, beside strings: `\\u12ab`, `false`."""

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
    head = _head(text, 0)
    if head is None or head.cut:
        return None
    body = None if text.startswith("/>", head.end) else text[head.end + 2 : -len(f"\n</{head.tag}>")]
    found = Markup(head.tag, head.attributes, frozenset(head.flags), body)
    return found if _is(found, text) else None


def spoken(text: str) -> str:
    """What a user wrote of a prompt that was made one text, and perhaps cut: our markup is left out, also where it is cut.

    The names of what the markup stands for, where there is nothing else. For titles: which text was a part of its own is not
    known any more, so text of a user in the middle that looks exactly like markup goes with it.
    """
    own: list[str] = []
    names: list[str] = []
    at = 0
    if text.startswith(_ESCAPE) and (found := _found(text, len(text) - len(text.lstrip(_ESCAPE)))):
        at = found[1]  # a user's own text that looks written
        own.append(text[1:at])
    for opening in _OPEN.finditer(text, at):
        if opening.start() >= at and (found := _found(text, opening.start())):
            own.append(text[at : opening.start()])
            names.append(_name(found[0]))
            at = found[1]
    own.append(text[at:])
    return " ".join(filter(str.strip, own)) or ", ".join(filter(None, names))


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


@dataclass(slots=True)
class _Head:
    """The beginning of a piece of markup, up to behind its attributes."""

    tag: str
    end: int
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    flags: set[str] = field(default_factory=set[str])
    cut: bool = False
    """The text ends in it."""


def _head(text: str, at: int) -> _Head | None:
    opening = _OPEN.match(text, at)
    if opening is None:
        return None
    head = _Head(opening[1], opening.end())
    while head.end - at < _LONGEST_TAG and (attribute := _ATTRIBUTE.match(text, head.end)):
        head.end = attribute.end()
        if not attribute[2]:
            head.flags.add(attribute[1])
            continue
        try:
            head.attributes[attribute[1]], head.end = _decoder.raw_decode(text, head.end)
        except json.JSONDecodeError as error:
            if len(text) - error.pos > _LONGEST_TOKEN and not error.msg.startswith("Unterminated"):
                return None
            head.end = len(text)
        except (ValueError, RecursionError):
            return None
    head.cut = head.end >= len(text) or text[head.end :] in (" ", "/", ">")
    return head


def _found(text: str, at: int) -> tuple[Markup, int] | None:
    """The markup that begins at a place in a text, and where it ends; it may be cut by the end of the text."""
    head = _head(text, at)
    if head is None:
        return None
    found = Markup(head.tag, head.attributes, frozenset(head.flags))
    if head.cut:
        return found, len(text)
    if text.startswith("/>", head.end):
        end = head.end + 2
        return (found, end) if _is(found, text[at:end]) else None
    if not text.startswith(">\n", head.end):
        return None
    closing = f"\n</{head.tag}>"
    end = text.find(closing, head.end + 1)
    if end < 0:
        return found, len(text)
    end += len(closing)
    found = Markup(head.tag, head.attributes, found.flags, text[head.end + 2 : end - len(closing)])
    return (found, end) if _is(found, text[at:end]) else None


def _is(found: Markup, text: str) -> bool:
    try:
        return write(found) == text
    except (ValueError, RecursionError):
        return False


def _name(found: Markup) -> str:
    """The name that a user would use for it."""
    name, uri = found.attributes.get("name"), found.attributes.get("uri")
    if isinstance(name, str) and name.strip():
        return name
    return uri.rstrip("/").rpartition("/")[2] or uri if isinstance(uri, str) else ""


def _json(value: Any) -> str:
    # Lone surrogates stay as they are here; whoever writes the frame escapes them.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
