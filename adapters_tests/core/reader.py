"""Whoever takes what a program writes, for tests of processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

Frames = list[Mapping[str, Any]]


class Reader:
    """Takes frames; with `open` unset it is a client that does not read."""

    def __init__(self) -> None:
        self.frames: Frames = []
        self.open = anyio.Event()
        self.open.set()
        self.stuck = anyio.Event()
        self._more = anyio.Event()

    def take(self, frame: Mapping[str, Any]) -> None:
        self.frames.append(frame)
        self._more.set()

    async def writable(self) -> None:
        if not self.open.is_set():
            self.stuck.set()
        await self.open.wait()

    async def until(self, count: int) -> None:
        with anyio.fail_after(10):
            while len(self.frames) < count:
                self._more = anyio.Event()
                await self._more.wait()
