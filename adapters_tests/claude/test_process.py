"""A Claude Code process as pipes and signals, played by small Python programs."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.claude import orphans, procfs
from adapters.claude.process import ClaudeProcess, ControlError, spawn

pytestmark = pytest.mark.anyio

Frames = list[Mapping[str, Any]]


class Reader:
    """Takes frames; with `open` unset it is a client that does not read."""

    def __init__(self) -> None:
        self.frames: Frames = []
        self.open = anyio.Event()
        self.open.set()
        self.stuck = anyio.Event()
        self._more = anyio.Event()

    def take(self, frame: Mapping[str, Any]) -> None:
        self.frames.append(frame)
        self._more.set()

    async def writable(self) -> None:
        if not self.open.is_set():
            self.stuck.set()
        await self.open.wait()

    async def until(self, count: int) -> None:
        with anyio.fail_after(10):
            while len(self.frames) < count:
                self._more = anyio.Event()
                await self._more.wait()


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


async def test_frames_go_both_ways_in_order_whatever_they_hold() -> None:
    """D11: lone surrogates, U+2028 and lines beyond a megabyte."""
    frames: Frames = [{"n": index, "text": "\udcb2\u2028\n" + "x" * (index * 700_000)} for index in range(5)]
    async with running(ECHO) as (process, reader):
        for frame in frames:
            process.send(frame)
        await reader.until(5)
        assert reader.frames == frames


async def test_what_is_no_frame_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """Non-JSON noise on the pipe does not break the channel, and is told once."""
    async with running("for line in ('Welcome back', '[]', '7', '\\xff', '{\"n\": 1}'): print(line, flush=True)") as (
        _,
        reader,
    ):
        await reader.until(1)
    assert reader.frames == [{"n": 1}]
    assert capsys.readouterr().err.count("no frame") == 1


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


async def test_a_process_that_does_not_read_blocks_nobody() -> None:
    async with running(LIVE_ON) as (process, reader):
        await reader.until(1)
        for _ in range(20):
            process.send({"text": "x" * 1_000_000})
        assert not process.gone.is_set()


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


async def test_a_process_that_ignores_everything_is_killed_within_a_second() -> None:
    async with running(DEAF + LIVE_ON) as (process, reader):
        await reader.until(1)
        began = anyio.current_time()
        await process.stop(busy=False)
        assert process.exit_code == -signal.SIGKILL
        assert anyio.current_time() - began < 1.5


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_children_in_sessions_of_their_own_go_with_it() -> None:
    """Claude Code runs tools in sessions of their own."""
    child = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    async with running(child + LIVE_ON) as (process, reader):
        await reader.until(1)
        [tool] = procfs.family(process.pid)
        await process.stop(busy=True)
        assert not tool.alive


async def test_the_exit_is_seen_although_a_child_holds_the_pipe() -> None:
    child = """import subprocess
child = subprocess.Popen(['sleep', '60'], start_new_session=True)
print(json.dumps({'pid': child.pid}), flush=True)
"""
    async with running(child) as (process, reader):
        await reader.until(1)
        await process.gone.wait()
        assert process.exit_code == 0
    os.kill(reader.frames[0]["pid"], signal.SIGKILL)


async def test_a_process_that_closes_its_output_is_ended() -> None:
    async with running("os.close(1); time.sleep(60)") as (process, _):
        await process.gone.wait()
        assert process.exit_code == -signal.SIGKILL


async def test_a_slow_reader_slows_the_process_and_loses_nothing() -> None:
    reader = Reader()
    reader.open = anyio.Event()
    code = """for n in range(2000):
    print(json.dumps({'n': n, 'text': 'x' * 1000}), flush=True)
print('{"last": true}', flush=True)
"""
    async with running(code, reader) as (process, _):
        await reader.stuck.wait()
        assert process.held_up
        assert len(reader.frames) < 2000
        reader.open.set()
        await reader.until(2001)
        assert reader.frames[-1] == {"last": True}


async def test_the_last_words_are_kept_and_bounded() -> None:
    async with running("sys.stderr.write('x' * 1_000_000 + '\\nout of luck\\n\\n')") as (process, _):
        await process.gone.wait()
        assert process.last_words == "out of luck"


async def test_a_missing_program_or_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await spawn([sys.executable], cwd=str(tmp_path / "missing"), env={})


AGENT = '''
import anyio, os, sys
from adapters.claude.process import spawn

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
    with anyio.fail_after(5):
        await orphans.gone([process])
