"""Two connected transports in memory, so that everything above the wire runs without one. Owns back-pressure and end of stream.

Part of the package: clients and agents in one process use it as they use stdio.
"""

from __future__ import annotations

import anyio

from adapters.changed import Changed

BUFFER = 64 * 1024
"""Bytes on their way to a peer that does not read, as a pipe of Linux holds them."""


class _Pipe:
    """One direction."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._ended = False
        self._broken = False
        self._changed = Changed()

    async def read(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        await self._changed.until(lambda: bool(self._data) or self._ended or self._broken)
        data = b"" if self._broken else bytes(self._data)
        self._data.clear()
        self._changed.notify()
        return data

    async def write(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(data)
        while True:
            if self._broken or self._ended:
                raise anyio.BrokenResourceError
            room = self._limit - len(self._data)
            self._data += rest[:room]
            rest = rest[room:]
            self._changed.notify()
            if not rest:
                return
            await self._changed.wait()

    def end(self) -> None:
        self._ended = True
        self._changed.notify()

    def break_(self) -> None:
        self._broken = True
        self._changed.notify()


class MemoryTransport:
    """One end of a pair made by `memory_pair`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> bytes:
        """Whatever the peer has sent, at least one byte; b"" at the end of the stream and after `aclose`."""
        return await self._incoming.read()

    async def send(self, data: bytes) -> None:
        """Return when all of it is in the peer's buffer. Raises `anyio.BrokenResourceError` once the peer has closed."""
        await self._outgoing.write(data)

    def send_eof(self) -> None:
        """End this direction only; the peer reads what is on its way, then b""."""
        self._outgoing.end()

    async def aclose(self) -> None:
        """End both directions: what was sent can still be read, what is sent to us from now on breaks."""
        self._outgoing.end()
        self._incoming.break_()
        await anyio.lowlevel.checkpoint()


def memory_pair(buffer: int = BUFFER) -> tuple[MemoryTransport, MemoryTransport]:
    """Two transports, each the other's peer. `buffer`: bytes per direction that wait for a peer that does not read."""
    there, back = _Pipe(buffer), _Pipe(buffer)
    return MemoryTransport(back, there), MemoryTransport(there, back)
