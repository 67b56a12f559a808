"""The one app-server of this agent: started when needed, shared by all sessions, started again after its death.

Owns which thread belongs to which session. Knows no turn and no prompt. When the process dies, each session is told once and
decides for itself (D7). The next session that needs a server gets a new one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from adapters import __version__
from adapters.acp.errors import AcpError, InternalError
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex.asked_items import AskedItems
from adapters.codex.bounds import Bounds
from adapters.codex.server.home_dir import codex_home, require_codex_home, settled
from adapters.codex.server.process import AppServer, Gone, RequestFailed, RequestId, UnknownMethod, spawn
from adapters.codex.server.program import ARGUMENTS, TESTED, child_environment, find_codex, missing_text
from adapters.codex.server.signals import thread_of
from adapters.codex.show.overwritten import Overwritten
from adapters.core.file_calls import in_thread
from adapters.driver.endings import died
from adapters.driver.tool_text import one_line
from adapters.driver.version import lacking, version_of
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_NOT_WANTED: Final = ("turn/diff/updated", "thread/readState/changed", "remoteControl/status/changed")
"""Notifications that Codex need not send: large, or of no use here."""

_LONGEST_REASON: Final = 600  # characters
_METHOD_NOT_FOUND: Final = -32601


class Member(Protocol):
    """A session that has a thread in the server."""

    session_id: str

    @property
    def closing(self) -> bool:
        """Whether it needs the server only to end what it does."""
        ...

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification about its thread or one of a sub-agent of it."""

    def on_request(self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        """A question about its thread or one of a sub-agent of it; must be answered."""

    def on_death(self, server: AppServer, error: AcpError) -> None:
        """The process is gone. `error` says how, for people."""

    async def writable(self) -> None:
        """Return once its clients have room."""


class Host:
    """Keeps the app-server. `tasks` must outlive it."""

    def __init__(self, tasks: TaskGroup, environ: Mapping[str, str], bounds: Bounds | None = None) -> None:
        """Raises `InternalError` when the environment names no folder that could be Codex's home."""
        self._tasks = tasks
        self.bounds = bounds or Bounds()
        self._environ = settled(environ)
        self._server: AppServer | None = None
        self._coming: AppServer | None = None
        """The process was started and has not answered `initialize` yet."""
        self._starting = anyio.Lock(fast_acquire=True)  # nothing comes before the process when nobody else starts one
        self._begun: Callable[[], None] = lambda: None
        self._closed = False
        self._members: dict[str, Member] = {}
        self._children: dict[str, str] = {}
        """Thread of a sub-agent -> thread of its session."""
        self._spoke: set[Member] = set()
        """Sessions that heard something since the last read: their clients may have to catch up."""
        self.asked_items = AskedItems()
        self.overwritten = Overwritten()
        self._users = 0
        self._logged: set[str] = set()
        self.home = codex_home(environ)
        self.version = ""
        self.warnings: list[str] = []

    # --- sessions ------------------------------------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """From now on what the server says about this thread goes to the session."""
        self._members[member.session_id] = member

    def has(self, member: Member) -> bool:
        """Whether it goes to this one: not when another one has joined for the same thread."""
        return self._members.get(member.session_id) is member

    def leave(self, member: Member) -> None:
        """No more of it."""
        if self._members.get(member.session_id) is member:
            del self._members[member.session_id]
        self._spoke.discard(member)
        self._children = {child: parent for child, parent in self._children.items() if parent != member.session_id}

    def adopt(self, child: str, parent: str) -> None:
        """A thread of a sub-agent: its questions are for the session's user."""
        if child not in self._members:
            self._children[child] = parent

    def children_of(self, parent: str) -> Sequence[str]:
        """The threads of a session's sub-agents."""
        return [child for child, known in self._children.items() if known == parent]

    @contextmanager
    def in_use(self) -> Generator[None]:
        """The server is kept meanwhile, although no session may be left."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    def is_shared(self) -> bool:
        """Whether any session still needs the server: then it does not end with the sessions that close now."""
        return self._users > 0 or not all(member.closing for member in self._members.values())

    async def retire(self) -> None:
        """End the server when no session needs it: it locks every thread that it has loaded."""
        if not self._members and not self._users:
            await self.stop()

    # --- the process ---------------------------------------------------------------------------------------------------

    async def prepare(self, begun: Callable[[], None] = lambda: None) -> None:
        """Start the app-server before anybody needs it; why it does not start is told to whoever does.

        `begun` is called when its process runs and has been asked to introduce itself.
        """
        self._begun = begun
        with suppress(AcpError):
            await self.server()
        begun()

    async def server(self) -> AppServer:
        """The running app-server; starts one when there is none. Raises `AcpError` that says why it does not start."""
        async with self._starting:
            if self._closed:
                raise InternalError("The agent is ending.")
            if self._server is None or self._server.gone.is_set() or self._server.stopping:
                self._server = await self._start()
            return self._server

    async def _start(self) -> AppServer:
        found = find_codex(self._environ)
        if found is None:
            raise InternalError(missing_text(self._environ), {"category": "not_installed"})
        try:
            await in_thread(partial(require_codex_home, self._environ))
        except OSError as error:
            raise _start_error(error.strerror or type(error).__name__) from None
        try:
            server = await spawn([str(found.path), *ARGUMENTS], child_environment(self._environ), self.bounds)
        except OSError as error:
            raise _start_error(error.strerror or type(error).__name__) from None
        with anyio.CancelScope(shield=True):
            await self._tasks.start(self._serve, server)
        self._coming = server
        try:
            if self._closed:  # meanwhile
                raise Gone("the agent is ending")  # noqa: TRY301 - as if the process had ended itself
            self._begun()
            answer = await server.request(
                "initialize",
                {
                    "clientInfo": {"name": "acp-adapters", "title": "acp-adapters", "version": __version__},
                    "capabilities": {"experimentalApi": True, "optOutNotificationMethods": list(_NOT_WANTED)},
                },
                bound=self.bounds.initialize,
            )
        except RequestFailed as failed:
            await server.stop()
            if refused := server.refused or (failed.unknown if isinstance(failed, UnknownMethod) else ""):
                version = await version_of(found.path, self._environ)
                raise _start_error(lacking("Codex", version, TESTED, refused)) from None
            raise _start_error(server.last_words or str(failed)) from None
        except BaseException:
            await server.stop()
            raise
        finally:
            self._coming = None
        if os.path.isabs(home := as_text(answer.get("codexHome"))):  # noqa: PTH117 - a text
            self.home = Path(home)  # a wrapper around Codex may have chosen another one
        server.version = self.version = as_text(answer.get("userAgent")).partition("/")[2].partition(" ")[0]
        server.notify("initialized")
        return server

    async def _serve(self, server: AppServer, *, task_status: TaskStatus[None]) -> None:
        task_status.started()

        def on_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
            self._on_request(server, request_id, method, params)

        try:
            await server.run(self._on_notification, on_request, self._writable)
        except Exception as error:  # noqa: BLE001 - whatever ended the reading, the process is gone
            _log.warning(LogEvent("reading from Codex failed", error=type(error).__name__))
        if self._server is server:
            self._server = None
        self._children.clear()
        self.asked_items.clear()
        if not server.stopping:
            _log.warning(LogEvent("Codex ended", pid=server.pid, exit=server.exit_code))
        for member in list(self._members.values()):
            member.on_death(server, died("Codex", server.exit_code))

    async def stop(self) -> None:
        """End the process, within 1.5 s. The next need starts another."""
        async with self._starting:
            server, self._server = self._server, None
            if server:
                await server.stop()

    async def aclose(self) -> None:
        """End the process, within 1.5 s, even one that does not get ready; no other one is started."""
        self._closed = True
        if self._coming:
            await self._coming.stop()
        await self.stop()

    # --- what the server says ------------------------------------------------------------------------------------------

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        params = self.overwritten.noted(method, params)
        self.asked_items.note(method, params)
        member = self._member(thread_of(params))
        if member:
            self._spoke.add(member)
            try:
                member.on_notification(method, params)
            except Exception as error:  # noqa: BLE001 - one notification that we cannot take ends nothing (D11)
                self._log_once(f"{method} was not understood", error=type(error).__name__)
        elif method == "configWarning":
            text = one_line(as_text(params.get("summary")))
            if text and text not in self.warnings:
                self.warnings.append(text)

    def _on_request(self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        thread_id = thread_of(params)
        member = self._member(thread_id)
        if member is None and thread_id:
            self._tasks.start_soon(self._ask_parent, server, request_id, method, params)
            return
        self._hand_on(member, server, request_id, method, params)

    def _hand_on(
        self,
        member: Member | None,
        server: AppServer,
        request_id: RequestId,
        method: str,
        params: Mapping[str, Any],
    ) -> None:
        try:
            if member is not None:
                self._spoke.add(member)
                member.on_request(server, request_id, method, params)
                return
        except Exception as error:  # noqa: BLE001 - an error answer is never a yes
            self._log_once(f"{method} was not understood", error=type(error).__name__)
        self.refuse(server, request_id, method)

    def refuse(self, server: AppServer, request_id: RequestId, method: str) -> None:
        """Refuse a request of Codex that no session can answer."""
        self._log_once(f"Codex asked for {method}, which is not supported")
        server.refuse(request_id, _METHOD_NOT_FOUND, f"{method} is not supported by this client")

    async def _ask_parent(
        self, server: AppServer, request_id: RequestId, method: str, params: Mapping[str, Any]
    ) -> None:
        """A question about a thread that is no session's: one of a sub-agent that we have not heard of yet?"""
        thread_id = thread_of(params)
        try:
            answer = await server.request("thread/read", {"threadId": thread_id}, bound=self.bounds.parent)
            parent = as_text(as_mapping(answer.get("thread")).get("parentThreadId"))
        except RequestFailed:
            parent = ""
        if parent and (member := self._member(parent)):
            self.adopt(thread_id, member.session_id)
        self._hand_on(self._member(thread_id), server, request_id, method, params)

    def _member(self, thread_id: str) -> Member | None:
        return self._members.get(self._children.get(thread_id, thread_id))

    async def _writable(self) -> None:
        while self._spoke:
            member = self._spoke.pop()
            if member.session_id in self._members:
                await member.writable()

    def _log_once(self, event: str, **fields: object) -> None:
        if event not in self._logged:
            self._logged.add(event)
            _log.warning(LogEvent(event, **fields))


def _start_error(reason: str) -> InternalError:
    return InternalError(f"Codex could not be started: {one_line(reason, _LONGEST_REASON)}", {"category": "start"})
