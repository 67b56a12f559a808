"""The agents that the benchmarks compare, and a line client that costs all of them the same.

Owns how each is found, installed and started: the same runtime, the same scripted model, an isolated home for each run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.claude.cli.program import find_claude
from adapters.codex.server.program import find_codex
from adapters.scripted import isolated_claude_home, isolated_codex_home

NODE_PACKAGE = "node@22"
BOUND = 120.0
"""Seconds that any one step may take; far above all measurements, so that a hang ends with a message."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An agent to measure."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime, and the two agents in front of it."""

    name: str
    title: str
    package: str
    """The TypeScript adapter and its version, as npm names it."""
    variable: str
    """What names the executable, to both agents."""
    find: Callable[[Mapping[str, str]], Any]
    home: Callable[[Path, str, Path], dict[str, str]]
    """Home, base URL of the model, project -> the whole environment."""

    def executable(self) -> str:
        """The runtime that both agents start."""
        found = self.find(os.environ)
        if found is None:
            raise SystemExit(f"{self.title} is not installed: pip install '.[{self.name}]'")
        return str(found.path)

    def version(self) -> str:
        """What the executable says of itself."""
        command = [self.executable(), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    def environment(self, home: Path, base_url: str, project: Path, executable: str | None = None) -> dict[str, str]:
        """An isolated home, the scripted model at `base_url`, and one runtime for all."""
        return {**self.home(home, base_url, project), self.variable: executable or self.executable()}

    def ours(self) -> Contender:
        """The command `acp-adapters` as installed beside this interpreter, or this checkout."""
        installed = Path(sys.executable).with_name("acp-adapters")
        command = (str(installed),) if installed.exists() else (sys.executable, "-m", "adapters")
        return Contender("acp-adapters", (*command, self.name))

    def theirs(self, folder: Path) -> Contender:
        """The TypeScript adapter out of a folder with `node_modules`."""
        name = self.package.rpartition("@")[0]
        package = folder / "node_modules" / name
        script = package / "dist/index.js"
        if not script.is_file():
            raise SystemExit(f"There is no {script}: run  npm install {self.package} {NODE_PACKAGE}  in {folder}.")
        node = folder / "node_modules/node/bin/node"
        version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
        program = str(node) if node.exists() else (shutil.which("node") or "node")
        return Contender(f"{name.rpartition('/')[2]} {version}", (program, str(script)))


CLAUDE = Runtime(
    "claude",
    "Claude Code",
    "@agentclientprotocol/claude-agent-acp@0.101.0",
    "CLAUDE_CODE_EXECUTABLE",
    find_claude,
    lambda home, base_url, _project: isolated_claude_home(home, base_url),
)
CODEX = Runtime(
    "codex",
    "Codex",
    "@agentclientprotocol/codex-acp@2.6.0",
    "CODEX_PATH",
    find_codex,
    lambda home, base_url, project: isolated_codex_home(home, base_url, [project]),
)
RUNTIMES = {runtime.name: runtime for runtime in (CLAUDE, CODEX)}


@contextmanager
def node_modules(runtimes: Sequence[Runtime], folder: Path | None) -> Iterator[Path]:
    """The given folder with `node_modules`, or a temporary one into which npm installs what is needed."""
    if folder is not None:
        yield folder
        return
    if not shutil.which("npm"):
        raise SystemExit("npm is not installed: give --npm DIR, a folder in which the packages are installed.")
    with tempfile.TemporaryDirectory(prefix="acp-bench-npm-") as temporary:
        packages = [*(runtime.package for runtime in runtimes), NODE_PACKAGE]
        print(f"installing {' '.join(packages)} ...", file=sys.stderr, flush=True)
        install = ["npm", "install", "--silent", "--prefix", temporary, *packages]
        subprocess.run(install, check=True, stdin=subprocess.DEVNULL, timeout=900)
        yield Path(temporary)


class Agent:
    """A started agent and a connection to it: every message with the moment of its arrival (`time.perf_counter`)."""

    def __init__(self, process: Process, spawned: float) -> None:
        self.process = process
        self.spawned = spawned
        self.messages: list[tuple[float, dict[str, Any]]] = []
        self._lines = LineDecoder()
        self._last_id = 0

    @property
    def pid(self) -> int:
        """The agent's own process: its runtime is another one."""
        return self.process.pid

    async def request(self, method: str, params: Mapping[str, Any]) -> tuple[float, int]:
        """Send a request: the moment it was sent, and its id."""
        self._last_id += 1
        line = encode({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        assert self.process.stdin is not None
        sent = time.perf_counter()
        await self.process.stdin.send(line)
        return sent, self._last_id

    async def ask(self, method: str, params: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        """Send a request and wait: seconds from sending to its answer, and its result."""
        sent, request_id = await self.request(method, params)
        at, result = await self.answer(request_id)
        return at - sent, result

    async def initialize(self) -> float:
        """The moment in which `initialize` was answered, with version 2."""
        params = {"protocolVersion": 2, "info": {"name": "bench", "version": "1"}, "capabilities": {}}
        _, request = await self.request("initialize", params)
        at, result = await self.answer(request)
        if result["protocolVersion"] != 2:  # noqa: PLR2004 - the version that is compared
            raise SystemExit(f"The agent chose protocol version {result['protocolVersion']}, not 2.")
        return at

    async def prompt(self, session: str, text: str, key: str | None = None) -> tuple[float, int]:
        """Send a prompt: the moment it was sent, and its id."""
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        return await self.request("session/prompt", {**params, "idempotencyKey": key} if key else params)

    async def turn(self, session: str, text: str, key: str | None = None) -> None:
        """Send a prompt and wait for its answer and for the end of its work."""
        since = len(self.messages)
        _, request_id = await self.prompt(session, text, key)
        await self.answer(request_id)
        await self.update(is_end, since)

    async def answer(self, request_id: int) -> tuple[float, dict[str, Any]]:
        """The moment of the answer, and its result."""
        at, message = await self.first(lambda message: message.get("id") == request_id and "method" not in message)
        if "result" not in message:
            raise SystemExit(f"{message.get('error')} was the answer to request {request_id}.")
        return at, message["result"]

    async def update(self, wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> float:
        """The moment of the first `session/update` that is wanted, from a place in `messages` on."""
        at, _ = await self.first(
            lambda message: message.get("method") == "session/update" and wanted(message["params"]["update"]), since
        )
        return at

    async def first(self, wanted: Callable[[dict[str, Any]], bool], since: int = 0) -> tuple[float, dict[str, Any]]:
        """The first message that is wanted, of those that came and those to come."""
        seen = since
        with anyio.fail_after(BOUND):
            while True:
                for at, message in self.messages[seen:]:
                    if wanted(message):
                        return at, message
                seen = len(self.messages)
                await self._receive()

    async def _receive(self) -> None:
        assert self.process.stdout is not None
        data = await self.process.stdout.receive()
        at = time.perf_counter()
        for line in self._lines.feed(data):
            if not isinstance(line, LineTooLong):
                self.messages.append((at, decode(line)))


def is_end(update: dict[str, Any]) -> bool:
    """Whether an update ends the work."""
    return update["sessionUpdate"] == "state_update" and "stopReason" in update


def is_output(update: dict[str, Any]) -> bool:
    """Whether an update shows what the model says."""
    return update["sessionUpdate"] in ("agent_message", "agent_message_chunk")


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


def resident_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of one process, in MB (10^6 bytes). `VmHWM` is the most since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def forget_peak(pid: int) -> None:
    """Let `VmHWM` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def cpu_seconds(pid: int) -> float:
    """CPU time of one process, its ended children not counted; steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
