"""Starts Claude Code on a session: the files that it needs, the record of it, and the place of its stored session.

Owns the files beside a session's lock. Knows no turn, and no frame except the first answer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.framing import encode
from adapters.claude.bounds import Bounds
from adapters.claude.cli import orphans, program
from adapters.claude.cli.config_dir import config_dir
from adapters.claude.cli.lock import SessionLocks, lock_in_all, rival_error
from adapters.claude.cli.process import ClaudeProcess, ControlError, spawn
from adapters.claude.cli.state_dir import lock_folder, private_file, state_folder
from adapters.claude.stored.session_files import Files, find_files
from adapters.core.file_calls import in_thread, in_thread_without, real_path, stat
from adapters.core.port import SessionSetup
from adapters.driver.uuids import UUID
from adapters.driver.version import lacking, version_of
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_TIDY_BOUND: Final = 1.0
"""Seconds that removing a file of ours may take: one that stays does no harm."""

_OURS: Final = re.compile(rf"\.?({UUID})\.(?:lock|(?:mcp|runtime)\.json(?:\.\d+)?)")
"""Files of one session in the state folder, drafts included: what a killed agent leaves of it."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How sessions of this process are started."""

    environ: Mapping[str, str]
    folder: Path
    """The state folder."""
    bounds: Bounds

    @property
    def plans(self) -> Path:
        """Where Claude Code keeps the plans of all sessions."""
        return config_dir(self.environ) / "plans"

    async def lock(self, session_id: str, *, bound: float) -> SessionLocks:
        """Make a session this process's own. Raises `InternalError` that names the holder, or what cannot be used."""
        return await lock_in_all(await self._lock_folders(), session_id, bound=bound)

    async def _lock_folders(self) -> list[Path]:
        beside = await in_thread(partial(lock_folder, config_dir(self.environ)))
        return [self.folder, *([beside] if beside else [])]

    async def holds(self, locks: SessionLocks) -> bool:
        """Whether the session is still this process's own: anybody can remove the lock files. False where nobody can say."""
        try:
            return await in_thread(locks.are_in_place)
        except OSError:
            return False

    async def lock_again(self, locks: SessionLocks, session_id: str) -> None:
        """Make it this process's own again. Raises `AcpError` that names another holder, or what cannot be used.

        Others were free to come and go. What one left that was killed is ended: afterwards only this agent writes.
        """
        await in_thread(partial(state_folder, self.environ))
        await locks.take_again(await self._lock_folders(), session_id)
        _log.warning(LogEvent("the lock files of a session were removed; it is locked again", session=session_id))
        await orphans.end_abandoned(session_id)

    def files(self, session_id: str, cwd: str, *, made_here: bool = False) -> Files:
        """The files of the stored session, none when there is none (yet). Blocks; raises as `find_files`."""
        return find_files(config_dir(self.environ), session_id, cwd, made_here=made_here)

    def _stored_size(self, session_id: str, cwd: str) -> int:
        try:
            path = self.files(session_id, cwd).used
            return stat(path).st_size if path else 0
        except OSError:
            return 0

    async def spawn(self, session_id: str, setup: SessionSetup, *, resume: bool) -> ClaudeProcess:
        """Start the process; the caller runs it, and calls `initialize`.

        Raises `InternalError` when it cannot be started.
        """
        found = program.find_claude(self.environ)
        if found is None:
            raise InternalError(program.missing_text(self.environ))
        mcp_config = self._mcp_file(session_id) if setup.mcp_servers else None
        argv = program.arguments(session_id, setup, resume=resume, mcp_config=mcp_config)
        env = program.child_environment(self.environ, session_id, setup.cwd)
        env[program.AGENT] = orphans.agent_mark()
        try:
            if mcp_config:
                servers = program.mcp_configuration(setup.mcp_servers)
                await in_thread(partial(private_file, mcp_config, encode(servers)))
            await in_thread(
                partial(real_path, setup.cwd)
            )  # the start itself would wait for a folder that does not answer
            process = await spawn([str(found.path), *argv], cwd=setup.cwd, env=env)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the environment or in a path
            await self._remove_mcp_file(session_id)
            reason = error.strerror if isinstance(error, OSError) else None
            cause = reason or "its environment is malformed"
            what = f"Claude Code cannot be started in {setup.cwd} ({cause}): run `acp-adapters doctor`."
            raise InternalError(what) from None
        with suppress(OSError):  # without it the mark finds the process, too
            await in_thread(partial(orphans.record, self.folder, session_id, process.pid))
        return process

    async def initialize(self, process: ClaudeProcess, session_id: str, cwd: str, *, resume: bool) -> Mapping[str, Any]:
        """Wait until the CLI is ready; its answer. Raises `AcpError` that says why it is not; the caller stops it then."""
        history = await in_thread_without(partial(self._stored_size, session_id, cwd)) if resume else 0
        try:
            bound = self.bounds.initialize + history / self.bounds.history_per_second
            return await process.request("initialize", bound=bound, hooks=None)
        except ControlError as error:
            if refused := process.refused:
                raise await self._lacking(refused, process.exit_code) from None
            said = process.last_words
            reason = f"its last output: {said}" if said else f"{error}, no output"
            raise start_error(reason, process.exit_code) from None
        finally:
            await self._remove_mcp_file(session_id)

    async def _lacking(self, refused: str, exit_code: int | None) -> AcpError:
        """The error when Claude Code refuses our arguments: its version, and the version that takes them."""
        found = program.find_claude(self.environ)
        version = await version_of(found.path, self.environ) if found else ""
        text = lacking("Claude Code", version, program.TESTED, refused)
        return InternalError(f"Claude Code did not start: {text}.", _start_data(exit_code))

    async def end_predecessors(self, session_id: str) -> None:
        """End what an agent before us left working on the session. Raises `AcpError` when that does not succeed."""
        if rival := await in_thread(partial(orphans.find_rival, config_dir(self.environ), session_id)):
            raise rival_error(session_id, rival)
        await self._remove_mcp_file(session_id)
        await orphans.end_orphans(self.folder, session_id)

    async def gone(self, session_id: str) -> None:
        """The process of the session is gone. Returns within a second."""
        await _tidy(partial(orphans.forget, self.folder, session_id))

    def _mcp_file(self, session_id: str) -> Path:
        return self.folder / f"{session_id}.mcp.json"

    async def _remove_mcp_file(self, session_id: str) -> None:
        await _tidy(partial(self._mcp_file(session_id).unlink, missing_ok=True))

    def left_sessions(self) -> set[str]:
        """Sessions with files in the state folder: they are active right now, or their agent was killed."""
        with suppress(OSError):
            return {found[1] for path in self.folder.iterdir() if (found := _OURS.fullmatch(path.name))}
        return set()

    async def clear_left(self, session_id: str) -> None:
        """End what a killed agent left of a session, processes and files. The caller holds the session's lock, and releases it.

        Raises `AcpError` when a process does not end.
        """
        files = await in_thread(partial(self._remove_left, session_id, ".mcp."))  # secrets first
        if any(".runtime." in name for name in files):
            await orphans.end_orphans(self.folder, session_id)
        await in_thread(partial(self._remove_left, session_id, "json"))

    def _remove_left(self, session_id: str, which: str) -> list[str]:
        """Remove the files of the session with this in their names; gives the names of all."""
        names = [path.name for path in self.folder.iterdir()]
        ours = [name for name in names if (found := _OURS.fullmatch(name)) and found[1] == session_id]
        for name in ours:
            if which in name:
                (self.folder / name).unlink(missing_ok=True)
        return ours


async def _tidy(call: Callable[[], None]) -> None:
    """Do what can be done later, too: a folder that does not answer gets a second, whatever ends the caller."""
    with anyio.move_on_after(_TIDY_BOUND, shield=True), suppress(OSError):
        await in_thread(call)


def start_error(reason: str, exit_code: int | None) -> AcpError:
    """Claude Code is there and does not start."""
    return InternalError(
        f"Claude Code did not start ({reason}): run `claude` in a terminal to see what it needs.",
        _start_data(exit_code),
    )


def _start_data(exit_code: int | None) -> dict[str, Any]:
    return {"category": "start", **({} if exit_code is None else {"exitCode": exit_code})}
