"""Loads that are too heavy for the tests, on the real runtimes: what they cost our process, and what is lost (nothing).

    python bench/limits.py [claude] [codex] [--only NAME ...]

Smaller versions that run with every change: adapters_tests/e2e/test_big.py, adapters_tests/claude/test_long_session.py. Each
scenario has an agent and an isolated home of its own, against a scripted model. A broken promise ends the run with an error.
Linux only (reads /proc).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from agents import CLAUDE, CODEX, forget_peak, resident_mb, started
from long_session import KEY, long_session

from adapters.acp.errors import InvalidParams, RequestCancelled
from adapters.acp.framing import LineDecoder, decode, encode
from adapters.acp.stdio import StdioTransport
from adapters.scripted.script import Answer, Shell, Spread, Text, say
from adapters_tests.e2e.rig import Rig, id_or_none, open_rig
from adapters_tests.e2e.runtimes import RUNTIMES, RuntimeUnderTest

MIB = 1024 * 1024
DEAF_SECONDS = 60.0
STREAM = 600, 20_000
"""Deltas of the stream that nobody reads at first, and characters of each: 12 MB."""
SESSIONS = 50
STORED_MB = 250

Result = dict[str, float | int | str]


async def prompt_40(rig: Rig) -> Result:
    """A prompt of 40 MiB, sent twice under one key."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, "Before.")
        before = peak(link.process.pid)
        big = "word " * (8 * MIB)
        began = time.monotonic()
        call = await link.prompt(session, big, "the-big-prompt")
        message_id = await id_or_none(call, InvalidParams.default_code, 600)
        if message_id is not None:
            await link.client.wait_state(session, "idle", since=call.mark, within=600)
            assert await (await link.prompt(session, big, "the-big-prompt")).message_id(600) == message_id
            assert rig.stored_ids(session).count(message_id) == 1
        seconds = time.monotonic() - began
        grown = peak(link.process.pid) - before
        await link.turn(session, "After.")
    outcome = "refused by name" if message_id is None else "inserted once"
    return {"outcome": outcome, "seconds": seconds, "grown MB": grown}


async def tool_40(rig: Rig) -> Result:
    """A tool that prints 40 MiB."""
    rig.answer("Print.", Answer((Shell("head -c 41943040 /dev/zero | tr '\\0' x"),)), say("Printed."))
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, "Before.")
        before, began = peak(link.process.pid), time.monotonic()
        call = await link.prompt(session, "Print.")
        await call.message_id()
        await link.client.wait_state(session, "idle", since=call.mark, within=600)
        assert link.client.view(session).items("agent")[-1].text == "Printed."
        return {"seconds": time.monotonic() - began, "grown MB": peak(link.process.pid) - before}


async def deaf_client(rig: Rig) -> Result:
    """A client that reads nothing for a minute of a stream of 12 MB, and then everything."""
    count, size = STREAM
    rig.answer("Stream.", Answer((Text("x" * size, Spread(repeat=count)),)))
    (agent_in, client_out), (client_in, agent_out) = os.pipe(), os.pipe()
    process = await anyio.open_process(
        rig.runtime.command, stdin=agent_in, stdout=agent_out, stderr=subprocess.DEVNULL, env=rig.env, cwd=rig.root
    )
    os.close(agent_in)
    os.close(agent_out)
    transport, decoder = StdioTransport(client_in, client_out, owned=True), LineDecoder()

    async def call(number: int, method: str, params: object) -> None:
        await transport.send(encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))

    async def read_until(wanted: Callable[[dict[str, object]], object]) -> None:
        while True:
            for line in decoder.feed(await transport.receive()):
                assert isinstance(line, bytes)
                if wanted(decode(line)):
                    return

    found: dict[str, object] = {}
    got = 0

    def opened(message: dict[str, object]) -> bool:
        if message.get("id") == 2:  # noqa: PLR2004 - the id below
            found.update(message["result"])  # type: ignore[call-overload]
        return bool(found)

    def over(message: dict[str, object]) -> bool:
        nonlocal got
        params = message.get("params")
        update = params.get("update", {}) if isinstance(params, dict) else {}
        if update.get("sessionUpdate") == "agent_message_chunk":
            got += len(update["content"]["text"])
        return update.get("state") == "idle" and got > 0

    try:
        await call(1, "initialize", {"protocolVersion": 2, "info": {"name": "t", "version": "1"}, "capabilities": {}})
        await call(2, "session/new", {"cwd": str(rig.project)})
        await read_until(opened)
        before = peak(process.pid)
        prompt = [{"type": "text", "text": "Stream."}]
        await call(3, "session/prompt", {"sessionId": found["sessionId"], "prompt": prompt})
        await anyio.sleep(DEAF_SECONDS)
        held = peak(process.pid) - before
        with anyio.fail_after(300):
            await read_until(over)
        assert got == count * size, "characters lost"
        return {"grown MB": held, "MB in the end": peak(process.pid) - before, "lost": count * size - got}
    finally:
        await transport.aclose()
        with anyio.move_on_after(10):
            await process.wait()
        if process.returncode is None:
            process.kill()


