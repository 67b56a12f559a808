"""One holder per session (D6, ADP-14)."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.claude.cli.config_dir import require_config_dir
from adapters.claude.cli.lock import lock_in_all, lock_session
from adapters.claude.cli.state_dir import lock_folder
from adapters.driver import procfs

pytestmark = pytest.mark.anyio

S = "0b6d6b4e-8f39-4c57-9d2c-111111111111"
HOLD = """
import sys, anyio
from pathlib import Path
from adapters.claude.cli.lock import lock_session
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


@pytest.mark.parametrize("by", ["nobody", "somebody who is gone", "a holder"])
async def test_a_holder_whose_lock_file_was_removed_notices(tmp_path: Path, by: str) -> None:
    """It takes the lock again, or learns who has it; it never removes the file of another holder."""
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for folder in (mine, shared):
        folder.mkdir()
    locks = await lock_in_all([mine, shared], S, bound=0)
    assert locks.are_in_place()
    shutil.rmtree(shared)
    shared.mkdir()
    if by == "somebody who is gone":
        (shared / f"{S}.lock").touch()
    other = await lock_session(shared, S, bound=0) if by == "a holder" else None
    assert not locks.are_in_place()
    if other:
        with pytest.raises(InternalError, match="is active in"):
            await locks.take_again([mine, shared], S)
        assert not locks.are_in_place()
    else:
        await locks.take_again([mine, shared], S)
        assert locks.are_in_place()
        with pytest.raises(InternalError, match="this agent"):
            await lock_session(shared, S, bound=0)
    locks.release()
    assert files(mine) == []
    assert files(shared) == ([f"{S}.lock"] if other else [])
    if other:
        assert other.is_in_place()
        other.release()
    assert files(shared) == []


async def test_all_locks_or_none(tmp_path: Path) -> None:
    """Agents that share one of the folders exclude each other, and a refused one holds nothing."""
    shared, mine, other = (tmp_path / name for name in ("shared", "mine", "other"))
    for folder in (shared, mine, other):
        folder.mkdir()
    first = await lock_in_all([mine, shared], S, bound=0)
    with pytest.raises(InternalError, match="this agent"):
        await lock_in_all([other, shared], S, bound=0)
    assert files(other) == []
    first.release()
    assert files(mine) == files(shared) == []
    (await lock_in_all([other, shared], S, bound=0)).release()


async def test_a_link_to_the_folder_leads_to_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "link").symlink_to("config")
    real, linked = lock_folder(tmp_path / "config"), lock_folder(tmp_path / "link")
    assert real is not None
    assert linked is not None
    lock = await lock_session(real, S, bound=0)
    with pytest.raises(InternalError, match="this agent"):
        await lock_session(linked, S, bound=0)
    lock.release()


async def test_a_holder_in_another_container_is_not_named_by_a_pid_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be anybody's pid here."""
    lock = await lock_session(tmp_path, S, bound=0)
    monkeypatch.setattr(procfs, "pid_namespace", lambda _pid: "pid:[1]")
    with pytest.raises(InternalError, match="in another container or on another machine") as refused:
        await lock_session(tmp_path, S, bound=0)
    assert refused.value.data == {"holder": {"host": socket.gethostname()}}
    lock.release()


async def test_a_lock_that_cannot_be_signed_is_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes no text."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", full)
    lock = await lock_session(tmp_path, S, bound=0)
    with pytest.raises(InternalError, match="another process"):
        await lock_session(tmp_path, S, bound=0)
    lock.release()


def test_a_read_only_configuration_is_worked_with_and_has_no_lock_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code stores nothing there, so nothing is stored twice."""
    real = os.statvfs(tmp_path)
    read_only = os.statvfs_result((*tuple(real)[:8], real.f_flag | os.ST_RDONLY, *tuple(real)[9:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: read_only)
    require_config_dir({"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert lock_folder(tmp_path) is None
    assert files(tmp_path) == []
    monkeypatch.setattr(os, "statvfs", lambda _path: real)
    assert lock_folder(tmp_path) == tmp_path / "acp-adapters"


def test_a_configuration_that_cannot_hold_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "acp-adapters").write_text("x")
    with pytest.raises(InternalError, match=r"acp-adapters .*cannot be used"):
        lock_folder(tmp_path)
