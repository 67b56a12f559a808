"""`acp-adapters claude|codex --scripted FILE`: the real runtime, a scripted model in the agent itself, a home of its own."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import adapters
from adapters.client.client import Client
from adapters.client.process import AgentProcess, start_agent
from adapters.scripted.home import work_folder
from adapters_tests.e2e.processes import living_in, wait_for

pytestmark = pytest.mark.anyio

SECONDS = 60.0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    answer = {"blocks": [{"type": "text", "text": "Scripted hello."}]}
    path.write_text(json.dumps({"default": [answer]}), encoding="utf-8")
    return path


@pytest.fixture
def temp() -> Iterator[Path]:
    """A temporary folder with a short name: Claude Code's socket must fit into it."""
    with tempfile.TemporaryDirectory(prefix="aa-") as folder:
        yield Path(folder)


@pytest.fixture(params=["claude", "codex"])
def runtime(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def agent(runtime: str, tmp_path: Path, temp: Path, *options: str) -> AsyncGenerator[tuple[AgentProcess, Client]]:
    """The agent in the environment of a user whose account must not be touched."""
    user = tmp_path / "user"
    user.mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "TMPDIR": str(temp),
        "PYTHONPATH": str(Path(adapters.__file__).parents[1]),
        "ANTHROPIC_API_KEY": "the-users-own-key",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/nobody",
        "CLAUDE_CONFIG_DIR": str(user / "claude"),
        "OPENAI_API_KEY": "the-users-own-key",
        "CODEX_HOME": str(user / "codex"),
    }
    command = [sys.executable, "-m", "adapters", runtime, *options]
    async with start_agent(command, env=environ) as process, Client(process.transport) as client:
        await client.initialize()
        yield process, client


async def hello(client: Client, tmp_path: Path, key: str) -> tuple[str, str]:
    """Start a session and send a prompt: the session and the message's id, when the answer is there."""
    session = await client.new(str(work_folder(tmp_path / "work")))
    call = await client.prompt(session, "Hello?", key)
    message_id = await call.message_id(SECONDS)
    await client.wait_state(session, "idle", since=call.mark, within=SECONDS)
    assert [item.text for item in client.view(session).items("agent")] == ["Scripted hello."]
    return session, message_id


def living_homes(temp: Path) -> list[Path]:
    return list(temp.glob("acp-adapters-*"))


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
async def test_it_answers_from_the_script_and_touches_nothing_of_the_user(
    runtime: str, tmp_path: Path, temp: Path, script: Path, number: signal.Signals | None
) -> None:
    """STDIO-11, STDIO-14: however it ends, its home and every process in it are gone."""
    async with agent(runtime, tmp_path, temp, "--scripted", str(script)) as (process, client):
        await hello(client, tmp_path, "k-1")
        (home,) = living_homes(temp)
        assert living_in(home)
        if number is None:
            await process.transport.aclose()
        else:
            process.signal(number)
        assert await process.wait() == 0
        assert process.stderr == ""
        await wait_for(lambda: not living_in(home), 2.0, "every process of the home is gone")
    assert not home.exists()
    assert list((tmp_path / "user").rglob("*")) == []


async def test_a_home_of_ones_own_remembers_keys_across_restarts(
    runtime: str, tmp_path: Path, temp: Path, script: Path
) -> None:
    """Trace 3: killed and started again, the agent answers the same key with the same message."""
    options = ("--scripted", str(script), "--home", str(temp / "home"))
    async with agent(runtime, tmp_path, temp, *options) as (process, client):
        session, first = await hello(client, tmp_path, "k-1")
        process.kill()
        await process.wait()
    async with agent(runtime, tmp_path, temp, *options) as (process, client):
        await client.resume(session, str(tmp_path), replay=True)
        call = await client.prompt(session, "Hello?", "k-1")
        with anyio.fail_after(SECONDS):
            assert await call.message_id(SECONDS) == first
        assert client.view(session).user_message_ids() == [first]
