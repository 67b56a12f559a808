"""The agent as a process: its ends, its signals, and what reaches stderr. The server behind it is a stub."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from adapters.acp.framing import LineDecoder
from adapters.client.process import AgentProcess, start_agent
from adapters.stdio_server import run_for_people, where
from adapters.streams import OutputLostError

ROOT = Path(__file__).parents[1]

STUB = """
import logging, os, sys, threading
from contextlib import asynccontextmanager
import anyio
from adapters.stdio_server import leave, run

class Server:
    async def run_connection(self, transport):
        await BODY

async def serve(transport):
    "Echo lines until the end of input."
    while data := await transport.receive():
        await transport.send(data)
    await transport.send(b"end of input\\n")

class Secret(Exception):
    pass

async def fail():
    raise Secret("sk-secret")

def thread_failure():
    raise Secret("sk-secret")

async def make_noise():
    logging.getLogger("some.library").warning("cannot read %s", "sk-secret")
    try:
        raise Secret("sk-secret")
    except Secret:
        logging.getLogger("some.library").exception("sk-secret")
    worker = threading.Thread(target=thread_failure)
    worker.start()
    worker.join()
    print("to stdout, by mistake")

class Bad:
    def __del__(self):
        raise Secret("sk-secret")

async def clean_up_badly():
    Bad()

async def leave_a_thread():
    threading.Thread(target=threading.Event().wait).start()

@asynccontextmanager
async def open_server():
    yield Server()
    await CLOSE

sys.exit(leave(run(open_server)))
"""


def stub(body: str = "serve(transport)", close: str = "anyio.lowlevel.checkpoint()") -> list[str]:
    return [sys.executable, "-c", STUB.replace("BODY", body).replace("CLOSE", close)]


def environ() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


async def echoed(agent: AgentProcess) -> None:
    """Return when the stub serves: then its signal handlers are there too."""
    await agent.transport.send(b"hello\n")
    assert await line(agent) == b"hello"


async def line(agent: AgentProcess) -> bytes:
    decoder = LineDecoder()
    with anyio.fail_after(20):
        while data := await agent.transport.receive():
            for received in decoder.feed(data):
                assert isinstance(received, bytes)
                return received
    raise AssertionError("the process ended its output")


def ran(command: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=data, capture_output=True, env=environ(), timeout=60, check=False)


# --- ends --------------------------------------------------------------------------------------------------------------


def test_the_end_of_input_is_the_orderly_end() -> None:
    """STDIO-11: what came before is answered, the status is 0, stderr is empty."""
    result = ran(stub(), b"one\ntwo\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"one\ntwo\nend of input\n", b"")


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_the_end_of_input(number: signal.Signals) -> None:
    """STDIO-14: the same as the end of input, also while the client goes on sending."""
    async with start_agent(stub(), env=environ()) as agent:
        await echoed(agent)
        agent.signal(number)
        assert await line(agent) == b"end of input"
        assert await agent.wait() == 0
        assert agent.stderr == ""


@pytest.mark.anyio
async def test_a_second_signal_ends_it_at_once() -> None:
    """STDIO-14: an end that hangs is not for ever."""
    async with start_agent(stub(close="anyio.sleep_forever()"), env=environ()) as agent:
        await echoed(agent)
        agent.signal(signal.SIGTERM)
        assert await line(agent) == b"end of input"
        agent.signal(signal.SIGTERM)
        assert await agent.wait() == -signal.SIGTERM


@pytest.mark.anyio
async def test_a_thread_that_does_not_end_holds_up_nothing() -> None:
    async with start_agent(stub(close="leave_a_thread()"), env=environ()) as agent:
        await agent.transport.aclose()
        assert await agent.wait() == 0


@pytest.mark.parametrize(
    ("closed", "named"),
    [
        (">&-", "standard output closed"),
        ("<&-", "standard input closed"),
        ("<&- >&-", "standard input and standard output closed"),
    ],
)
def test_without_stdin_or_stdout_it_says_so_and_ends(closed: str, named: str) -> None:
    result = ran(["sh", "-c", f'exec "$@" {closed}', "sh", *stub()])
    assert result.returncode == 1
    printed = result.stderr.decode()
    assert printed.startswith("acp-adapters: cannot start: stdin and stdout must be connected")
    assert printed.endswith(f'"{named}"\n')
    assert printed.count("\n") == 1


PEOPLE = """
import sys
import anyio
from adapters.stdio_server import run_for_people

