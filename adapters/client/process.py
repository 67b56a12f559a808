"""An agent as a child process that speaks ACP over its stdin and stdout.

Owns the process: start, signals, end. Knows no message.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE

import anyio
import anyio.abc

_GRACE = 2.0
"""Seconds that an agent has to end after its stdin was closed, and again after SIGTERM, before it is killed."""


class ProcessTransport:
    """The child's pipes as a transport (`adapters.acp.rpc.Transport`)."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None  # noqa: S101  # started with pipes, just below
        assert process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = process.stdin, process.stdout

    async def receive(self) -> bytes:
        """The next bytes; empty at the end."""
        try:
            return await self._stdout.receive()
        except anyio.EndOfStream:
            return b""

    async def send(self, data: bytes) -> None:
        """Write all of these bytes. Raises `OSError` or an anyio resource error when the child is gone."""
        await self._stdin.send(data)

    async def aclose(self) -> None:
        """Close the child's stdin: it is asked to end (STDIO-11)."""
        await self._stdin.aclose()


class AgentProcess:
    """A running agent. Made by `start_agent`, which also ends it."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self.transport = ProcessTransport(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status once it has ended; minus the signal's number when one ended it."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The agent's output on stderr so far."""
        return self._stderr.decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)

    async def wait(self, within: float = 10.0) -> int:
        """The exit status, when it has ended. Raises `TimeoutError`."""
        with anyio.fail_after(within):
            return await self._process.wait()

    async def collect_stderr(self) -> None:
        """Read stderr to its end, or until it is closed here: a child of the agent may hold it open."""
        assert self._process.stderr is not None  # noqa: S101  # started with pipes, just below
        with suppress(anyio.ClosedResourceError):
            async for data in self._process.stderr:
                self._stderr += data

    async def end(self) -> None:
        """End it in order: close stdin, then SIGTERM, then SIGKILL, with a bound for each."""
        for number in (None, signal.SIGTERM):
            if number is None:
                await self.transport.aclose()
            else:
                self.signal(number)
            with anyio.move_on_after(_GRACE):
                await self._process.wait()
                return
        self.kill()
        await self._process.wait()


@asynccontextmanager
async def start_agent(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> AsyncGenerator[AgentProcess]:
    """Run a command as an agent, in its own process group, with exactly this environment; end it on leaving.

    Raises:
        OSError: the command cannot be started.
    """
    process = await anyio.open_process(
        list(command), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env, cwd=cwd, start_new_session=True
    )
    agent = AgentProcess(process)
    failure: Exception | None = None  # of the body: it leaves as it is, not in the task group's group
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.collect_stderr)
        try:
            yield agent
        except Exception as error:  # noqa: BLE001  # raised again below
            failure = error
        finally:
            with anyio.CancelScope(shield=True):
                await agent.end()
                with anyio.move_on_after(_GRACE):
                    await process.aclose()
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
