"""What our log records say, and the handler that writes them to stderr as one line each. Knows nothing of the protocol.

Modules log with `logging.getLogger(__name__)` and a `LogEvent`. The command installs the handler. A program that imports
a part of this package gets ordinary records of loggers under `adapters`, and sets up `logging` as it likes.

Values are for diagnosis only: method names, codes, sizes, process ids. Never pass a prompt, a key or a secret (STDIO-15, KEY-30).
"""

import json
import logging
import time

from adapters.streams import write_stderr

_LONGEST_VALUE = 160  # characters; a log line stays readable whatever a runtime prints
_LONGEST_LINE = 4000  # characters; a pipe that is ready takes 4096 bytes at once
_MOST_LINES = 50
"""Lines of one event in `_PERIOD`: a peer that sends nonsense without end must not fill a disk with log lines."""
_PERIOD = 60.0  # seconds
_MOST_EVENTS = 1000  # kept in mind; events are few and fixed, so this is never reached by honest code


class LogEvent:
    """The message of a log record: `EVENT name=value ...`, in one line.

    Values are written as JSON strings where they hold anything but plain characters, so a newline or a control
    character in a value cannot forge a second line.
    """

    __slots__ = ("event", "fields")

    def __init__(self, event: str, /, **fields: object) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_value(value)}" for name, value in self.fields.items())])


def _value(value: object) -> str:
    text = str(value)[:_LONGEST_VALUE]
    plain = text.isascii() and text.isprintable() and " " not in text and text
    return text if plain else json.dumps(text)


class StderrHandler(logging.Handler):
    """Writes ``acp-adapters: EVENT name=value ...`` to stderr, one line for each record.

    Of one event at most `_MOST_LINES` lines are written in a minute; the next one after that says how many were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, tuple[float, int]] = {}
        """Event -> when its period began, and its lines since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record. What is no `LogEvent` is written without its arguments: they are not known to be harmless."""
        message = record.msg if isinstance(record.msg, LogEvent) else LogEvent(str(record.msg))
        left_out = self._count(message.event)
        if left_out is None:
            return
        if left_out:
            message = LogEvent(message.event, **(message.fields | {"left_out": left_out}))
        write_stderr(f"acp-adapters: {message}"[:_LONGEST_LINE] + "\n")

    def _count(self, event: str) -> int | None:
        """Count one line of the event: how many were left out before it, None to leave this one out too."""
        now = time.monotonic()
        began, lines = self._counts.get(event, (now, 0))
        left_out = 0
        if now - began > _PERIOD:
            began, lines, left_out = now, 0, max(0, lines - _MOST_LINES)
        if len(self._counts) >= _MOST_EVENTS:
            self._counts.clear()
        self._counts[event] = began, lines + 1
        return left_out if lines < _MOST_LINES else None


def log_to_stderr() -> None:
    """Send the records of this package to stderr, and nowhere else: for programs, at their start."""
    ours = logging.getLogger("adapters")
    ours.handlers = [StderrHandler()]
    ours.propagate = False
