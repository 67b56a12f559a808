"""Claude Code behind the port: makes, opens, lists and deletes sessions.

Owns the order in which a session becomes active: lock, end of predecessors, look into the store, process. Knows no frame.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup, TaskStatus

from adapters.acp.errors import AcpError, InternalError, ResourceNotFound
from adapters.claude.bounds import Bounds
from adapters.claude.cli.config_dir import config_dir, require_config_dir, settled
from adapters.claude.cli.launch import Launcher
from adapters.claude.cli.lock import SessionLocks, give_back
from adapters.claude.cli.program import FEATURES
from adapters.claude.cli.state_dir import state_folder
from adapters.claude.session import ClaudeSession
from adapters.claude.show.edited_files import KnownChanges
from adapters.claude.stored import listing
from adapters.core.file_calls import in_thread, in_thread_without, open_file
from adapters.core.port import NOT_STORED, EventSink, Features, SessionPage, SessionSetup
from adapters.driver.uuids import is_uuid


class ClaudeRuntime:
    """All sessions of Claude Code in this process. `tasks` must outlive them: `aclose` comes before its end."""

    features: Features = FEATURES

    def __init__(
        self, tasks: TaskGroup, environ: Mapping[str, str] | None = None, bounds: Bounds | None = None
    ) -> None:
        """Raises `InternalError` when the environment names no folder that Claude Code's sessions could be in."""
        self._tasks = tasks
        self.bounds = bounds or Bounds()
        """For what is opened from now on."""
        self._environ = settled(os.environ if environ is None else environ)
        self._sessions: set[ClaudeSession] = set()
        self._swept = False
        self._known = KnownChanges()

    async def new_session(self, setup: SessionSetup, sink: EventSink) -> ClaudeSession:
        """A session under a fresh id, with its process started. Raises `AcpError` that says why it cannot start."""
        launcher = await self._launcher()
        session_id = str(uuid4())
        lock = await launcher.lock(session_id, bound=self.bounds.lock)
        session = await self._activate(session_id, setup, sink, launcher, lock, made_here=True)
        async with _or_closed(session):
            await session.started()
        return session

    async def open_session(self, session_id: str, setup: SessionSetup, sink: EventSink) -> ClaudeSession:
        """Make a stored session active: no other agent and no left-over process works on it (D6). Its process starts.

        Raises `ResourceNotFound`, or `AcpError` that names another holder or says why it cannot start.
        """
        if not is_uuid(session_id):  # with another text, `--resume` searches titles
            raise ResourceNotFound(session_id, NOT_STORED)
        launcher = await self._launcher()
        lock = await launcher.lock(session_id, bound=self.bounds.lock)
        try:
            await launcher.end_predecessors(session_id)
            await _require_stored(launcher, session_id, setup.cwd)
        except BaseException:
            await give_back(lock)
            raise
        return await self._activate(session_id, setup, sink, launcher, lock)

    async def _launcher(self) -> Launcher:
        """How a session is started. The first time, what agents that were killed left behind is removed in the background."""
        await in_thread(partial(require_config_dir, self._environ))
        launcher = Launcher(self._environ, await in_thread(partial(state_folder, self._environ)), self.bounds)
        if not self._swept:
            self._swept = True
            left = await in_thread(launcher.left_sessions)
            self._tasks.start_soon(self._sweep, launcher, left)
        return launcher

    async def _sweep(self, launcher: Launcher, sessions: Iterable[str]) -> None:
        """Nobody resumes a new session whose agent was killed before its answer: this is all that cleans up after it."""
        for session_id in sessions:
            with suppress(AcpError, OSError):  # its agent lives; or the next agent may succeed
                lock = await launcher.lock(session_id, bound=0)
                try:
                    await launcher.clear_left(session_id)
                finally:
                    await give_back(lock)

    async def _activate(
        self,
        session_id: str,
        setup: SessionSetup,
        sink: EventSink,
        launcher: Launcher,
        lock: SessionLocks,
        *,
        made_here: bool = False,
    ) -> ClaudeSession:
        session = ClaudeSession(session_id, setup, sink, launcher, lock, known=self._known, made_here=made_here)
        with anyio.CancelScope(shield=True):
            await self._tasks.start(self._host, session)
        async with _or_closed(session):
            await session.start()
        return session

    async def _host(self, session: ClaudeSession, *, task_status: TaskStatus[None]) -> None:
        self._sessions.add(session)
        try:
            await session.tasks.run(task_status=task_status)
        finally:
            self._sessions.discard(session)

    async def list_sessions(self, cwd: str | None, cursor: str | None) -> SessionPage:
        """Stored sessions, newest first. Raises `InvalidParams` for a cursor that is not ours."""
        return await in_thread_without(partial(listing.list_page, config_dir(self._environ), cwd, cursor))

    async def delete_session(self, session_id: str) -> None:
        """Remove a stored session; a missing one is success. Raises `AcpError` that names an agent that has it active."""
        if not is_uuid(session_id):
            return
        launcher = Launcher(self._environ, await in_thread(partial(state_folder, self._environ)), self.bounds)
        lock = await launcher.lock(session_id, bound=self.bounds.lock)
        try:
            await launcher.end_predecessors(session_id)
            await in_thread_without(partial(listing.delete, config_dir(self._environ), session_id))
        except OSError as error:
            text = f"The stored session cannot be deleted ({error.strerror}): make {error.filename} writable, then try again."
            raise InternalError(text) from None
        finally:
            await give_back(lock)

    async def aclose(self) -> None:
        """Close what is still active, all at once."""
        async with anyio.create_task_group() as tasks:
            for session in list(self._sessions):
                tasks.start_soon(session.close)


@asynccontextmanager
async def _or_closed(session: ClaudeSession) -> AsyncGenerator[None]:
    """A session that does not come up is closed."""
    try:
        yield
    except BaseException:
        await session.close()
        raise


async def _require_stored(launcher: Launcher, session_id: str, cwd: str) -> None:
    try:
        stored = await in_thread_without(partial(_is_stored, launcher, session_id, cwd))
    except OSError as error:
        raise InternalError(
            f"The stored session cannot be read ({error.strerror}): correct that, then resume it again."
        ) from None
    if not stored:
        raise ResourceNotFound(session_id, NOT_STORED)


def _is_stored(launcher: Launcher, session_id: str, cwd: str) -> bool:
    used = launcher.files(session_id, cwd).used
    if used:
        open_file(used).close()  # of one that cannot be read Claude Code would say that there is no such session
    return used is not None
