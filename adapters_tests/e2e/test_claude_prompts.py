"""The prompts of MCP servers are commands of Claude Code: offered when they come, under a name that works when it is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.client.view import SessionView
from adapters_tests.e2e.mcp_servers import Stdio
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CLAUDE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session"),
]


def offered(update: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The prompts of servers in a list of commands, by their names."""
    commands = {command["name"]: command for command in update.get("availableCommands", ())}
    return {name: command for name, command in commands.items() if name.startswith("mcp__")}


async def with_prompts(link: Link, session: str, count: int) -> dict[str, dict[str, Any]]:
    return offered(await link.client.wait_update(session, lambda update: len(offered(update)) == count, within=20))


async def test_the_prompts_of_servers_are_offered_and_work(rig: Rig) -> None:
    """CMD-1, CMD-2, CMD-3: also of a server whose name has white space, with arguments, and in a replay as they were typed."""
    servers = [Stdio(name, rig.root / f"{at}.log") for at, name in enumerate(("box", "my server"))]
    async with rig.agent() as link:
        session = await link.new(mcpServers=[server.given() for server in servers])
        prompts = await with_prompts(link, session, 8)  # of five each: a name with white space is none
        assert all(not set(name) & set(" \t\n") for name in prompts)
        keys = dict.fromkeys(name.split("__")[1] for name in prompts)
        assert [sum(name.startswith(f"mcp__{key}__") for name in prompts) for key in keys] == [4, 4]
        sent: list[tuple[str, str]] = []
        for name, command in prompts.items():
            assert (command["type"], command["input"]["type"]) == ("command", "text")
            assert command["description"]
            typed = f"/{name}  Ann  kindly " if name.endswith("greet") else f"/{name}"
            sent.append((await link.turn(session, typed), typed))
            server = "box" if name.startswith("mcp__box__") else "my server"
            arguments = {"who": "Ann", "how": "kindly"} if name.endswith("greet") else {}
            asked = json.dumps({"arguments": arguments, "name": name.split("__")[2]}, sort_keys=True)
            assert json.dumps(f"{server} was asked: {asked}")[1:-1] in json.dumps(rig.model.records[-1].body)
        typed = f"/{next(name for name in prompts if name.endswith('greet'))}"
        sent.append((await link.turn(session, typed), typed))
        assert "Missing required argument: who" in link.client.view(session).items("agent")[-1].text
        await link.client.close(session)
        mark = link.client.record.mark
        await link.resume(session, replay=True)
        shown = SessionView.of(link.client.updates(session, mark)).items("user")
        assert [(item.item_id, item.text) for item in shown] == sent


async def test_a_server_that_connects_later_brings_its_prompts(rig: Rig) -> None:
    """CMD-2: the whole list is sent again."""
    go = rig.root / "go"
    server = Stdio("box", rig.root / "box.log")
    async with rig.agent() as link:
        session = await link.new(mcpServers=[server.given(STARTS_WITH=str(go))])
        first = {command["name"] for command in link.client.view(session).commands}
        assert first
        assert not any(name.startswith("mcp__") for name in first)
        mark = link.client.record.mark
        go.touch()
        prompts = await with_prompts(link, session, 4)
        updates = link.client.updates(session, mark)
        last = [update for update in updates if update["sessionUpdate"] == "available_commands_update"][-1]
        names = [command["name"] for command in last["availableCommands"]]
        assert set(names) == first | set(prompts)
        assert len(names) == len(set(names))
