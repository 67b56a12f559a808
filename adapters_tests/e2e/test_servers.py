"""The client's MCP servers from outside: each has exactly the fields that the client gave, under the client's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.client import permissions
from adapters.client.permissions import Question
from adapters.scripted.script import Answer, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.mcp_servers import Stdio, http_server, offered
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Rig
from adapters_tests.e2e.test_settings import agent

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def repository(rig: Rig) -> None:
    """The project is a repository of its own: Claude Code writes and reads its rules in the nearest one."""
    (rig.project / ".git").mkdir()


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


# --- names ---------------------------------------------------------------------------------------------------------------

NAMES = (
    "my server", "my.server", "my_server", "My_Server", "my-server-0x20", "ide", "__proto__", "constructor", "toString",
    "a__b", "_", "é", "документация", "codex_apps", "workspace", "claude-code-remote", "7", "x" * 60, " a/b@c:d ",
)  # fmt: skip


async def test_servers_of_any_name_are_called_and_shown_under_it(rig: Rig, text: str) -> None:
    """SETUP-5, SETUP-6, TOOL-2: no server takes another one's place; the client sees the names that it gave."""
    servers = [Stdio(name, rig.root / f"{at}.log") for at, name in enumerate(NAMES)]
    asked = Asked()
    async with rig.agent(asked) as link:
        session = await link.new(mcpServers=[server.given() for server in servers])
        await link.turn(session, f"{text} before")
        tools = offered(rig.model)
        assert len(tools) == len(NAMES)
        for at, tool in enumerate(tools):
            rig.answer(f"{text} {at}", Answer((tool,)), say("Called."))
            await link.turn(session, f"{text} {at}")
        calls = link.client.view(session).items("tool_call")
        for call, question in zip(calls, asked.questions, strict=True):
            (name,) = (name for name in NAMES if f"'I am {name}'" in str(call.fields["content"]))
            assert call.fields["title"] == " ".join(f"{name}: who".split())
            assert call.fields["name"] == f"mcp__{name}__who"
            assert " ".join(name.split()) in question.params["title"]
        await link.replays_alike(session)
    assert [server.calls for server in servers] == [1] * len(NAMES)


async def test_a_rule_for_one_server_holds_for_no_other(rig: Rig, text: str) -> None:
    """PERM-7: names that the runtime would squeeze to the same, also of a server that comes in another session."""
    one, other = Stdio("my server", rig.root / "one.log"), Stdio("my_server", rig.root / "other.log")
    asked = Asked()

    async def always(question: Question) -> str | None:
        offers = [option["optionId"] for option in question.params["options"] if option["kind"] == "allow_always"]
        return offers[-1]

    asked.answer = always
    async with rig.agent(asked) as link:
        for number, server in enumerate((one, other, one)):
            session = await link.new(mcpServers=[server.given()])
            await link.turn(session, f"{text} before {number}")
            (tool,) = offered(rig.model)
            rig.answer(f"{text} {number}", Answer((tool,)), say("Called."))
            await link.turn(session, f"{text} {number}")
    titles = [question.params["title"] for question in asked.questions]
    assert ["my server" in title for title in titles[:2]] == [True, False]
    assert "my_server" in titles[1]
    assert len(titles) == (2 if rig.runtime.name == "claude" else 3), (
        "Codex remembers the client's servers for one session"
    )
    assert (one.calls, other.calls) == (2, 1)


# --- beside the user's own -------------------------------------------------------------------------------------------------

PRIVATE = "a secret of the user"
OF_THE_USER = {
    "a command": "command = {command}\nargs = {args}\nenv = {{ TOKEN = '{private}' }}",
    "switched off": "command = {command}\nargs = {args}\nenabled = false\nenv = {{ TOKEN = '{private}' }}",
    "one tool only": "command = {command}\nargs = {args}\nenabled_tools = ['other']\nenv_vars = ['PLANTED']",
    "a tool less": "command = {command}\nargs = {args}\ndisabled_tools = ['who']\ncwd = '/nowhere'\nstartup_timeout_sec = 1",
    "a token": "url = '{url}'\nbearer_token_env_var = 'PLANTED'",
    "headers": "url = '{url}'\nhttp_headers = {{ X-Key = '{private}' }}\nenv_http_headers = {{ X-More = 'PLANTED' }}",
}
"""What the user may have configured under the name of a client's server."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("entry", OF_THE_USER)
@pytest.mark.parametrize("where", ["user", "folder"])
async def test_a_server_has_nothing_of_the_users_entry_of_that_name(
    rig: Rig, text: str, entry: str, transport: str, where: str
) -> None:
    """SETUP-6: the client's server has its own fields alone and is called; the user's entry is as it was."""
    if rig.runtime.name != "codex" or (where == "folder" and entry != "a token"):
        pytest.skip("a table of Codex's configuration; where it stands matters for none of its fields")
    users, stdio = Stdio("users", rig.root / "users.log"), Stdio("clients", rig.root / "clients.log")
    with http_server("users") as users_http, http_server("clients") as http:
        fields = OF_THE_USER[entry].format(
            command=json.dumps(users.command),
            args=json.dumps(users.arguments),
            url=users_http.given("docs")["url"],
            private=PRIVATE,
        )
        env = rig.env
        config = Path(env["CODEX_HOME"]) / "config.toml"
        trusted = f"[projects.{json.dumps(str(rig.project))}]\ntrust_level = 'trusted'\n"
        table = f"[mcp_servers.docs]\n{fields}\n"
        (rig.project / ".codex").mkdir()
        (rig.project / ".codex" / "config.toml").write_text(table if where == "folder" else "")
        config.write_text(f"{config.read_text()}\n{trusted}{table if where == 'user' else ''}")
        before = config.read_text()
        given = stdio.given(name="docs", OWN="1") if transport == "stdio" else http.given("docs", Own="1")
        async with agent(rig, {**env, "PLANTED": PRIVATE}, permissions.allow) as link:
            session = await link.new(mcpServers=[given])
            await link.turn(session, f"{text} before")
            (tool,) = (call for call in offered(rig.model) if "0x" in f"{call.namespace}")
            rig.answer(text, Answer((tool,)), say("Asked."))
            await link.turn(session, text)
            (call,) = link.client.view(session).items("tool_call")
            assert (call.fields["title"], call.fields["status"]) == ("docs: who", "completed")
            assert "I am clients" in str(call.fields["content"])
            await link.turn(session, "/status")
            assert "docs (ready)" in link.client.view(session).items("agent")[-1].text
        assert config.read_text() == before
        assert users.calls == 0
        if entry == "a command":
            assert [start["env"]["TOKEN"] for start in users.starts] == [PRIVATE]
        for start in stdio.starts:
            assert start["env"]["OWN"] == "1"
            assert PRIVATE not in str(start)
        assert bool(stdio.starts) is (transport == "stdio")
        assert bool(http.heard) is (transport == "http")
        for _, headers in http.heard:
            assert headers["own"] == "1"
            assert PRIVATE not in str(headers)
        if entry == "headers":
            assert {headers["x-key"] for _, headers in users_http.heard} == {PRIVATE}
