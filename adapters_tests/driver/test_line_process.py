"""A program that speaks JSON lines, as pipes and signals, played by small Python programs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from adapters.driver.line_process import LineProcess
from adapters_tests.core.reader import Frames, Reader

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(code: str, reader: Reader | None = None) -> AsyncIterator[tuple[LineProcess, Reader]]:
    reader = reader or Reader()
    command = [sys.executable, "-c", f"import sys, json, os, time\n{code}"]
    process = LineProcess(await anyio.open_process(command, start_new_session=True), "It")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.read, reader.take, reader.writable)
            yield process, reader
            await process.end(eof_bound=None, term_bound=0.5)


ECHO = """
for line in sys.stdin:
    sys.stdout.write(line); sys.stdout.flush()
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
LIVE_ON = 'print(\'{"type":"up"}\', flush=True)\ntime.sleep(60)'


async def test_frames_go_both_ways_in_order_whatever_they_hold() -> None:
    """D11: lone surrogates, U+2028 and lines beyond a megabyte."""
    frames: Frames = [{"n": index, "text": "\udcb2\u2028\n" + "x" * (index * 700_000)} for index in range(5)]
    async with running(ECHO) as (process, reader):
        for frame in frames:
            process.send(frame)
        await reader.until(5)
        assert reader.frames == frames


async def test_what_is_no_message_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """Non-JSON noise on the pipe does not break the channel, and is told once."""
    async with running("for line in ('Welcome back', '[]', '7', '\\xff', '{\"n\": 1}'): print(line, flush=True)") as (
        _,
        reader,
    ):
        await reader.until(1)
    assert reader.frames == [{"n": 1}]
    assert capsys.readouterr().err.count("not a message") == 1


async def test_a_process_that_does_not_read_blocks_nobody() -> None:
    async with running(LIVE_ON) as (process, reader):
        await reader.until(1)
        for _ in range(20):
            process.send({"text": "x" * 1_000_000})
        assert not process.gone.is_set()


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


async def test_a_cancelled_read_leaves_no_process() -> None:
    """Whoever ran it is gone: so is the process, also one that ignores TERM."""
    command = [sys.executable, "-c", "import json, time\n" + DEAF + LIVE_ON]
    process = LineProcess(await anyio.open_process(command, start_new_session=True), "It")
    reader = Reader()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.read, reader.take, reader.writable)
            await reader.until(1)
            tasks.cancel_scope.cancel()
    assert process.gone.is_set()
    assert process.exit_code == -signal.SIGKILL


async def test_what_waits_is_told_before_the_end_is() -> None:
    """`gone` means that nothing waits for this process any more."""
    told: list[bool] = []

    class Asked(LineProcess):
        def _reaped(self) -> None:
            told.append(self.gone.is_set())

    process = Asked(await anyio.open_process([sys.executable, "-c", ""], start_new_session=True), "It")
    with anyio.fail_after(20):
        await process.read(Reader().take, Reader().writable)
    assert told == [False]
    assert process.gone.is_set()


@pytest.mark.parametrize("eof_bound", [None, 0.05])
async def test_the_end_is_asked_for_then_forced_and_may_be_asked_for_again(eof_bound: float | None) -> None:
    async with running(DEAF + LIVE_ON) as (process, reader):
        await reader.until(1)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(lambda: process.end(eof_bound=eof_bound, term_bound=0.05))
        assert process.exit_code == -signal.SIGKILL
        await process.end(eof_bound=eof_bound, term_bound=0.05)


async def test_an_end_that_is_cancelled_goes_on() -> None:
    async with running(DEAF + LIVE_ON) as (process, reader):
        await reader.until(1)
        with anyio.move_on_after(0):
            await process.end(eof_bound=None, term_bound=0.05)
        assert process.gone.is_set()
