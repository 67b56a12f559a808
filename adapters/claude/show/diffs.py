"""File changes of Claude Code's edits as the protocol's diffs (DIFF-1 to DIFF-4). Reads no file."""

from collections.abc import Mapping
from typing import Any

from adapters.acp.schema import AddChange, DiffItem, DiffPatch, ModifyChange
from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.driver import git_patch


def diff_of(result: Mapping[str, Any], path: str) -> DiffItem | None:
    """The change that an edit reports in its structured result; None when it reports none.

    `path` is absolute. The patch is left out where the result does not hold it whole.
    """
    if not path:
        return None
    if _is_new(result):
        text = result.get("content", result.get("newString"))
        change = AddChange(path=path)
        patch = git_patch.added(path, text) if isinstance(text, str) else None
    elif "structuredPatch" in result or "newString" in result or "new_source" in result:
        change = ModifyChange(path=path)
        patch = _modified(path, result.get("structuredPatch"))
    else:
        return None
    if patch is None:
        return DiffItem(changes=[change])
    return DiffItem(changes=[change], patch=DiffPatch(format="git_patch", text=patch))


def _is_new(result: Mapping[str, Any]) -> bool:
    """Whether there was no file before. An Edit of nothing into nothing makes one; Claude Code 2.1.332 reports it as a change."""
    original = result.get("originalFile")
    if result.get("type") == "create":
        return not isinstance(original, str)
    return result.get("oldString") == "" and original == ""


def first_changed_line(result: Mapping[str, Any]) -> int | None:
    """The 1-based line in the new file where the first change is; None when the result does not tell."""
    for hunk in map(as_mapping, as_list(result.get("structuredPatch"))):
        start = as_count(hunk.get("newStart"))
        lines = [as_text(line) for line in as_list(hunk.get("lines"))]
        context = next((number for number, line in enumerate(lines) if not line.startswith(" ")), 0)
        return start + context if start else None
    return None


def _modified(path: str, hunks: Any) -> str | None:
    parts: list[str] = []
    for given in as_list(hunks):
        hunk = as_mapping(given)
        lines = [line for line in as_list(hunk.get("lines")) if isinstance(line, str) and "\n" not in line]
        if not _adds_up(hunk, lines):
            return None
        starts = [as_count(hunk.get(name)) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        # git counts an empty side from the line before it
        old = f"{max(0, starts[0] - (starts[1] == 0 and starts[0] > 0))},{starts[1]}"
        new = f"{max(0, starts[2] - (starts[3] == 0 and starts[2] > 0))},{starts[3]}"
        parts += [f"@@ -{old} +{new} @@", *lines]
    return git_patch.changed(path, "\n".join(parts)) if parts else None


def _adds_up(hunk: Mapping[str, Any], lines: list[str]) -> bool:
    """Whether a hunk's lines are those its head announces: else it would be no patch."""
    kinds = [line[:1] for line in lines]
    return (
        all(kind in (" ", "+", "-", "\\") for kind in kinds)
        and len(lines) == len(as_list(hunk.get("lines")))
        and kinds.count(" ") + kinds.count("-") == hunk.get("oldLines")
        and kinds.count(" ") + kinds.count("+") == hunk.get("newLines")
    )


def path_of(result: Mapping[str, Any]) -> str:
    """The path that an edit's structured result names, as it stands there."""
    return as_text(result.get("filePath")) or as_text(result.get("notebook_path"))
