"""What an agent that was killed while a session started leaves on the disk, and stored sessions that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.acp.errors import InternalError
from adapters.claude.lock import lock_session
from adapters.claude.state import state_folder
from adapters_tests.claude.driving import Sink, rig

pytestmark = pytest.mark.anyio

LEFT, STARTING = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


async def test_secrets_of_a_start_that_was_killed_are_removed_by_the_next_agent(tmp_path: Path) -> None:
    """A new session whose answer was lost is never resumed: nobody else would remove them. Living agents keep theirs."""
    async with rig(tmp_path) as one:
        folder = state_folder(one.environ)
        files = [f"{LEFT}.mcp.json", f".{LEFT}.mcp.json.77", f"{STARTING}.mcp.json", f".{STARTING}.mcp.json.78"]
        for name in files:
            (folder / name).write_text("secret")
        lock = await lock_session(folder, STARTING, bound=0)
        await one.new()
        assert sorted(path.name for path in folder.glob("*.mcp.json*")) == sorted(files[2:])
        assert not (folder / f"{LEFT}.lock").exists()
        lock.release()


async def test_a_stored_session_that_cannot_be_read_is_named_as_the_reason(tmp_path: Path) -> None:
    """Claude Code itself would say that there is no such session."""
    async with rig(tmp_path) as one:
        session, _, _ = await one.new()
        await session.close()
        one.file(session.session_id).mkdir()
        with pytest.raises(InternalError, match="cannot be read"):
            await one.runtime.open_session(session.session_id, one.setup(), Sink())
