"""White space at the two ends of a prompt. Claude Code strips it from a prompt that it takes in behind a tool.

Owns the mark that protects it. The mark is not white space and is invisible. Text that already looks marked gets one more mark,
so the text that is read equals the text that was written.
"""

from typing import Final

_MARK: Final = "\u200b"

_WHITE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    "\ufeff"
)
"""The characters that JavaScript's `trim` removes."""


def strip(text: str) -> str:
    """The text as Claude Code strips it."""
    return text.strip(_WHITE)


def is_blank(text: str) -> bool:
    """Whether a text holds nothing but white space and marks."""
    return not text.strip(_WHITE + _MARK)


def mark_start(text: str) -> str:
    """The text with a mark in front when stripping would change its start, or when it looks marked."""
    return _MARK + text if _is_open(text.lstrip(_MARK)[:1]) else text


def mark_end(text: str) -> str:
    """The text with a mark behind it when stripping would change its end, or when it looks marked."""
    return text + _MARK if _is_open(text.rstrip(_MARK)[-1:]) else text


def unmark_start(text: str) -> str:
    """The inverse of `mark_start`."""
    return text[1:] if text.startswith(_MARK) and _is_open(text.lstrip(_MARK)[:1]) else text


def unmark_end(text: str) -> str:
    """The inverse of `mark_end`."""
    return text[:-1] if text.endswith(_MARK) and _is_open(text.rstrip(_MARK)[-1:]) else text


def _is_open(edge: str) -> bool:
    """Whether the outermost character would be stripped; an empty text has none and would be dropped."""
    return not edge or edge in _WHITE
