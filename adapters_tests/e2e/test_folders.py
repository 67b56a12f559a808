"""The folder of the stored sessions, however the environment spells it: agent and runtime mean the same one, or it is refused."""

from __future__ import annotations

import os
import signal
import unicodedata
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CLAUDE, REPOSITORY
from adapters_tests.reliability import homes

pytestmark = pytest.mark.anyio

DECOMPOSED = unicodedata.normalize("NFD", "hömé")

SPELLINGS = {
    "unset": "",
    "relative": "store",
    "tilde": "~/store",
    "dots": "tmp/../store",
    "dots behind a link": "{root}/link/../store",
    "a link": "{root}/linked",
    "slashes": "{root}//store///",
    "decomposed": "{root}/" + DECOMPOSED,
}
"""The agent is started in the root, which is the home too; sessions are in another folder below it."""


def variable(rig: Rig) -> str:
    return "CLAUDE_CONFIG_DIR" if rig.runtime.name == "claude" else "CODEX_HOME"


def prepare(rig: Rig) -> None:
    """Every folder that a spelling could mean is there: a wrong one is not noticed by its absence."""
    root = rig.root
    (root / "deep" / "real").mkdir(parents=True)
    (root / "link").symlink_to(root / "deep" / "real")
    environ = rig.runtime.environment(root, rig.model.base_url)
    config = Path(environ[variable(rig)]) / "config.toml"
    for name in ("store", "deep/store", DECOMPOSED, f".{rig.runtime.name}"):
        (root / name).mkdir(exist_ok=True)
        if config.exists():
            (root / name / "config.toml").write_bytes(config.read_bytes())
    (root / "linked").symlink_to("store")


def logs(rig: Rig) -> list[Path]:
    """The files of stored sessions, wherever they are."""
    places = ("projects", "sessions")
    found = [path for path in rig.root.rglob("*.jsonl") if any(place in path.parts for place in places)]
    return [path for path in found if path.stem == "history" or not path.is_symlink()]


async def sends_again(rig: Rig, text: str, **env: str) -> str:
    """A prompt and, to the next agent, the same once more; gives its one id."""

    async def send(link: Link, session: str) -> str:
        return await (await link.prompt(session, text, "key of the folder")).message_id()

    async with rig.agent(**env) as link:
        session = await link.new()
        message_id = await send(link, session)
        await link.ended(session, message_id)
    async with rig.agent(**env) as link:
        await link.resume(session, replay=True)
        assert message_id in link.user_messages(session)
        assert await send(link, session) == message_id
    return message_id


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_prompt_is_found_again_however_its_folder_is_spelled(rig: Rig, text: str, spelling: str) -> None:
    prepare(rig)
    message_id = await sends_again(rig, text, **{variable(rig): SPELLINGS[spelling].format(root=rig.root)})
    assert rig.model.in_conversation(text) == 1
    assert len([path for path in logs(rig) if message_id.encode() in path.read_bytes()]) == 1
    assert [path.name for path in rig.project.iterdir()] == [".git"]  # as it was made
    assert not list(rig.root.rglob("~"))


@pytest.mark.parametrize("home", ["relative", DECOMPOSED], ids=["relative", "decomposed"])
async def test_a_prompt_is_found_again_however_the_home_is_spelled(rig: Rig, text: str, home: str) -> None:
    prepare(rig)
    default = rig.root / home / f".{rig.runtime.name}"
    default.mkdir(parents=True)
    for file in (rig.root / "store").iterdir():
        (default / file.name).write_bytes(file.read_bytes())
    spelled = home if home == "relative" else str(rig.root / home)
    await sends_again(rig, text, HOME=spelled, **{variable(rig): ""})
    assert rig.model.in_conversation(text) == 1
    assert [path.name for path in rig.project.iterdir()] == [".git"]  # as it was made


