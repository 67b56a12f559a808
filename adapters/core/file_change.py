"""What became of one file, in the core's words: drivers make it, each version of the protocol shows it in its own way.

Owns the value and its pieces of text. Pure; reads no file, knows no runtime and no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from adapters.acp import git_patch

Operation = Literal["add", "delete", "modify", "move"]

_HEAD: Final = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+(?P<start>\d+)(?:,(?P<new>\d+))? @@")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file before and after a change, whole lines with context; None where there is no file."""

    old: str | None
    new: str | None
    line: int
    """Where the piece begins in the new file, 1-based."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that is new, gone, different, or has another path. Paths are absolute.

    Texts are as they are on disk, line ends included. The text is known as `hunks`, or as what the operation has of `old` and
    `new`: None is what nobody knows (too large, no text, not told), and never stands for a file that does not exist.
    """

    path: str
    operation: Operation
    old_path: str = ""
    """Of a move: where the file was."""
    old: str | None = None
    """The whole text before, of a file that was there."""
    new: str | None = None
    """The whole text after, of a file that is there."""
    hunks: str | None = None
    """Of a change or a move: unified hunks, from the first `@@` on, with git's mark of a missing newline at the end."""

    @property
    def is_known(self) -> bool:
        """Whether the value says what happened to the text, all of it."""
        match self.operation:
            case "add":
                return self.new is not None
            case "delete":
                return self.old is not None
            case _:
                return self.hunks is not None or (self.old is not None and self.new is not None)

    @property
    def first_line(self) -> int | None:
        """The 1-based line of the new file where it changes first; None when that is not known."""
        if self.hunks is not None:
            return git_patch.first_line(self.hunks)
        return 1 if self.is_known else None

    @property
    def pieces(self) -> Sequence[Piece]:
        """The changed text before and after: the whole file, or a piece per hunk. Empty when no text changed or none is known."""
        if self.hunks is not None:
            return tuple(_pieces(self.hunks))
        if not self.is_known or self.old == self.new:
            return ()
        old, new = self.operation != "add", self.operation != "delete"
        return (Piece(self.old if old else None, self.new if new else None, 1),)


def _pieces(hunks: str) -> Iterator[Piece]:
    lines = hunks.split("\n")
    at = 0
    while at < len(lines):
        head = _HEAD.match(lines[at])
        at += 1
        if not head:
            continue
        left = {"-": int(head["old"] or 1), "+": int(head["new"] or 1)}
        texts: dict[str, list[str]] = {"-": [], "+": []}
        sides = ""
        while at < len(lines) and (max(left.values()) > 0 or lines[at].startswith("\\")):
            mark, text = lines[at][:1], lines[at][1:]
            at += 1
            if mark == "\\":
                for side in sides:
                    texts[side][-1] = texts[side][-1].removesuffix("\n")
                continue
            sides = mark if mark in ("-", "+") else "-+"
            for side in sides:
                texts[side].append(text + "\n")
                left[side] -= 1
        yield Piece("".join(texts["-"]), "".join(texts["+"]), max(1, int(head["start"])))
