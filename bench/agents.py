"""The agents that the benchmarks compare, and a line client that costs both of them the same.

Owns how each is found, installed and started: the same Claude Code, the same scripted model, an isolated home for each run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.claude.environment import find_claude, missing_text
from adapters.scripted import isolated_claude_home

NPM_PACKAGE = "@agentclientprotocol/claude-agent-acp@0.101.0"
NODE_PACKAGE = "node@22"
BOUND = 60.0
"""Seconds that any one step may take; far above all measurements, so that a hang ends with a message."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An agent to measure."""

    name: str
    command: tuple[str, ...]


def ours() -> Contender:
    """The command `acp-adapters` as installed beside this interpreter, or this checkout."""
    installed = Path(sys.executable).with_name("acp-adapters")
    command = (str(installed),) if installed.exists() else (sys.executable, "-m", "adapters")
    return Contender("acp-adapters", (*command, "claude"))


@contextmanager
def theirs(folder: Path | None) -> Iterator[Contender]:
    """The TypeScript adapter out of a folder with `node_modules`, or installed by npm into a temporary one."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-npm-") as temporary:
        if folder is None:
            folder = Path(temporary)
            if not shutil.which("npm"):
                raise SystemExit("npm is not installed: give --npm DIR, a folder in which the package is installed.")
            print(f"installing {NPM_PACKAGE} and {NODE_PACKAGE} ...", file=sys.stderr, flush=True)
            install = ["npm", "install", "--silent", "--prefix", str(folder), NPM_PACKAGE, NODE_PACKAGE]
            subprocess.run(install, check=True, stdin=subprocess.DEVNULL, timeout=900)
        package = folder / "node_modules/@agentclientprotocol/claude-agent-acp"
        script = package / "dist/index.js"
        if not script.is_file():
            raise SystemExit(f"There is no {script}: run  npm install {NPM_PACKAGE} {NODE_PACKAGE}  in {folder}.")
        node = folder / "node_modules/node/bin/node"
        version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
        program = str(node) if node.exists() else (shutil.which("node") or "node")
        yield Contender(f"claude-agent-acp {version}", (program, str(script)))


def claude_executable() -> str:
    """The Claude Code that both agents start."""
    found = find_claude(os.environ)
    if found is None:
        raise SystemExit(missing_text(os.environ))
    return str(found.path)


def environment(home: Path, base_url: str, executable: str) -> dict[str, str]:
    """An isolated home, the scripted model at `base_url`, and one Claude Code for all."""
    return {**isolated_claude_home(home, base_url), "CLAUDE_CODE_EXECUTABLE": executable}


class Agent:
    """A started agent and a connection to it: every message with the moment of its arrival (`time.perf_counter`)."""

    def __init__(self, process: Process, spawned: float) -> None:
        self.process = process
        self.spawned = spawned
        self._lines = LineDecoder()
        self._messages: list[tuple[float, dict[str, Any]]] = []
        self._last_id = 0

    async def request(self, method: str, params: Mapping[str, Any]) -> tuple[float, int]:
        """Send a request: the moment it was sent, and its id."""
        self._last_id += 1
        line = encode({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        assert self.process.stdin is not None
        sent = time.perf_counter()
        await self.process.stdin.send(line)
        return sent, self._last_id

    async def answer(self, request_id: int) -> tuple[float, dict[str, Any]]:
        """The moment of the answer, and its result."""
        at, message = await self.first(lambda message: message.get("id") == request_id and "method" not in message)
        if "result" not in message:
            raise SystemExit(f"{message.get('error')} was the answer to request {request_id}.")
        return at, message["result"]

    async def update(self, wanted: Callable[[dict[str, Any]], bool]) -> float:
        """The moment of the first `session/update` that is wanted."""
        at, _ = await self.first(
            lambda message: message.get("method") == "session/update" and wanted(message["params"]["update"])
        )
        return at

    async def first(self, wanted: Callable[[dict[str, Any]], bool]) -> tuple[float, dict[str, Any]]:
        """The first message that is wanted, of those that came and those to come."""
        seen = 0
        with anyio.fail_after(BOUND):
            while True:
                for at, message in self._messages[seen:]:
                    if wanted(message):
                        return at, message
                seen = len(self._messages)
                await self._receive()

    async def _receive(self) -> None:
        assert self.process.stdout is not None
        data = await self.process.stdout.receive()
        at = time.perf_counter()
        for line in self._lines.feed(data):
            if not isinstance(line, LineTooLong):
                self._messages.append((at, decode(line)))


@asynccontextmanager
async def started(contender: Contender, env: Mapping[str, str], cwd: Path) -> AsyncGenerator[Agent]:
    """Start an agent; at the end nothing of it is left."""
    spawned = time.perf_counter()
    process = await anyio.open_process(
        contender.command, env=env, cwd=cwd, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield Agent(process, spawned)
    finally:
        for pid in [*family(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        with anyio.CancelScope(shield=True):
            await process.aclose()


# --- /proc -----------------------------------------------------------------------------------------------------------


def resident_mb(pid: int) -> float:
    """Resident memory of one process, in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def family(pid: int) -> list[int]:
    """All living descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
