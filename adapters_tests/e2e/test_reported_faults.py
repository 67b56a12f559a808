"""Faults that users of other agents have reported, provoked on the real runtimes."""

from __future__ import annotations

import sys

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.scripted.home import DUMMY_KEY
from adapters_tests.e2e.rig import Link, Rig

pytestmark = pytest.mark.anyio

CREDENTIALS = {"claude": "ANTHROPIC_API_KEY", "codex": "SCRIPTED_MODEL_KEY"}


async def test_equal_text_under_a_fresh_key_runs_again(shared: Link, text: str) -> None:
    """F1, KEY-2: prompts are never taken for retries by what they say."""
    session = await shared.new()
    ids = [await shared.turn(session, text, f"fresh-key-{number}") for number in range(2)]
    again = await shared.prompt(session, text, "fresh-key-0")
    assert await again.message_id() == ids[0]
    assert shared.rig.stored_ids(session) == ids
    assert shared.rig.model.calls(text) == 2


async def test_no_credential_at_all_is_told_from_everything_else(rig: Rig, text: str) -> None:
    """F33, AUTH-5: before the insertion an error of the prompt, after it an idle error; with a reason, and bounded."""
    del_credential = {CREDENTIALS[rig.runtime.name]: ""}
    async with rig.agent(**del_credential) as link:
        session = await link.new()
        call = await link.prompt(session, text, "without-a-credential")
        try:
            await call.message_id(60)
            idle = await link.client.wait_state(session, "idle", since=call.mark, within=60)
            assert idle["stopReason"] == "error"
            code, message = idle["error"]["code"], idle["error"]["message"]
        except AcpError as error:
            code, message = error.code, error.message
        assert code == -32000
        assert len(message) > 20
        assert rig.model.calls(text) == 0
    async with rig.agent(**{CREDENTIALS[rig.runtime.name]: DUMMY_KEY}) as link:
        if rig.stored(session):
            await link.resume(session)
            assert await (await link.prompt(session, text, "without-a-credential")).message_id()
            await link.turn(session, f"{text} after the login")


async def test_a_tool_server_that_never_answers(rig: Rig, text: str) -> None:
    """F39: the session starts, the prompt is answered within a bound, and a notice names the server."""
    deaf = {"type": "stdio", "name": "deaf", "command": sys.executable, "args": ["-c", "import time; time.sleep(600)"]}
    async with rig.agent(MCP_TIMEOUT="2000") as link:
        session = await link.new(mcpServers=[{**deaf, "env": []}])
        call = await link.prompt(session, text, "beside-a-deaf-server")
        await call.message_id(60)
        await link.client.wait_state(session, "idle", since=call.mark, within=60)
        assert rig.model.calls(text) == 1
        if rig.runtime.name == "claude":  # Codex gives a server 30 s: codex/test_session.py
            await link.client.wait_update(
                session, lambda u: u["sessionUpdate"] == "notice" and "deaf" in u["title"], within=60
            )


async def test_every_advertised_command_says_something(rig: Rig, text: str) -> None:
    """F42, CMD-1: what is offered works: it shows something, asks the model, or changes the state; nothing hangs."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, text)
        commands = [command["name"] for command in link.client.view(session).commands]
        assert commands
        silent: list[str] = []
        for name in commands:
            calls = rig.model.total_calls
            call = await link.prompt(session, f"/{name}")
            await call.message_id(60)
            await link.client.wait_state(session, "idle", since=call.mark, within=90)
            kinds = {u["sessionUpdate"] for u in link.client.updates(session, call.mark)}
            if not kinds - {"state_update", "user_message", "usage_update"} and rig.model.total_calls == calls:
                silent.append(name)
        assert silent == []


async def test_a_client_that_resends_on_every_error_inserts_once(rig: Rig, text: str) -> None:
    """F2, F11: blind resending with a key, also while the first attempt runs and after its work has failed."""
    rig.fail(text, 500, "by the script")
    async with rig.agent(CLAUDE_CODE_MAX_RETRIES="1") as link:
        session = await link.new()
        ids: set[str] = set()
        async with anyio.create_task_group() as tasks:

            async def resend() -> None:
                call = await link.prompt(session, text, "blind-resend-key")
                ids.add(await call.message_id(60))

            for _ in range(5):
                tasks.start_soon(resend)
        await link.client.wait_state(session, "idle", within=60)
        assert link.client.view(session).state_update["stopReason"] == "error"
        for _ in range(3):
            ids.add(await (await link.prompt(session, text, "blind-resend-key")).message_id())
        assert len(ids) == 1
        assert rig.stored_ids(session) == [*ids]
        assert rig.model.calls(text) == 1
