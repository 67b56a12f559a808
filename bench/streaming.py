"""What an agent itself costs while work runs: acp-adapters beside the TypeScript adapters, in one run.

    python bench/streaming.py [claude] [codex] [--npm DIR] [--runs N]

The agents start the real runtime through a program that passes its pipes on and notes when a prompt arrived and when a delta was
written; so only the agent's own time is measured, not the runtime's. Linux only (reads /proc). See bench/README.md.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from agents import Agent, Contender, Runtime, cpu_seconds, is_end, is_output, started
from comparing import Row, Values, in_turns, run, table

from adapters.scripted import Answer, Rule, Script, ScriptedModel, Spread, Text, say
from adapters.scripted.home import work_folder

PROMPTS = 6
"""Prompts whose way into the runtime is measured; the first of a session is a row of its own."""
PACED = 100
"""Deltas that come one by one."""
PACE = 0.01
"""Seconds between them."""
FLOOD = 4000
"""Deltas that come as fast as the runtime passes them on."""

ROWS = (
    Row("first prompt -> runtime has it", "ms"),
    Row("later prompt -> runtime has it", "ms", "under 2 ms", most=2.0),
    Row("delta -> client has it", "ms", "under 1 ms", most=1.0),
    Row("delta -> client has it, slowest of 20", "ms"),
    Row(f"updates for {FLOOD} deltas", ""),
    Row("CPU for 1,000 deltas", "ms", "not more", share=1.0),
)

_RELAY = """#!{python}
import os, re, subprocess, sys, threading, time
args = [{executable!r}, *sys.argv[1:]]
prompts, deltas = re.compile(rb"prompt-(\\d+)\\."), re.compile(rb'"d(\\d+) "')
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
child = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def note(pattern, kind, data):
    at = time.perf_counter()
    lines = ["%s%s %.6f\\n" % (kind, found.decode(), at) for found in pattern.findall(data)]
    if lines:
        os.write(log, "".join(lines).encode())

def inward():
    while data := os.read(0, 1 << 16):
        note(prompts, "p", data)
        child.stdin.write(data)
        child.stdin.flush()
    child.stdin.close()

threading.Thread(target=inward, daemon=True).start()
while data := os.read(child.stdout.fileno(), 1 << 16):
    note(deltas, "d", data)
    while data:
        data = data[os.write(1, data):]
sys.exit(child.wait())
"""

_DELTA = re.compile(r"d(\d+) ")


def script() -> Script:
    """Prompts that are answered at once, one that is answered piece by piece, and one that is answered with a flood."""
    pieces = tuple(f"d{1000 + number} " for number in range(PACED))
    paced = Answer((Text("".join(pieces), Spread(delta_size=6)),), delta_delay=PACE)
    flood = Answer((Text("word ", Spread(repeat=FLOOD)),))
    return Script((Rule((paced,), contains="slowly"), Rule((flood,), contains="flood")), default=(say("Yes."),))


async def measure(runtime: Runtime, contender: Contender, base_url: str) -> Values:
    """One session: a value for each row."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-", ignore_cleanup_errors=True) as folder:
        home, project, log = Path(folder, "home"), Path(folder, "project"), Path(folder, "log")
        work_folder(project)
        log.touch()
        program = Path(folder, "runtime")
        program.write_text(
            _RELAY.format(python=sys.executable, executable=runtime.executable(), log=str(log)), encoding="utf-8"
        )
        program.chmod(0o755)
        env = runtime.environment(home, base_url, project, str(program))
        async with started(contender, env, project) as agent:
            await agent.initialize()
            _, result = await agent.ask("session/new", {"cwd": str(project), "mcpServers": []})
            session = result["sessionId"]
            sent = [await _sent(agent, session, number) for number in range(PROMPTS)]
            await agent.turn(session, "Count slowly.", "slowly")
            before, since = cpu_seconds(agent.pid), len(agent.messages)
            await agent.turn(session, "Send a flood.", "flood")
            spent = cpu_seconds(agent.pid) - before
            updates = sum(_shows(message) for _, message in agent.messages[since:])
            noted = dict(line.split() for line in log.read_text(encoding="utf-8").splitlines())
            ways = [(float(noted[f"p{number}"]) - at) * 1000 for number, at in enumerate(sent)]
            delays = _delays(agent, noted)
    return [
        ways[0],
        statistics.median(ways[1:]),
        statistics.median(delays),
        statistics.quantiles(delays, n=20)[-1],
        updates,
        spent * 1000 / FLOOD * 1000,
    ]


async def _sent(agent: Agent, session: str, number: int) -> float:
    """The moment in which a prompt was sent; returns when its work is done. The key costs us a look into the store."""
    since = len(agent.messages)
    sent, request = await agent.prompt(session, f"This is prompt-{number}.", f"key-{number}")
    await agent.answer(request)
    await agent.update(is_end, since)
    return sent


def _shows(message: dict[str, Any]) -> bool:
    return message.get("method") == "session/update" and is_output(message["params"]["update"])


def _delays(agent: Agent, noted: dict[str, str]) -> list[float]:
    """Milliseconds from the runtime's writing of a delta to its arrival here, the first ten left out."""
    found: dict[str, float] = {}
    for at, message in agent.messages:
        content = message["params"]["update"].get("content") if _shows(message) else None
        if isinstance(content, dict):
            for name in _DELTA.findall(content["text"]):
                found.setdefault(name, at)
    return [(found[name] - float(noted[f"d{name}"])) * 1000 for name in sorted(found)[10:]]


async def compare(runtime: Runtime, us: Contender, them: Contender, runs: int) -> str:
    """The table for one runtime."""
    async with ScriptedModel(script()) as model:
        values = await in_turns(runtime, (us, them), runs, lambda r, c: measure(r, c, model.base_url))
    return table(ROWS, (us, them), values)


if __name__ == "__main__":
    run("Compare what agents cost while work runs.", 5, compare)
