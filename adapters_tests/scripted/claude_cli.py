"""The real Claude Code binary in an isolated home, driven by raw frames. Shared by the tests of this folder."""

import importlib.util
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from adapters.scripted import ScriptedModel, isolated_claude_home
from adapters.scripted.home import work_folder
from adapters_tests.scripted.program import LIMIT, Frame, Program


def claude_binary() -> str | None:
    """The binary in the SDK's wheel, None where it is not installed."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations if spec else None
    binary = Path(folders[0]) / "_bundled" / "claude" if folders else None
    return str(binary) if binary is not None and binary.exists() else None


class Cli(Program):
    """One running CLI."""

    results = 0
    """Those that were taken."""

    async def prompt(self, content: Any) -> str:
        """Write a prompt; return its uuid."""
        uuid = str(uuid4())
        message = {"role": "user", "content": content}
        await self.write(
            {"type": "user", "uuid": uuid, "session_id": "", "parent_tool_use_id": None, "message": message}
        )
        return uuid

    async def control(self, **request: Any) -> None:
        await self.write({"type": "control_request", "request_id": str(uuid4()), "request": request})

    async def next_result(self) -> Frame:
        """The next result nobody has taken yet."""
        self.results += 1
        with anyio.fail_after(LIMIT):
            while len(found := [frame for frame in self.frames if frame["type"] == "result"]) < self.results:
                await self.changed()
        return found[self.results - 1]

    async def turn(self, content: Any) -> Frame:
        """A prompt and its result."""
        await self.prompt(content)
        return await self.next_result()


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
        work_folder(root / "cwd")
        command = [binary, "--output-format=stream-json", "--input-format=stream-json", "--verbose", "--system-prompt="]
        command += [
            f"--session-id={uuid4()}",
            "--permission-prompt-tool=stdio",
            "--include-partial-messages",
            *arguments,
        ]
        async with Cli.started(command, environment, root / "cwd") as cli:
            await cli.control(subtype="initialize", hooks=None)
            await cli.wait(lambda frame: frame["type"] == "control_response")
            yield cli
