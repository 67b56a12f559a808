"""What the function of a rule gets: agents, a shared connection, work that it controls, and fresh keys and texts.

Owns the connections of one run. All are kept, for the rules about every message. Judges nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from adapters.check.launch import Launcher, Running
from adapters.check.link import Json, Link, allow, is_state, update_of
from adapters.check.stage import LONG, Held, Pause, Stage
from adapters.check.verdict import Broken, NotApplicable
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.client import Client
from adapters.client.record import ConnectionLostError, as_object

INFO = {"name": "acp-adapters-check", "version": "1"}
CAPABILITIES: Json = {}
"""What the client of the check can do: nothing beyond the protocol's baseline."""


_KEPT = 200_000
"""Messages of a connection that are kept: far more than any rule causes; an agent that never stops shall not fill memory."""
_TOO_SOON = "the work ended before the rule could be checked: try --scripted"


@dataclass
class Busy:
    """Foreground work that waits until it is released."""

    link: Link
    session: str
    text: str
    call: PromptCall
    held: Held
    controlled: bool

    async def message_id(self) -> str:
        """The id of the prompt whose work it is."""
        return await self.link.message_id(self.call)

    def still(self) -> None:
        """Raises `NotApplicable` when the work has ended by itself: what was done meanwhile proves nothing."""
        if not self.controlled and any(state.startswith("idle") for state in self._states()):
            raise NotApplicable(_TOO_SOON)

    async def meanwhile(self, *texts: str, key: str | None = None) -> list[PromptCall]:
        """Send prompts while the work waits. When this returns, they have reached the agent, and it still waits."""
        calls = [await self.link.prompt(self.session, text, key) for text in texts]
        await self.link.fence()
        self.still()
        return calls

    async def cancel(self) -> int:
        """Stop the work, which still waits; gives the mark from which on its end is to be looked for."""
        self.still()
        mark = self.link.mark
        await self.link.client.cancel(self.session)
        return mark

    def may_have_ended(self) -> bool:
        """Whether work that nothing holds has ended by itself at some time: a rule that failed may have come too late."""
        ends = [state for state in self._states() if state.startswith("idle") and state != "idle:cancelled"]
        return not self.controlled and bool(ends)

    def _states(self) -> list[str]:
        return self.link.states(self.session, self.call.mark)

    async def end(self) -> Json:
        """Let the work go on and wait for its end; gives the idle update."""
        self.held.release()
        return await self.link.idle(self.session, self.call.mark)


