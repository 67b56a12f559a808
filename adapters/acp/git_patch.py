"""File changes as git prints them, with absolute paths (DIFF-3). Pure; reads no file, knows no runtime."""

import re
from collections.abc import Sequence
from typing import Final

_START: Final = re.compile(r"@@ -(?P<old>\d+(?:,\d+)?) \+(?P<new>\d+(?:,\d+)?) @@")

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


def quoted(path: str) -> str:
    """A path as git writes it: as it is, or in C quotes with octal bytes when anything in it is not plain ASCII."""
    if all("!" <= char <= "~" and char not in '"\\' for char in path):
        return path
    return '"' + "".join(_escaped(char) for char in path) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char <= "~":
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogatepass"))


def added(path: str, content: str) -> str:
    """The patch of a new file with this content."""
    name = quoted(path)
    return _section((name, name), ["new file mode 100644"], ("/dev/null", name), _whole("+", content))


def deleted(path: str, content: str) -> str:
    """The patch of a file that is gone; it had this content."""
    name = quoted(path)
    return _section((name, name), ["deleted file mode 100644"], (name, "/dev/null"), _whole("-", content))


def replaced(path: str, before: str, after: str) -> str:
    """The patch of a file that is written anew, all of it. Empty when it is the same."""
    if before == after:
        return ""
    old, new = _whole("-", before), _whole("+", after)
    starts = [_START.match(side[0] if side else "") for side in (old, new)]
    spans = [found[mark] if found else "0,0" for found, mark in zip(starts, ("old", "new"), strict=True)]
    return changed(path, "\n".join([f"@@ -{spans[0]} +{spans[1]} @@", *old[1:], *new[1:]]))


def first_line(hunks: str) -> int | None:
    """The 1-based line of the new file where unified hunks change it first; None when they do not tell."""
    found = _START.match(hunks)
    if not found:
        return None
    start, _, count = found["new"].partition(",")
    last = int(start) + int(count or 1) - 1
    context = 0
    for line in hunks.split("\n")[1:]:
        if line[:1] != " ":
            break
        context += 1
    return max(1, min(int(start) + context, last))


def changed(path: str, hunks: str, *, old_path: str | None = None) -> str:
    """The patch of a file with these unified hunks (lines from the first `@@`), moved from `old_path` if given."""
    new, old = quoted(path), quoted(old_path or path)
    head = [f"rename from {old}", f"rename to {new}"] if old_path else []
    return _section((old, new), head, (old, new), hunks.removesuffix("\n").split("\n") if hunks else [])


def _whole(mark: str, content: str) -> Sequence[str]:
    """All lines of a file as one hunk."""
    lines = content.split("\n")
    complete = lines[-1] == ""
    if complete:
        lines.pop()
    if not lines:
        return []
    span = f"1,{len(lines)}"
    head = f"@@ -0,0 +{span} @@" if mark == "+" else f"@@ -{span} +0,0 @@"
    return [head, *(mark + line for line in lines), *([] if complete else ["\\ No newline at end of file"])]


def _section(names: tuple[str, str], head: Sequence[str], sides: tuple[str, str], hunks: Sequence[str]) -> str:
    body = [f"--- {sides[0]}", f"+++ {sides[1]}", *hunks] if hunks else []
    return "\n".join([f"diff --git {names[0]} {names[1]}", *head, *body]) + "\n"
