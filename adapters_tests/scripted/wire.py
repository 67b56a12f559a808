"""A small HTTP client for the tests: raw enough to send what no client library would."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

LIMIT = 10.0  # seconds; every wait in these tests


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True
    """False when the server cut the connection before the end of the body."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of all complete server-sent events."""
        found: list[dict[str, Any]] = []
        for part in self.body.split(b"\n\n")[:-1]:
            name, data = part.split(b"\n", 1)
            event = json.loads(data.removeprefix(b"data: "))
            assert name == f"event: {event['type']}".encode()
            found.append(event)
        return found

    @property
    def text(self) -> str:
        """The text deltas, joined."""
        deltas = [event["delta"] for event in self.events if event["type"] == "content_block_delta"]
        return "".join(delta.get("text", "") for delta in deltas)


@dataclass
class Wire:
    """One connection."""

    stream: SocketStream
    reader: BufferedByteReceiveStream = field(init=False)

    def __post_init__(self) -> None:
        self.reader = BufferedByteReceiveStream(self.stream)

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        await self.send(
            f"POST {path} HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(data)}\r\n\r\n".encode() + data
        )

    async def head(self) -> tuple[int, dict[str, str]]:
        with anyio.fail_after(LIMIT):
            lines = (await self.reader.receive_until(b"\r\n\r\n", 65536)).decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:])
        headers = {name.lower(): text for name, text in pairs}
        return int(lines[0].split(" ")[1]), headers

    async def reply(self, *, no_body: bool = False) -> Reply:
        status, headers = await self.head()
        reply = Reply(status, headers, b"")
        if no_body:
            return reply
        with anyio.fail_after(LIMIT):
            try:
                if headers.get("transfer-encoding") == "chunked":
                    while size := int(await self.reader.receive_until(b"\r\n", 100), 16):
                        reply.body += await self.reader.receive_exactly(size)
                        assert await self.reader.receive_exactly(2) == b"\r\n"
                    assert await self.reader.receive_exactly(2) == b"\r\n"
                elif "content-length" in headers:
                    reply.body = await self.reader.receive_exactly(int(headers["content-length"]))
                else:
                    reply.body = await self.rest()
            except anyio.IncompleteRead:
                reply.complete = False
        return reply

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        found = b""
        with anyio.fail_after(LIMIT):
            while True:
                try:
                    found += await self.reader.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return found


async def connect(port: int) -> Wire:
    return Wire(await anyio.connect_tcp("127.0.0.1", port))


def conversation(*prompts: str, streaming: bool = True) -> dict[str, Any]:
    """A request with these prompts, answered but for the last."""
    messages: list[dict[str, Any]] = []
    for prompt in prompts:
        messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": "answer"}]
    return {"model": "m", "stream": streaming, "messages": messages[:-1]}


async def ask(port: int, body: Any, headers: Mapping[str, str] | None = None, path: str = "/v1/messages") -> Reply:
    """One request on a connection of its own."""
    wire = await connect(port)
    async with wire.stream:
        await wire.post(path, body, headers)
        return await wire.reply()
