"""A diff of v2 as content of v1 (V1-UPD-3): a block for each hunk, with its whole lines before and after.

Owns the reading of git's patches. v1 has no word for a move, a file without text or a change that nobody has the text of: a
sentence says it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from adapters.acp.v1.closed import Wire

_HUNK: Final = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@")
_ESCAPE: Final = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}

_SENTENCES: Final[Mapping[str, str]] = {
    "add": "New file `{path}`.",
    "delete": "Deleted `{path}`.",
    "modify": "Changed `{path}`.",
    "move": "Moved `{old_path}` to `{path}`.",
    "copy": "Copied `{old_path}` to `{path}`.",
}
"""Operation -> what is said of it. An addition and a change need no word where their text is shown."""
_SHOWN_BY_TEXT: Final = ("add", "modify")


@dataclass(slots=True)
class _File:
    """One section of a patch."""

    path: str = ""
    is_new: bool = False
    hunks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def content(diff: Mapping[str, Any]) -> list[Wire]:
    """The content items that show a diff."""
    items: list[Wire] = []
    files = {file.path: file for file in _files(_patch(diff))}
    told: set[str] = set()
    for change in cast("list[Wire]", diff.get("changes") or []):
        path = str(change.get("path", ""))
        blocks = list(_blocks(files[path])) if path in files else []
        told.add(path)
        if not (blocks and change.get("operation") in _SHOWN_BY_TEXT):
            items.append(_said(change))
        items += blocks
    for path, file in files.items():
        if path not in told:
            items += _blocks(file)
    return items


def _blocks(file: _File) -> Iterator[Wire]:
    if file.is_new and not file.hunks:
        yield {"type": "diff", "path": file.path, "oldText": None, "newText": ""}
    for old, new in file.hunks:
        yield {"type": "diff", "path": file.path, "oldText": None if file.is_new else old, "newText": new}


def _said(change: Wire) -> Wire:
    sentence = _SENTENCES.get(str(change.get("operation")), _SENTENCES["modify"])
    text = sentence.format(path=change.get("path"), old_path=change.get("oldPath"))
    return {"type": "content", "content": {"type": "text", "text": text}}


def _patch(diff: Mapping[str, Any]) -> str:
    patch: Any = diff.get("patch")
    if not isinstance(patch, dict):
        return ""
    fields = cast(Wire, patch)
    text = fields.get("text")
    return text if fields.get("format") == "git_patch" and isinstance(text, str) else ""


def _files(patch: str) -> Iterator[_File]:
    file = _File()
    lines = deque(patch.split("\n"))
    while lines:
        line = lines.popleft()
        if line.startswith("diff --git "):
            if file.path:
                yield file
            file = _File(_second_name(line.removeprefix("diff --git ")))
        elif line.startswith("new file mode "):
            file.is_new = True
        elif line.startswith(("rename to ", "copy to ")):
            file.path = _unquoted(line.partition(" to ")[2])
        elif line.startswith(("--- ", "+++ ")):
            file.path = _named(line) or file.path
        elif head := _HUNK.match(line):
            file.hunks.append(_hunk(lines, int(head["old"] or 1), int(head["new"] or 1)))
    if file.path:
        yield file


def _hunk(lines: deque[str], old: int, new: int) -> tuple[str, str]:
    """Take the lines of a hunk, as many as its head says: the text before and after. A line may be marked as without newline."""
    texts: dict[str, list[str]] = {"-": [], "+": []}
    left = {"-": old, "+": new}
    sides = ""
    while lines and (left["-"] > 0 or left["+"] > 0 or lines[0].startswith("\\")):
        line = lines.popleft()
        if line.startswith("\\"):
            for side in sides:
                texts[side][-1] = texts[side][-1].removesuffix("\n")
            continue
        sides = line[0] if line[:1] in ("-", "+") else "-+"
        for side in sides:
            texts[side].append(line[1:] + "\n")
            left[side] -= 1
    return "".join(texts["-"]), "".join(texts["+"])


def _named(line: str) -> str:
    """The path of a `---` or `+++` line; git puts a tab behind one with a blank."""
    name = line[4:].removesuffix("\t")
    return "" if name == "/dev/null" else _unquoted(name)


def _second_name(names: str) -> str:
    """The second of two names. Two plain ones are equal where nothing else tells (a rename says its names)."""
    if names.endswith('"'):
        start = names.rfind(' "')
        return _unquoted(names[start + 1 :]) if start >= 0 else ""
    half = len(names) // 2
    return names[half + 1 :] if names[:half] == names[half + 1 :] else ""


def _unquoted(name: str) -> str:
    """A path as it is, of one in C quotes with octal bytes."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    raw = name[1:-1].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_byte, raw).decode("utf-8", "surrogatepass")


def _byte(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _ESCAPED.get(code, code)
