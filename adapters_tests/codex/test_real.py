"""The driver with the real Codex, where its own behaviour is what counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters_tests.e2e.rig import open_rig
from adapters_tests.e2e.runtimes import CODEX

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def test_a_server_that_never_answers_holds_no_prompt_up(tmp_path: Path) -> None:
    """Known faults: tool servers are waited for without a bound. Codex waits about a second, then goes on without it."""
    server = {"type": "stdio", "name": "hung", "command": "/bin/sleep", "args": ["1000"], "env": []}
    async with CODEX.model() as model, open_rig(CODEX, model, tmp_path / "h") as rig, rig.agent() as link:
        session = await link.new(mcpServers=[server])
        message_id = await link.turn(session, "Do not wait for it.", "a-server-that-hangs")
        assert rig.stored_ids(session) == [message_id]
        assert model.calls("Do not wait for it.") == 1
        await link.client.close(session)
