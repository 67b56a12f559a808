"""A folder is what it is, however it is spelled: links, dots and slashes. On the real runtimes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from adapters.acp.errors import InvalidParams
from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.rig import Rig

pytestmark = pytest.mark.anyio


def linked(rig: Rig) -> tuple[Path, Path]:
    """A project, and another name of it below a link."""
    real = rig.root / "real" / "p"
    real.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(real)], check=True)
    (rig.root / "link").symlink_to(rig.root / "real")
    return real, rig.root / "link" / "p"


def spellings(real: Path, link: Path) -> list[str]:
    return [str(link), str(real), f"{real}/", f"{real.parent}/./p", f"{link}/../p"]


def name_of(path: Path) -> str:
    return str(path.resolve())


def is_there(path: str) -> bool:
    return Path(path).is_absolute() and Path(path).exists()


async def test_a_session_is_found_and_resumed_under_each_name_of_its_folder(rig: Rig) -> None:
    """LIST-2, RESUME-2, RESUME-5: also while it is active, with the name that the list gives."""
    real, link = linked(rig)
    async with rig.agent() as agent:
        client = agent.client
        session = await client.new(str(link))
        await agent.turn(session, "Say something.")
        names = [*spellings(real, link), *(row["cwd"] for row in await client.list())]
        for cwd in names:
            assert [row["sessionId"] for row in await client.list(cwd)] == [session], cwd
            await client.resume(session, cwd)
        with pytest.raises(InvalidParams, match="not the folder of this session"):
            await client.resume(session, str(real.parent))
        await client.close(session)
        for cwd in names:
            await client.resume(session, cwd)
            await client.close(session)
        assert len(rig.stored(session)) == 1


async def test_tools_work_in_a_linked_folder_and_their_places_can_be_opened(rig: Rig) -> None:
    """SETUP-2, TOOL-7: Codex's sandbox follows no link; a command in one would fail and change nothing."""
    real, link = linked(rig)
    more, more_link = rig.root / "real" / "more", rig.root / "link" / "more"
    more.mkdir()
    command = f"pwd > here; echo x > '{more}/there'; cat here"
    rig.answer("Work.", Answer((Shell(command),)), say("Done."))
    async with rig.agent() as agent:
        session = await agent.client.new(str(link), additionalDirectories=[str(more_link)])
        await agent.turn(session, "Work.")
        [call] = agent.client.view(session).items("tool_call")
    assert call.fields["status"] == "completed"
    assert [path.read_text() for path in (real / "here", more / "there")] == [f"{name_of(real)}\n", "x\n"]
    assert not [place for place in call.fields.get("locations", []) if not is_there(place["path"])]
