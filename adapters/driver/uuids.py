"""How both runtimes spell the ids of sessions and messages, alone and in the names of files."""

from __future__ import annotations

import re
from typing import Final

UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A pattern without groups, to be built into others."""

_WHOLE: Final = re.compile(UUID)


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in its usual spelling: with hyphens and in small letters."""
    return _WHOLE.fullmatch(text) is not None
