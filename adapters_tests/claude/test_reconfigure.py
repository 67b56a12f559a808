"""A resume of an active session brings new roots and servers to Claude Code, without a word to the work that runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.core.port import PromptInserted, WorkEnded
from adapters_tests.claude.driving import A, B, entry, rig, text

pytestmark = pytest.mark.anyio

C = "cccccccc-0000-4000-8000-000000000003"


async def test_new_roots_reach_the_next_prompt_that_finds_no_work(tmp_path: Path) -> None:
    """RESUME-1, RESUME-5: a running turn keeps its process, and a prompt during it too."""
    async with rig(tmp_path) as made:
        session, fake, sink = await made.working()
        await session.reconfigure(replace(made.setup(), additional_directories=("/",)))
        await session.submit(B, text())
        assert (await fake.hears("user"))["uuid"] == B
        await fake.lifecycle(B, "queued", "started")
        made.store(session.session_id, entry(B))
        await fake.mirror(entry(B))
        await sink.until(PromptInserted, 2)
        await fake.result(A, B)
        await sink.until(WorkEnded)
        await session.submit(C, text())
        second = await made.fake(2)
        assert second.argv[second.argv.index("--add-dir") + 1] == "/"
        assert (await second.hears("user"))["uuid"] == C
        assert fake.ended
