"""A session whose files were copied to another home: it goes on there, and its keys are known (docs/moving-sessions.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.rig import Rig, open_rig
from adapters_tests.e2e.runtimes import RuntimeUnderTest

pytestmark = [pytest.mark.anyio, pytest.mark.real]

FOLDERS = {"claude": "claude/projects", "codex": "codex/sessions"}
"""Where a runtime keeps its sessions, below an isolated home."""


async def test_a_session_that_was_moved_keeps_its_keys(
    rig: Rig, runtime: RuntimeUnderTest, model: ScriptedServer, tmp_path: Path, text: str
) -> None:
    """KEY-42, ADP-12: the stored session is the record, wherever it is."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "k-1")
        second = await link.turn(session, f"{text} 2", "k-2")
    files = [path for path in (rig.root / FOLDERS[runtime.name]).rglob(f"*{session}*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert len(files) == 1
    async with open_rig(runtime, model, tmp_path / "other") as other:
        for path in files:
            there = other.root / path.relative_to(rig.root)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)
        async with other.agent() as link:
            other.sessions.append(session)
            await link.resume(session, replay=True)
            assert link.client.view(session).user_message_ids() == [first, second]
            assert await (await link.prompt(session, f"{text} 1", "k-1")).message_id() == first
            assert await (await link.prompt(session, f"{text} 2", "k-2")).message_id() == second
            await link.turn(session, f"{text} 3", "k-3")
        assert [message.text for message in other.stored(session)] == [f"{text} {number}" for number in (1, 2, 3)]
    assert {path: path.read_bytes() for path in files} == before, "the original is as it was"
