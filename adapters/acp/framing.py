r"""Bytes to JSON values and back. Sans-IO: no file, no event loop, no JSON-RPC (STDIO-1, STDIO-3..6).

A line ends at `\n` alone: U+2028, form feeds and lone `\r` are content. Time is linear in the bytes fed however they are split.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from json.encoder import JSONEncoder
from typing import Any, Final, NamedTuple, NoReturn, cast

from adapters.acp.errors import ParseError

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one line without its end. Prompts carry base64 images; more than the SDK's 32 MiB (STDIO-5)."""

MAX_DEPTH: Final = 256
"""Containers inside containers. Deeper values pass no JSON parser of our peers (serde stops at 128) and could not be sent on."""

_WHITE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_CONTAINERS: Final = frozenset((dict, list))
_LONGEST_INT: Final = 4300  # digits; CPython converts no more, because it takes quadratic time


class LineTooLong(NamedTuple):
    """A line over the bound: its bytes are gone, the stream is in step again behind its newline."""

    size: int
    """Bytes of the whole line without its end."""


class LineDecoder:
    """Cuts a byte stream into lines. Blank lines and white space around a line are dropped (STDIO-3), a BOM with it."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._pieces: list[bytes] = []
        self._size = 0
        self._last = b""  # its last byte, known also of a line that is too long to keep

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """Take the next bytes; give the lines that end in them, in order."""
        lines: list[bytes | LineTooLong] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._end_line(data[start:end], lines)
            start = end + 1
        if start < len(data):
            self._add(data[start:] if start else data)
        return lines

    def finish(self) -> list[bytes | LineTooLong]:
        """Take the end of the stream: a last line without a newline is a line (STDIO-4)."""
        lines: list[bytes | LineTooLong] = []
        self._end_line(b"", lines)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._last = piece[-1:] or self._last
        if self._size > self._max_line + 1:  # one more for the \r of \r\n
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def _end_line(self, last: bytes, lines: list[bytes | LineTooLong]) -> None:
        if self._size:
            self._add(last)
            size, line, ending = self._size, b"".join(self._pieces), self._last
            self._pieces.clear()
            self._size = 0
        else:
            size, line, ending = len(last), last, last[-1:]
        if ending == b"\r":
            size -= 1
        if size > self._max_line:
            lines.append(LineTooLong(size))
        elif line := line.strip(_WHITE).removeprefix(_BOM):
            lines.append(line)


def decode(line: bytes) -> Any:
    """The JSON value of a line (RFC 8259).

    Lone surrogates, duplicate members (the last wins) and integers of any size pass; integers beyond 4300 digits become
    `float`, infinite where it overflows, as a client in JavaScript reads them.

    Raises:
        ParseError: not UTF-8, not JSON (NaN and Infinity are none), or nested deeper than `MAX_DEPTH`.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ParseError("Parse error: the line is not UTF-8.") from None
    try:
        value = _parse(text)
    except RecursionError:
        raise ParseError(f"Parse error: nested deeper than {MAX_DEPTH} levels.") from None
    except ValueError:
        raise ParseError from None
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _deeper_than(MAX_DEPTH, value):
        raise ParseError(f"Parse error: nested deeper than {MAX_DEPTH} levels.")
    return value


def encode(message: Mapping[str, Any]) -> bytes:
    r"""One line, `\n` included, in ASCII: lone surrogates, U+2028 and all else beyond it are escaped.

    Numbers that JSON lacks (NaN, Infinity) become null, as in JavaScript. Raises `TypeError` for values that JSON lacks,
    `ValueError` for a cycle and `RecursionError` for values nested too deep.
    """
    try:
        text = _ENCODER.encode(message)
    except ValueError:
        text = _ENCODER.encode(_finite(message))
    return text.encode("ascii") + b"\n"


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError


def _any_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INT else float(digits)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_any_int)
_ENCODER: Final = JSONEncoder(separators=(",", ":"), allow_nan=False)


def _parse(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # NaN, or an integer that is too long for int()
        return _LENIENT.decode(text)


def _deeper_than(limit: int, value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [inner for item in level for inner in _items(item) if type(inner) in _CONTAINERS]
        if not level:
            return False
    return True


def _items(container: Any) -> Iterable[Any]:
    if type(container) is list:
        return cast("list[Any]", container)
    return cast("dict[str, Any]", container).values() if type(container) is dict else ()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in cast("list[Any]", value)]
    return value