class Bench:
    """One run of the check."""

    def __init__(self, launcher: Launcher, stage: Stage, cwd: Path, bound: float) -> None:
        self.launcher = launcher
        self.stage = stage
        self.cwd = cwd
        self.bound = bound
        """Seconds of any one wait."""
        self.links: list[Link] = []
        self.keys: set[str] = set()
        self.facts: Json = {}
        """The result of `initialize`."""
        self._shared: Link | None = None
        self._stack = AsyncExitStack()
        self._count = 0

    # --- connections -------------------------------------------------------------------------------------------------

    @property
    def link(self) -> Link:
        """The connection that rules share. A rule that leaves work on it or kills its agent marks it as suspect."""
        assert self._shared is not None  # noqa: S101 - `share` comes before every rule that may use it
        return self._shared

    async def share(self) -> None:
        """Make sure that the shared connection is good; a fresh one if not. Raises `Broken` when there can be none."""
        if self._shared is not None and not self._shared.suspect and not self._shared.client.record.ended:
            return
        await self.unshare()
        self._shared = await self._stack.enter_async_context(self.fresh())

    @property
    def shared(self) -> Running | None:
        """The agent of the shared connection."""
        return None if self._shared is None else self._shared.running

    def spoil(self) -> None:
        """The next rule gets a fresh agent."""
        if self._shared is not None:
            self._shared.suspect = True

    async def tidy(self) -> None:
        """Give back what a rule has left on the shared connection; with a user's own store, nothing stays in it."""
        if self._shared is not None and not self._shared.suspect and not self._shared.client.record.ended:
            forget = not self.stage.controlled and self.advertises("session", "delete")
            await self._shared.tidy("session/delete" if forget else "session/close")

    async def unshare(self) -> None:
        """End the shared connection."""
        self._shared = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    @asynccontextmanager
    async def fresh(self, policy: permissions.Policy = allow, *, initialize: bool = True) -> AsyncGenerator[Link]:
        """A fresh agent and a connection to it. Raises `Broken` when it cannot be started or does not answer."""
        async with AsyncExitStack() as stack:
            try:
                running = await stack.enter_async_context(self.launcher.start())
            except OSError as error:
                if not self.cwd.is_dir():
                    raise  # somebody has removed our folder: no fault of the agent
                raise Broken(f"the command cannot be started: {error.strerror or error}") from None
            client = await stack.enter_async_context(Client(running.transport, policy=policy, keep=_KEPT))
            link = Link(running, client, str(self.cwd), self.bound)
            self.links.append(link)
            if initialize:
                self.facts = await self.initialize(link)
            yield link

    async def initialize(self, link: Link) -> Json:
        """Initialize for version 2; gives the result. Raises `Broken` when it is anything else."""
        call = await link.ask("initialize", initialize_params())
        result = await link.result(call)
        version: Any = result.get("protocolVersion")
        if type(version) is not int or version != 2:  # noqa: PLR2004 - the version this is about
            raise Broken(f"the agent answered protocolVersion {version}: it does not speak version 2", link.shown(call))
        return result

    def advertises(self, *path: str) -> bool:
        """Whether the agent's capabilities hold an object at this path (INIT-9)."""
        value: Any = self.facts.get("capabilities")
        for name in path:
            value = as_object(value).get(name)
        return isinstance(value, dict)

    # --- things of a rule's own --------------------------------------------------------------------------------------

    def key(self, label: str = "key") -> str:
        """A fresh key."""
        key = f"check-{label}-{uuid.uuid4()}"
        self.keys.add(key)
        return key

    def text(self, label: str = "a prompt") -> str:
        """A prompt that no other rule sends, easy to answer."""
        return f"Conformance check, {label}, number {self.number()}: please answer with one word and use no tool."

    def number(self) -> int:
        """A number that no other call has given."""
        self._count += 1
        return self._count

    # --- work --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def busy(
        self, link: Link, pause: Pause = "tool", *, session: str | None = None, key: str | None = None
    ) -> AsyncGenerator[Busy]:
        """Foreground work that waits in a tool, or for the model. It is released at the end, whatever happened.

        Raises `NotApplicable` when the work cannot be made to wait.
        """
        session = session or await link.new()
        text = self.text(f"work that waits in a {pause}") if self.stage.controlled else LONG
        held = self.stage.hold(text, pause)
        busy = Busy(link, session, text, await link.prompt(session, text, key), held, self.stage.controlled)
        try:
            await self._arrive(busy)
            yield busy
        except Broken:
            if busy.may_have_ended():
                raise NotApplicable(_TOO_SOON) from None
            raise
        finally:
            held.release()

    async def _arrive(self, busy: Busy) -> None:
        """Wait until the work waits."""
        link, since = busy.link, busy.call.mark
        if not busy.controlled:
            await link.until(busy.session, is_state("running"), since, "the work begins with a running state_update")
            return
        arrived = False

        async def watch(scope: anyio.CancelScope) -> None:
            nonlocal arrived
            await busy.held.arrived(self.bound)
            arrived = True
            scope.cancel()

        async def give_up(scope: anyio.CancelScope) -> None:
            wanted = is_state("idle")
            await link.client.record.wait(lambda m: wanted(update_of(m, busy.session)), since, self.bound + 1)
            scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                tasks.start_soon(give_up, tasks.cancel_scope)
        except* (TimeoutError, ConnectionLostError):
            link.suspect = True
        if not arrived:
            if busy.call.done:
                await link.message_id(busy.call)  # a refused prompt, or an agent that ended, is told as it is
            states = ", ".join(link.states(busy.session, since)) or "no state"
            raise NotApplicable(f"the work could not be made to wait (it reported: {states})")


def initialize_params(version: Any = 2, **more: Any) -> Json:
    """The params of a good `initialize`."""
    return {"protocolVersion": version, "info": INFO, "capabilities": CAPABILITIES, **more}
