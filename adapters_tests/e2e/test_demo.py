"""The demo as a user runs it: what it claims holds, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from adapters_tests.e2e.processes import living_in, wait_for
from adapters_tests.e2e.runtimes import REPOSITORY, RuntimeUnderTest

pytestmark = pytest.mark.anyio


def demo(runtime: RuntimeUnderTest, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "adapters", "demo", runtime.name]
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=folder)


async def end(process: subprocess.Popen[bytes], folder: Path) -> tuple[str, str]:
    with anyio.fail_after(60):
        out, err = await anyio.to_thread.run_sync(process.communicate)
    await wait_for(lambda: not living_in(folder), 3, f"nothing left of {living_in(folder)}")
    assert [entry.name for entry in os.scandir(folder) if entry.name.startswith("acp-adapters-demo-")] == []
    return (out or b"").decode(), err.decode()


async def test_every_claim_of_the_demo_holds(runtime: RuntimeUnderTest, tmp_path: Path) -> None:
    """Trace 3 and trace 4, shown offline."""
    process = demo(runtime, tmp_path)
    out, err = await end(process, tmp_path)
    assert process.returncode == 0, out + err
    assert err == ""
    verdicts = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line.split()[0].isalpha()]
    assert verdicts == ["holds"] * 8
    sent = re.findall(r"-> request (\S+):", out)
    assert len(set(sent)) == len(sent) == 5, "each has a number of its own, to any agent"


@pytest.mark.parametrize("line", ["answers initialize", "SIGKILL", "a tool is running"])
async def test_an_interrupted_demo_leaves_nothing(runtime: RuntimeUnderTest, tmp_path: Path, line: str) -> None:
    """Ctrl-C at any step ends every process and removes the home, also the runtime of a killed agent."""
    process = demo(runtime, tmp_path)
    assert process.stdout is not None
    with anyio.fail_after(30):
        while line not in (await anyio.to_thread.run_sync(process.stdout.readline)).decode():
            assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = await end(process, tmp_path)
    assert process.returncode not in (0, None)
    assert "Traceback" not in err


@pytest.mark.parametrize("line", ["the real runtime", "answers initialize", "a tool is running"])
async def test_a_reader_who_has_enough_ends_the_demo_in_silence(
    runtime: RuntimeUnderTest, tmp_path: Path, line: str
) -> None:
    """`demo | head -3`: nothing is left, and there is nothing to report."""
    process = demo(runtime, tmp_path)
    assert process.stdout is not None
    with anyio.fail_after(30):
        while line not in (await anyio.to_thread.run_sync(process.stdout.readline)).decode():
            assert process.poll() is None
    process.stdout.close()
    process.stdout = None
    _, err = await end(process, tmp_path)
    assert (process.returncode, err) == (1, "")
