"""A real runtime as a program that speaks JSON lines: what it wrote, ways to wait for it, and its end."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import Process

from adapters.acp.framing import LineDecoder, LineTooLong

LIMIT = 40.0  # seconds; no step of these tests takes a tenth of it on an idle machine

Frame = dict[str, Any]


class Program:
    """One running program."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.errors = ""
        """What it wrote to stderr."""
        self._changed = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def started(cls, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> AsyncIterator[Self]:
        """Run it in this environment; ended by the end of its input, or killed, on leaving."""
        failure: Exception | None = None
        async with (
            await anyio.open_process(command, env=environment, cwd=cwd) as process,
            anyio.create_task_group() as group,
        ):
            program = cls(process)
            try:
                group.start_soon(program._read)
                group.start_soon(program._read_errors)
                yield program
            except Exception as error:  # noqa: BLE001 - leaves below as itself, not in a group
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    assert process.stdin is not None
                    await process.stdin.aclose()
                    with anyio.move_on_after(5):
                        await process.wait()
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def write(self, frame: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps(frame).encode() + b"\n")

    async def wait(self, wanted: Callable[[Frame], bool], start: int = 0) -> Frame:
        """The first frame from `start` on that is wanted."""
        with anyio.fail_after(LIMIT):
            while True:
                for frame in self.frames[start:]:
                    if wanted(frame):
                        return frame
                await self.changed()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until what it has written makes a condition true."""
        with anyio.fail_after(LIMIT):
            while not condition():
                await self.changed()

    async def changed(self) -> None:
        """Wait until it has written more."""
        await self._changed.wait()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        lines = LineDecoder()
        async for data in self.process.stdout:
            for line in lines.feed(data):
                assert not isinstance(line, LineTooLong)
                self.frames.append(json.loads(line))
            self._changed.set()
            self._changed = anyio.Event()

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.errors += data.decode(errors="replace")
