"""How fast an agent starts, answers its first prompt and ends: acp-adapters beside the TypeScript adapters, in one run.

    python bench/startup.py [claude] [codex] [--npm DIR] [--runs N]

Both start the same runtime against the same scripted model, each run in a fresh home, in turns. Prints medians, ranges and
ratios; judges nothing but says where a row is over its budget. Linux only (reads /proc). See bench/README.md.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import anyio
from agents import BOUND, Agent, Contender, Runtime, alive, family, is_end, is_output, resident_mb, started
from comparing import Row, Values, in_turns, run, table

from adapters.scripted import Script, ScriptedModel, say
from adapters.scripted.home import work_folder

_PROMPT = "Say hello."
_LOOK_EVERY = 0.001  # seconds between two looks at processes that are ending

ROWS = (
    Row("spawn -> initialize answered", "ms", "at most half", share=0.5),
    Row("resident then", "MB", "at most 35 MB", most=35.0),
    Row("spawn -> session/new answered", "ms", "not slower", share=1.0),
    Row("prompt -> first output", "ms"),
    Row("prompt -> answered", "ms"),
    Row("stdin closed -> everything gone", "ms", "under 1 s", most=1000.0),
)


async def measure(runtime: Runtime, contender: Contender, base_url: str) -> Values:
    """One start, one prompt, one end: a value for each row."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-", ignore_cleanup_errors=True) as folder:
        home, project = Path(folder, "home"), Path(folder, "project")
        work_folder(project)
        env = runtime.environment(home, base_url, project)
        async with started(contender, env, project) as agent:
            initialized = await agent.initialize()
            resident = resident_mb(agent.pid)
            _, request = await agent.request("session/new", {"cwd": str(project), "mcpServers": []})
            ready, result = await agent.answer(request)
            first_output, answered = await _prompt(agent, result["sessionId"])
            ended = await _end(agent)
            spawned = agent.spawned
    seconds = (initialized - spawned, ready - spawned, first_output, answered, ended)
    first, *others = (value * 1000 for value in seconds)
    return [first, resident, *others]


async def _prompt(agent: Agent, session: str) -> tuple[float, float]:
    """Seconds from the prompt to the first output, and to its answer; returns when the work is done."""
    sent, request = await agent.prompt(session, _PROMPT)
    output = await agent.update(is_output)
    answered, _ = await agent.answer(request)
    await agent.update(is_end)
    return output - sent, answered - sent


async def _end(agent: Agent) -> float:
    """Seconds from the end of input until the agent and all its descendants are gone."""
    pids = [agent.pid, *family(agent.pid)]
    assert agent.process.stdin is not None
    closed = time.perf_counter()
    await agent.process.stdin.aclose()
    with anyio.fail_after(BOUND):
        while pids := [pid for pid in pids if alive(pid)]:  # noqa: ASYNC110 - there is no event for a grandchild's end
            await anyio.sleep(_LOOK_EVERY)
    return time.perf_counter() - closed


async def compare(runtime: Runtime, us: Contender, them: Contender, runs: int) -> str:
    """The table for one runtime."""
    async with ScriptedModel(Script(default=(say("Hello."),))) as model:
        values = await in_turns(runtime, (us, them), runs, lambda r, c: measure(r, c, model.base_url))
    return table(ROWS, (us, them), values)


if __name__ == "__main__":
    run("Compare how fast agents start and end.", 9, compare)
