"""A program that speaks JSON objects, one per line, over its pipes: reading, writing, and its end.

Owns bytes, pipes and signals. Knows no runtime and no message: the caller gets what is read. Every wait has a bound. A full or
dead pipe delays only the writer. The process is always reaped.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import Process as Subprocess

from adapters.acp.errors import ParseError
from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.acp.shapes import as_mapping
from adapters.changed import Changed
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

__all__ = [
    "LineProcess",
]

_READ: Final = 256 * 1024  # bytes
_LONGEST_LINE: Final = 512 * 1024 * 1024
"""Bytes. Runtimes put some 40 MiB prompts, or a whole stored session, into one line."""
_STDERR_KEPT: Final = 8 * 1024  # bytes of the end of stderr, for error messages
_LAST_WORDS: Final = 300  # characters
_REFUSED: Final = re.compile(
    r"^.*(?:(?:unknown|unrecognized|unexpected) (?:option|argument|(?:sub)?command|flag)\b|std\w+ is not a terminal).*$",
    re.IGNORECASE | re.MULTILINE,
)
"""How programs refuse an unknown argument, or an argument that they misread as something that needs a terminal."""
_DRAIN_BOUND: Final = 0.3
"""Seconds to read what is left after the exit, where a child of it still holds the pipe."""
_SILENT_BOUND: Final = 1.0
"""Seconds a process may live on after it has closed its stdout; then it is killed."""
_KILL_BOUND: Final = 5.0
"""Seconds from KILL to the exit; longer only in uninterruptible sleep."""

_BROKEN: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


Take = Callable[[Mapping[str, Any]], Awaitable[None] | None]
"""Takes an object; what takes time is given back."""


class LineProcess:
    """A started process that leads a process group. Somebody must await `run`; everything else may be called at any time.

    `name` is what the program is called in the log.
    """

    def __init__(self, process: Subprocess, name: str) -> None:
        self._process = process
        self._name = name
        self.pid = process.pid
        self.gone = anyio.Event()
        """The process has ended and is reaped, and `run` is about to return."""
        self.held_up = False
        """Reading waits, for slow clients for example, so silence of the process means nothing for now."""
        self.stopping = False
        """We asked it to end."""
        self._input: deque[bytes] = deque()
        self._unsent = Changed()
        self._closing_input = False
        self._stderr = b""
        self._logged: set[str] = set()

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it lives."""
        return self._process.returncode

    @property
    def last_words(self) -> str:
        """The last line on stderr, shortened; empty when there was none."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:_LAST_WORDS] for line in reversed(lines) if line.strip()), "")

    @property
    def refused(self) -> str:
        """The line on stderr that refuses our arguments, shortened; empty when there was none: an older program knows fewer."""
        found = _REFUSED.search(self._stderr.decode("utf-8", "replace"))
        return found[0].strip()[:_LAST_WORDS] if found else ""

    def log_once(self, event: str, **fields: object) -> None:
        """Log what this process does again and again, once."""
        if event not in self._logged:
            self._logged.add(event)
            _log.warning(LogEvent(event, pid=self.pid, **fields))

    # --- running -------------------------------------------------------------------------------------------------------

    async def read(self, take: Take, writable: Callable[[], Awaitable[None]]) -> None:
        """Give every object to `take` until the process is gone. `writable` is awaited between reads: it slows the process.

        What `take` gives back is awaited before the next object.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._collect_stderr)
                tasks.start_soon(self._end_after_exit, tasks.cancel_scope)
                await self._read(take, writable)
                with anyio.move_on_after(_SILENT_BOUND):
                    await self._process.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._reap()
            self._reaped()
            self.gone.set()

    def _reaped(self) -> None:
        """The process is gone; nobody has been told yet. For subclasses: end what waits for an answer."""

    async def _read(self, take: Take, writable: Callable[[], Awaitable[None]]) -> None:
        assert self._process.stdout is not None  # noqa: S101 - spawned with a pipe
        decoder = LineDecoder(_LONGEST_LINE)
        while True:
            try:
                data = await self._process.stdout.receive(_READ)
            except _BROKEN:
                return  # a torn last line is no message
            for line in decoder.feed(data):
                if (message := self._parse(line)) and (taking := take(message)):
                    self.held_up = True
                    await taking
                    self.held_up = False
            self.held_up = True
            await writable()
            self.held_up = False

    def _parse(self, line: bytes | LineTooLong) -> Mapping[str, Any]:
        if isinstance(line, LineTooLong):
            self.log_once(f"{self._name} wrote a line that is too long", size=line.size)
            return {}
        message: Mapping[str, Any] = {}
        with suppress(ParseError):
            message = as_mapping(decode(line))
        if not message:
            self.log_once(f"{self._name} wrote a line that is not a message", size=len(line))
        return message

    async def _collect_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - spawned with a pipe
        with suppress(*_BROKEN):
            while True:
                self._stderr = (self._stderr + await self._process.stderr.receive())[-_STDERR_KEPT:]

    async def _end_after_exit(self, scope: anyio.CancelScope) -> None:
        """A child of the process may hold its stdout open; that must not hide its end."""
        await self._process.wait()
        await anyio.sleep(_DRAIN_BOUND)
        while self.held_up and not self.stopping:  # noqa: ASYNC110 - two plain flags of a rare case
            await anyio.sleep(_DRAIN_BOUND)
        scope.cancel()

    async def _reap(self) -> None:
        self.signal(signal.SIGKILL)
        with anyio.move_on_after(_KILL_BOUND) as bound:
            await self._process.aclose()
        if bound.cancelled_caught:
            _log.warning(LogEvent(f"{self._name} does not end after KILL", pid=self.pid))

    # --- writing -------------------------------------------------------------------------------------------------------

    def send(self, message: Mapping[str, Any]) -> None:
        """Write an object, in order. Never waits; what a dead process does not read is dropped."""
        self._input.append(encode(message))
        self._unsent.notify()

    async def _write(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - spawned with a pipe
        with suppress(*_BROKEN, OSError):
            while True:
                while self._input:
                    await self._process.stdin.send(self._input.popleft())
                if self._closing_input:
                    await self._process.stdin.aclose()
                    return
                await self._unsent.until(lambda: bool(self._input) or self._closing_input)

    # --- the end -------------------------------------------------------------------------------------------------------

    async def end(self, *, eof_bound: float | None, term_bound: float) -> None:
        """End of its input (None: not asked that way), then TERM, then KILL, seconds apart; return when it is gone.

        May be called again. Is not interrupted by a cancellation.
        """
        with anyio.CancelScope(shield=True):
            self.stopping = True
            if eof_bound is not None:
                self._closing_input = True
                self._unsent.notify()
                with anyio.move_on_after(eof_bound):
                    await self.gone.wait()
            self.signal(signal.SIGTERM)
            with anyio.move_on_after(term_bound):
                await self.gone.wait()
            self.signal(signal.SIGKILL)
            await self.gone.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and its group, if it lives."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
