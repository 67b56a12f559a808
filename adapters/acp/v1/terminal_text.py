"""What a terminal shows in the end, as plain text: colours gone, redrawn lines as they stand last (TERM-*).

Owns the reading of control characters. Not a screen: it knows no width and no height, so lines never wrap and nothing scrolls
away. The cost is linear in the text, for a cursor that is sent about as well.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    \x1b\[ (?P<params>[0-?]*) [ -/]* (?P<command>[@-~])?   # CSI: colours, cursor, erasing
  | \x1b[\]PX^_] [^\x07\x1b]* (?:\x07|\x1b\\)?             # OSC, DCS, SOS, PM, APC: titles, links
  | \x1b [ -/]* [0-~]?                                     # two characters: charsets, keypad
  | (?P<control>[\x00-\x1f\x7f-\x9f])
  | (?P<text>[^\x00-\x1f\x7f-\x9f]+)
    """,
    re.VERBOSE,
)
_PLAIN: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]*")
_FARTHEST: Final = 10_000
"""Columns that a cursor is moved to: what is written beyond a terminal's width is no text."""


def readable(text: str) -> str:
    """The text without control characters other than newline and tab."""
    if _PLAIN.fullmatch(text):
        return text
    return _Page().written(text.replace("\r\n", "\n"))


class _Page:
    """Lines, and where the cursor is."""

    def __init__(self) -> None:
        self._lines: list[list[str]] = [[]]
        self._row = 0
        self._column = 0

    def written(self, text: str) -> str:
        for token in _TOKEN.finditer(text):
            if (plain := token["text"]) is not None:
                self._write(plain)
            elif (control := token["control"]) is not None:
                self._control(control)
            elif (command := token["command"]) is not None:
                self._command(command, token["params"])
        return "\n".join("".join(line).rstrip(" ") for line in self._lines)

    def _write(self, text: str) -> None:
        line = self._lines[self._row]
        if len(line) < self._column:
            line += " " * (self._column - len(line))
        line[self._column : self._column + len(text)] = text
        self._column += len(text)

    def _control(self, control: str) -> None:
        match control:
            case "\n" | "\x0b" | "\x0c" | "\x85":
                self._row += 1
                self._column = 0
                if self._row == len(self._lines):
                    self._lines.append([])
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\t":
                self._write("\t")
            case _:
                pass

    def _command(self, command: str, params: str) -> None:
        numbers = [int(part) if part.isdecimal() and len(part) < 6 else 0 for part in params.split(";")]  # noqa: PLR2004
        first = numbers[0]
        match command:
            case "A" | "F":
                self._row = max(0, self._row - max(1, first))
            case "B" | "E":
                self._row = min(len(self._lines) - 1, self._row + max(1, first))
            case "C":
                self._column = min(_FARTHEST, self._column + max(1, first))
            case "D":
                self._column = max(0, self._column - max(1, first))
            case "G" | "`":
                self._column = min(_FARTHEST, max(1, first) - 1)
            case "H" | "f":
                self._row = min(len(self._lines) - 1, max(1, first) - 1)
                self._column = min(_FARTHEST, max(1, numbers[1]) - 1) if len(numbers) > 1 else 0
            case "K":
                self._erase(first)
            case "J":
                self._clear(first)
            case _:
                pass
        if command in ("E", "F"):
            self._column = 0

    def _erase(self, how: int) -> None:
        """Behind the cursor, up to it, or the whole line."""
        line = self._lines[self._row]
        if how == 0:
            del line[self._column :]
        elif how == 1:
            line[: self._column + 1] = " " * min(len(line), self._column + 1)
        else:
            line.clear()

    def _clear(self, how: int) -> None:
        """Below the cursor, above it, or everything."""
        if how == 0:
            self._erase(0)
            del self._lines[self._row + 1 :]
        elif how == 1:
            for line in self._lines[: self._row]:
                line.clear()
            self._erase(1)
        else:
            self._lines = [[]]
            self._row = self._column = 0
