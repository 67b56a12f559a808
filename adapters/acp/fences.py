"""Text as a Markdown code block, and back. Pure."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"(?P<fence>`{3,})(?P<language>[^`\n]*)\n(?P<text>.*)\n(?P=fence)\s*", re.DOTALL)


def fenced(text: str, language: str = "") -> str:
    """Text as a Markdown code block, whatever backticks are in it."""
    fence = "```"
    if fence in text:
        fence = "`" * (max(len(run) for run in re.findall(r"`{3,}", text)) + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}"


def inside(text: str) -> tuple[str, str] | None:
    """What a text holds that is one code block and nothing else, and its language; None for every other text."""
    found = _FENCE.fullmatch(text)
    if found is None or found["fence"] in found["text"]:
        return None
    return found["text"], found["language"]
