"""The real Claude Code binary in an isolated home, driven by raw frames. Shared by the tests of this folder."""

import importlib.util
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from anyio.abc import Process

from adapters.acp.framing import LineDecoder, LineTooLong
from adapters.scripted import ScriptedModel, isolated_claude_home

LIMIT = 40.0  # seconds; no step of these tests takes a tenth of it on an idle machine

Frame = dict[str, Any]


def claude_binary() -> str | None:
    """The binary in the SDK's wheel, None where it is not installed."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations if spec else None
    binary = Path(folders[0]) / "_bundled" / "claude" if folders else None
    return str(binary) if binary is not None and binary.exists() else None


class Cli:
    """One running CLI: what it wrote, and ways to wait for it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.frames: list[Frame] = []
        self.results = 0
        self._changed = anyio.Event()

    async def send(self, frame: Frame) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps(frame).encode() + b"\n")

    async def prompt(self, content: Any) -> str:
        """Write a prompt; return its uuid."""
        uuid = str(uuid4())
        message = {"role": "user", "content": content}
        await self.send(
            {"type": "user", "uuid": uuid, "session_id": "", "parent_tool_use_id": None, "message": message}
        )
        return uuid

    async def control(self, **request: Any) -> None:
        await self.send({"type": "control_request", "request_id": str(uuid4()), "request": request})

    async def wait(self, wanted: Callable[[Frame], bool], start: int = 0) -> Frame:
        """The first frame from `start` on that is wanted."""
        with anyio.fail_after(LIMIT):
            while True:
                for frame in self.frames[start:]:
                    if wanted(frame):
                        return frame
                await self._changed.wait()

    async def next_result(self) -> Frame:
        """The next result nobody has taken yet."""
        self.results += 1
        with anyio.fail_after(LIMIT):
            while len(found := [frame for frame in self.frames if frame["type"] == "result"]) < self.results:
                await self._changed.wait()
        return found[self.results - 1]

    async def turn(self, content: Any) -> Frame:
        """A prompt and its result."""
        await self.prompt(content)
        return await self.next_result()

    async def read(self) -> None:
        assert self.process.stdout is not None
        lines = LineDecoder()
        async for data in self.process.stdout:
            for line in lines.feed(data):
                assert not isinstance(line, LineTooLong)
                self.frames.append(json.loads(line))
            self._changed.set()
            self._changed = anyio.Event()


@asynccontextmanager
async def claude(
    model: ScriptedModel,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    commands: Mapping[str, str] | None = None,
) -> AsyncIterator[Cli]:
    """A new session of the real CLI that talks to `model`; gone, with its home, at the end."""
    binary = claude_binary()
    assert binary is not None
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = {**isolated_claude_home(root / "home", model.base_url), **(environ or {})}
        for name, text in (commands or {}).items():
            file = root / "home" / "claude" / "commands" / f"{name}.md"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        (root / "cwd").mkdir()
        command = [binary, "--output-format=stream-json", "--input-format=stream-json", "--verbose", "--system-prompt="]
        command += [
            f"--session-id={uuid4()}",
            "--permission-prompt-tool=stdio",
            "--include-partial-messages",
            *arguments,
        ]
        failure: Exception | None = None
        async with (
            await anyio.open_process(command, stderr=None, env=environment, cwd=root / "cwd") as process,
            anyio.create_task_group() as group,
        ):
            cli = Cli(process)
            try:
                group.start_soon(cli.read)
                await cli.control(subtype="initialize", hooks=None)
                await cli.wait(lambda frame: frame["type"] == "control_response")
                yield cli
            except Exception as error:  # noqa: BLE001 - leaves below as itself, not in a group
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    assert process.stdin is not None
                    await process.stdin.aclose()
                    with anyio.move_on_after(5):
                        await process.wait()
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure
