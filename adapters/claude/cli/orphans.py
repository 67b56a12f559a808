"""Claude Code processes that outlived their agent: found by our mark or record, ended, and waited for (D6, ADP-15).

After `kill -9` of an agent, its Claude Code continues to the end of the turn and can store a prompt after the next agent has
looked. Owns the record of the process that serves a session, the proof that its agent is dead, and how the process is ended for
certain. Works only under the session's lock. Never touches a `claude` that the user started: it has neither our mark nor our
record. Never touches a process whose agent may live: agents with another configuration, state folder or container can have a
session of this name.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.shapes import as_count, as_mapping
from adapters.claude.cli.config_dir import VARIABLE
from adapters.claude.cli.config_dir import config_dir as config_dir_of
from adapters.claude.cli.program import AGENT, MARK
from adapters.claude.cli.state_dir import private_file
from adapters.core.file_calls import StuckError, in_thread, read_file, stat
from adapters.driver import procfs
from adapters.driver.env_folders import HOME
from adapters.driver.procfs import Process
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_TERM_BOUND: Final = 0.5
"""Seconds from TERM to KILL. Measured: a process whose agent is dead takes 2 to 3 s to end by TERM alone."""
_KILL_BOUND: Final = 3.0
"""Seconds from KILL until the process must be gone; longer only in uninterruptible sleep."""
_LOOK_EVERY: Final = 0.01
_LONGEST: Final = 4096


def record(folder: Path, session_id: str, pid: int) -> None:
    """Note which process serves the session. Raises `OSError`."""
    private_file(_file(folder, session_id), json.dumps({"pid": pid, "start": procfs.start_time(pid)}).encode())


def forget(folder: Path, session_id: str) -> None:
    """The process of the session is gone."""
    with suppress(OSError):
        _file(folder, session_id).unlink()


async def end_orphans(folder: Path, session_id: str) -> None:
    """End what serves the session from before, with its children; return when it is gone.

    Raises `InternalError` when it does not go: then nobody can say what the stored session will hold.
    """
    try:
        await _end_all(session_id, await in_thread(partial(find_orphans, folder, session_id)))
        await in_thread(partial(forget, folder, session_id))
    except StuckError as stuck:
        raise InternalError(f"The state folder {folder} cannot be looked into: {stuck.strerror}.") from None


async def end_abandoned(session_id: str) -> None:
    """The same where the caller's own Claude Code serves the session: it stays, and so does whatever has a living agent."""
    await _end_all(session_id, [found for found in _serving(session_id) if _is_abandoned(found, session_id)])


async def _end_all(session_id: str, orphans: Iterable[Process]) -> None:
    for orphan in orphans:
        _log.warning(
            LogEvent("ending a Claude Code process that an earlier agent left", session=session_id, pid=orphan.pid)
        )
        await end([orphan, *procfs.family(orphan.pid)])
        if orphan.alive:
            raise InternalError(
                f"Process {orphan.pid} still works on session {session_id} and does not end: end it, then try again."
            )


def find_orphans(folder: Path, session_id: str) -> list[Process]:
    """Living Claude Codes of ours on this session whose agent is dead for certain.

    They have the session id as an argument. Either the record names them: who wrote it held the lock that the caller holds now.
    Or they are marked, and the agent that they name has ended.
    """
    recorded: tuple[int, int] | None = None
    with suppress(OSError, ValueError):
        entry = as_mapping(json.loads(read_file(_file(folder, session_id), _LONGEST)))
        recorded = as_count(entry.get("pid")), as_count(entry.get("start"))
    return [
        process
        for process in _serving(session_id)
        if (process.pid, process.start) == recorded or _is_abandoned(process, session_id)
    ]


def _is_abandoned(process: Process, session_id: str) -> bool:
    return procfs.has_variable(process.pid, MARK, session_id) and _agent_is_dead(process.pid)


def _serving(session_id: str) -> Iterator[Process]:
    """Every process that is told to work on this session, marked or not."""
    return (found for found in procfs.everybody() if found.pid != os.getpid() and _serves(found.pid, session_id))


def find_rival(config_dir: Path, session_id: str) -> int:
    """The agent whose Claude Code works on this very session, although the caller holds its lock; 0 when none can be seen.

    Its lock file was removed under it. Blocks for a moment.
    """
    for process in _serving(session_id):
        agent, start = _agent_of(process.pid)
        lives = agent not in (0, os.getpid()) and procfs.start_time(agent) == start
        if lives and procfs.has_variable(process.pid, MARK, session_id) and _works_in(process.pid, config_dir):
            return agent
    return 0


def _works_in(pid: int, config_dir: Path) -> bool:
    """Whether this is the folder that the process has its sessions in: a copy of it is another one."""
    told = {name: procfs.variable(pid, name) or "" for name in (VARIABLE, HOME)}
    try:
        its, ours = stat(f"/proc/{pid}/root{config_dir_of(told)}"), stat(config_dir)
    except (OSError, AcpError):
        return False
    return (its.st_dev, its.st_ino) == (ours.st_dev, ours.st_ino)


def agent_mark() -> str:
    """The agent's pid and start time, as its processes carry them for those who find them."""
    return f"{os.getpid()}:{procfs.start_time(os.getpid())}"


def _agent_is_dead(pid: int) -> bool:
    """Whether the agent that started the process has ended; False where that is unknown, as between containers."""
    agent, start = _agent_of(pid)
    return agent > 0 and procfs.start_time(agent) != start


def _agent_of(pid: int) -> tuple[int, int]:
    """Pid and start time of the agent that started the process; zeros where they are unknown."""
    agent, _, start = (procfs.variable(pid, AGENT) or "").partition(":")
    namespace = procfs.pid_namespace(pid)
    if not (agent.isdecimal() and start.isdecimal() and namespace and namespace == procfs.pid_namespace(os.getpid())):
        return 0, 0
    return int(agent), int(start)


async def end_marked(session_id: str) -> None:
    """End what a Claude Code that died by itself left running of the session: its tools and their children."""
    marked = [process for process in procfs.everybody() if procfs.has_variable(process.pid, MARK, session_id)]
    if marked:
        await end(marked)


def _serves(pid: int, session_id: str) -> bool:
    wanted = {f"--session-id={session_id}".encode(), f"--resume={session_id}".encode()}
    return not wanted.isdisjoint(procfs.command_line(pid))


async def end(processes: Iterable[Process], *, term_bound: float = _TERM_BOUND) -> None:
    """TERM, then KILL, each with the process group where it leads one; return when all are gone or the bound is over."""
    left = _send(processes, signal.SIGTERM)
    with anyio.move_on_after(term_bound):
        left = await gone(left)
    await kill(left)


async def kill(processes: Iterable[Process]) -> None:
    """KILL at once; return when all are gone or the bound is over."""
    left = _send(processes, signal.SIGKILL)
    with anyio.move_on_after(_KILL_BOUND):
        await gone(left)


def _send(processes: Iterable[Process], number: signal.Signals) -> list[Process]:
    """Signal those that still live, and give them."""
    living = [process for process in processes if process.alive]
    for process in living:
        with suppress(ProcessLookupError, PermissionError):
            if process.group == process.pid:
                os.killpg(process.pid, number)
            else:
                os.kill(process.pid, number)
    return living


async def gone(processes: list[Process]) -> list[Process]:
    """Return when none of them lives: always an empty list."""
    # They are not our children: there is no event to wait for.
    while processes := [process for process in processes if process.alive]:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_EVERY)
    return processes


def _file(folder: Path, session_id: str) -> Path:
    return folder / f"{session_id}.runtime.json"
