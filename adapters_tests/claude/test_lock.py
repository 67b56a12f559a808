"""One holder per session (D6, ADP-14)."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.claude.lock import lock_session

pytestmark = pytest.mark.anyio

S = "0b6d6b4e-8f39-4c57-9d2c-111111111111"
HOLD = """
import sys, anyio
from pathlib import Path
from adapters.claude.lock import lock_session
async def main():
    lock = await lock_session(Path(sys.argv[1]), sys.argv[2], bound=0)
    print("held", flush=True)
    sys.stdin.read()
anyio.run(main)
"""


def holder(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLD, str(folder), S]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def heir() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], close_fds=False)


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


async def test_a_second_holder_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(InternalError, match=f"process {process.pid}") as refused:
            await lock_session(tmp_path, S, bound=0.1)
        assert refused.value.data == {"holder": {"pid": process.pid}}
    finally:
        end(process)


async def test_the_kernel_gives_the_lock_back_when_its_holder_is_killed(tmp_path: Path) -> None:
    end(holder(tmp_path))
    lock = await lock_session(tmp_path, S, bound=5)
    lock.release()


async def test_a_waiter_gets_the_lock_of_a_holder_that_goes_away(tmp_path: Path) -> None:
    first = await lock_session(tmp_path, S, bound=0)
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            second = await lock_session(tmp_path, S, bound=5)
            second.release()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        first.release()
    assert files(tmp_path) == []


async def test_sessions_do_not_exclude_each_other(tmp_path: Path) -> None:
    first = await lock_session(tmp_path, S, bound=0)
    other = await lock_session(tmp_path, S.replace("1", "2"), bound=0)
    first.release()
    other.release()
    first.release()


async def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = await lock_session(tmp_path, S, bound=0)
    child = heir()
    try:
        lock.release()
        (await lock_session(tmp_path, S, bound=0)).release()
    finally:
        child.kill()
        child.wait()


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"lock file .*missing"):
        await lock_session(tmp_path / "missing", S, bound=0)


async def test_a_lock_file_removed_under_a_waiter_is_no_lock(tmp_path: Path) -> None:
    """Whoever locks the removed file would be alone with it."""
    first = await lock_session(tmp_path, S, bound=0)
    (tmp_path / f"{S}.lock").unlink()
    second = await lock_session(tmp_path, S, bound=0)
    with pytest.raises(InternalError, match=f"process {os.getpid()} \\(this agent\\)"):
        await lock_session(tmp_path, S, bound=0)
    second.release()
    first.release()
