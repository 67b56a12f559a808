"""What a crashed agent left behind is ended; nothing else is (D6, ADP-15)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.claude.cli import orphans
from adapters.claude.cli.program import AGENT, MARK
from adapters.driver import procfs

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

S = "0b6d6b4e-8f39-4c57-9d2c-111111111111"
WAIT = "import time; print('up', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT}"
PARENT = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True); "

started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    yield
    while started:
        process = started.pop()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


DEAD = "1:0"
"""An agent that has ended: another process has its pid."""


def start(code: str, *arguments: str, mark: str | None = None, agent: str | None = DEAD, **told: str) -> procfs.Process:
    env = {name: value for name, value in os.environ.items() if name not in (MARK, AGENT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**env, **told, **({MARK: mark} if mark else {}), **({AGENT: agent} if agent else {})},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    found = procfs.look(process.pid)
    assert found is not None
    return found


async def test_a_marked_process_on_the_session_is_ended(tmp_path: Path) -> None:
    orphan = start(WAIT, f"--resume={S}", mark=S)
    assert orphans.find_orphans(tmp_path, S) == [orphan]
    await orphans.end_orphans(tmp_path, S)
    assert not orphan.alive


async def test_a_process_whose_agent_lives_is_left_alone(tmp_path: Path) -> None:
    """Of another configuration, say: nobody records it here, and nobody here may end it."""
    process = start(WAIT, f"--resume={S}", mark=S, agent=orphans.agent_mark())
    await orphans.end_orphans(tmp_path, S)
    assert process.alive


@pytest.mark.parametrize("agent", [None, "", "x", "7:", ":7", "1:None"])
async def test_a_process_that_names_no_agent_is_left_alone(tmp_path: Path, agent: str | None) -> None:
    process = start(WAIT, f"--resume={S}", mark=S, agent=agent)
    await orphans.end_orphans(tmp_path, S)
    assert process.alive


async def test_a_pid_of_another_namespace_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container pid 1 is another process than here."""
    process = start(WAIT, f"--resume={S}", mark=S)
    monkeypatch.setattr(procfs, "pid_namespace", lambda pid: f"pid:[{pid}]")
    await orphans.end_orphans(tmp_path, S)
    assert process.alive


async def test_a_recorded_process_on_the_session_is_ended_without_a_mark(tmp_path: Path) -> None:
    orphan = start(WAIT, f"--session-id={S}")
    orphans.record(tmp_path, S, orphan.pid)
    await orphans.end_orphans(tmp_path, S)
    assert not orphan.alive
    assert not orphans._file(tmp_path, S).exists()


async def test_one_that_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    orphan = start(PARENT + DEAF, f"--resume={S}", mark=S)
    family = procfs.family(orphan.pid)
    assert len(family) == 1
    await orphans.end_orphans(tmp_path, S)
    assert not orphan.alive
    assert not family[0].alive


async def test_the_users_own_claude_is_left_alone(tmp_path: Path) -> None:
    """Neither the session id alone nor the mark alone makes it ours; nor does a record of another process with its pid."""
    users = start(WAIT, f"--resume={S}")
    other = start(WAIT, f"--resume={S.replace('1', '2')}", mark=S.replace("1", "2"))
    server = start(WAIT, mark=S)
    (tmp_path / f"{S}.runtime.json").write_text(f'{{"pid": {users.pid}, "start": {users.start - 1}}}')
    assert orphans.find_orphans(tmp_path, S) == []
    await orphans.end_orphans(tmp_path, S)
    assert users.alive
    assert other.alive
    assert server.alive


@pytest.mark.parametrize("content", ["", "[]", '{"pid": "x"}', '{"pid": 1', "null"])
async def test_a_torn_record_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / f"{S}.runtime.json").write_text(content)
    assert orphans.find_orphans(tmp_path, S) == []
    await orphans.end_orphans(tmp_path, S)


async def test_what_a_dead_runtime_left_running_is_ended_by_its_mark() -> None:
    tool, other = start(DEAF, mark=S), start(WAIT)
    await orphans.end_marked(S)
    assert not tool.alive
    assert other.alive


def test_a_zombie_and_a_reused_pid_are_not_alive() -> None:
    process = start(WAIT)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    assert not procfs.Process(os.getpid(), 1, 1, 1).alive
    assert procfs.start_time(2**22 + 1) is None
    assert procfs.command_line(2**22 + 1) == []
    assert not procfs.has_variable(2**22 + 1, MARK, S)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_living_agent_that_works_on_the_very_session_is_seen(tmp_path: Path, elsewhere: bool) -> None:
    """Not one that works on a session of this name in another folder, as in a copy of the first."""
    agent = start(WAIT, agent=None)
    config, copy = tmp_path / "config", tmp_path / "copy"
    for folder in (config, copy):
        folder.mkdir()
    assert orphans.find_rival(config, S) == 0
    told = {"CLAUDE_CONFIG_DIR": str(copy if elsewhere else config)}
    start(WAIT, f"--resume={S}", mark=S, agent=f"{agent.pid}:{agent.start}", **told)
    assert orphans.find_rival(config, S) == (0 if elsewhere else agent.pid)
    await orphans.end_abandoned(S)
    assert orphans.find_rival(config, S) == (0 if elsewhere else agent.pid)


async def test_a_process_without_a_living_agent_is_no_rival(tmp_path: Path) -> None:
    orphan = start(WAIT, f"--resume={S}", mark=S, CLAUDE_CONFIG_DIR=str(tmp_path))
    assert orphans.find_rival(tmp_path, S) == 0
    await orphans.end_abandoned(S)
    assert not orphan.alive
