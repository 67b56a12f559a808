"""The byte stream of an agent process: file descriptors 0 and 1, or any two others.

Owns how descriptors are read and written without blocking the event loop and without threads: a thread in a blocking read would
delay the end of the process. Knows no lines and no messages.

Pipes, sockets and terminals are awaited. What the selector refuses (regular files, /dev/null) never blocks for long and is used
directly. A peer that can take nothing any more counts as gone, even if another process (a child of the peer) keeps our input
open.
"""

from __future__ import annotations

import fcntl
import os
import select
from contextlib import suppress
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

_READ: Final = 256 * 1024  # bytes per read; a pipe holds 64 KiB, sockets more
_WRITE: Final = 256 * 1024  # bytes per write; other tasks run in between
_PRIVATE: Final = 3  # the first descriptor that is none of stdin, stdout and stderr


class StdioTransport:
    """Reads one descriptor, writes another. Neither is closed at the end, unless the transport made it (`claim_stdio`).

    The written descriptor is non-blocking while the transport is open; its mode is put back by `aclose`. The read one is left as
    it is: a read after the wait does not block.
    """

    def __init__(self, stdin_fd: int = 0, stdout_fd: int = 1, *, owned: bool = False) -> None:
        self._in = stdin_fd
        self._out = stdout_fd
        self._owned = owned
        self._in_waits = True
        self._watch: select.epoll | None = None
        """Becomes readable when there is input, or when no reader of our output is left."""
        self._was_blocking: bool | None = None
        self._closed = False

    async def receive(self) -> bytes:
        """The next bytes; b"" at the end: of input, of a descriptor that is closed or cannot be read, of a peer that is gone.

        What a peer that is gone had sent is given first. On Linux only; elsewhere the next write finds out.
        """
        while not self._closed:
            try:
                if not self._in_waits:
                    await checkpoint()
                elif not await self._await_input():
                    return b""
                return os.read(self._in, _READ)
            except BlockingIOError:
                await checkpoint()  # somebody else read it
            except PermissionError:
                if not self._in_waits:
                    return b""
                self._in_waits = False
            except (OSError, ValueError):
                return b""
        return b""

    async def _await_input(self) -> bool:
        """Wait until there is something to read, at least the end; False when the peer is gone instead."""
        if not hasattr(select, "epoll"):
            await anyio.wait_readable(self._in)
            return True
        if self._watch is None:
            self._watch = self._watched()
        while True:
            await anyio.wait_readable(self._watch.fileno())
            events = dict(self._watch.poll(0))
            if events:
                return self._in in events

    def _watched(self) -> select.epoll:
        """Raises `PermissionError` for an input that never waits, `OSError` for one that is closed."""
        watch = select.epoll()
        try:
            watch.register(self._in, select.EPOLLIN)
            if self._out != self._in:
                with suppress(OSError):  # output to a file has no reader
                    watch.register(self._out, 0)  # errors and hang-ups are always told
        except BaseException:
            watch.close()
            raise
        return watch

    async def send(self, data: bytes) -> None:
        """Return when the descriptor has taken all of `data`. Raises `OSError` when the peer is gone (EPIPE) or it is closed."""
        if self._closed:
            raise anyio.ClosedResourceError
        self._set_nonblocking()
        rest = memoryview(data)
        await checkpoint()
        while rest:
            try:
                rest = rest[os.write(self._out, rest[:_WRITE]) :]
            except BlockingIOError:
                await self._wait_writable()
            else:
                if rest:  # a reader that keeps up must not keep the others waiting
                    await checkpoint()

    async def aclose(self) -> None:
        """Put the blocking mode back; close the descriptors if they are our own. More calls do nothing."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        if self._was_blocking:
            with suppress(OSError):
                os.set_blocking(self._out, True)
        if self._owned:
            for descriptor in {self._in, self._out}:
                with suppress(OSError):
                    os.close(descriptor)
        await checkpoint()

    def _set_nonblocking(self) -> None:
        if self._was_blocking is None:
            self._was_blocking = os.get_blocking(self._out)
            os.set_blocking(self._out, False)

    async def _wait_writable(self) -> None:
        try:
            await anyio.wait_writable(self._out)
        except PermissionError:
            await checkpoint()


def claim_stdio() -> StdioTransport:
    """Take stdin and stdout for the protocol alone (STDIO-2): whatever else reads or prints, children included, cannot touch it.

    The transport works on private copies that children do not inherit; descriptor 0 becomes /dev/null and descriptor 1 a copy of
    stderr. Without any stderr, 1 and 2 become /dev/null, so that no file of ours gets their number. Call it before anything can
    print. Raises `OSError` when 0 or 1 is not open; then nothing is changed.
    """
    for descriptor in (0, 1):
        os.fstat(descriptor)
    incoming, outgoing = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _PRIVATE) for descriptor in (0, 1))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    if null == _PRIVATE - 1:  # there was no stderr, so that this is it now
        os.set_inheritable(null, True)
    else:
        os.close(null)
    os.dup2(2, 1)
    return StdioTransport(incoming, outgoing, owned=True)
