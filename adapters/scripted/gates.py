"""Gates: points at which an answer waits until a test, a file or a clock opens the gate. Owns only the waiting."""

from __future__ import annotations

import logging

import anyio

from adapters.changed import Changed
from adapters.log import LogEvent
from adapters.scripted.script import GateOpening

_log = logging.getLogger(__name__)

LONGEST_HOLD = 600.0
"""Seconds an answer waits at a gate before it goes on by itself: a forgotten gate must not hold a runtime for ever."""

_FILE_POLL = 0.02  # seconds between two looks at a gate's file; a person does not notice, the CPU neither


class Gate:
    """One named gate; closed at first. All methods belong to the event loop of the model."""

    def __init__(self, name: str, opening: GateOpening | None = None) -> None:
        self.name = name
        self.arrivals = 0
        """How many answers have come to this gate, open or not."""
        self._opening = opening
        self._open = anyio.Event()
        self._arrived = Changed()

    @property
    def is_open(self) -> bool:
        """Whether answers pass without waiting."""
        return self._open.is_set()

    def release(self) -> None:
        """Let the waiting answers and all later ones go on."""
        self._open.set()

    def close(self) -> None:
        """Hold the next answers again."""
        if self._open.is_set():
            self._open = anyio.Event()

    async def wait_arrival(self, count: int = 1, seconds: float = 30.0) -> None:
        """Return when `count` answers have come to the gate. Raises `TimeoutError` after `seconds`."""
        await self._arrived.require(lambda: self.arrivals >= count, seconds)

    async def hold(self) -> None:
        """Wait at the gate."""
        self.arrivals += 1
        self._arrived.notify()
        gate = self._open
        seconds = None if self._opening is None else self._opening.seconds
        file = None if self._opening is None else self._opening.file
        with anyio.move_on_after(LONGEST_HOLD if seconds is None else seconds) as scope:
            while not gate.is_set():
                if file is not None and await anyio.Path(file).exists():
                    return
                with anyio.move_on_after(LONGEST_HOLD if file is None else _FILE_POLL):
                    await gate.wait()
        if scope.cancelled_caught and seconds is None:
            _log.warning(LogEvent("scripted-gate-given-up", gate=self.name, seconds=LONGEST_HOLD))
