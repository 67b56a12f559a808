"""What an agent that was killed leaves on the disk, and stored sessions that cannot be read."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import InternalError
from adapters.claude.cli import orphans
from adapters.claude.cli.lock import lock_session
from adapters.claude.cli.state_dir import state_folder
from adapters_tests.claude.driving import Sink, rig
from adapters_tests.e2e.processes import wait_for

pytestmark = pytest.mark.anyio

LEFT, ACTIVE = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


async def test_what_a_killed_agent_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """A new session whose answer was lost is never resumed: nobody else would. Living agents, and other files, keep theirs."""
    async with rig(tmp_path) as one:
        folder = state_folder(one.environ)
        names = (".lock", ".runtime.json", ".mcp.json")
        left = [LEFT + name for name in names] + [f".{LEFT}.mcp.json.77", f".{LEFT}.runtime.json.77"]
        kept = [ACTIVE + name for name in names] + [f".{ACTIVE}.mcp.json.78", "notes.lock", f"{LEFT}.txt"]
        for name in left + kept:
            (folder / name).write_text("secret")
        lock = await lock_session(folder, ACTIVE, bound=0)
        await one.new()
        await wait_for(lambda: not any((folder / name).exists() for name in left), 10, "all removed")
        assert all((folder / name).exists() for name in kept)
        lock.release()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_process_of_a_killed_agent_is_ended_with_its_files(tmp_path: Path) -> None:
    """D6: also where nobody resumes its session."""
    async with rig(tmp_path) as one:
        folder = state_folder(one.environ)
        command = [sys.executable, "-c", "import sys; sys.stdin.read()", f"--session-id={LEFT}"]
        async with await anyio.open_process(command) as orphan:
            orphans.record(folder, LEFT, orphan.pid)
            await one.new()
            with anyio.fail_after(10):
                assert await orphan.wait() == -signal.SIGTERM
        await wait_for(lambda: not list(folder.glob(f"*{LEFT}*")), 10, "nothing of it is left")


async def test_a_stored_session_that_cannot_be_read_is_named_as_the_reason(tmp_path: Path) -> None:
    """Claude Code itself would say that there is no such session."""
    async with rig(tmp_path) as one:
        session, _, _ = await one.new()
        await session.close()
        one.file(session.session_id).mkdir()
        with pytest.raises(InternalError, match="cannot be read"):
            await one.runtime.open_session(session.session_id, one.setup(), Sink())
