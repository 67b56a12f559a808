"""How fast an agent starts, answers its first prompt and ends: acp-adapters beside the TypeScript adapter, in one run.

    python bench/startup.py [--npm DIR] [--runs N]

Both start the same Claude Code against the same scripted model, each run in a fresh home, in turns. Prints medians, ranges and
ratios; judges nothing but says where a row is over its budget. Linux only (reads /proc). See bench/README.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from agents import (
    BOUND,
    Agent,
    Contender,
    alive,
    claude_executable,
    environment,
    family,
    ours,
    resident_mb,
    started,
    theirs,
)

from adapters import __version__
from adapters.scripted import Script, ScriptedModel, say

_PROMPT = "Say hello."
_LOOK_EVERY = 0.001  # seconds between two looks at processes that are ending


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is measured; `budget` says in words what `limit` checks on (ours, theirs)."""

    name: str
    unit: str
    budget: str = ""
    share: float | None = None
    """Ours may be at most this share of theirs."""
    most: float | None = None
    """Ours may be at most this, in `unit`."""


ROWS = (
    Row("spawn -> initialize answered", "ms", "at most half", share=0.5),
    Row("resident then", "MB", "at most 35 MB", most=35.0),
    Row("spawn -> session/new answered", "ms", "not slower", share=1.0),
    Row("prompt -> first output", "ms"),
    Row("prompt -> answered", "ms"),
    Row("stdin closed -> everything gone", "ms", "under 1 s", most=1000.0),
)


async def measure(contender: Contender, base_url: str, executable: str) -> list[float]:
    """One start, one prompt, one end: a value for each row."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-", ignore_cleanup_errors=True) as folder:
        home, project = Path(folder, "home"), Path(folder, "project")
        project.mkdir()
        env = environment(home, base_url, executable)
        async with started(contender, env, project) as agent:
            params = {"protocolVersion": 2, "info": {"name": "bench", "version": "1"}, "capabilities": {}}
            _, request = await agent.request("initialize", params)
            initialized, result = await agent.answer(request)
            resident = resident_mb(agent.process.pid)
            if result["protocolVersion"] != 2:  # noqa: PLR2004 - the version that is compared
                raise SystemExit(f"{contender.name} chose protocol version {result['protocolVersion']}, not 2.")
            _, request = await agent.request("session/new", {"cwd": str(project), "mcpServers": []})
            ready, result = await agent.answer(request)
            first_output, answered = await _prompt(agent, result["sessionId"])
            ended = await _end(agent)
            spawned = agent.spawned
    return [
        (initialized - spawned) * 1000,
        resident,
        (ready - spawned) * 1000,
        first_output * 1000,
        answered * 1000,
        ended * 1000,
    ]


async def _prompt(agent: Agent, session: str) -> tuple[float, float]:
    """Seconds from the prompt to the first output, and to its answer; returns when the work is done."""
    block = {"type": "text", "text": _PROMPT}
    sent, request = await agent.request("session/prompt", {"sessionId": session, "prompt": [block]})
    output = await agent.update(lambda update: update["sessionUpdate"] in ("agent_message", "agent_message_chunk"))
    answered, _ = await agent.answer(request)
    await agent.update(lambda update: update["sessionUpdate"] == "state_update" and "stopReason" in update)
    return output - sent, answered - sent


async def _end(agent: Agent) -> float:
    """Seconds from the end of input until the agent and all its descendants are gone."""
    pids = [agent.process.pid, *family(agent.process.pid)]
    assert agent.process.stdin is not None
    closed = time.perf_counter()
    await agent.process.stdin.aclose()
    with anyio.fail_after(BOUND):
        while pids := [pid for pid in pids if alive(pid)]:  # noqa: ASYNC110 - there is no event for a grandchild's end
            await anyio.sleep(_LOOK_EVERY)
    return time.perf_counter() - closed


async def compare(contenders: Sequence[Contender], runs: int, executable: str) -> dict[str, list[list[float]]]:
    """Measure in turns, after one run of each that is not counted (it fills the disk cache)."""
    values: dict[str, list[list[float]]] = {contender.name: [] for contender in contenders}
    async with ScriptedModel(Script(default=(say("Hello."),))) as model:
        for number in range(runs + 1):
            for contender in contenders:
                measured = await measure(contender, model.base_url, executable)
                if number:
                    values[contender.name].append(measured)
    return values


def table(ours_name: str, theirs_name: str, values: dict[str, list[list[float]]]) -> str:
    """The rows as a Markdown table: median (least to most), ratio of the medians, budget."""
    lines = [f"| | {ours_name} | {theirs_name} | ratio | budget |", "|---|---|---|---|---|"]
    for index, row in enumerate(ROWS):
        left, right = ([run[index] for run in values[name]] for name in (ours_name, theirs_name))
        ratio = statistics.median(left) / statistics.median(right)
        within = (row.share is None or ratio <= row.share) and (row.most is None or statistics.median(left) <= row.most)
        budget = f"{row.budget}: {'kept' if within else 'OVER'}" if row.budget else ""
        lines.append(f"| {row.name} | {_cell(left, row.unit)} | {_cell(right, row.unit)} | {ratio:.2f} | {budget} |")
    return "\n".join(lines)


def _cell(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.0f} {unit} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Compare how fast two agents start and end.")
    parser.add_argument(
        "--npm", type=Path, metavar="DIR", help="folder with node_modules (default: install into a temporary one)"
    )
    parser.add_argument("--runs", type=int, default=9, help="runs of each (default: 9)")
    options = parser.parse_args()
    executable = claude_executable()
    version = subprocess.run(
        [executable, "--version"], capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()
    with theirs(options.npm) as other:
        us = ours()
        load = os.getloadavg()[0]
        values = anyio.run(compare, (us, other), options.runs, executable)
    print(
        f"acp-adapters {__version__}, Python {platform.python_version()}, Claude Code {version}, {os.cpu_count()} cores,"
    )
    print(f"{options.runs} runs each in turns; median (least to most); load average before {load:.1f}\n")
    print(table(us.name, other.name, values))


if __name__ == "__main__":
    main()
