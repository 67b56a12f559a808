"""Rules of the protocol that the driver keeps by itself and that no other test of this folder names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import AvailableCommand, McpServerStdio
from adapters.codex import commands
from adapters.codex.mcp_servers import choose_keys
from adapters.codex.server.signals import Item, ItemClosed, ItemOpened, TurnEnded, TurnStarted
from adapters.codex.thread import requests
from adapters.codex.turn_types import Look
from adapters.codex.turns import Turns
from adapters.core.port import PromptFailed, SessionSetup, WorkEnded, WorkStarted
from adapters.core.server_keys import name_of
from adapters_tests.codex.driving import rig

pytestmark = pytest.mark.anyio


async def test_the_commands_come_with_the_session_and_stay(tmp_path: Path) -> None:
    """CMD-2: Codex has none that could come or go, so the list of a session is whole from the beginning."""
    async with rig(tmp_path) as r:
        session, _, sink = await r.new()
        assert list(session.commands) == list(commands.COMMANDS)
        assert all(isinstance(command, AvailableCommand) for command in session.commands)
        assert not [update for update in sink.updates if update["sessionUpdate"] == "available_commands_update"]


def test_work_that_began_for_a_prompt_that_failed_gets_its_end() -> None:
    """PROMPT-11: its turn began and ended without it (a hook of the user refused it): an end, and one error."""
    turns = Turns()
    submission = turns.submit("K")
    turns.sending(submission)
    turns.accepted(submission, "N")
    events: list[Any] = [
        *turns.take(TurnStarted("N")),
        *turns.take(TurnEnded("N", "failed", {"message": "a hook says no"})),
    ]
    look = next(event for event in events if isinstance(event, Look))
    events += turns.looked(look.submission, found=False)
    assert [type(event) for event in events if isinstance(event, WorkStarted | WorkEnded | PromptFailed)] == [
        *(WorkStarted, WorkEnded, PromptFailed),
    ]
    assert "a hook says no" in str(events[-1].error)
    assert not turns.working


def test_a_refused_prompt_does_not_end_other_work() -> None:
    """PROMPT-12: a steer that Codex refuses for its content fails alone."""
    turns = Turns()
    turns.take(TurnStarted("N"))
    submission = turns.submit("K")
    turns.sending(submission)
    effects = turns.refused(submission, InvalidParams("too large"))
    assert [type(effect) for effect in effects] == [PromptFailed]
    assert turns.working
    message = Item("m1", "agentMessage")
    assert turns.take(ItemOpened("N", message)) == []
    turns.take(ItemClosed("N", message, stored=True))
    assert WorkEnded in [type(effect) for effect in turns.take(TurnEnded("N", "completed"))]


def test_servers_keep_names_of_their_own() -> None:
    """SETUP-5, SETUP-6: what Codex does not allow in a name is replaced, and no server takes another one's place."""
    servers = [McpServerStdio(name=name, command="/bin/true") for name in ("a b", "a_b", "a/b", "é")]
    keys = choose_keys(servers, {})
    assert list(keys.values()) == servers
    assert [name_of(key) for key in keys] == [server.name for server in servers]
    params = requests.start_params(SessionSetup("/", (), tuple(servers)), keys=keys)
    assert list(params["config"]["mcp_servers"]) == list(keys)
    assert all(re.fullmatch(r"[a-zA-Z0-9_:@/.-]+", key) for key in keys), "what Codex 0.163.0 takes as a name"
