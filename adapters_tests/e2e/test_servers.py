"""The client's MCP servers from outside: each has exactly the fields that the client gave, under the client's name."""

from __future__ import annotations

import pytest

from adapters_tests.e2e.mcp_servers import Stdio, http_server
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Rig

pytestmark = pytest.mark.anyio

SPELLINGS = (
    "${PLANTED}", "$PLANTED", "$${PLANTED}", "${${PLANTED}}", "a${PLANTED}b${NOT_SET}", "${NOT_SET:-${PLANTED}}",
    "${NOT_SET:-x}", "${PLANTED", "${}", "$", "$${", "\\${PLANTED}", "%PLANTED%", "~", "$(echo x)", "${CLAUDE_PROJECT_DIR}",
)  # fmt: skip


async def test_values_of_servers_are_literal(rig: Rig, text: str) -> None:
    """SETUP-4: no variable of the agent's environment is put into what a client gives: a server elsewhere could read it."""
    program = rig.root / "py ${PLANTED}"
    stdio = Stdio("one", rig.root / "one.log")
    program.symlink_to(stdio.command)
    given = stdio.given(*SPELLINGS, command=str(program), **{f"V{at}": value for at, value in enumerate(SPELLINGS)})
    with http_server("two") as http:
        headers = {f"X_{at}": value for at, value in enumerate(SPELLINGS)}
        asked = http.given("two", "/?q=${PLANTED}&r=${NOT_SET:-x}", **headers)
        async with rig.agent(PLANTED="never to be read") as link:
            session = await link.new(mcpServers=[given, asked])
            await link.turn(session, text)
            await wait_for(lambda: bool(stdio.starts and http.heard), 20, "both servers are connected")
    [start] = stdio.starts
    assert start["arguments"] == list(SPELLINGS)
    assert [start["env"][f"V{at}"] for at in range(len(SPELLINGS))] == list(SPELLINGS)
    for path, received in http.heard:
        assert path.replace("%7B", "{").replace("%7D", "}") == "/?q=${PLANTED}&r=${NOT_SET:-x}"
        assert [received[f"x-{at}"] for at in range(len(SPELLINGS))] == list(SPELLINGS)
