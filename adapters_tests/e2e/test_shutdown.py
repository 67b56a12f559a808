"""The end of an agent: by stdin, by signals, with work at any stage. Nothing is left behind, what was promised stays."""

from __future__ import annotations

import signal

import anyio
import pytest

from adapters.client.outbox import Outbox
from adapters.client.permissions import Question
from adapters.client.record import ConnectionLostError
from adapters.scripted.script import Answer, say
from adapters_tests.e2e.rig import Link, Rig

pytestmark = pytest.mark.anyio

KILLED_WITHIN = 6.0
"""Seconds after SIGKILL of an agent: the system tells the runtime, which ends its tools and then itself."""


async def stop(link: Link, how: str) -> None:
    match how:
        case "eof":
            await link.process.transport.aclose()
        case "term":
            link.process.signal(signal.SIGTERM)
        case "int":
            link.process.signal(signal.SIGINT)
        case _:
            link.process.kill()


async def gone(link: Link, how: str) -> None:
    """Wait for the end of everything, within the bound of the way it was stopped."""
    status = await link.process.wait(KILLED_WITHIN)
    assert status == (-signal.SIGKILL if how == "kill" else 0)
    await link.rig.all_gone(KILLED_WITHIN if how == "kill" else 2.0)


@pytest.mark.parametrize("how", ["eof", "term", "int", "kill"])
async def test_idle(rig: Rig, how: str) -> None:
    """STDIO-11, STDIO-14: with two idle sessions."""
    async with rig.agent() as link:
        for _ in range(2):
            await link.turn(await link.new(), "Once.")
        await stop(link, how)
        await gone(link, how)
        assert "Traceback" not in link.process.stderr


@pytest.mark.parametrize("how", ["eof", "term", "kill"])
async def test_while_a_tool_runs(rig: Rig, text: str, how: str) -> None:
    """STDIO-11, STDIO-13, KEY-46: the tool's processes go too; the prompt that was answered is known to the next agent."""
    tool = rig.tool(text)
    async with rig.agent() as link:
        session = await link.new()
        message_id = await (await link.prompt(session, text, "stopped-in-a-tool")).message_id()
        await tool.started()
        assert len(rig.processes()) > 2
        await stop(link, how)
        await gone(link, how)
    async with rig.agent() as link:
        await link.resume(session)
        assert await (await link.prompt(session, text, "stopped-in-a-tool")).message_id() == message_id
    assert rig.stored_ids(session) == [message_id]


async def test_while_a_question_is_open(rig: Rig, text: str) -> None:
    """STDIO-11, RCAN-7."""
    came = anyio.Event()

    async def never(question: Question) -> None:
        del question
        came.set()
        await anyio.sleep_forever()

    ran = rig.project / "ran"
    rig.answer(text, Answer((rig.runtime.asking(f"touch '{ran}'"),)), say("Done."))
    async with rig.agent(never) as link:
        await link.prompt(await link.new(), text)
        with anyio.fail_after(20):
            await came.wait()
        await stop(link, "eof")
        await gone(link, "eof")
        assert not ran.exists()


async def test_while_a_prompt_is_held(rig: Rig, text: str) -> None:
    """E3, E4, PROMPT-24: kept or dropped, never both: sent again, it is in the session once."""
    tool = rig.tool(f"Tool of {text}")
    async with rig.agent() as link:
        session = await link.new()
        await link.prompt(session, f"Tool of {text}")
        await tool.started()
        await link.prompt(session, text, "held-at-the-end")
        await stop(link, "eof")
        await gone(link, "eof")
    tool.release()
    async with rig.agent() as link:
        await link.resume(session)
        message_id = await (await link.prompt(session, text, "held-at-the-end")).message_id()
        await link.turn(session, f"After {text}")
    assert rig.stored_ids(session).count(message_id) == 1
    assert rig.in_conversation(text) == 1


async def test_in_the_middle_of_starting_a_session(rig: Rig) -> None:
    """STDIO-11: the runtime that is being started goes too."""
    async with rig.agent() as link:
        await link.client.request("session/new", {"cwd": str(rig.project)})
        await stop(link, "eof")
        await gone(link, "eof")


async def test_before_initialize(rig: Rig) -> None:
    """STDIO-11: a clean exit 0 on empty input."""
    async with rig.agent(initialize=False) as link:
        await stop(link, "eof")
        assert await link.process.wait(5) == 0
        assert link.process.stderr == ""


async def test_a_client_that_stops_reading_its_answers(rig: Rig, text: str) -> None:
    """E11, STDIO-12: the answer cannot be written; the insertion stands."""
    async with rig.agent(command=["sh", "-c", '"$@" | cat', "sh", *rig.runtime.command]) as link:
        session = await link.new()
        await link.turn(session, f"{text} start")
        [reader] = [proc for proc in rig.processes() if proc.command == ("cat",)]
        gate = rig.hold_model(text)
        reader.kill(signal.SIGSTOP)
        call = await link.prompt(session, text, "nobody-reads-this")
        await gate.wait_arrival()  # it is inserted, and its answer is on its way into a pipe
        reader.kill()
        gate.release()
        await rig.all_gone(KILLED_WITHIN)
        with pytest.raises(ConnectionLostError):
            await call.message_id()
    async with rig.agent() as link:
        await link.resume(session)
        message_id = await (await link.prompt(session, text, "nobody-reads-this")).message_id()
    assert rig.stored_ids(session).count(message_id) == 1


async def test_the_outbox_of_the_client_brings_every_prompt_in_once(rig: Rig, text: str) -> None:
    """KEY-46, client duties: agents that die at once, in the middle, and not at all; one message per submission."""
    outbox = Outbox(rig.root / "outbox")
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} start")
    entries = [outbox.submit(session, f"{text} {number}") for number in range(3)]
    rig.keys |= {entry.key for entry in entries}
    for delay in (0.0, 0.1):
        async with rig.agent() as link, anyio.create_task_group() as tasks:
            await link.resume(session)

            async def deliver(link: Link = link) -> None:
                for entry in [*outbox.entries()]:
                    try:
                        await outbox.deliver(link.client, entry)
                    except ConnectionLostError:
                        return

            tasks.start_soon(deliver)
            await link.client.record.wait(lambda m: m.sent and m.method == "session/prompt")
            await anyio.sleep(delay)
            link.process.kill()
    outbox.close()
    again = Outbox(rig.root / "outbox")
    async with rig.agent() as link:
        await link.resume(session)
        for outcome in await again.resend(link.client, session):
            assert outcome.message_id, outcome
        await link.turn(session, f"{text} end")
    assert [m.text for m in rig.stored(session)] == [f"{text} {part}" for part in ("start", 0, 1, 2, "end")]
