"""Codex behind the port: makes, opens, lists and deletes sessions, all in one app-server.

Owns the order in which a session becomes active. Knows no turn.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from adapters.acp.errors import InternalError, ResourceNotFound
from adapters.acp.schema import dump
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex import mcp_servers
from adapters.codex.bounds import Bounds
from adapters.codex.server.process import AppServer, Gone, RequestFailed
from adapters.codex.server.program import FEATURES
from adapters.codex.server.shared import Host
from adapters.codex.session import CodexSession
from adapters.codex.show.live import samples
from adapters.codex.thread import archive, requests
from adapters.core.file_calls import in_thread, in_thread_without
from adapters.core.port import NOT_STORED, EventSink, Features, SessionPage, SessionSetup
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_ANSWERED_AFTER: Final = 8
"""Rounds of the event loop in which the answer with a new session is written (measured: 5). Models are built behind it."""


@dataclass(eq=False, slots=True)
class _Opening:
    """A session that is being made or loaded."""

    over: anyio.Event = field(default_factory=anyio.Event)
    session: CodexSession | None = None
    error: Exception | None = None
    abandoned: bool = False
    """Nobody waits for it any more."""


class CodexRuntime:
    """All sessions of Codex in this process. `tasks` must outlive them: `aclose` comes before its end."""

    features: Features = FEATURES

    def __init__(
        self,
        tasks: TaskGroup,
        environ: Mapping[str, str] | None = None,
        host: Host | None = None,
        *,
        bounds: Bounds | None = None,
    ) -> None:
        """`host`: one that was prepared before this module was imported; it has the same `tasks`, `environ` and `bounds`."""
        self._tasks = tasks
        self._sessions: set[CodexSession] = set()
        if host is None:
            host = Host(tasks, dict(os.environ if environ is None else environ), bounds)
            tasks.start_soon(host.prepare)  # while the client has not asked for a session yet
        self._host = host
        self._built = False

    async def new_session(self, setup: SessionSetup, sink: EventSink) -> CodexSession:
        """A session under a fresh id. Raises `AcpError` that says why it cannot start."""
        return await self._see_through(lambda: self._make(setup, sink))

    async def _see_through(self, work: Callable[[], Awaitable[CodexSession]]) -> CodexSession:
        """The session that `work` gives, begun.

        Codex does what it was asked for, whoever stops waiting for it: then the session is closed as soon as it is there, or its
        thread would stay loaded, and locked, with nobody to close it (RESUME-7, D6).
        """
        opening = _Opening()
        self._tasks.start_soon(self._open, opening, work)
        try:
            await opening.over.wait()
        except BaseException:
            opening.abandoned = True
            if opening.session:
                self._tasks.start_soon(self._give_back, opening.session)
            raise
        if opening.session is None:
            raise opening.error or InternalError("The agent is ending.")
        await self._begin(opening.session)
        return opening.session

    async def _open(self, opening: _Opening, work: Callable[[], Awaitable[CodexSession]]) -> None:
        try:
            with self._host.in_use():
                opening.session = await work()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            opening.error = error
        finally:
            opening.over.set()
        if opening.abandoned and opening.session:
            await self._give_back(opening.session)

    async def _give_back(self, session: CodexSession) -> None:
        if self._host.has(session):  # else it was opened once more meanwhile, and is somebody else's to close
            await self._begin(session)
            await session.close()

    async def _make(self, setup: SessionSetup, sink: EventSink) -> CodexSession:
        try:
            try:
                made = await self._make_in(await self._host.server(), setup, sink)
            except Gone:  # it died of something else: once more, with another one
                made = await self._make_in(await self._host.server(), setup, sink)
        except RequestFailed as failed:
            raise requests.failed_error("Codex cannot start a session", failed) from None
        if made is None:
            raise InternalError("Codex cannot start a session: it gave no thread id.")
        return made

    async def _make_in(self, server: AppServer, setup: SessionSetup, sink: EventSink) -> CodexSession | None:
        made: list[CodexSession] = []
        keys = await mcp_servers.keyed(server, setup)

        def take(answer: Mapping[str, Any]) -> None:
            session_id = as_text(as_mapping(answer.get("thread")).get("id"))
            if session_id:
                session = CodexSession(session_id, setup, sink, self._host)
                self._host.join(session)  # before anything that Codex says of it
                session.made(server, answer, keys)
                made.append(session)

        params = await in_thread_without(partial(requests.start_params, setup, self._host.home, keys))
        await server.request("thread/start", params, bound=self._host.bounds.start, then=take)
        return made[0] if made else None

    async def open_session(self, session_id: str, setup: SessionSetup, sink: EventSink) -> CodexSession:
        """A stored session made active: nobody else works on it (Codex's own lock, D6).

        Raises `ResourceNotFound`, or `AcpError` that tells of another holder or says why it cannot be opened.
        """
        if not requests.is_thread_id(session_id):
            raise ResourceNotFound(session_id, NOT_STORED)
        session = CodexSession(session_id, setup, sink, self._host)

        async def load() -> CodexSession:
            self._host.join(session)
            try:
                await session.open()
            except BaseException:
                self._host.leave(session)
                raise
            return session

        return await self._see_through(load)

    async def _begin(self, session: CodexSession) -> None:
        with anyio.CancelScope(shield=True):
            await self._tasks.start(session.tasks.run)
        self._sessions = {known for known in self._sessions if not known.tasks.ended} | {session}
        session.begin()
        if not self._built:
            self._built = True
            self._tasks.start_soon(_build_models)  # while the user thinks

    async def list_sessions(self, cwd: str | None, cursor: str | None) -> SessionPage:
        """Stored sessions, newest first. Raises `InvalidParams` for a cursor that is not Codex's."""
        with self._host.in_use():
            server = await self._host.server()
            page = await requests.list_page(server, cwd, cursor)
            lost = await self._lost() if cursor is None else None
            if not lost:
                return page
            try:
                found = await requests.list_lost(server, cwd, lost)
            except RequestFailed as failed:
                _log.warning(
                    LogEvent("threads that are lost between folders cannot be listed", error=type(failed).__name__)
                )
                return page
            rows = {row.session_id: row for row in (*page.sessions, *found)}.values()
            return replace(page, sessions=sorted(rows, key=lambda row: row.updated_at or "", reverse=True))

    async def _lost(self) -> archive.Lost | None:
        try:
            return await in_thread(partial(archive.lost, self._host.home))
        except OSError as error:
            _log.warning(LogEvent("the archive of threads cannot be looked into", error=type(error).__name__))
            return None

    async def delete_session(self, session_id: str) -> None:
        """Remove a stored session; a missing one is success. Raises `AcpError` that tells of another holder."""
        if not requests.is_thread_id(session_id):
            return
        with self._host.in_use():
            await requests.delete(await self._host.server(), session_id, self._host.home)

    async def aclose(self) -> None:
        """Close what is still active, all at once, and end the app-server."""
        async with anyio.create_task_group() as tasks:
            for session in self._sessions:
                tasks.start_soon(session.close)
        self._sessions.clear()
        await self._host.aclose()


async def _build_models() -> None:
    for _ in range(_ANSWERED_AFTER):
        await anyio.lowlevel.checkpoint()
    for update in samples():
        dump(update)
        await anyio.lowlevel.checkpoint()
