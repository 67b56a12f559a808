"""Every message of a connection, in order, to look back at and to wait for.

Owns the record and its waiters. Knows only that a message is a JSON value.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import anyio

from adapters.changed import Changed

_KEPT = 400
"""Bytes of a line that is no JSON."""


class ConnectionLostError(Exception):
    """The connection ended. What was asked and not answered may have been done or not: send it again with its key.

    Not an `AcpError` on purpose: an error on `session/prompt` says "not inserted", and this says nothing.
    """


@dataclass(frozen=True, slots=True)
class Message:
    """One message on the wire. `value` is the decoded JSON, not to be changed; None for a line that was no JSON.

    `size` counts the bytes of its line, `line` is the beginning of one that was no JSON.
    """

    index: int
    at: float
    """Seconds on `time.monotonic`."""
    sent: bool
    value: Any
    size: int
    line: bytes = b""

    @property
    def method(self) -> str | None:
        """The method of a request or notification."""
        method = as_object(self.value).get("method")
        return method if isinstance(method, str) else None

    @property
    def params(self) -> dict[str, Any]:
        """Its params; empty when it has none, or no object."""
        return as_object(as_object(self.value).get("params"))


def as_object(value: Any) -> dict[str, Any]:
    """A JSON value as an object; anything else is an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Record:
    """The messages of one connection. With `keep`, only the latest so many are held; indices go on counting."""

    def __init__(self, keep: int | None = None) -> None:
        self._messages: deque[Message] = deque(maxlen=keep)
        self._changed = Changed()
        self.mark = 0
        """The index that the next message will have."""
        self.ended = False

    def add(self, value: Any, size: int, *, sent: bool, line: bytes = b"") -> Message:
        """Append a message and wake who waits."""
        message = Message(self.mark, time.monotonic(), sent, value, size, line[:_KEPT])
        self._messages.append(message)
        self.mark += 1
        self._changed.notify()
        return message

    def end(self) -> None:
        """No message follows: waits that are not satisfied raise `ConnectionLostError`."""
        self.ended = True
        self._changed.notify()

    def since(self, mark: int = 0, *, sent: bool | None = None) -> Iterator[Message]:
        """The held messages from this index on; only sent or only received ones if asked for."""
        held_from = self.mark - len(self._messages)
        for message in islice(self._messages, max(0, mark - held_from), None):
            if sent is None or message.sent is sent:
                yield message

    async def wait(self, wanted: Callable[[Message], bool], since: int = 0, within: float = 30.0) -> Message:
        """The first message from index `since` on that is wanted, at once or when it comes.

        Raises:
            TimeoutError: none came within so many seconds.
            ConnectionLostError: the connection ended first.
        """
        with anyio.fail_after(within):
            while True:
                upto = self.mark
                for message in self.since(since):
                    if wanted(message):
                        return message
                if self.ended:
                    raise ConnectionLostError("the connection ended before the message came")
                since = upto
                await self._changed.wait()
