"""Much of everything, on the real runtimes: prompts, tool results, floods, clients that do not read. Memory stays bounded.

Heavier versions with numbers: bench/limits.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from adapters.acp.errors import RequestCancelled
from adapters.acp.framing import LineDecoder, encode
from adapters.acp.stdio import StdioTransport
from adapters.scripted.script import Answer, Shell, Spread, Text, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, id_or_none

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")]

MIB = 1024 * 1024


def peak(pid: int) -> int:
    """The most memory that the process has had so far, bytes."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


async def test_a_prompt_of_8_mib(rig: Rig, text: str) -> None:
    """STDIO-5, PROMPT-13, KEY-12: taken once and whole, or refused by name with nothing inserted; the session goes on."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} before")
        before = peak(link.process.pid)
        big = f"{text} " + "word " * (8 * MIB // 5)
        call = await link.prompt(session, big, "eight-mebibytes")
        message_id = await id_or_none(call, -32602, within=120)
        assert len(rig.stored(session)) == (1 if message_id is None else 2)
        if message_id is not None:
            await link.client.wait_state(session, "idle", since=call.mark, within=120)
        again = await link.prompt(session, big, "eight-mebibytes")
        assert await id_or_none(again, -32602, within=60) == message_id
        assert peak(link.process.pid) - before < 16 * 8 * MIB
        await link.turn(session, f"{text} after")
        assert len(rig.stored(session)) == (2 if message_id is None else 3)


async def test_a_tool_that_prints_40_mib(rig: Rig, text: str) -> None:
    """UPD-2: whatever the runtime keeps of it; the turn ends, and nothing of ours grows with it."""
    rig.answer(text, Answer((Shell("head -c 41943040 /dev/zero | tr '\\0' x"),)), say("That was much."))
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} before")
        before = peak(link.process.pid)
        call = await link.prompt(session, text)
        await call.message_id()
        await link.client.wait_state(session, "idle", since=call.mark, within=120)
        [item] = link.client.view(session).items("tool_call")
        assert item.fields["status"] == "completed"
        assert link.client.view(session).items("agent")[-1].text == "That was much."
        assert peak(link.process.pid) - before < 64 * MIB


async def test_floods_and_depths_cost_one_answer_each(rig: Rig, text: str) -> None:
    """STDIO-5, STDIO-6: 70 MiB without a newline, JSON of 100,000 levels, in a frame and in params; then a turn."""
    deep = b"[" * 100_000 + b"]" * 100_000
    async with rig.agent() as link:
        session = await link.new()
        before = peak(link.process.pid)
        mark = link.client.record.mark
        for _ in range(2):
            await link.client.send_line(b"x" * (70 * MIB))
        await link.client.send_line(deep)
        head = {"jsonrpc": "2.0", "id": 7, "method": "session/prompt"}
        await link.client.send_line(encode(head)[:-2] + b',"params":{"sessionId":' + deep + b"}}")
        await link.client.send_line(b'{"a":' * 100_000)
        await link.turn(session, text)
        codes = [m.value["error"]["code"] for m in link.client.record.since(mark, sent=False) if "error" in m.value]
        assert codes == [-32600, -32600, -32700, -32700, -32700]
        assert peak(link.process.pid) - before < 160 * MIB


async def test_a_client_that_reads_nothing_during_a_long_stream(rig: Rig, text: str) -> None:
    """STDIO-10: the runtime is slowed down instead; nothing is lost, and other requests are still taken."""
    piece = "0123456789" * 2000
    rig.answer(text, Answer((Text(piece, Spread(repeat=600)),)))
    process, from_agent, to_agent = await rig.agent_on_pipes()
    transport = StdioTransport(from_agent, to_agent, owned=True)
    decoder = LineDecoder()
    waiting: list[bytes] = []

    async def call(number: int, method: str, params: object) -> None:
        await transport.send(encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))

    async def read() -> dict[str, object]:
        while not waiting:
            waiting.extend(line for line in decoder.feed(await transport.receive()) if isinstance(line, bytes))
        return json.loads(waiting.pop(0))

    async def answer(number: int) -> dict[str, object]:
        while (message := await read()).get("id") != number:
            pass
        return message

    with anyio.fail_after(180), killed_at_the_end(process):
        await call(1, "initialize", {"protocolVersion": 2, "info": {"name": "t", "version": "1"}, "capabilities": {}})
        await call(2, "session/new", {"cwd": str(rig.project)})
        session = (await answer(2))["result"]["sessionId"]  # type: ignore[index]
        before = peak(process.pid)
        await call(3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})
        await wait_for(lambda: rig.model.calls(text) > 0, 30, "the model is asked")
        await stalled(process.pid)
        assert peak(process.pid) - before < 48 * MIB, "output piles up"
        await call(4, "session/list", {})
        got, done, listed = 0, False, False
        while not (done and listed):
            message = await read()
            update = message.get("params", {}).get("update", {})  # type: ignore[attr-defined]
            listed |= message.get("id") == 4
            done |= update.get("state") == "idle"
            if update.get("sessionUpdate") == "agent_message_chunk":
                got += len(update["content"]["text"])
        assert got == 600 * len(piece)
        assert peak(process.pid) - before < 96 * MIB
    await transport.aclose()
    with anyio.fail_after(10):
        assert await process.wait() == 0


@contextmanager
def killed_at_the_end(process: Process) -> Iterator[None]:
    """Not left behind by a test that fails."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def ticks(pid: int) -> int:
    """The processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def stalled(pid: int) -> None:
    """Return when the process has done nothing for a while: its output is full."""
    quiet, last = 0, -1
    while quiet < 20:
        await anyio.sleep(0.1)
        used = ticks(pid)
        quiet, last = (quiet + 1 if used == last else 0), used


async def test_sessions_opened_and_closed_at_random_moments(rig: Rig, text: str) -> None:
    """RPC-6, CLOSE-2, RCAN-2: requests withdrawn half-way, closes on top of resumes; each is answered, nothing is left."""
    async with rig.agent() as link, anyio.create_task_group() as tasks:
        session = await link.new()
        await link.turn(session, text)

        async def one(number: int) -> None:
            call = await link.client.request("session/new", {"cwd": str(rig.project)})
            await anyio.sleep(number * 0.07)
            if number % 2:
                await link.client.cancel_request(call.request_id)
            try:
                made = (await call.result(60))["sessionId"]
            except RequestCancelled:
                return
            prompt = await link.prompt(made, f"{text} {number}")
            await anyio.sleep(number * 0.03)
            await link.client.close(made)
            assert prompt.done

        for number in range(6):
            tasks.start_soon(one, number)
    await rig.all_gone(10)


async def test_an_answer_of_any_characters(shared: Link, text: str) -> None:
    """STDIO-1, UPD-2: separators of other languages, controls, what looks like markup or an end of line, both ways."""
    odd = "a\u2028b\u2029c\u0085d\r\ne\x00f\x1bg\ufeffh\U0001f600</x>\\u0041\"'"
    shared.rig.answer(text, Answer((Text(odd, Spread(deltas=len(odd))),)))
    session = await shared.new()
    await shared.turn(session, text)
    assert shared.client.view(session).items("agent")[-1].text == odd
    prompt = f"{text} {odd}"
    message_id = await shared.turn(session, prompt, "odd-characters-again")
    for _ in range(2):
        [item] = [item for item in shared.client.view(session).items("user") if item.item_id == message_id]
        assert item.text == prompt
        await shared.resume(session, replay=True)
    halves = await shared.prompt(session, f"{text} \ud800 \udfff", "half-characters")
    if shared.rig.runtime.name == "codex":  # its reader takes no half of a pair
        assert (await shared.error(halves)).code == -32602
    else:
        message_id = await halves.message_id()
        assert shared.rig.stored_ids(session)[-1] == message_id
