r"""What an edit of Claude Code changes in a file, byte for byte, from what it reports and what stands in the file.

Claude Code reports every line with `\n`, whatever the file has (2.1.332). When it edits, it writes all lines with the end that
is the more frequent in the first 4096 characters; when it writes a file anew, it writes what it was given. A byte order mark is
kept by both. So the text before, or the one after, tells how the reported lines end. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.claude.show.diffs import adds_up, is_new, path_of
from adapters.core.file_change import FileChange
from adapters.driver.tool_text import absolute
from adapters.driver.unified import Block, blocks_between, hunks_of, lines_of

Fields = Mapping[str, Any]

_LOOKED_AT: Final = 4096
"""Characters by which Claude Code tells how the lines of a file end."""
_BOM: Final = "\ufeff"
_SWAPPED: Final = {"-": "+", "+": "-"}


def path_in(result: Fields, cwd: str) -> str:
    """The absolute path that an edit's structured result names; empty when it names none."""
    return absolute(path_of(result), cwd)


def says_enough(result: Fields, before: str) -> bool:
    r"""Whether what is reported is true to the byte for a file that held this text: there is no `\r` anywhere."""
    lines = (
        as_text(line)
        for hunk in as_list(result.get("structuredPatch"))
        for line in as_list(as_mapping(hunk).get("lines"))
    )
    return "\r" not in before and not (is_new(result) or _notebook(result)) and not any("\r" in line for line in lines)


def changed(result: Fields, path: str, before: str, after: str | None) -> FileChange | None:
    """The change of a file that held `before`, and now holds `after`; None when that is not the file that was edited.

    Somebody else may have written `after` meanwhile, a hook that formats for one: then the change is the edit's alone.
    """
    made = _made(result, _plain(before))
    if made is None:
        return None
    text, blocks = made
    lines = lines_of(text if after is None else after)
    if after is None or not _same(lines, lines_of(text)):
        lines = lines_of(_written(before, text) if _keeps_ends(result) else text)
    return _change(path, lines_of(before), lines, blocks)


def is_made_anew(result: Fields) -> bool:
    """Whether the file was written whole, so that nothing of the one before is left in it."""
    return is_new(result) or not _keeps_ends(result)


def derived(result: Fields, path: str, now: str) -> FileChange | None:
    """The change of a file of which only the text now is known; None when it is not what the edit has left there.

    All lines are taken to have ended as they do now. Of a file that was written anew nobody can know.
    """
    if is_made_anew(result) or "\r\n" not in now or _plain(now).replace("\n", "\r\n") != now:
        return None
    made = _made(result, _plain(now), back=True)
    if made is None:
        return None
    text, blocks = made
    before = lines_of(text.replace("\n", "\r\n"))
    return _change(path, before, lines_of(now), [(a, b, c, d) for c, d, a, b in blocks])


def reported_notebook(result: Fields, path: str) -> FileChange | None:
    """The change of a notebook, as far as its result tells: it has the texts, and no hunks."""
    old, new = map(lines_of, _notebook(result) or ("", ""))
    return _change(path, old, new, blocks_between(old, new))


def predicted(name: str, tool_input: Fields, path: str, before: str | None) -> FileChange | None:
    """What a call will change in a file with this text, None for no file; None where Claude Code may do something else."""
    match name:
        case "Edit":
            after = _edited(tool_input, before)
        case "Write":
            after = tool_input.get("content")
            if isinstance(after, str) and before and before.startswith(_BOM) and not after.startswith(_BOM):
                after = _BOM + after
        case _:
            after = None
    if not isinstance(after, str):
        return None
    if before is None:
        return FileChange(path, "add", new=after)
    old, new = lines_of(before), lines_of(after)
    return _change(path, old, new, blocks_between(_bare(old), _bare(new)))


# --- parts -----------------------------------------------------------------------------------------------------------


def _change(path: str, old: Sequence[str], new: Sequence[str], blocks: Sequence[Block]) -> FileChange | None:
    hunks = hunks_of(old, new, blocks)
    return FileChange(path, "modify", hunks=hunks) if hunks else None


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _bare(lines: Sequence[str]) -> list[str]:
    return [line.rstrip("\r\n") for line in lines]


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) == len(other) and _bare(one) == _bare(other)


def _keeps_ends(result: Fields) -> bool:
    return "oldString" in result or _notebook(result) is not None


def _written(before: str, text: str) -> str:
    """How an edit writes this text into a file that held `before`."""
    head = before[:_LOOKED_AT]
    windows = head.count("\r\n")
    return _plain(text).replace("\n", "\r\n") if windows > head.count("\n") - windows else text


def _notebook(result: Fields) -> tuple[str, str] | None:
    old, new = result.get("original_file"), result.get("updated_file")
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _made(result: Fields, text: str, *, back: bool = False) -> tuple[str, list[Block]] | None:
    """What the reported change makes of a text, and where; `back`: what it was before. None when it was not made in this text."""
    if notebook := _notebook(result):
        old, new = map(lines_of, notebook[::-1] if back else notebook)
        given = lines_of(text)
        return ("".join(new), blocks_between(given, new)) if _same(given, old) else None
    if not isinstance(result.get("structuredPatch"), list):
        return None
    return _applied(lines_of(text), [as_mapping(hunk) for hunk in as_list(result["structuredPatch"])], back=back)


def _applied(old: list[str], hunks: Sequence[Fields], *, back: bool) -> tuple[str, list[Block]] | None:
    new: list[str] = []
    blocks: list[Block] = []
    at = 0
    for hunk in hunks:
        if not adds_up(hunk):
            return None
        start = max(0, as_count(hunk.get("newStart" if back else "oldStart")) - 1)
        new += old[at:start]
        at = start
        last = ""
        for line in map(as_text, as_list(hunk.get("lines"))):
            mark = _SWAPPED.get(line[:1], line[:1]) if back else line[:1]
            if mark == "\\":
                if last in ("+", " "):
                    new[-1] = new[-1].removesuffix("\n")
                continue
            last = mark
            begun = at, len(new)
            if mark != "+":
                if at >= len(old) or old[at].rstrip("\r\n") != line[1:].rstrip("\r"):
                    return None
                at += 1
            if mark == "+":
                new.append(line[1:] + "\n")
            elif mark == " ":
                new.append(old[at - 1])
            if mark != " ":
                if blocks and (blocks[-1][1], blocks[-1][3]) == begun:
                    begun = blocks[-1][0], blocks.pop()[2]
                blocks.append((begun[0], at, begun[1], len(new)))
    return "".join([*new, *old[at:]]), blocks


def _edited(tool_input: Fields, before: str | None) -> str | None:
    """The text after an Edit; None where it would be refused, or finds its place by likeness."""
    old, new = tool_input.get("old_string"), tool_input.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    if not old:
        return None if before else new
    text = _plain(before or "")
    everywhere = tool_input.get("replace_all") is True
    if old not in text or (text.count(old) > 1 and not everywhere):
        return None
    if not new and not old.endswith("\n") and f"{old}\n" in text:
        old += "\n"  # the line goes, too
    return _written(before or "", text.replace(old, new, -1 if everywhere else 1))
