"""A client of ACP v1 over any transport: writes lines, keeps every line of the agent, answers questions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from adapters.acp.framing import encode
from adapters.acp.rpc import Transport
from adapters_tests.v1_schema import validate_sent

Json = dict[str, Any]
Policy = Callable[[Json], Awaitable[Any]]
"""A question's params -> the result to answer with; None for no answer."""


async def allow(params: Json) -> Json:
    """The first option that allows."""
    option = next(option for option in params["options"] if option["kind"].startswith("allow"))
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


class Failed(Exception):  # noqa: N818 - an answer of the agent
    """An error response."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: Any = error.get("data")


class Call:
    """A request that waits."""

    def __init__(self, client: V1Client, number: int, method: str) -> None:
        self._client = client
        self.number = number
        self.method = method
        self.answer: Json | None = None
        self.heard = 0
        """How many updates had come when it was answered."""

    async def result(self, within: float = 10.0) -> Any:
        await self._client.until(lambda: self.answer is not None, within)
        assert self.answer is not None
        if "error" in self.answer:
            raise Failed(self.answer["error"])
        return self.answer["result"]


class V1Client:
    """Every line that comes is judged at once."""

    def __init__(self, transport: Transport, policy: Policy = allow) -> None:
        self._transport = transport
        self.policy = policy
        self.calls: dict[int, Call] = {}
        self.updates: list[Json] = []
        self.questions: list[Json] = []
        self.question_ids: list[Any] = []
        self.withdrawn: list[Any] = []
        self.faults: list[BaseException] = []
        self._changed = anyio.Event()

    @staticmethod
    @asynccontextmanager
    async def over(transport: Transport, policy: Policy = allow) -> AsyncIterator[V1Client]:
        client = V1Client(transport, policy)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client._read)
            try:
                yield client
            finally:
                await transport.aclose()
                tasks.cancel_scope.cancel()

    async def _read(self) -> None:
        unread = b""
        while data := await self._transport.receive():
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                await self._take(json.loads(line))
            self._changed.set()
            self._changed = anyio.Event()

    async def _take(self, message: Json) -> None:
        call = self.calls.get(message.get("id", -1)) if "method" not in message else None
        try:
            validate_sent(message, call.method if call else None)
        except Exception as fault:  # noqa: BLE001 - told at the end of the test
            self.faults.append(fault)
        if call is not None:
            if call.answer is not None:
                self.faults.append(AssertionError(f"answered twice: {message}"))
            call.answer, call.heard = message, len(self.updates)
        elif message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif message.get("method") == "$/cancel_request":
            self.withdrawn.append(message["params"]["requestId"])
        elif message.get("method") == "session/request_permission":
            self.questions.append(message["params"])
            self.question_ids.append(message["id"])
            if (answer := await self.policy(message["params"])) is not None:
                await self.respond(message["id"], answer)

    async def until(self, condition: Callable[[], bool], within: float = 10.0) -> None:
        with anyio.fail_after(within):
            while not condition():
                await self._changed.wait()

    async def request(self, method: str, **params: Any) -> Call:
        call = Call(self, len(self.calls) + 1, method)
        self.calls[call.number] = call
        await self._transport.send(encode({"jsonrpc": "2.0", "id": call.number, "method": method, "params": params}))
        return call

    async def respond(self, request_id: Any, result: Any) -> None:
        await self._transport.send(encode({"jsonrpc": "2.0", "id": request_id, "result": result}))

    async def notify(self, method: str, **params: Any) -> None:
        await self._transport.send(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    # --- methods -----------------------------------------------------------------------------------------------------

    async def initialize(self, **capabilities: Any) -> Json:
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        return await (await self.request("initialize", **params)).result()

    async def new(self, cwd: str = "/", **more: Any) -> str:
        return (await (await self.request("session/new", cwd=cwd, mcpServers=[], **more)).result())["sessionId"]

    async def load(self, session: str, cwd: str = "/") -> Json:
        return await (await self.request("session/load", sessionId=session, cwd=cwd, mcpServers=[])).result()

    async def resume(self, session: str, cwd: str = "/") -> Json:
        return await (await self.request("session/resume", sessionId=session, cwd=cwd, mcpServers=[])).result()

    async def prompt(self, session: str, text: str, **more: Any) -> Call:
        blocks = [{"type": "text", "text": text}]
        return await self.request("session/prompt", sessionId=session, prompt=blocks, **more)

    async def cancel(self, session: str) -> None:
        await self.notify("session/cancel", sessionId=session)

    def shown(self, *kinds: str) -> list[Json]:
        """The updates of these kinds."""
        return [update for update in self.updates if update["sessionUpdate"] in kinds]

    def said(self) -> str:
        return "".join(update["content"]["text"] for update in self.shown("agent_message_chunk"))
