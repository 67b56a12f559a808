"""A file change holds what each version of the protocol shows of it: a patch, or the text before and after."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.acp.framing import decode, encode
from adapters.acp.schema import ToolCallUpdate, dump
from adapters.core.file_change import FileChange, Piece
from adapters.core.file_diff import FileDiff, WireDiff, wire_of
from adapters.core.retained import Tail

TWO_HUNKS = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -20,2 +20,3 @@ def f():\n d\n+e\n f\n"

CASES: dict[str, tuple[FileChange, list[Piece]]] = {
    "edit": (
        FileChange("/w/a", "modify", hunks="@@ -7,3 +7,3 @@\n a\n-b\n+B\n c\n"),
        [Piece("a\nb\nc\n", "a\nB\nc\n", 7)],
    ),
    "several hunks": (
        FileChange("/w/a", "modify", hunks=TWO_HUNKS),
        [Piece("a\nb\nc\n", "a\nB\nc\n", 1), Piece("d\nf\n", "d\ne\nf\n", 20)],
    ),
    "new file": (FileChange("/w/a", "add", new="x\ny"), [Piece(None, "x\ny", 1)]),
    "new and empty": (FileChange("/w/a", "add", new=""), [Piece(None, "", 1)]),
    "delete": (FileChange("/w/a", "delete", old="x\n"), [Piece("x\n", None, 1)]),
    "move": (FileChange("/w/b", "move", old_path="/w/a", hunks=""), []),
    "move with change": (
        FileChange("/w/b", "move", old_path="/w/a", hunks="@@ -1 +1 @@\n-x\n+X\n"),
        [Piece("x\n", "X\n", 1)],
    ),
    "overwritten file": (FileChange("/w/a", "modify", old="lost\n", new="x\n"), [Piece("lost\n", "x\n", 1)]),
    "overwritten with the same": (FileChange("/w/a", "modify", old="x\n", new="x\n"), []),
    "no newline at the end": (
        FileChange(
            "/w/a",
            "modify",
            hunks="@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n\\ No newline at end of file",
        ),
        [Piece("a\nb", "a\nB", 1)],
    ),
    "no newline in the context": (
        FileChange("/w/a", "modify", hunks="@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n"),
        [Piece("a\nb", "A\nb", 1)],
    ),
    "a newline at the end is new": (
        FileChange("/w/a", "modify", hunks="@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        [Piece("a", "a\n", 1)],
    ),
    "line ends": (
        FileChange("/w/a", "modify", hunks="@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n"),
        [Piece("a\r\nb\r\n", "a\r\nb\n", 1)],
    ),
    "lines that look like marks": (
        FileChange("/w/a", "modify", hunks="@@ -1,2 +1,2 @@\n--- a\n+++ b\n @@ -1 +1 @@\n"),
        [Piece("-- a\n@@ -1 +1 @@\n", "++ b\n@@ -1 +1 @@\n", 1)],
    ),
    "nothing is left": (FileChange("/w/a", "modify", hunks="@@ -1 +0,0 @@\n-a\n"), [Piece("a\n", "", 1)]),
    "notebook": (
        FileChange("/w/n.ipynb", "modify", hunks='@@ -2 +2 @@\n-  "print(1)"\n+  "print(2)"\n'),
        [Piece('  "print(1)"\n', '  "print(2)"\n', 2)],
    ),
    "old text unknown": (FileChange("/w/a", "modify", new="x\n"), []),
    "nothing known": (FileChange("/w/a", "modify"), []),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_before_and_after_is_there(name: str) -> None:
    """What version 1 shows as `oldText` and `newText`: whole hunks, null for a file that is not there."""
    change, pieces = CASES[name]
    assert list(change.pieces) == pieces


@pytest.mark.parametrize("name", CASES)
def test_a_change_without_its_text_has_no_patch(name: str) -> None:
    """DIFF-2: the change stays, and nobody takes what is not known for an empty file."""
    change, pieces = CASES[name]
    diff = FileDiff.of(change)
    assert [shown.operation for shown in diff.changes] == [change.operation]
    assert change.is_known == (name not in ("old text unknown", "nothing known"))
    assert diff.says_all == bool(pieces or change.operation != "modify")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (FileChange("/w/a", "modify", hunks=TWO_HUNKS), 2),
        (FileChange("/w/a", "add", new="x\n"), 1),
        (FileChange("/w/a", "delete", old="@@ -5 +9 @@\n"), 1),
        (FileChange("/w/a", "modify", old="x", new="y"), 1),
        (FileChange("/w/b", "move", old_path="/w/a", hunks=""), None),
        (FileChange("/w/a", "modify", new="x"), None),
    ],
)
def test_the_first_changed_line(change: FileChange, line: int | None) -> None:
    """TOOL-7."""
    assert change.first_line == line


def call(*changes: FileChange) -> ToolCallUpdate:
    return ToolCallUpdate(tool_call_id="t", content=[FileDiff.of(*changes)])


def test_the_changes_come_as_far_as_a_connection() -> None:
    """They go with the diff, also for a client that joins later, and are not sent."""
    changes = [change for change, _ in CASES.values()]
    update = call(*changes)
    wire = wire_of(update)
    assert wire == dump(update)
    assert decode(encode(wire)) == dump(update)
    tail = Tail()
    tail.add(wire)
    tail.add({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"})
    [whole] = tail.updates()
    kept: list[Any] = [wire["content"][0], whole["content"][0]]
    assert all(isinstance(diff, WireDiff) and list(diff.files) == changes for diff in kept)


def test_other_updates_are_what_they_are() -> None:
    assert wire_of(ToolCallUpdate(tool_call_id="t", content=None)) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "content": None,
    }
