"""A tiny agent for the client's own tests: a few lines per method, keys honoured, everything it got at hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from adapters.acp.framing import LineDecoder, decode, encode
from adapters.acp.memory import memory_pair
from adapters.acp.rpc import Transport

Json = dict[str, Any]


class FakeAgent:
    """State that survives its connections, like a stored session. `hold` keeps answers to prompts back."""

    def __init__(self) -> None:
        self.received: list[Json] = []
        self.inserted: dict[str, str] = {}
        self.submissions = 0
        self.hold = False
        self.errors: list[Json] = []
        """Errors to answer the next prompts with."""
        self.transport: Transport | None = None
        self._came = anyio.Event()

    async def serve(self, transport: Transport) -> None:
        decoder = LineDecoder()
        while data := await transport.receive():
            for line in decoder.feed(data):
                assert isinstance(line, bytes)
                message = decode(line)
                self.received.append(message)
                await self._answer(message)
                self._came.set()
                self._came = anyio.Event()
        await transport.aclose()

    async def send(self, message: Json) -> None:
        assert self.transport is not None
        await self.transport.send(encode({"jsonrpc": "2.0", **message}))

    async def update(self, session_id: str, variant: str, **fields: Any) -> None:
        params = {"sessionId": session_id, "update": {"sessionUpdate": variant, **fields}}
        await self.send({"method": "session/update", "params": params})

    async def wait_for(self, wanted: Callable[[Json], bool]) -> Json:
        """The first message received that is wanted."""
        with anyio.fail_after(5):
            while True:
                for message in self.received:
                    if wanted(message):
                        return message
                await self._came.wait()

    async def _answer(self, message: Json) -> None:
        method, request_id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None or request_id is None:
            return
        match method:
            case "initialize":
                result: Json = {"protocolVersion": 2, "info": {"name": "fake", "version": "0"}}
            case "session/new":
                result = {"sessionId": "s1", "availableCommands": [{"name": "c"}]}
            case "session/list":
                last = params.get("cursor") == ""
                result = {"sessions": [{"sessionId": "b" if last else "a"}], "nextCursor": None if last else ""}
            case "session/prompt":
                await self._prompt(request_id, params)
                return
            case _:
                result = {}
        await self.send({"id": request_id, "result": result})

    async def _prompt(self, request_id: Any, params: Json) -> None:
        if self.errors:
            await self.send({"id": request_id, "error": self.errors.pop(0)})
            return
        key = params.get("idempotencyKey") or f"unkeyed-{request_id}"
        if key not in self.inserted:
            self.submissions += 1
            self.inserted[key] = f"m{self.submissions}"
        if not self.hold:
            await self.send({"id": request_id, "result": {"messageId": self.inserted[key]}})


@asynccontextmanager
async def running(agent: FakeAgent) -> AsyncIterator[Transport]:
    """The client's end of a connection to the agent."""
    ours, theirs = memory_pair()
    agent.transport = theirs
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent.serve, theirs)
        yield ours
        tasks.cancel_scope.cancel()
