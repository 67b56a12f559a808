"""The client's MCP servers from outside: each has exactly the fields that the client gave, under the client's name."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from adapters.client import permissions
from adapters.client.permissions import Question
from adapters.scripted.script import Answer, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.mcp_servers import Stdio, http_server, offered
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.test_settings import agent

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


# --- the list of a session ---------------------------------------------------------------------------------------------


async def test_a_resume_brings_exactly_its_servers(rig: Rig, text: str) -> None:
    """RESUME-1: in an active session, after the death of the runtime, and by another agent; those of before are gone."""
    one, two = Stdio("one", rig.root / "one.log"), Stdio("two", rig.root / "two.log")
    asks = count()

    async def called(link: Link, session: str) -> list[str]:
        """Which servers' tools run when the model calls both."""
        before = (one.calls, two.calls)
        at = f"{text} {next(asks)}"
        rig.answer(at, Answer(tuple(tools)), say("Called."))
        await link.turn(session, at)
        return [server.name for server, calls in zip((one, two), before, strict=True) if server.calls > calls]

    async with rig.agent() as link:
        session = await link.new(mcpServers=[one.given(), two.given()])
        await link.turn(session, f"{text} before")
        tools = offered(rig.model)
        assert await called(link, session) == ["one", "two"]
        for servers in ([], [one], [two], [], [one, two], []):
            await link.resume(session, mcpServers=[server.given() for server in servers])
            assert await called(link, session) == [server.name for server in servers]
        rig.runtime_of(session).kill(signal.SIGKILL)
        assert await called(link, session) == []
        await link.client.close(session)
        await link.resume(session, mcpServers=[two.given()])
        assert await called(link, session) == ["two"]
    async with rig.agent() as link:
        await link.resume(session)
        assert await called(link, session) == []
        await link.client.close(session)
        await link.resume(session, mcpServers=[one.given()])
        assert await called(link, session) == ["one"]


def notices(link: Link, session: str) -> list[str]:
    return [
        f"{update['title']} {update.get('description', '')}"
        for update in link.client.updates(session)
        if update["sessionUpdate"] == "notice"
    ]


def telling_of(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda update: update["sessionUpdate"] == "notice" and name in update["title"]


async def test_each_server_that_fails_is_named_once(rig: Rig, text: str) -> None:
    """SETUP-6, STDIO-15: however early it fails, without what the client gave for it; a prompt tells nothing again."""
    words = [f"plant-{uuid.uuid4()}" for _ in range(5)]
    good = Stdio("good", rig.root / "good.log")
    with http_server("locked", 401) as locked, http_server("broken", 500) as broken:
        servers = [
            good.given(),
            {"type": "stdio", "name": "no program", "command": f"/no/such/{words[0]}", "args": [words[1]], "env": []},
            Stdio("ends", rig.root / "ends.log").given(command="/bin/false", TOKEN=words[2]),
            {"type": "http", "name": "refused", "url": f"http://127.0.0.1:9/{words[3]}?k={words[3]}", "headers": []},
            locked.given("locked", f"/{words[4]}", Authorization=f"Bearer {words[4]}"),
            broken.given("broken", f"/?key={words[4]}", X_Key=words[4]),
        ]
        failing = [server["name"] for server in servers[1:]]
        async with rig.agent() as link:
            for number in range(3):
                session = await link.new(mcpServers=servers)
                for name in failing:
                    await link.client.wait_update(session, telling_of(name), within=20)
                await link.turn(session, f"{text} {number}")
                told = notices(link, session)
                assert sorted(name for notice in told for name in failing if name in notice) == sorted(failing)
                assert not any(word in notice for word in words for notice in told)
                assert not any("good" in notice for notice in told)
            await link.client.close(session)
            mark = link.client.record.mark
            await link.resume(session, mcpServers=servers)
            await link.client.wait_update(session, telling_of("no program"), since=mark, within=20)


@pytest.mark.parametrize(
    "rule", [{"deniedMcpServers": [{"serverName": "two"}]}, {"allowedMcpServers": [{"serverName": "one"}]}]
)
async def test_a_server_that_settings_do_not_allow_is_named(rig: Rig, text: str, rule: dict[str, object]) -> None:
    """SETUP-6: Claude Code leaves it out and tells nobody."""
    if rig.runtime.name != "claude":
        pytest.skip("a rule of Claude Code")
    one, two = Stdio("one", rig.root / "one.log"), Stdio("two", rig.root / "two.log")
    (Path(rig.env["CLAUDE_CONFIG_DIR"]) / "settings.json").write_text(json.dumps(rule))
    async with rig.agent() as link:
        session = await link.new(mcpServers=[one.given(), two.given()])
        await link.client.wait_update(session, telling_of("two"), within=20)
        await link.turn(session, text)
        (notice,) = notices(link, session)
        assert "settings" in notice
    assert (len(one.starts), len(two.starts)) == (1, 0)


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
