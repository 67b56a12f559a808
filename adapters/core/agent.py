"""The agent: one method per ACP method, runtime-neutral.

Owns the active sessions and which connection each is active on. Knows the port; no stdio, no runtime by name.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Any, cast

import anyio

from adapters.acp import schema
from adapters.acp.calls import IncomingRequest
from adapters.acp.errors import AcpError, InternalError, InvalidParams, MethodNotFound, ResourceNotFound
from adapters.core.file_calls import StuckError, in_thread, real_path, stat
from adapters.core.peer import Peer
from adapters.core.port import Features, Runtime, RuntimeSession, SessionSetup
from adapters.core.prompt_errors import not_inserted
from adapters.core.server_keys import LONGEST, spelled
from adapters.core.session import ClosedMeanwhile, Session
from adapters.log import LogEvent

_log = logging.getLogger(__name__)

_RESUME_TRIES = 3
"""How often a resume opens a session anew that others close at the same time."""
_SHUTDOWN_BOUND = 0.2
"""Seconds that work gets to end by its interrupt when the whole agent ends: no client is there to see how it ends."""


Method = Callable[[Peer, IncomingRequest, str, Mapping[str, Any]], None]
"""Starts what a request asks for. Also given its method and params in the core's words."""


class Agent:
    """All sessions of one runtime in this process."""

    def __init__(self, runtime: Runtime, features: Features, spawn: Callable[..., object]) -> None:
        self._runtime = runtime
        self._features = features
        self._spawn = spawn
        self._sessions: dict[str, Session] = {}
        self._members: dict[str, set[Peer]] = {}
        self._resuming: dict[str, anyio.Lock] = {}
        self._ending = False
        self._requests: Mapping[str, Method] = {
            "session/prompt": self._prompt,
            "session/new": self._async(self._new),
            "session/resume": self._async(self._resume),
            "session/list": self._async(self._list),
            "session/close": self._async(self._close),
            "session/set_config_option": self._set_config_option,
            "tool_call/cancel": self._not_cancellable,
            "terminal/cancel": self._not_cancellable,
            **({"session/delete": self._async(self._delete)} if features.delete else {}),
        }

    def handle_request(self, peer: Peer, request: IncomingRequest) -> None:
        """Start the method of a request, in the order of receipt. Raises what the request is to be answered with."""
        name, params = peer.read(request.method, request.params)
        method = self._requests.get(name)
        if method is None:
            raise MethodNotFound(request.method)
        method(peer, request, name, params)

    def handle_notification(self, peer: Peer, method: str, params: Any) -> None:
        """`session/cancel`; anything else is ignored (RPC-13, ERR-6, MAL-2)."""
        try:
            name, params = peer.read(method, params)
            if name != "session/cancel":
                return
            cancel = cast(schema.CancelSession, schema.parse_params(name, params))
        except MethodNotFound:
            return
        except AcpError:
            _log.warning(LogEvent("malformed notification dropped", method=method))
            return
        with suppress(ResourceNotFound):
            self._active(peer, cancel.session_id).cancel()

    def disconnected(self, peer: Peer) -> None:
        """The connection ended: its sessions are not active on it any more. Their prompts and work go on."""
        for session_id, members in list(self._members.items()):
            if peer in members:
                members.discard(peer)
                session = self._sessions[session_id]
                session.detach(peer)
                self._retire_if_unattended(session)

    async def aclose(self) -> None:
        """Close all sessions at once, then the runtime."""
        self._ending = True
        async with anyio.create_task_group() as tasks:
            for session in list(self._sessions.values()):
                tasks.start_soon(self._finish, session, _SHUTDOWN_BOUND)
        await self._runtime.aclose()

    # --- methods -----------------------------------------------------------------------------------------------------

    def _prompt(self, peer: Peer, request: IncomingRequest, method: str, members: Mapping[str, Any]) -> None:
        try:
            params = cast(schema.Prompt, schema.parse_params(method, members))
            session = self._active(peer, params.session_id)
            self._check_blocks(params.prompt)
            session.prompt(peer.attempt(request), params.prompt, params.idempotency_key)
        except Exception as error:  # noqa: BLE001 - whatever refused it, it is not inserted
            raise not_inserted(error) from None

    async def _new(self, peer: Peer, method: str, members: Mapping[str, Any]) -> dict[str, Any]:
        params = cast(schema.NewSession, schema.parse_params(method, members))
        setup = await self._setup(params)
        session = Session(self._spawn, self._retire_if_unattended)
        self._begin(session, await self._runtime.new_session(setup, session), setup)
        self._activate(peer, session)
        return {"sessionId": session.session_id, **self._opened(session)}

    async def _resume(self, peer: Peer, method: str, members: Mapping[str, Any]) -> dict[str, Any]:
        params = cast(schema.ResumeSession, schema.parse_params(method, members))
        setup = await self._setup(params)
        async with self._one_resume(params.session_id):
            for tries_left in reversed(range(_RESUME_TRIES)):
                try:
                    async with self._opened_session(params.session_id, setup) as session:
                        await session.reconfigure(setup)
                        await session.synchronize(peer, replay=params.replay_from is not None)
                        self._activate(peer, session)
                    return self._opened(session)
                except ClosedMeanwhile as closed:
                    # Somebody else closed it, for everybody: this client's resume counts as the later one.
                    if peer in closed.closers or self._ending or not tries_left:
                        raise
        raise AssertionError

    @asynccontextmanager
    async def _opened_session(self, session_id: str, setup: SessionSetup) -> AsyncGenerator[Session]:
        """The session, for a client on its way in. One that is opened for it and fails it is closed again (RESUME-7)."""
        session = self._sessions.get(session_id)
        if session is not None and session.closing:
            await session.ended.wait()
            session = None
        opened = session is None
        if session is None:
            session = Session(self._spawn, self._retire_if_unattended)
            self._begin(session, await self._runtime.open_session(session_id, setup, session), setup)
        try:
            with session.joining():
                yield session
        except BaseException:
            if opened:
                await self._finish(session)
            raise

    async def _list(self, _peer: Peer, method: str, members: Mapping[str, Any]) -> dict[str, Any]:
        params = cast(schema.ListSessions, schema.parse_params(method, members))
        if params.cwd is not None and not Path(params.cwd).is_absolute():
            raise InvalidParams("cwd must be an absolute path.")
        page = await self._runtime.list_sessions(params.cwd, params.cursor)
        rows: list[dict[str, Any]] = []
        for stored in page.sessions:
            row: dict[str, Any] = {"sessionId": stored.session_id, "cwd": stored.cwd}
            if stored.title is not None:
                row["title"] = stored.title
            if stored.updated_at is not None:
                row["updatedAt"] = stored.updated_at
            rows.append(row)
        return {"sessions": rows, **({} if page.next_cursor is None else {"nextCursor": page.next_cursor})}

    async def _close(self, peer: Peer, method: str, members: Mapping[str, Any]) -> dict[str, Any]:
        params = cast(schema.CloseSession, schema.parse_params(method, members))
        session = self._sessions.get(params.session_id)
        if session is not None and peer in self._members.get(params.session_id, ()):
            await self._end(session, peer)
        return {}

    async def _delete(self, peer: Peer, method: str, members: Mapping[str, Any]) -> dict[str, Any]:
        params = cast(schema.DeleteSession, schema.parse_params(method, members))
        async with self._one_resume(params.session_id):
            if session := self._sessions.get(params.session_id):
                await self._end(session, peer)
            await self._runtime.delete_session(params.session_id)
        return {}

    def _set_config_option(
        self, peer: Peer, _request: IncomingRequest, method: str, members: Mapping[str, Any]
    ) -> None:
        params = cast(schema.SetConfigOption, schema.parse_params(method, members))
        self._active(peer, params.session_id)
        raise InvalidParams("This session has no such option: set only what its configOptions list.")

    def _not_cancellable(self, peer: Peer, _request: IncomingRequest, method: str, members: Mapping[str, Any]) -> None:
        params = schema.parse_params(method, members)
        self._active(peer, cast(str, getattr(params, "session_id")))  # noqa: B009 - both models have it
        raise InvalidParams(
            "A single tool call or terminal cannot be cancelled: use session/cancel to stop the session's work."
        )

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _begin(self, session: Session, runtime: RuntimeSession, setup: SessionSetup) -> None:
        session.begin(runtime, setup)
        self._sessions[session.session_id] = session
        self._spawn(session.run)

    def _activate(self, peer: Peer, session: Session) -> None:
        if not peer.closed:
            self._members.setdefault(session.session_id, set()).add(peer)
            session.attach(peer)
        self._retire_if_unattended(session)

    def _active(self, peer: Peer, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session.closing or peer not in self._members.get(session_id, ()):
            raise ResourceNotFound(session_id)
        return session

    @asynccontextmanager
    async def _one_resume(self, session_id: str) -> AsyncGenerator[None]:
        """Resumes and deletes of one session happen one after the other: a second resume finds it active (RESUME-5)."""
        lock = self._resuming.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not (lock.locked() or lock.statistics().tasks_waiting):
                self._resuming.pop(session_id, None)

    async def _end(self, session: Session, closer: Peer) -> None:
        """Close for everybody: a session has one runtime, and closing frees it (CLOSE-1, CLOSE-6, ERR-3).

        A request that is cancelled, or whose connection ends, only stops waiting: half a close would be none.
        """
        session.closers.add(closer)
        self._spawn(self._finish, session)
        await session.ended.wait()

    async def _finish(self, session: Session, stop_bound: float | None = None) -> None:
        with anyio.CancelScope(shield=True):
            await session.close(stop_bound)
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]
            for peer in self._members.pop(session.session_id, set()):
                peer.left(session.session_id)

    def _retire_if_unattended(self, session: Session) -> None:
        """Nobody watches and nothing goes on: free the runtime; the stored session stays (KEY-43)."""
        if session.unattended and not session.closing:
            self._spawn(self._retire, session)

    async def _retire(self, session: Session) -> None:
        if session.unattended:  # a client may have come since
            await self._finish(session)

    @staticmethod
    def _opened(session: Session) -> dict[str, Any]:
        commands = [schema.dump(command) for command in session.runtime.commands]
        return {"availableCommands": commands} if commands else {}

    # --- validation --------------------------------------------------------------------------------------------------

    async def _setup(self, params: schema.NewSession | schema.ResumeSession) -> SessionSetup:
        """Roots and servers, checked before anything is started (SETUP-1..8)."""
        directories = tuple(params.additional_directories or ())
        if directories and not self._features.additional_directories:
            raise InvalidParams("additionalDirectories is not supported by this agent.")
        real = [await _directory("cwd", params.cwd)]
        real += [await _directory("additionalDirectories", entry) for entry in directories]
        servers = tuple(params.mcp_servers or ())
        names: set[str] = set()
        for server in servers:
            supported = {"stdio": self._features.mcp_stdio, "http": self._features.mcp_http}
            if not supported.get(server.type):
                raise InvalidParams(f"MCP servers of type {server.type} are not supported by this agent.")
            if server.name in names:
                raise InvalidParams("Two MCP servers have the same name.", data={"name": server.name})
            if not server.name.strip():
                raise InvalidParams("An MCP server has an empty name.", data={"name": server.name})
            if len(spelled(server.name)) > LONGEST:
                raise InvalidParams("The name of an MCP server is too long.", data={"name": server.name})
            names.add(server.name)
        return SessionSetup(real[0], tuple(real[1:]), servers, named=params.cwd)

    def _check_blocks(self, blocks: Sequence[schema.ContentBlock]) -> None:
        """A block that is not supported refuses the whole prompt (PROMPT-13)."""
        supported = {
            "text": True,
            "resource_link": True,
            "image": self._features.image,
            "audio": self._features.audio,
            "resource": self._features.embedded_context,
        }
        for place, block in enumerate(blocks):
            if not supported.get(block.type):
                raise InvalidParams(f"prompt[{place}]: content blocks of type {block.type!r} are not supported.")

    def _async(self, function: Callable[[Peer, str, Mapping[str, Any]], Awaitable[dict[str, Any]]]) -> Method:
        def start(peer: Peer, request: IncomingRequest, method: str, members: Mapping[str, Any]) -> None:
            async def answer() -> Mapping[str, Any]:
                return peer.result(request.method, await function(peer, method, members))

            request.run(answer)

        return start


async def _directory(name: str, path: str) -> str:
    """Where the directory is, with every link followed. Raises `AcpError` for what is none, and for one that does not answer."""
    if not Path(path).is_absolute():
        raise InvalidParams(f"{name} must be an absolute path, not {path!r}.")
    try:
        return await in_thread(partial(_real_directory, path))
    except StuckError:
        raise InternalError(
            f"{name} does not answer: {path!r} may be on a network mount whose server is gone."
        ) from None
    except (OSError, ValueError):
        raise InvalidParams(f"{name} must name an existing directory: {path!r} is none.") from None


def _real_directory(path: str) -> str:
    real = real_path(path)
    if not S_ISDIR(stat(real).st_mode):
        raise NotADirectoryError(path)
    return real
