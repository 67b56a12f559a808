"""Steps with many sessions, odd prompts, and agents with other homes: what clients may do. Owns how each is done."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID, uuid5

import anyio

from adapters.acp.errors import AcpError
from adapters_tests.e2e.rig import Link
from adapters_tests.e2e.runtimes import Deviation
from adapters_tests.reliability.history import Listing
from adapters_tests.reliability.odd import ODD, Odd
from adapters_tests.reliability.steps import WITHIN, Steps

_MOST_OTHERS = 3
"""Sessions besides the first two: each is an own process of Claude Code."""

_CLOSING = 0.15
"""Seconds after the begin of a close, or of an orderly end, within which everything is killed."""


class ClientSteps(Steps):
    """The steps, by name."""

    # --- several sessions ----------------------------------------------------------------------------------------------

    async def open_other(self) -> None:
        """One more session, or one of before again."""
        closed = [session for session, active in self.others.items() if not active]
        if closed and (len(self.others) >= _MOST_OTHERS or self.random.random() < 0.5):
            session = self.random.choice(closed)
            await self.open(session, replay=self.random.random() < 0.5)
            self.others[session] = True
        elif len(self.others) < _MOST_OTHERS:
            session = await self.link.new()
            self.others[session] = True
            await self._settled_turn(session, f"start of {session}")

    async def prompt_other(self) -> None:
        """A prompt, new or sent again, in another active session."""
        active = [session for session, is_active in self.others.items() if is_active]
        if not active:
            return
        session = self.random.choice(active)
        made = self._new()
        if self.random.random() < 0.5:
            made.session = session
        else:
            self.submissions.pop()
            made = self.random.choice([old for old in self.submissions if old.session == session])
        await self._send(made)

    async def close_other(self) -> None:
        """Whatever runs in it."""
        active = [session for session, is_active in self.others.items() if is_active]
        if active:
            session = self.random.choice(active)
            await self._close(session)
            self.others[session] = False

    async def list_all(self) -> None:
        """Every session that holds something is there."""
        rows = await self.link.client.list()
        self.history.listings.append(Listing(time.monotonic(), frozenset(row["sessionId"] for row in rows)))

    async def close_and_kill(self) -> None:
        """Everything dies while a session is closed."""
        session = self.random.choice(self.sessions(active=True))
        await self.link.client.request("session/close", {"sessionId": session})
        await anyio.sleep(_CLOSING * self.random.random() ** 2)
        await self.kill_everything()
        await self._next_agent()
        await self.activate_all()

    async def end_and_kill(self) -> None:
        """Everything dies while the agent ends in order."""
        await self.link.process.transport.aclose()
        await anyio.sleep(_CLOSING * self.random.random() ** 2)
        await self.kill_everything()
        await self._next_agent()
        await self.activate_all()

    async def activate_all(self) -> None:
        """Every session of the history is active on this connection."""
        if self.sibling_session:
            await self._activate_sibling()
        for session, active in self.others.items():
            if not active:
                await self.open(session)
                self.others[session] = True

    # --- odd prompts ---------------------------------------------------------------------------------------------------

    async def submit_odd(self) -> None:
        await self._send_odd(ODD[self.random.choice(list(ODD))])

    async def submit_every_odd(self) -> None:
        """Not random: each kind, one by one."""
        for odd in ODD.values():
            await self._send_odd(odd)
            await self.answered()
        await self.submit_blanks()

    async def _send_odd(self, odd: Odd) -> None:
        made = self._new()
        made.blocks = odd.blocks(made.text)
        made.shown_as = f"[[{made.text}]]" if odd.counted else None
        made.refusable = odd.refusable
        await self._send(made)

    async def submit_blanks(self) -> None:
        """Nothing but blanks, as many as no other prompt of the history has."""
        made = self._new()
        made.text = " " * len(self.submissions)
        made.shown_as = None
        await self._send(made)

    async def fold_odd(self) -> None:
        """An odd prompt that a runtime takes in behind a tool; then everything dies, and it is sent again."""
        if await self._behind_tool():
            await self.random.choice((self.submit_odd, self.submit_odd, self.submit_blanks))()
            await self.queued()
            await self.release()
            await self.answered()
        await self.random.choice((self.kill_agent, self.kill_both, self.end_agent))()
        await self.resend_last()

    def rewritten(self) -> Mapping[str, str]:
        """Claude Code keeps blanks under the words "(no content)", and knows them by their id alone."""
        blanks = [made for made in self.submissions if made.key is not None and not made.text.strip()]
        return {str(uuid5(UUID(made.session), made.key)): made.text for made in blanks if made.key is not None}

    # --- agents elsewhere ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def agent_elsewhere(self) -> AsyncIterator[Link]:
        """An agent that shares nothing with the user's but the runtime's own folder."""
        home = self.rig.root / "other home"
        home.mkdir(exist_ok=True)
        environment = self.random.choice(
            (
                {"HOME": str(home)},
                {"XDG_STATE_HOME": str(home / "state")},
                {"ACP_ADAPTERS_STATE_DIR": str(home / "own state")},
                {"HOME": str(home), "TMPDIR": str(home)},
            )
        )
        async with self.rig.agent(**environment) as link:
            yield link

    async def rival_elsewhere(self) -> None:
        """It wants the active session: refused, and what works there goes on."""
        held = self.rig.runtimes() or not self.rig.deviates(Deviation.LOCKS_ITS_THREADS)
        async with self.agent_elsewhere() as rival:
            self._follow(rival)
            try:
                await rival.resume(self.session)
            except AcpError as error:
                self.tally.outcomes["second agents refused"] += 1
                if str(self.link.process.pid) not in f"{error.message} {error.data}":
                    self.faults.append(f"an agent elsewhere was refused without the holder's name: {error.message}")
                return
            if held:
                self.faults.append("an agent elsewhere got the session although it is active")
            if made := self._recent(4):
                made.calls.append(await rival.prompt(self.session, made.text, made.key))
                await self._outcome(made.calls[-1])

    async def key_to_both(self) -> None:
        """Nobody has the session; two agents want it at once, and whoever gets it sends the same key."""
        await self._settle()
        await self._close_all()
        made = self._new()
        got: list[Link] = []

        async def take(link: Link) -> None:
            try:
                await link.resume(self.session)
            except AcpError:
                return
            got.append(link)
            made.calls.append(await link.prompt(self.session, made.text, made.key))

        async with self.agent_elsewhere() as other:
            self._follow(other)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take, self.link)
                tasks.start_soon(take, other)
            for call in made.calls:
                await self._outcome(call)
            for link in got:
                await link.client.wait_state(self.session, "idle", within=WITHIN)
        if len(got) > 1:
            self.faults.append("two agents have the session active at once")
        if self.link not in got:
            await self.open(self.session)
        self.complete = False
        await self._send(made)

    async def successor_elsewhere(self) -> None:
        """The agent is killed in mid-work, and the next one has another state folder."""
        if await self._behind_tool():
            await self.submit()
            await self.queued()
        made = self.submissions[-1]
        self.link.process.kill()
        await self.link.process.wait()
        async with self.agent_elsewhere() as other:
            self._follow(other)
            await self.open(self.session, other)
            made.calls.append(await other.prompt(self.session, made.text, made.key))
            await self.release()
            await self._outcome(made.calls[-1])
            await other.client.wait_state(self.session, "idle", within=WITHIN)
        await self._next_agent()
