"""Texts and paths of tool calls as clients show them. Pure; knows no tool and no runtime."""

import os
from typing import Any, Final

from adapters.acp.fences import fenced
from adapters.acp.shapes import as_text

__all__ = [
    "LONGEST_TITLE",
    "absolute",
    "fenced",
    "one_line",
    "relative",
]

LONGEST_TITLE: Final = 200
"""Characters of a title; a client shows one line."""


def one_line(text: str, longest: int = LONGEST_TITLE) -> str:
    """Text for a title: one line, shortened to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def absolute(path: Any, cwd: str) -> str:
    """The absolute path of a tool's path; empty when it is none (TOOL-7, DIFF-1). `cwd` is absolute."""
    text = as_text(path)
    joined = os.path.join(cwd, text)  # noqa: PTH118 - paths of a model: any text, never opened
    return os.path.normpath(joined) if text and os.path.isabs(joined) else ""  # noqa: PTH117


def relative(path: str, cwd: str) -> str:
    """The path as a reader in the session's folder would name it."""
    return path.removeprefix(cwd.rstrip(os.sep) + os.sep) or path
