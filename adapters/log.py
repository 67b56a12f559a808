"""One line per event on stderr. Owns the log format and its bound; knows nothing of the protocol.

Values are for diagnosis only: method names, codes, sizes, process ids. Never pass a prompt, a key or a secret (STDIO-15, KEY-30).
"""

import json
import time

from adapters.streams import write_stderr

_LONGEST_VALUE = 160  # characters; a log line stays readable whatever a runtime prints
_LONGEST_LINE = 4000  # characters; a pipe that is ready takes 4096 bytes at once
_MOST_LINES = 50
"""Lines of one event in `_PERIOD`: a peer that sends nonsense without end must not fill the disk of whoever keeps the log."""
_PERIOD = 60.0  # seconds
_MOST_EVENTS = 1000  # kept in mind; events are few and fixed, so this is never reached by honest code

_counts: dict[str, tuple[float, int]] = {}
"""Event -> when its period began, and its lines since."""


def log(event: str, **fields: object) -> None:
    """Write ``acp-adapters: EVENT name=value ...`` to stderr as one line.

    Values are written as JSON strings where they hold anything but plain characters, so a newline or a control
    character in a value cannot forge a second line. Of one event at most `_MOST_LINES` lines are written in a minute; the
    next one after that says how many were left out.
    """
    left_out = _count(event)
    if left_out is None:
        return
    parts = [f"acp-adapters: {event}"]
    for name, value in (fields | {"left_out": left_out} if left_out else fields).items():
        text = str(value)[:_LONGEST_VALUE]
        plain = text.isascii() and text.isprintable() and " " not in text and text
        parts.append(f"{name}={text if plain else json.dumps(text)}")
    write_stderr(" ".join(parts)[:_LONGEST_LINE] + "\n")


def _count(event: str) -> int | None:
    """Count one line of the event: how many were left out before it, None to leave this one out too."""
    now = time.monotonic()
    began, lines = _counts.get(event, (now, 0))
    left_out = 0
    if now - began > _PERIOD:
        began, lines, left_out = now, 0, max(0, lines - _MOST_LINES)
    if len(_counts) >= _MOST_EVENTS:
        _counts.clear()
    _counts[event] = began, lines + 1
    return left_out if lines < _MOST_LINES else None
