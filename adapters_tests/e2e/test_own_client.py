"""The program of docs/own-client.md: killed with its agent at any moment and run again, it loses and doubles nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

import adapters
from adapters.client import Client, start_agent
from adapters_tests.e2e.processes import living_in, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.real]

PAGE = Path(adapters.__file__).parents[1] / "docs" / "own-client.md"
SECONDS = 60.0


@pytest.fixture(params=["claude", "codex"])
def agent_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def place() -> Iterator[Path]:
    """A work folder that is a repository of its own, with a short name: Claude Code's socket must fit below it."""
    with tempfile.TemporaryDirectory(prefix="aa-") as folder:
        (Path(folder) / "work" / ".git").mkdir(parents=True)
        yield Path(folder)


class Chat:
    """The program in a work folder."""

    def __init__(self, place: Path, agent: str) -> None:
        (program,) = re.findall(r"```python chat\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        script = {
            "rules": [{"regex": "slow$", "steps": [{"blocks": [{"type": "shell", "command": "sleep 1"}]}, "Late."]}]
        }
        (place / "script.json").write_text(json.dumps({**script, "default": ["Answer."]}))
        (place / "chat.py").write_text(program)
        self.place, self.work = place, place / "work"
        options = ["--scripted", str(place / "script.json"), "--home", str(place / "home")]
        self.agent = [sys.executable, "-m", "adapters", agent, *options]
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "TMPDIR": str(place),
            "PYTHONPATH": str(Path(adapters.__file__).parents[1]),
        }

    async def start(self, prompt: str) -> Process:
        command = [sys.executable, str(self.place / "chat.py"), prompt, *self.agent]
        return await anyio.open_process(command, cwd=self.work, env=self.env)

    async def run(self, prompt: str) -> str:
        """Run it to its end; gives what it printed."""
        with anyio.fail_after(SECONDS):
            process = await self.start(prompt)
            assert process.stdout is not None
            assert process.stderr is not None
            out = b"".join([part async for part in process.stdout])
            err = b"".join([part async for part in process.stderr])
            assert await process.wait() == 0, err.decode()
            await process.aclose()
        return out.decode()

    async def kill(self, process: Process) -> None:
        """SIGKILL for the client; its agent and runtime are gone when this returns."""
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await process.aclose()
        await wait_for(lambda: not living_in(self.place / "home"), 10.0, "the agent of the killed client is gone")

    async def stored(self) -> list[str]:
        """The texts of the user's messages, from a replay on another connection."""
        session = (self.work / "chat-session").read_text()
        async with (
            start_agent(self.agent, env=self.env, cwd=str(self.work)) as agent,
            Client(agent.transport) as client,
        ):
            await client.initialize()
            await client.resume(session, str(self.work), replay=True)
            return [item.text for item in client.view(session).items("user")]

    def waiting(self) -> list[str]:
        """What the outbox holds."""
        path = self.work / "chat-outbox.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["prompt"][0]["text"] for line in lines]


@pytest.mark.parametrize("delays", [(0.0, 0.3), (0.05, 0.8)], ids=str)
async def test_killed_with_its_agent_it_brings_every_prompt_in_once(
    agent_name: str, place: Path, delays: tuple[float, float]
) -> None:
    """KEY-42, client duties: the first prompt of a session and a later one, killed so many seconds after they were stored."""
    chat = Chat(place, agent_name)
    for number, delay in zip(("first", "second"), delays, strict=True):
        prompt = f"{number} slow"
        process = await chat.start(prompt)
        await wait_for(lambda prompt=prompt: chat.waiting() == [prompt], SECONDS, "the prompt is in the outbox")
        await anyio.sleep(delay)  # the moment of the kill is what is tried here
        await chat.kill(process)
        said = await chat.run(f"after the {number}")
        assert "Answer." in said
        assert chat.waiting() == []
    assert await chat.stored() == ["first slow", "after the first", "second slow", "after the second"]


async def test_a_second_client_on_the_same_outbox_is_refused(agent_name: str, place: Path) -> None:
    chat = Chat(place, agent_name)
    process = await chat.start("slow")
    await wait_for(lambda: chat.waiting() == ["slow"], SECONDS, "the prompt is in the outbox")
    second = await chat.start("another")
    assert second.stderr is not None
    said = b"".join([part async for part in second.stderr]).decode()
    assert await second.wait() == 1
    await second.aclose()
    assert "OutboxInUseError" in said
    await chat.kill(process)