@pytest.mark.parametrize("command", ["serve", "doctor"])
@pytest.mark.parametrize("value", ["~nobody/cfg", "{root}/file", "{root}/file/below", "{root}/nothing"])
async def test_a_folder_that_cannot_be_is_refused_by_name(rig: Rig, value: str, command: str) -> None:
    """At the start, in one line, and by `doctor`."""
    (rig.root / "file").touch()
    (rig.root / "nothing").symlink_to(rig.root / "nowhere")
    arguments = rig.runtime.command if command == "serve" else [*rig.runtime.command[:-1], "doctor", rig.runtime.name]
    environ = {**rig.env, variable(rig): value.format(root=rig.root)}
    with anyio.fail_after(60):
        ran = await anyio.run_process(arguments, env=environ, cwd=rig.root, input=b"", check=False)
    assert ran.returncode == 1
    said = (ran.stderr if command == "serve" else ran.stdout).decode()
    assert variable(rig) in said
    assert command == "doctor" or said.count("\n") == 1


async def test_a_folder_that_is_lost_meanwhile_is_refused_by_name(rig: Rig) -> None:
    """By `session/new`, which works again when the folder does."""
    prepare(rig)
    store = rig.root / "store"
    async with rig.agent(**{variable(rig): str(store)}) as link:
        await link.client.close(await link.new())
        await wait_for(lambda: not rig.runtimes(), 10, "nothing of the runtime uses the folder")
        store.rename(rig.root / "kept")
        store.touch()
        with pytest.raises(InternalError, match=variable(rig)):
            await link.new()
        store.unlink()
        os.rename(rig.root / "kept", store)  # noqa: PTH104
        assert await link.new()


DEAD_MOUNT = """
import os, time
for name in ("stat", "lstat", "open", "scandir"):
    def call(path, *args, real=getattr(os, name), **named):
        while "/dead" in str(path):
            time.sleep(1)
        return real(path, *args, **named)
    setattr(os, name, call)
"""
"""For an agent: a folder of this name does not answer, as with a network mount whose server is gone."""


async def test_a_working_folder_that_does_not_answer_costs_itself_only(rig: Rig, text: str, tmp_path: Path) -> None:
    """The other sessions go on meanwhile, and the agent ends."""
    (tmp_path / "sitecustomize.py").write_text(DEAD_MOUNT)
    (tmp_path / "dead").mkdir()
    async with rig.agent(PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}") as link:
        session = await link.new()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(does_not_answer, link, {"cwd": str(tmp_path / "dead")})
            tasks.start_soon(
                does_not_answer,
                link,
                {"cwd": str(rig.project), "additionalDirectories": [str(tmp_path / "dead" / "inner")]},
            )
            with anyio.fail_after(4):
                await link.turn(session, text)
        await link.new()
        link.process.signal(signal.SIGTERM)
        with anyio.fail_after(5):
            await link.process.wait()


async def does_not_answer(link: Link, params: dict[str, Any]) -> None:
    with pytest.raises(AcpError, match="does not answer"):
        await (await link.client.request("session/new", params)).result(30)


@pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session")
async def test_a_read_only_folder_of_claude_code_is_worked_with_live_only(rig: Rig, text: str) -> None:
    """What cannot be kept is said with each prompt; what was stored before is known."""
    if lacking := homes.own_namespace():
        pytest.skip(lacking)
    with homes.on_small_disk(rig, Random(text)):
        async with rig.agent() as link:
            session = await link.new()
            stored = await link.turn(session, text, "the-stored-key")
        await rig.all_gone()
        with homes.read_only(homes.runtime_folder(rig)):
            async with rig.agent() as link:
                await link.resume(session)
                assert await (await link.prompt(session, text, "the-stored-key")).message_id() == stored
                mark = link.client.record.mark
                live = await link.turn(session, f"{text} 2", "the-live-key")
                said = [update["title"] for update in link.client.updates(session, mark) if "severity" in update]
                assert said == ["This message could not be stored"]
                assert await (await link.prompt(session, f"{text} 2", "the-live-key")).message_id() == live
                await link.new()
            assert rig.stored_ids(session) == [stored]
            await rig.all_gone()
