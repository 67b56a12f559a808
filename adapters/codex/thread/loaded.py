"""A session's thread in the app-server: loaded when needed, reloaded with other roots or servers, loaded again after a death.

Owns where the thread is loaded and what is known about it from that moment. Knows no turn and no prompt.

    state     why                                          leaves by
    --------  -------------------------------------------  -------------------------------------------------------------
    loaded    started here, or resumed                     lost: the app-server died; loaded: resumed again, because the
                                                           setup changed, or because Codex answered as if it were not
    lost      the app-server died                          loaded: at the next need; all stored ids are read again then

While it is loaded, Codex holds a lock file. Anybody may remove it, and neither Codex nor the next one who wants the thread sees
that. So a look-up makes sure before that the file is the same (`is_locked`), and so does the one who hands a prompt over. A
thread that has lost its file is closed and loaded again in a quiet moment: Codex then locks it again, or says that another one
has it. All that is stored is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from adapters.acp.errors import AcpError, InternalError, ResourceNotFound
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex import mcp_servers
from adapters.codex.server.process import AppServer, Gone, Refused, Unanswered
from adapters.codex.server.shared import Host
from adapters.codex.thread import archive, requests
from adapters.codex.thread.history import History
from adapters.codex.thread.lock_holder import holder_of, is_taken, lock_file
from adapters.core.file_calls import in_thread, in_thread_without
from adapters.core.port import NOT_STORED, SessionSetup
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_TRIES: Final = 3
"""Of loading, with a new process each time one dies over it."""


class Thread:
    """One thread. `is_quiet`: whether it may be reloaded now; `on_loaded` is called with each answer that describes it."""

    def __init__(
        self,
        thread_id: str,
        setup: SessionSetup,
        host: Host,
        *,
        is_quiet: Callable[[], bool],
        on_loaded: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.thread_id = thread_id
        self.setup = setup
        self.keys: mcp_servers.Keys = {}
        """The servers that it was loaded with."""
        self.history = History(thread_id, host.home)
        self.server: AppServer | None = None
        """The app-server in which it is loaded."""
        self.outdated = False
        """It was loaded with other roots or servers than the setup says."""
        self._host = host
        self._is_quiet = is_quiet
        self._on_loaded = on_loaded
        self._gate = anyio.Lock()
        """Held while it is loaded or reloaded."""
        self._closed = anyio.Event()
        self._doubtful = False
        self._lock: tuple[int, int] | None = None
        """The file that Codex has locked for it; None where that is not known (yet)."""
        self._known = False
        """The thread was loaded before, so it exists."""

    def started(self, server: AppServer, answer: Mapping[str, Any], keys: mcp_servers.Keys) -> None:
        """It was made in this server, with these MCP servers; nothing of it is stored, and nobody else can know it."""
        self.keys = keys
        self._loaded(server, answer)
        self.history.unwritten = self.history.complete = True
        # A thread without a prompt dies with its process. An item of the type "other" makes Codex write the file, and is
        # itself neither stored, nor listed, nor sent to a model (0.163.0).
        server.post("thread/inject_items", {"threadId": self.thread_id, "items": [{"type": "other"}]})

    def lost(self) -> None:
        """The app-server is gone. Until the thread is loaded again, others may write to it."""
        self.server = None
        self.history.forget()
        self.closed()

    def reconfigure(self, setup: SessionSetup) -> None:
        """Other roots and servers, from the next `load` in a quiet moment on."""
        self.setup = setup
        self.outdated = True

    def doubt(self) -> None:
        """Codex answered as if it were not loaded: the next `load` makes sure."""
        self._doubtful = True

    async def load(self) -> AppServer:
        """The app-server, with the thread loaded in it. Raises `AcpError` that says why it cannot be.

        `ResourceNotFound` where there is no such thread, or an error that tells of another holder (D6).
        """
        async with self._gate:
            for tries in range(_TRIES, 0, -1):
                server = await self._host.server()
                try:
                    await self._load_in(server)
                except Gone as gone:
                    if tries == 1:
                        raise requests.failed_error("The session cannot be opened", gone) from None
                else:
                    return server
        raise AssertionError  # the last try returns or raises

    async def is_locked(self) -> bool:
        """Whether Codex still keeps others from the thread, as far as its lock file tells; also while it is not loaded."""
        if self.server is None or self._doubtful:
            return True  # `load` gets the lock, or fails
        found = await in_thread(partial(lock_file, self._host.home, self.thread_id))
        self._lock = self._lock or found
        return self._lock == found

    async def lock_again(self) -> None:
        """Load it anew, so that Codex locks it. Raises `AcpError` while it works, or where another one has it now."""
        async with self._gate:
            server = self.server
            if server is None:
                return
            if not self._is_quiet():
                text = "The lock file of this session was removed while it works: try again when the work is over."
                raise InternalError(text, {"category": "held"})
            if await in_thread(
                partial(is_taken, self._host.home, self.thread_id)
            ):  # closing would remove that file, too
                raise requests.held_error(await in_thread(partial(holder_of, self._host.home, self.thread_id)))
            _log.warning(LogEvent("the lock file of a session was removed; loading it again", session=self.thread_id))
            self.history.forget()
            self._doubtful = True
            try:
                await self.unload(server)
                await self._resume(server, rebuilt=True)
            except Gone:
                return  # the next `load` begins anew
            except (Refused, Unanswered) as failed:
                raise requests.failed_error("The session cannot be reloaded", failed) from None

    async def unload(self, server: AppServer, *, bound: float | None = None) -> None:
        """Have it closed, within `bound` seconds: others may have it then (D6). Raises `RequestFailed`.

        Nothing of the store changes: Codex closes a thread that nobody watches, as soon as nothing runs in it (`ARGUMENTS`).
        """
        bound = self._host.bounds.unload if bound is None else bound
        self._closed = anyio.Event()
        answer = await server.request("thread/unsubscribe", {"threadId": self.thread_id}, bound=bound)
        if answer.get("status") == "unsubscribed":
            with anyio.move_on_after(bound):
                await self._closed.wait()

    def closed(self) -> None:
        """The thread is no longer loaded."""
        self._closed.set()

    async def _load_in(self, server: AppServer) -> None:
        if self.server is not server or self._doubtful:
            await self._resume(server, rebuilt=self.server is not server)
        elif self.outdated and self._is_quiet():
            try:  # a thread that is loaded and watched ignores other roots and servers (0.163.0)
                await self.unload(server)
            except (Refused, Unanswered) as failed:
                raise requests.failed_error("The session cannot be reloaded", failed) from None
            await self._resume(server, rebuilt=True)

    async def _resume(self, server: AppServer, *, rebuilt: bool) -> None:
        """`rebuilt`: it is not loaded there and watched by us, so the setup of now takes effect."""
        setup = self.setup
        try:
            keys = await mcp_servers.keyed(server, setup)
        except (Refused, Unanswered) as failed:
            raise requests.failed_error("Codex's configuration cannot be read", failed) from None
        overrides = await in_thread_without(partial(requests.start_params, setup, self._host.home, keys))
        params = {**overrides, "threadId": self.thread_id, "excludeTurns": True}

        def loaded(answer: Mapping[str, Any]) -> None:
            self._loaded(server, answer)
            if rebuilt:
                self.outdated = self.setup is not setup

        if rebuilt:
            self.keys = keys  # Codex tells of them while it still loads the thread
        deadline = anyio.current_time() + self._host.bounds.held
        tries = _TRIES
        while True:
            try:
                await server.request("thread/resume", params, bound=requests.RESUME_BOUND, then=loaded)
            except Refused as refused:
                busy = requests.is_held(refused) or requests.is_closing(refused)
                if busy and anyio.current_time() < deadline:
                    await anyio.sleep(self._host.bounds.held_again)
                elif tries and await self._is_brought_back(server, refused):
                    tries -= 1
                else:
                    raise self._error(refused) from None
            except Unanswered as silent:
                raise requests.failed_error("The session cannot be opened", silent) from None
            else:
                break
        self._lock = await in_thread(partial(lock_file, self._host.home, self.thread_id))
        # Behind that answer Codex sends the thread's usage. Once it has answered something else, that has come too, and
        # belongs to what the client is told by this resume, not to what happens later (REPLAY-11).
        with suppress(Refused, Unanswered):
            await server.request("thread/loaded/list", {"limit": 1}, bound=self._host.bounds.loaded)

    async def _is_brought_back(self, server: AppServer, refused: Refused) -> bool:
        """Whoever resumes an archived session wants to work on it; also one that was left half-way (see `thread.archive`)."""
        home = self._host.home
        try:
            if requests.is_archived(refused):
                try:
                    await server.request("thread/unarchive", {"threadId": self.thread_id})
                except Refused:
                    await anyio.sleep(self._host.bounds.half_way)
                    await in_thread(partial(archive.put_in, home, self.thread_id))
                    await server.request("thread/unarchive", {"threadId": self.thread_id})
                return True
            if requests.is_missing(refused) and await in_thread(partial(archive.is_in, home, self.thread_id)):
                await anyio.sleep(self._host.bounds.half_way)
                await in_thread(partial(archive.take_out, home, self.thread_id))
                return True
        except (Refused, Unanswered) as failed:
            raise requests.failed_error("The session is archived", failed) from None
        except OSError as error:
            raise InternalError(f"The session is archived and cannot be unarchived: {error}.") from None
        return False

    def _loaded(self, server: AppServer, answer: Mapping[str, Any]) -> None:
        """At the very moment of the answer: what Codex says next is already of the loaded thread."""
        thread = as_mapping(answer.get("thread"))
        self.server = server
        self._known = True
        self._doubtful = False
        self.history.legacy = thread.get("historyMode") == "legacy"
        self.history.path = as_text(thread.get("path"))
        self._on_loaded(answer)

    def _error(self, refused: Refused) -> AcpError:
        if requests.is_held(refused):
            return requests.held_error(holder_of(self._host.home, self.thread_id))
        if not requests.is_missing(refused):
            return requests.failed_error("The session cannot be opened", refused)
        if self._known:
            return InternalError("Codex has lost this session: start a new one.", {"category": "lost"})
        return ResourceNotFound(self.thread_id, NOT_STORED)
