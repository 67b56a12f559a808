"""A conformant agent in memory for the check's own tests: our core on a runtime that plays what the stage says.

Killing it loses everything but the store, like a process. `Fault` sits on the wire between it and the client.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from adapters.acp.memory import memory_pair
from adapters.acp.rpc import Transport
from adapters.acp.schema import ContentBlock, TextBlock, ToolCallUpdate
from adapters.check.launch import Running
from adapters.check.stage import Held, Pause
from adapters.core import port
from adapters.core.front import AgentInfo, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime, ScriptedSession, Store
from adapters.core.submissions import random_id

Json = dict[str, Any]


class Waiting:
    """Work that waits in the played runtime."""

    def __init__(self, pause: Pause) -> None:
        self.pause = pause
        self.here = anyio.Event()
        self.released = False
        self.then: list[Callable[[], None]] = []

    async def arrived(self, within: float) -> None:
        with anyio.fail_after(within):
            await self.here.wait()

    def release(self) -> None:
        self.released = True
        while self.then:
            self.then.pop()()


@dataclass
class PlayedStage:
    """What the model behind the agent in memory does."""

    controlled: bool = True
    waits: dict[str, Waiting] = field(default_factory=dict[str, Waiting])
    failing: set[str] = field(default_factory=set[str])
    asking: dict[str, Path] = field(default_factory=dict[str, Path])
    counts: Counter[str] = field(default_factory=Counter[str])

    def hold(self, text: str, pause: Pause) -> Held:
        return self.waits.setdefault(text, Waiting(pause))

    def fail(self, text: str) -> None:
        self.failing.add(text)

    def ask(self, text: str, file: Path) -> Sequence[str]:
        self.asking[text] = file
        return ()

    def calls(self, text: str) -> int | None:
        return self.counts[text]


class PlayedSession(ScriptedSession):
    """Prompts that come while work waits are taken in when it goes on."""

    def __init__(self, runtime: PlayedRuntime, session_id: str, sink: port.EventSink) -> None:
        super().__init__(runtime, session_id, sink)
        self.stage = runtime.stage
        self.waiting: list[str] = []
        self.work: Waiting | None = None
        self.question: tuple[str, Path] | None = None

    def text_of(self, message_id: str) -> str:
        blocks: Sequence[ContentBlock] = next(blocks for known, blocks in self.submitted if known == message_id)
        return "".join(block.text for block in blocks if isinstance(block, TextBlock))

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        self.submitted.append((message_id, prompt))
        if self.work is not None or self.question is not None:
            self.waiting.append(message_id)
        else:
            self._play(message_id)

    def _take_in(self, message_id: str) -> None:
        self.take(message_id)
        self.insert(message_id)
        self.stage.counts[self.text_of(message_id)] += 1

    def _play(self, message_id: str) -> None:
        text = self.text_of(message_id)
        self._take_in(message_id)
        if text in self.stage.failing:
            self.end("error", error={"code": -32603, "message": "The model refused."})
        elif text in self.stage.asking:
            self._ask(self.stage.asking[text])
        elif text in self.stage.waits and not self.stage.waits[text].released:
            self.work = self.stage.waits[text]
            if self.work.pause == "tool":
                self._tool("in_progress")
            self.work.then.append(self._go_on)
            self.work.here.set()
        else:
            self._finish()

    def _tool(self, status: Any) -> None:
        self.output(ToolCallUpdate(tool_call_id="tool", title="A tool", status=status))

    def _ask(self, file: Path) -> None:
        self.question = (random_id(), file)
        self._tool("pending")
        options = [port.PermissionOption(kind, kind, kind) for kind in ("allow_once", "reject_once")]
        call = ToolCallUpdate(tool_call_id="tool", title="A tool")
        self.deliver(port.PermissionRequested(self.question[0], "May it run?", options, call))

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        if self.question is None or self.question[0] != request_id:
            return
        _, file = self.question
        self.question = None
        if option_id == "allow_once":
            file.touch()
        self._tool("completed" if option_id == "allow_once" else "failed")
        self._finish()

    def _go_on(self) -> None:
        if self.work is None or self.closed:
            return
        if self.work.pause == "tool":
            self._tool("completed")
        self.work = None
        self._finish()

    def _finish(self) -> None:
        while self.waiting:
            self._take_in(self.waiting.pop(0))
        self.say("ok")
        self.end()

    async def withdraw(self, message_id: str) -> None:
        if message_id in self.waiting:
            self.waiting.remove(message_id)
            self.fail(message_id)

    async def interrupt(self) -> None:
        if self.work is None and self.question is None:
            return
        self.work, self.question = None, None
        self._tool("cancelled")
        while self.waiting:
            self.fail(self.waiting.pop(0))
        self.end("error", interrupted=True)

    async def close(self) -> None:
        for message_id in self.waiting:
            self.fail(message_id)
        self.waiting.clear()
        await super().close()


class PlayedRuntime(ScriptedRuntime):
    """The port, played."""

    def __init__(self, store: Store, stage: PlayedStage) -> None:
        super().__init__(store)
        self.stage = stage

    def _open(self, session_id: str, sink: port.EventSink) -> PlayedSession:
        session = PlayedSession(self, session_id, sink)
        self.sessions[session_id] = session
        return session

    def crash(self) -> None:
        """Nothing reaches the store or the core any more."""
        for session in self.sessions.values():
            session.closed = True


class Fault:
    """What an agent does wrong, on its wire. `into` and `out` take one line and give the lines that take its place.

    As it is, it changes nothing. A fault for one object at a time overrides `take` (of the client) or `give` (of the agent).
    """

    ignores_end = False
    """It goes on when its stdin ends, and on SIGTERM."""
    leaves: Sequence[str] = ()
    """Command lines that it leaves running."""
    log = ""

    def __init__(self) -> None:
        self.asked: dict[Any, Json] = {}
        """Requests of the client by id."""
        self.said: list[Json] = []

    def say(self, message: Json) -> None:
        """Send this to the client now."""
        self.said.append({"jsonrpc": "2.0", **message})

    def update(self, session: Any, **update: Any) -> None:
        """Send a session/update to the client now."""
        self.say({"method": "session/update", "params": {"sessionId": session, "update": update}})

    def into(self, line: bytes) -> list[bytes]:
        """A line of the client."""
        try:
            message = json.loads(line)
        except ValueError:
            return [line]
        if not isinstance(message, dict):
            return [line]
        if "method" in message and isinstance(message.get("id"), int | str):
            self.asked[message["id"]] = json.loads(line)
        taken = self.take(message)
        return [line] if taken is message and message == json.loads(line) else [_line(m) for m in _list(taken)]

    def out(self, line: bytes) -> list[bytes]:
        """A line of the agent."""
        return [_line(message) for message in _list(self.give(json.loads(line)))]

    def take(self, message: Json) -> Any:
        """A message of the client: it, another, a list, or None for none."""
        return message

    def give(self, message: Json) -> Any:
        """A message of the agent: it, another, a list, or None for none."""
        return message

    def method_of(self, answer: Json) -> str:
        """The method of the request that an answer answers."""
        return "" if "method" in answer else self.asked.get(answer.get("id"), {}).get("method", "")


def _list(given: Any) -> list[Json]:
    return given if isinstance(given, list) else [given] if given is not None else []


def _line(message: Json) -> bytes:
    return json.dumps(message).encode()


class _Faulty:
    """The agent's end of a connection, with a fault on it."""

    def __init__(self, transport: Transport, fault: Fault) -> None:
        self._transport, self._fault, self._rest = transport, fault, b""

    async def receive(self) -> bytes:
        while data := await self._transport.receive():
            *lines, self._rest = (self._rest + data).split(b"\n")
            passed = b"".join(line + b"\n" for given in lines for line in self._fault.into(given))
            said, self._fault.said = self._fault.said, []
            for message in said:
                await self._transport.send(_line(message) + b"\n")
            if passed:
                return passed
        if self._fault.ignores_end:
            await anyio.sleep_forever()
        return b""

    async def send(self, data: bytes) -> None:
        lines = data.split(b"\n")[:-1]
        passed = b"".join(line + b"\n" for given in lines for line in self._fault.out(given))
        said, self._fault.said = self._fault.said, []
        await self._transport.send(passed + b"".join(_line(message) + b"\n" for message in said))

    async def aclose(self) -> None:
        await self._transport.aclose()