async def command(number):
    print("ready", flush=True)
    try:
        await (anyio.sleep_forever() if number < 0 else anyio.lowlevel.checkpoint())
    finally:
        print("cleaned up", flush=True)
    return number

sys.exit(run_for_people(command, int(sys.argv[1])))
"""


def test_a_command_for_people_ends_with_its_own_status() -> None:
    result = ran([sys.executable, "-c", PEOPLE, "3"])
    assert (result.returncode, result.stdout, result.stderr) == (3, b"ready\ncleaned up\n", b"")


async def _lose_output(beside: Exception | None) -> int:
    """Fail in the middle of tasks, as the demo and the check do."""

    async def fail() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if beside is not None:
                raise beside

    async with anyio.create_task_group() as outer, anyio.create_task_group() as tasks:
        outer.start_soon(anyio.sleep_forever)
        tasks.start_soon(fail)
        await anyio.lowlevel.checkpoint()
        raise OutputLostError(BrokenPipeError(errno.EPIPE, "x"))


@pytest.mark.parametrize("beside", [None, ValueError("x")])
def test_lost_output_leaves_a_command_as_it_is_whatever_else_fails_with_it(beside: Exception | None) -> None:
    with pytest.raises(OutputLostError) as caught:
        run_for_people(_lose_output, beside)
    assert caught.value.reader_left


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_command_for_people_cleans_up_when_it_is_interrupted(number: signal.Signals) -> None:
    async with start_agent([sys.executable, "-c", PEOPLE, "-1"], env=environ()) as process:
        assert await line(process) == b"ready"
        process.signal(number)
        assert await line(process) == b"cleaned up"
        assert await process.wait() == 130
        assert process.stderr == ""


# --- stderr -----------------------------------------------------------------------------------------------------------


def test_a_failure_of_the_agent_is_one_line_without_its_text() -> None:
    """STDIO-15: no traceback, no exception text; kind and place are enough to find it."""
    result = ran(stub(body="fail()"))
    assert result.returncode == 1
    assert result.stdout == b""
    assert result.stderr.startswith(b"acp-adapters: internal error error=Secret at=")
    assert result.stderr.count(b"\n") == 1
    assert b"sk-secret" not in result.stderr


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "make_noise()",
            [
                "library event logger=some.library level=WARNING",
                "library event logger=some.library level=ERROR error=Secret",
                "error in thread error=Secret",
                "to stdout, by mistake",
            ],
        ),
        ("clean_up_badly()", ["error in cleanup error=Secret"]),
    ],
)
def test_what_libraries_and_threads_report_is_one_line_each_without_content(body: str, lines: list[str]) -> None:
    """STDIO-2, STDIO-15: stdout stays the protocol's, whoever prints."""
    result = ran(stub(body=body))
    assert (result.returncode, result.stdout) == (0, b"")
    printed = result.stderr.decode().splitlines()
    assert len(printed) == len(lines), printed
    for expected, found in zip(lines, printed, strict=True):
        assert expected in found
    assert "sk-secret" not in result.stderr.decode()


def test_where_finds_the_line_that_raised() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    error = caught.value
    assert where(error)["error"] == "JSONDecodeError"
    assert where(error)["at"].startswith("json/decoder.py:")
    assert where(ExceptionGroup("several", [ExceptionGroup("inner", [error])])) == where(error)
    assert where(None) == {}
    assert where(ValueError("never raised")) == {"error": "ValueError"}
