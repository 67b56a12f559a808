"""The user's own settings and installation with the real runtime: they apply to what runs behind this agent."""

from __future__ import annotations

import json
import re
import sys
import venv
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from adapters.client import permissions
from adapters.client.client import Client
from adapters.client.permissions import Question
from adapters.client.process import start_agent
from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.rig import Link, Rig

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent(rig: Rig, env: Mapping[str, str], policy: permissions.Policy) -> AsyncIterator[Link]:
    """An agent in exactly this environment: making it anew would write the settings anew."""
    async with (
        start_agent(rig.runtime.command, env=env, cwd=str(rig.root)) as process,
        Client(process.transport, policy=policy) as client,
    ):
        link = Link(rig, process, client)
        await client.initialize()
        yield link
    link.check()


def ask_nothing(rig: Rig, env: Mapping[str, str]) -> None:
    """Settings with which the runtime asks for no permission."""
    if rig.runtime.name == "claude":
        settings = Path(env["CLAUDE_CONFIG_DIR"]) / "settings.json"
        settings.write_text(json.dumps({"permissions": {"defaultMode": "bypassPermissions"}}), encoding="utf-8")
    else:
        config = Path(env["CODEX_HOME"]) / "config.toml"
        text = config.read_text(encoding="utf-8")
        text = re.sub("^approval_policy = .*$", 'approval_policy = "never"', text, flags=re.MULTILINE)
        text = re.sub("^sandbox_mode = .*$", 'sandbox_mode = "danger-full-access"', text, flags=re.MULTILINE)
        config.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("settings", ["as they are", "ask nothing"])
async def test_a_permission_mode_that_asks_nothing_asks_nothing(rig: Rig, text: str, settings: str) -> None:
    """A known fault: "bypass permissions" still asks. The mode of the user's own settings holds, also after a resume."""
    questions: list[Question] = []

    async def note(question: Question) -> str | None:
        questions.append(question)
        return await permissions.allow(question)

    env = rig.env
    if settings == "ask nothing":
        ask_nothing(rig, env)
    expected = 0 if settings == "ask nothing" else 1
    command = (
        Shell if settings == "ask nothing" else rig.runtime.asking
    )  # Codex refuses to ask where nobody is to be asked
    files = [rig.project / name for name in ("first.txt", "second.txt")]
    for number, file in enumerate(files):
        rig.answer(f"{text} {number}", Answer((command(f"touch '{file}'"),)), say("Done with it."))
    async with agent(rig, env, note) as link:
        session = await link.new()
        await link.turn(session, f"{text} 0")
        assert files[0].exists()
        assert len(questions) == expected
    async with agent(rig, env, note) as link:
        await link.resume(session)
        await link.turn(session, f"{text} 1")
        assert files[1].exists()
        assert len(questions) == 2 * expected


def install(folder: Path) -> Path:
    """An installation of this package and of its runtimes in a virtual environment in `folder`; gives its Python.

    What is installed here is linked into it, so that everything is found below `folder`.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = ("adapters", "claude_agent_sdk", "codex_cli_bin")
    for name in packages:
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        (site / name).symlink_to(spec.submodule_search_locations[0])
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others), encoding="utf-8")
    return folder / "bin" / "python"


async def test_everything_works_from_an_installation_in_a_folder_with_a_space(rig: Rig, text: str) -> None:
    """A known fault: a space in the installation path breaks the start of the runtime, or of its tools."""
    folder = rig.root / "My Company - x"
    python = install(folder)
    tool = rig.tool(text)
    env = {**rig.env, "PYTHONPATH": ""}
    command = [str(python), "-m", "adapters", rig.runtime.name]
    async with (
        start_agent(command, env=env, cwd=str(rig.project)) as process,
        Client(process.transport, policy=permissions.allow) as client,
    ):
        link = Link(rig, process, client)
        await client.initialize()
        session = await link.new()
        call = await link.prompt(session, text, "a key of this test")
        await tool.started()
        programs = {Path(word) for proc in rig.processes() for word in proc.command[:1]}
        assert any(folder in path.parents and path != python for path in programs), programs
        tool.release()
        await client.wait_state(session, "idle", since=call.mark)
        again = await link.prompt(session, text, "a key of this test")
        assert await again.message_id() == await call.message_id()
    link.check()
    assert rig.model.in_conversation(text) == 1