class MemoryAgent:
    """A running agent, like a process."""

    def __init__(self, transport: Any, runtime: PlayedRuntime, fault: Fault) -> None:
        self.transport = transport
        self.runtime = runtime
        self.fault = fault
        self.returncode: int | None = None
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()

    @property
    def stderr(self) -> str:
        return self.fault.log

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            self.kill()
        elif not self.fault.ignores_end:
            self.transport.send_eof()

    def kill(self) -> None:
        self.runtime.crash()
        self.returncode = -9
        self.scope.cancel()

    async def wait(self, within: float) -> int:
        with anyio.fail_after(within):
            await self.ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def run(self, transport: Transport) -> None:
        try:
            with self.scope:
                async with serve(lambda: self.runtime, FEATURES, AgentInfo("played", "Played", "1")) as server:
                    await server.run_connection(_Faulty(transport, self.fault))
        finally:
            await transport.aclose()
            self.returncode = self.returncode or 0
            self.ended.set()


class MemoryLauncher:
    """Starts agents on one store; each start has a fresh fault of the kind."""

    def __init__(self, stage: PlayedStage, fault: Callable[[], Fault] = Fault) -> None:
        self.store = Store()
        self.stage = stage
        self.fault = fault
        self.starts = 0

    @asynccontextmanager
    async def start(self) -> AsyncGenerator[Running]:
        self.starts += 1
        ours, theirs = memory_pair(buffer=16 * 1024 * 1024)
        agent = MemoryAgent(ours, PlayedRuntime(self.store, self.stage), self.fault())
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.run, theirs)
            try:
                yield agent
            except Exception as error:  # noqa: BLE001 - raised again below, not in the group's group
                failure = error
            finally:
                agent.kill()
        if failure is not None:
            raise failure

    def left(self, started: Running) -> list[str]:
        assert isinstance(started, MemoryAgent)
        return list(started.fault.leaves)

    def sweep(self, keep: Running | None = None) -> None:
        del keep
