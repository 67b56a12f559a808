"""What is told of the client's MCP servers."""

from __future__ import annotations

from typing import Any

from adapters.acp.schema import McpServerStdio, Notice
from adapters.claude.mcp_status import Servers
from adapters.core.port import Output


def server(name: str, command: str = "/bin/x") -> McpServerStdio:
    return McpServerStdio(name=name, command=command)


def status(**servers: str) -> dict[str, Any]:
    return {"mcpServers": [{"name": name.replace("_", "-"), "status": state} for name, state in servers.items()]}


class World:
    def __init__(self, **ours: McpServerStdio) -> None:
        self.ours = {name.replace("_", "-"): given for name, given in ours.items()}
        self.told: list[str] = []
        self.servers = Servers(lambda: self.ours, self._deliver)

    def _deliver(self, output: Output) -> None:
        assert isinstance(output.update, Notice)
        self.told.append(output.update.title)


def test_a_server_that_the_cli_does_not_name_is_left_out_once_it_had_the_time() -> None:
    world = World(docs=server("docs"), my_box_0x20=server("my box"))
    assert not world.servers.settled(status(docs="connected"), sure=False)
    assert world.told == []
    assert world.servers.settled(status(docs="connected"), sure=True)
    assert world.servers.settled(status(docs="connected"), sure=True)
    (told,) = world.told
    assert "my box was left out" in told


def test_a_server_that_connects_is_waited_for_in_silence() -> None:
    world = World(docs=server("docs"), other=server("other"))
    assert not world.servers.settled(status(docs="pending", other="failed", users="failed"), sure=True)
    assert [("other" in told, "users" in told) for told in world.told] == [(True, False)]
    assert world.servers.settled(status(docs="needs-auth", other="failed"), sure=True)
    assert len(world.told) == 2
    assert "login" in world.told[1]


def test_another_server_of_that_name_is_told_of_again() -> None:
    world = World(docs=server("docs"))
    for given in (server("docs"), server("docs"), server("docs", "/bin/y")):
        world.ours = {"docs": given}
        world.servers.tell([("docs", "failed")])
    assert len(world.told) == 2