async def sessions_50(rig: Rig) -> Result:
    """Sessions opened, prompted, withdrawn and closed at random moments, ten at a time."""
    dice, slots = Random(50), anyio.Semaphore(10)
    made = withdrawn = 0
    async with rig.agent() as link:

        async def one() -> None:
            nonlocal made, withdrawn
            async with slots:
                call = await link.client.request("session/new", {"cwd": str(rig.project)})
                await anyio.sleep(dice.uniform(0, 2))
                if dice.random() < 0.4:  # noqa: PLR2004
                    await link.client.cancel_request(call.request_id)
                try:
                    session = (await call.result(300))["sessionId"]
                except RequestCancelled:
                    withdrawn += 1
                    return
                made += 1
                prompt = await link.prompt(session, "Hello.")
                await anyio.sleep(dice.uniform(0, 0.5))
                await link.client.close(session)
                assert prompt.done

        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(SESSIONS):
                tasks.start_soon(one)
        seconds = time.monotonic() - began
    await rig.all_gone(10)
    return {"opened": made, "withdrawn": withdrawn, "seconds": seconds, "processes left": len(rig.processes())}


SCENARIOS: dict[str, Callable[[Rig], Awaitable[Result]]] = {
    scenario.__name__: scenario for scenario in (prompt_40, tool_40, deaf_client, sessions_50)
}


async def session_250(runtime: RuntimeUnderTest, folder: Path) -> Result:
    """A stored session of 250 MB: replayed while the list is asked for, then a key of long ago."""
    measured = CLAUDE if runtime.name == "claude" else CODEX
    us = measured.ours()
    async with long_session(measured, us, folder, STORED_MB * 1_000_000) as stored:
        params = {"sessionId": stored.session, "cwd": str(stored.project), "mcpServers": []}
        async with started(us, stored.env, stored.project) as agent:
            await agent.initialize()
            await anyio.sleep(1)  # what an agent loads beside the first request is no growth
            before = resident_mb(agent.pid)
            forget_peak(agent.pid)
            sent, resume = await agent.request("session/resume", {**params, "replayFrom": {"type": "start"}})
            first = await agent.update(lambda _update: True)
            asked, listing = await agent.request("session/list", {})
            listed, _ = await agent.answer(listing)
            replayed, _ = await agent.answer(resume)
            grown = resident_mb(agent.pid, "VmHWM") - before
            looked, prompt = await agent.prompt(stored.session, "x", KEY)
            known, result = await agent.answer(prompt)
            assert result["messageId"]
            assert agent.process.stdin is not None
            await agent.process.stdin.aclose()
            await agent.process.wait()
    return {
        "first update s": first - sent,
        "list meanwhile s": listed - asked,
        "replayed s": replayed - sent,
        "known key s": known - looked,
        "grown MB": grown,
    }


def peak(pid: int) -> float:
    """The most memory that the process has had so far, MB."""
    return resident_mb(pid, "VmHWM")


async def run(runtime: RuntimeUnderTest, name: str) -> Result:
    """One scenario in a home of its own. Codex wants no home below the temp folder that it is told of; ours is beside it."""
    folder = Path(tempfile.mkdtemp(prefix="limits-"))
    try:
        if name == session_250.__name__:
            return await session_250(runtime, folder)
        async with runtime.model() as model, open_rig(runtime, model, folder / "h") as rig:
            return await SCENARIOS[name](rig)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def main() -> None:
    """Run what is asked for; print one line a scenario."""
    names = [*SCENARIOS, session_250.__name__]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtimes", nargs="*", choices=[[], *(runtime.name for runtime in RUNTIMES)])
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    asked = parser.parse_args()
    for runtime in RUNTIMES:
        if asked.runtimes and runtime.name not in asked.runtimes:
            continue
        for name in asked.only:
            result = anyio.run(run, runtime, name)
            said = ", ".join(
                f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in result.items()
            )
            print(f"{runtime.name:7} {name:12} {said}", flush=True)


if __name__ == "__main__":
    main()
