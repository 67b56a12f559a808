"""Steps that disturb the runtime's store from outside: its disk, its databases, copies of its files. Owns how each is done.

A step says until when it disturbs the store (`disturbed_until`): opening a session may fail until then, and is tried again. A
message may be live only on a full disk, if the client is told. Nothing else that was promised is given up meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from adapters.acp.errors import AcpError
from adapters.client.record import ConnectionLostError
from adapters_tests.e2e.stored import COPIES, claude_transcripts
from adapters_tests.reliability import databases, homes
from adapters_tests.reliability.steps import WITHIN, Steps

_CLOSING = 0.15
"""Seconds after the begin of a close, or of an orderly end, within which everything is killed."""

_LOCKED = (1.0, 3.0, 6.0)
"""Seconds that somebody else writes to a database; Codex waits for 5."""

_LEFT = (0, 0, 4096, 32768)
"""Bytes that are left on a full disk."""

_WHILE_FULL = (
    "submit",
    "submit",
    "submit_tool",
    "submit_slow",
    "resend",
    "release",
    "withdraw_soon",
    "kill_runtime",
    "stop",
)


class StoreSteps(Steps):
    """The steps, by name."""

    # --- the disk ------------------------------------------------------------------------------------------------------

    async def full_disk(self) -> None:
        """It is full for some steps, then free again; sometimes everything dies meanwhile."""
        await self._settle()
        await self._undisturbed()
        folder = homes.runtime_folder(self.rig)
        self.complete, self.tainted = False, True
        with self._disturbed(), homes.full(folder, self.random.choice(_LEFT)):
            for name in self.random.choices(_WHILE_FULL, k=self.random.randint(1, 4)):
                await getattr(self, name)()
            await self.submit()
            await self.release()
            self._answer_everything()
            await self.answered()
            self._answer_all = False
            died = self.random.random() < 0.6
            if died:
                await self.kill_everything()
            if died and self.random.random() < 0.5:
                if await self._connected() and await self._opened():
                    await self.resend_last()
                    await self.answered()
                await self.kill_everything()
        if died:
            await self._next_agent()
        await self.resend_last()

    async def read_only_disk(self) -> None:
        """It cannot be written while one agent comes and goes."""
        await self._nobody_runs()
        self.complete, self.tainted = False, True
        with self._disturbed(), homes.read_only(homes.runtime_folder(self.rig)):
            if await self._connected() and await self._opened():
                await self.submit()
                await self.resend_last()
                await self.answered()
                if made := self._recent(4):
                    await self._send(made)
                    await self._outcome(made.calls[-1])
            await self._all_end()  # while it is disturbed
        await self._next_agent()
        await self.resend_last()

    # --- Codex's databases ---------------------------------------------------------------------------------------------

    @property
    def _codex(self) -> Path:
        return self.rig.root / "codex"

    @contextmanager
    def _disturbed(self) -> Iterator[None]:
        self.disturbed_until = time.monotonic() + WITHIN
        try:
            yield
        finally:
            self.disturbed_until = time.monotonic()

    def _disturb(self, seconds: float) -> None:
        self.disturbed_until = max(self.disturbed_until, time.monotonic() + seconds)

    async def lock_database(self) -> None:
        """Somebody else writes to it while the next steps go on."""
        if time.monotonic() < self.disturbed_until:
            return
        seconds = self.random.choice(_LOCKED)
        self._disturb(seconds)
        name = self.random.choice(databases.NAMES)
        self._watchers.start_soon(databases.locked_for, self._codex, name, seconds, anyio.Event())

    async def close_under_lock(self) -> None:
        """Two sessions are open; one is closed, or the agent ends, while somebody writes to what Codex knows of threads."""
        await self._activate_sibling()
        await self._settle()
        await self._undisturbed()
        seconds, released = self.random.choice(_LOCKED), anyio.Event()
        self._disturb(seconds)
        self._watchers.start_soon(databases.locked_for, self._codex, "state", seconds, released)
        await anyio.sleep(0.02)
        how = self.random.choice(("close", "close_and_kill", "end", "end_and_kill"))
        if how.startswith("close"):
            call = await self.link.client.request("session/close", {"sessionId": self.sibling_session})
            self._sibling_active = False
            if how == "close":
                await call.result(WITHIN)
        elif how == "end":
            await self.link.process.end()
        else:
            await self.link.process.transport.aclose()
        if how.endswith("kill"):
            await anyio.sleep(_CLOSING * self.random.random())
            await self.kill_everything()
        await released.wait()
        if how != "close":
            await self._next_agent()
        await self._activate_sibling()

    async def _undisturbed(self) -> None:
        while time.monotonic() < self.disturbed_until:  # noqa: ASYNC110 - a time, not an event
            await anyio.sleep(0.05)

    async def freeze_database(self) -> None:
        """It cannot be written for some steps; the agent dies and comes back meanwhile."""
        await self._settle()
        await self._undisturbed()
        name = self.random.choice((*databases.NAMES, "thread_history"))
        hold = databases.immutable if databases.can_be_immutable(self.rig.root) else databases.locked
        with self._disturbed(), hold(self._codex, name):
            await self.submit()
            await self.answered()
            await self.random.choice((self.kill_everything, self._end))()
            await self.connect()
            self.complete = False
            if await self._opened():
                await self.resend_last()
                await self.submit()
                await self.answered()
            await self.kill_everything()
        await self._next_agent()
        await self.resend_last()

    async def _end(self) -> None:
        await self.link.process.end()

    async def _connected(self) -> bool:
        """Whether an agent can be started: where the runtime could store nothing it may say so, and end."""
        try:
            await self.connect()
        except ConnectionLostError:
            return False
        return True

    async def _opened(self) -> bool:
        """Whether the session can be opened at once; that it cannot is an answer as long as it is disturbed."""
        until, self.disturbed_until = self.disturbed_until, time.monotonic() - WITHIN
        try:
            await self.open(self.session)
        except AcpError as error:
            if error.code != -32603:
                raise
            return False
        finally:
            self.disturbed_until = until
        return True

    async def lose_database(self) -> None:
        """It is gone: files were moved without it."""
        await self._nobody_runs()
        for name in self.random.choice((("state",), ("thread_history",), databases.NAMES)):
            databases.remove(self._codex, name)
        await self._next_agent()
        if made := self._recent(4):
            await self._send(made)

    async def old_database(self) -> None:
        """It is older than the rollouts: the first time a copy is made, later it is put back."""
        await self._nobody_runs()
        for name in self.random.choice((("state",), ("thread_history",), ("thread_history",), databases.NAMES)):
            folder = self.rig.root / f"kept {name}"
            if folder.exists():
                databases.put_back(self._codex, name, folder)
            else:
                databases.keep(self._codex, name, folder)
        await self._next_agent()
        if made := self._recent(4):
            await self._send(made)

    async def _nobody_runs(self) -> None:
        await self._undisturbed()
        await self._all_end()

    async def _all_end(self) -> None:
        await self.random.choice((self.kill_everything, self._end))()
        await self.rig.all_gone(WITHIN)

    # --- copies of a session's file ------------------------------------------------------------------------------------

    async def copy_session(self) -> None:
        """The project folder was copied: there is the same session, as it is now, and it looks newer."""
        self._copy(self.random.random())

    async def copy_old_session(self) -> None:
        """A copy from before is put beside it, as by a tool that keeps times new."""
        if kept := sorted((self.rig.root / "kept").glob("*.jsonl")):
            self._put_copy(self.random.choice(kept), 1.0)
        else:
            (self.rig.root / "kept").mkdir(exist_ok=True)
            for path in claude_transcripts(self.rig.root, self.session):
                shutil.copy(path, self.rig.root / "kept" / f"{len(self.log)}.jsonl")

    def _copy(self, part: float) -> None:
        for path in claude_transcripts(self.rig.root, self.session):
            self._put_copy(path, 1.0 if part < 0.7 else part)

    def _put_copy(self, path: Path, part: float) -> None:
        folder = self.rig.root / "claude" / "projects" / f"{COPIES}{self.random.randrange(3)}"
        folder.mkdir(exist_ok=True)
        data = path.read_bytes()
        copy = folder / f"{self.session}.jsonl"
        copy.write_bytes(data[: int(len(data) * part)])
        ahead = time.time() + self.random.choice((-1000, 1000, 1000))
        os.utime(copy, (ahead, ahead))
