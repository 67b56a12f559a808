"""Slash commands in any runtime: which command a prompt is, and the ones that no session can take (CMD-*, D8). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from adapters.acp.schema import ContentBlock, TextBlock

MOVING: Final = frozenset({"clear", "new", "reset"})
"""They would continue in another session behind the client's back, also with arguments (D8)."""

_NAME: Final = re.compile(r"/([^\s/]+)(?=\s|$)")

_NEW_SESSION: Final = (
    "`/{name}` is not available here, because it would continue in another session that this client does not show. "
    "Start a new session in your client instead."
)


def command_of(prompt: Sequence[ContentBlock]) -> str | None:
    """The name of the slash command that a prompt is, None when it is none: its text starts with it (CMD-3)."""
    first = next((block.text for block in prompt if isinstance(block, TextBlock)), "")
    found = _NAME.match(first)
    return found[1] if found else None


def moving_text(prompt: Sequence[ContentBlock]) -> str | None:
    """The answer to a command that would move the conversation, None for every other prompt."""
    name = command_of(prompt)
    return _NEW_SESSION.format(name=name) if name in MOVING else None
