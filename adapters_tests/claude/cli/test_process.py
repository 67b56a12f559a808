"""A Claude Code process as pipes and signals, played by small Python programs."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.claude.cli import orphans
from adapters.claude.cli.process import ClaudeProcess, ControlError, spawn
from adapters.driver import procfs
from adapters_tests.core.reader import Reader

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(code: str, reader: Reader | None = None) -> AsyncIterator[tuple[ClaudeProcess, Reader]]:
    reader = reader or Reader()
    process = await spawn([sys.executable, "-c", f"import sys, json, os, time\n{code}"], cwd="/", env=dict(os.environ))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.run, reader.take, reader.writable)
            yield process, reader
            await process.stop(busy=True)


ECHO = """
for line in sys.stdin:
    sys.stdout.write(line); sys.stdout.flush()
"""
CONTROL = """
for line in sys.stdin:
    frame = json.loads(line)
    kind = frame["request"]["subtype"]
    if kind == "silent":
        continue
    answer = {"subtype": "error", "error": "no"} if kind == "refused" else {"subtype": "success", "response": frame["request"]}
    print(json.dumps({"type": "control_response", "response": {"request_id": frame["request_id"], **answer}}), flush=True)
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}', flush=True)\n"
LIVE_ON = 'print(\'{"type":"up"}\', flush=True)\ntime.sleep(60)'


async def test_control_requests_find_their_answers() -> None:
    async with running(CONTROL) as (process, reader):
        first, second = [], []
        async with anyio.create_task_group() as tasks:

            async def ask(answers: list[Any], **params: Any) -> None:
                answers.append(await process.request("plain", bound=10, **params))

            tasks.start_soon(lambda: ask(first, n=1))
            tasks.start_soon(lambda: ask(second, n=2))
        assert first == [{"subtype": "plain", "n": 1}]
        assert second == [{"subtype": "plain", "n": 2}]
        with pytest.raises(ControlError, match="no"):
            await process.request("refused", bound=10)
        with pytest.raises(ControlError, match="no answer to silent"):
            await process.request("silent", bound=0.05)
        assert reader.frames == []


async def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    """The CLI echoes our own permission answers."""
    async with running(ECHO) as (process, reader):
        process.send({"type": "control_response", "response": {"subtype": "success", "request_id": "theirs"}})
        process.send({"n": 1})
        await reader.until(1)
        assert reader.frames == [{"n": 1}]


async def test_a_request_to_a_process_that_dies_ends_at_once() -> None:
    async with running("sys.stdin.readline()") as (process, _):
        with pytest.raises(ControlError, match="gone"):
            await process.request("initialize", bound=60)
        await process.gone.wait()
        with pytest.raises(ControlError, match="gone"):
            await process.request("initialize", bound=60)
        assert process.exit_code == 0


async def test_an_idle_process_ends_by_the_end_of_its_input() -> None:
    async with running('print(\'{"type":"up"}\', flush=True); sys.stdin.read(); sys.exit(7)') as (process, reader):
        await reader.until(1)
        await process.stop(busy=False)
        assert process.exit_code == 7


async def test_a_busy_process_gets_term() -> None:
    async with running(LIVE_ON) as (process, reader):
        await reader.until(1)
        await process.stop(busy=True)
        assert process.exit_code == -signal.SIGTERM


async def test_a_process_that_ignores_everything_is_killed() -> None:
    async with running(DEAF + LIVE_ON) as (process, reader):
        await reader.until(1)
        await process.stop(busy=False)
        assert process.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_children_in_sessions_of_their_own_go_with_it() -> None:
    """Claude Code runs tools in sessions of their own."""
    child = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    async with running(child + LIVE_ON) as (process, reader):
        await reader.until(1)
        [tool] = procfs.family(process.pid)
        await process.stop(busy=True)
        assert not tool.alive


async def test_a_missing_program_or_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await spawn([sys.executable], cwd=str(tmp_path / "missing"), env={})


AGENT = '''
import anyio, os, sys
from adapters.claude.cli.process import spawn

CHILD = """
import time
print('{"n": 1}', flush=True)
time.sleep(60)
"""

async def main():
    process = await spawn([sys.executable, "-c", CHILD], cwd="/", env=dict(os.environ))

    async def writable():
        pass

    await process.run(lambda frame: print(process.pid, flush=True), writable)

anyio.run(main)
'''


def start_agent() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
async def test_it_does_not_outlive_an_agent_that_is_killed() -> None:
    """D6: after `kill -9` of the agent the kernel sends TERM."""
    agent = start_agent()
    assert agent.stdout is not None
    process = procfs.look(int(agent.stdout.readline()))
    assert process is not None
    agent.kill()
    agent.communicate()
    with anyio.fail_after(15):
        await orphans.gone([process])


def test_a_process_on_its_way_out_is_ending() -> None:
    """D7: a zombie, whose news has not come yet, gets no prompt; what lives is not ending."""
    assert not procfs.is_ending(os.getpid())
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert not procfs.is_ending(process.pid)
    process.kill()
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) is not None  # dead, not reaped
    assert procfs.is_ending(process.pid)
    process.communicate()
    assert procfs.is_ending(process.pid)
