"""What Claude Code's edits report of the files that they changed. Reads no file."""

from collections.abc import Mapping
from typing import Any

from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.core.file_change import FileChange
from adapters.core.file_diff import FileDiff


def diff_of(result: Mapping[str, Any], path: str) -> FileDiff | None:
    """The diff of the change that an edit reports in its structured result; None when it reports none. `path` is absolute."""
    change = reported_change(result, path)
    return FileDiff.of(change) if change else None


def reported_change(result: Mapping[str, Any], path: str) -> FileChange | None:
    """The change that an edit reports, without its text where the result does not hold it whole; None when it reports none."""
    if not path:
        return None
    if is_new(result):
        text = result.get("content", result.get("newString"))
        return FileChange(path, "add", new=text if isinstance(text, str) else None)
    if "structuredPatch" in result or "newString" in result or "new_source" in result:
        return FileChange(path, "modify", hunks=reported_hunks(result))
    return None


def is_new(result: Mapping[str, Any]) -> bool:
    """Whether there was no file before. An Edit of nothing into nothing makes one; Claude Code 2.1.332 reports it as a change."""
    original = result.get("originalFile")
    if result.get("type") == "create":
        return not isinstance(original, str)
    return result.get("oldString") == "" and original == ""


def first_changed_line(result: Mapping[str, Any]) -> int | None:
    """The 1-based line in the new file where the first change is; None when the result does not tell."""
    if is_new(result):
        return 1
    for hunk in map(as_mapping, as_list(result.get("structuredPatch"))):
        start = as_count(hunk.get("newStart"))
        lines = [as_text(line) for line in as_list(hunk.get("lines"))]
        context = next((number for number, line in enumerate(lines) if not line.startswith(" ")), 0)
        return start + context if start else None
    return None


def reported_hunks(result: Mapping[str, Any]) -> str | None:
    """The hunks of a change as they are reported, None where there are none or they do not add up."""
    parts: list[str] = []
    for given in as_list(result.get("structuredPatch")):
        hunk = as_mapping(given)
        if not adds_up(hunk):
            return None
        starts = [as_count(hunk.get(name)) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        # git counts an empty side from the line before it
        old = f"{max(0, starts[0] - (starts[1] == 0 and starts[0] > 0))},{starts[1]}"
        new = f"{max(0, starts[2] - (starts[3] == 0 and starts[2] > 0))},{starts[3]}"
        parts += [f"@@ -{old} +{new} @@", *as_list(hunk.get("lines"))]
    return "\n".join(parts) if parts else None


def adds_up(hunk: Mapping[str, Any]) -> bool:
    """Whether a hunk's lines are those its head announces: else it would be no patch."""
    given = as_list(hunk.get("lines"))
    kinds = [line[:1] for line in given if isinstance(line, str) and "\n" not in line]
    return (
        all(kind in (" ", "+", "-", "\\") for kind in kinds)
        and len(kinds) == len(given)
        and kinds.count(" ") + kinds.count("-") == hunk.get("oldLines")
        and kinds.count(" ") + kinds.count("+") == hunk.get("newLines")
    )


def path_of(result: Mapping[str, Any]) -> str:
    """The path that an edit's structured result names, as it stands there."""
    return as_text(result.get("filePath")) or as_text(result.get("notebook_path"))
