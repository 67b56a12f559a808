"""The standard streams of a process that somebody else started: descriptors 0, 1 and 2, open or closed.

Owns the handling of closed streams, the writing to stderr, and what a command for people does when nobody reads its output. Every
start pays for the imports, so there are very few.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TextIO, TypeVar, cast

_T = TypeVar("_T")

_AT_ONCE: Final = 4096  # bytes that a pipe takes without waiting when it is ready (PIPE_BUF)


def reserve() -> None:
    """Put /dev/null where a standard descriptor is closed, so that no file, socket or pipe of ours gets its number.

    Log lines, and whatever a child prints, would go into that file. Call it before anything is opened. `sys.stdin` and
    `sys.stdout` stay None where they were closed: see `closed`.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - print() takes stdout for None


def closed() -> list[str]:
    """Which of standard input and output were closed when the process was started."""
    streams = {"standard input": sys.stdin, "standard output": sys.stdout}
    return [name for name, stream in streams.items() if stream is None]


def write_stderr(text: str) -> None:
    """Write to stderr, whatever it is. Raises nothing and waits for nobody.

    What a closed, full or unread stderr does not take is lost: stderr belongs to whoever started us, and no work depends on it.
    """
    if sys.stderr is None:  # it was closed when the interpreter started, and its number may be another file's now
        return
    with suppress(OSError, ValueError):
        try:
            descriptor = sys.stderr.fileno()
        except OSError:  # no file at all
            sys.stderr.write(text)
            sys.stderr.flush()
            return
        # Past the stream: what a stream could not write it keeps, and tries again at the end of the process.
        _write(descriptor, text.encode("utf-8", "backslashreplace"))


def _write(descriptor: int, data: bytes) -> None:
    """Write without waiting. The descriptor's own mode stays as it is: others share it. Raises `OSError`."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        import socket  # noqa: PLC0415 - for this kind of stderr alone; an agent has loaded it

        with socket.socket(fileno=os.dup(descriptor)) as peer:
            peer.send(data, socket.MSG_DONTWAIT)
    elif stat.S_ISCHR(mode) and os.isatty(descriptor):
        _write_terminal(descriptor, data)
    else:
        _write_ready(descriptor, data)


def _write_terminal(descriptor: int, data: bytes) -> None:
    """A terminal that is stopped, or whose window is gone, is ready for one byte and not for a line."""
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # no /proc, or a terminal of another user
        _write_ready(descriptor, data)
        return
    try:
        os.write(own, data)
    finally:
        os.close(own)


def _write_ready(descriptor: int, data: bytes) -> None:
    for start in range(0, len(data), _AT_ONCE):
        if not select.select([], [descriptor], [], 0)[1]:
            return
        os.write(descriptor, data[start : start + _AT_ONCE])


class OutputLostError(Exception):
    """Standard output takes nothing more. The message says why."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"standard output cannot be written: {cause.strerror}")
        self.reader_left = isinstance(cause, BrokenPipeError)
        """The reader has left, as in `| head -3`: this is no error."""


class _Output:
    """`sys.stdout`, whose errors are told from those of any other file."""

    def write(self, text: str) -> int:
        return _told(lambda stream: stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        _told(lambda stream: stream.writelines(lines))

    def flush(self) -> None:
        _told(lambda stream: stream.flush())


def _told(use: Callable[[TextIO], _T]) -> _T:
    if sys.stdout is None:
        raise OutputLostError(OSError(errno.EBADF, "it is closed"))
    try:
        return use(sys.stdout)
    except OSError as error:
        raise OutputLostError(error) from None


def people() -> TextIO:
    """Standard output for a command that people watch: `print(..., file=people())`. Writing raises `OutputLostError`."""
    return cast("TextIO", _Output())


def abandon_output() -> None:
    """Stop writing to standard output: what its stream still holds is discarded at the end of the process."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
