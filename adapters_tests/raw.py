"""A client that keeps nothing, on an agent process whose memory and reading are measured. Linux only (reads /proc)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from adapters.acp.framing import LineDecoder, encode
from adapters.client.process import AgentProcess, start_agent
from adapters.scripted.home import work_folder

MOST = 64_000_000
"""Bytes by which an agent may grow over a long session."""


class Raw:
    """A client that keeps nothing."""

    def __init__(self, agent: AgentProcess) -> None:
        self.agent = agent
        self._decoder = LineDecoder()
        self._lines: list[bytes] = []
        self.updates = 0

    async def send(self, number: int, method: str, params: dict[str, Any]) -> None:
        await self.agent.transport.send(encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))

    async def next(self) -> bytes:
        """The next line."""
        while not self._lines:
            data = await self.agent.transport.receive()
            assert data, self.agent.stderr
            self._lines = [line for line in self._decoder.feed(data) if isinstance(line, bytes)]
        return self._lines.pop(0)

    async def answer(self) -> dict[str, Any]:
        """The next answer; updates before it are counted."""
        while b'"method":"session/update"' in (line := await self.next()):
            self.updates += 1
        return json.loads(line)

    def memory(self, field: str) -> int:
        """Resident bytes now (VmRSS), or the most since `forget_peak` (VmHWM)."""
        lines = Path(f"/proc/{self.agent.pid}/status").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith(f"{field}:"))
        return int(found.split()[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.agent.pid}/clear_refs").write_text("5")

    def bytes_read(self) -> int:
        """What the agent has read of anything so far."""
        return int(Path(f"/proc/{self.agent.pid}/io").read_text().split()[1])


@asynccontextmanager
async def opened(runtime: str, program: str, home: Path, env: Mapping[str, str]) -> AsyncGenerator[Raw]:
    """An agent on a runtime that is this Python program, found through `env`, which also says where `home` is used."""
    cwd = work_folder(home / "project")
    (home / "fake").write_text(f"#!{sys.executable}\n{program}")
    (home / "fake").chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[1]), **env}
    with anyio.fail_after(300):
        async with start_agent([sys.executable, "-m", "adapters", runtime], env=env, cwd=str(cwd)) as agent:
            raw = Raw(agent)
            info = {"name": "test", "version": "1"}
            await raw.send(1, "initialize", {"protocolVersion": 2, "capabilities": {}, "info": info})
            assert (await raw.answer())["id"] == 1
            # The first session loads the rest of the agent: not what is measured here.
            await raw.send(2, "session/new", {"cwd": str(cwd), "mcpServers": []})
            assert "result" in await raw.answer()
            yield raw
