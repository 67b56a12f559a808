"""Sessions from outside: new, list, close, delete, resume, replay, one writer, local commands."""

from __future__ import annotations

import json
import re
import sys
import uuid

import pytest

from adapters.acp.errors import AcpError, ResourceNotFound
from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Shell, Text, Thinking, ToolUse, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Link, Rig, is_update
from adapters_tests.e2e.runtimes import Deviation
from adapters_tests.e2e.test_codex import BOX

pytestmark = pytest.mark.anyio


# --- new -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", ["relative/folder", "", "file:///tmp", "/no/such/folder-here", __file__])
async def test_a_folder_that_is_none_is_refused_by_name_and_starts_nothing(shared: Link, cwd: str) -> None:
    """SETUP-1: relative, empty, a URI, missing, a file: `-32602`, before any runtime is started."""
    if shared.rig.deviates(Deviation.ONE_PROCESS):
        await wait_for(shared.rig.runtimes, 10, "the one process has been started")
    before = len(shared.rig.runtimes())
    with pytest.raises(AcpError) as caught:
        await shared.client.new(cwd)
    assert caught.value.code == -32602
    assert "cwd" in caught.value.message
    assert len(shared.rig.runtimes()) == before


async def test_a_session_works_in_its_folder(shared: Link, text: str) -> None:
    """SETUP-2: not in the agent's own."""
    folder = shared.rig.project / "deep er"
    folder.mkdir()
    session = await shared.client.new(str(folder))
    shared.rig.answer(text, Answer((Shell("pwd > here.txt"),)), say("There."))
    await shared.turn(session, text)
    assert (folder / "here.txt").read_text().strip() == str(folder)


async def test_no_model_is_asked_before_the_first_prompt(shared: Link) -> None:
    """SETUP-12: a new session is idle and silent."""
    before = shared.rig.model.total_calls
    session = await shared.new()
    await shared.client.list()
    assert shared.states(session) == []
    assert shared.rig.model.total_calls == before


async def test_secrets_of_mcp_servers_are_in_no_argument_and_no_log(shared: Link) -> None:
    """SETUP-4, SETUP-6, STDIO-15: any process of the machine can read the arguments of another."""
    secrets = [f"mcp-secret-{uuid.uuid4()}" for _ in range(3)]
    servers = [
        {
            "type": "stdio",
            "name": "silent",
            "command": "/bin/cat",
            "args": [],
            "env": [{"name": "TOKEN", "value": secrets[0]}],
        },
        {
            "type": "http",
            "name": "refused",
            "url": f"http://127.0.0.1:9/{secrets[1]}",
            "headers": [{"name": "Authorization", "value": f"Bearer {secrets[2]}"}],
        },
    ]
    session = await shared.new(mcpServers=servers)
    await shared.turn(session, "With servers.")
    visible = [word for proc in shared.rig.processes() for word in proc.command]
    assert any(shared.rig.runtime.is_runtime(proc) for proc in shared.rig.processes())
    for secret in secrets:
        assert not any(secret in word for word in visible)
        assert secret not in shared.process.stderr
        assert not any(secret in json.dumps(m.value) for m in shared.client.record.since(0, sent=False))


async def test_a_resume_of_an_active_session_brings_other_servers(rig: Rig, text: str) -> None:
    """RESUME-1, RESUME-5, SETUP-6: its servers come, the earlier ones go; what was said stays."""

    def server(name: str) -> dict[str, object]:
        log = str(rig.project / name)
        return {"type": "stdio", "name": name, "command": sys.executable, "args": ["-c", BOX, log], "env": []}

    def opened(name: str) -> bool:
        return (rig.project / name).exists()

    in_codex = rig.runtime.name == "codex"
    for name in ("one", "two"):
        space = f"mcp__{name}"
        call = ToolUse("open", {}, namespace=space) if in_codex else ToolUse(f"{space}__open", {})
        rig.answer(f"{text} {name}", Answer((call,)), say("Opened, or not."))
    async with rig.agent() as link:
        session = await link.new(mcpServers=[server("one")])
        await link.turn(session, f"{text} one")
        assert (opened("one"), opened("two")) == (True, False)
        (rig.project / "one").unlink()
        await link.resume(session, mcpServers=[server("two")])
        for name in ("one", "two"):
            await link.turn(session, f"{text} {name}")
        assert (opened("one"), opened("two")) == (False, True)
        await link.replays_alike(session)
    assert rig.in_conversation(f"{text} two") == 1


# --- list, delete ----------------------------------------------------------------------------------------------------------


async def test_sessions_are_listed_by_their_own_folder_newest_first(shared: Link, text: str) -> None:
    """LIST-1, LIST-2: folders whose encoded names are equal are different folders."""
    sessions: dict[str, str] = {}
    for name in ("a-b", "a.b", "a b"):
        folder = shared.rig.project / name
        folder.mkdir()
        sessions[str(folder)] = await shared.client.new(str(folder))
        await shared.turn(sessions[str(folder)], f"{text} {name}")
    for folder, session in sessions.items():
        [row] = await shared.client.list(folder)
        assert (row["sessionId"], row["cwd"]) == (session, folder)
    everything = [row["sessionId"] for row in await shared.client.list()]
    assert everything[:3] == list(reversed(sessions.values()))
    assert len(set(everything)) == len(everything)
    assert await shared.client.list(str(shared.rig.project / "nothing here")) == []


@pytest.mark.parametrize("params", [{"cwd": "relative"}, {"cwd": 7}, {"cursor": 7}, {"cursor": "not-ours"}], ids=repr)
async def test_a_list_with_a_bad_folder_or_cursor_is_refused(shared: Link, params: dict[str, object]) -> None:
    """LIST-2, LIST-3, LIST-4."""
    with pytest.raises(AcpError) as caught:
        await (await shared.client.request("session/list", params)).result()
    assert caught.value.code == -32602


async def test_a_deleted_session_is_gone_and_deleting_again_succeeds(shared: Link, text: str) -> None:
    """DEL-1, DEL-2, DEL-3, E25, ERR-4."""
    session = await shared.new()
    await shared.turn(session, text)
    assert session in [row["sessionId"] for row in await shared.client.list()]
    await shared.client.delete(session)
    assert session not in [row["sessionId"] for row in await shared.client.list()]
    assert shared.rig.stored(session) == []
    with pytest.raises(ResourceNotFound) as caught:
        await shared.resume(session)
    assert caught.value.data["sessionId"] == session
    await shared.client.delete(session)
    await shared.client.delete(str(uuid.uuid4()))


# --- close, resume -----------------------------------------------------------------------------------------------------------


async def test_closing_ends_the_work_first_and_sends_nothing_after_its_answer(shared: Link, text: str) -> None:
    """CLOSE-1, CLOSE-2, CLOSE-3, CLOSE-6, STOP-4: idle cancelled, final tool status, then the answer; again succeeds."""
    session = await shared.new()
    tool = shared.rig.tool(text)
    await shared.prompt(session, text)
    await tool.started()
    await shared.tool_shown(session)
    call = await shared.client.request("session/close", {"sessionId": session})
    await call.result()
    assert call.answered_at is not None
    assert shared.states(session) == ["running", "idle:cancelled"]
    [item] = shared.client.view(session).items("tool_call")
    assert item.fields["status"] == "cancelled"
    await shared.client.close(session)
    await shared.client.close(str(uuid.uuid4()))
    await shared.client.list()
    assert list(shared.client.updates(session, call.answered_at)) == []


async def test_resuming_what_does_not_exist(shared: Link) -> None:
    """ERR-2, RESUME-6."""
    for session in (str(uuid.uuid4()), "not-a-uuid", "../../etc/passwd"):
        with pytest.raises(ResourceNotFound) as caught:
            await shared.resume(session)
        assert caught.value.data["sessionId"] == session


@pytest.mark.parametrize("cursor", [{}, {"type": "end"}, {"type": 7}, "start", [], {"type": "_mine"}], ids=repr)
async def test_an_unknown_replay_cursor_is_refused(shared: Link, cursor: object) -> None:
    """RESUME-3: never substituted, never ignored."""
    session = await shared.quiet_session()
    with pytest.raises(AcpError) as caught:
        await shared.resume(session, replayFrom=cursor)
    assert caught.value.code == -32602


async def test_resuming_twenty_times_leaves_one_runtime_and_its_keys(shared: Link, text: str) -> None:
    """RESUME-5: nothing is restarted, duplicated or cancelled."""
    session = await shared.new()
    first = await shared.turn(session, text, "twenty-resumes")
    for _ in range(20):
        await shared.resume(session)
    assert shared.rig.runtime_of(session)
    assert await (await shared.prompt(session, text, "twenty-resumes")).message_id() == first
    assert shared.rig.stored_ids(session) == [first]


async def test_a_resume_in_mid_turn_with_replay_and_then_a_cancel(shared: Link, text: str) -> None:
    """RESUME-5, REPLAY-8, REPLAY-12, CANCEL-2: one interrupt, one idle: cancelled, and a held prompt is kept until then."""
    session = await shared.new()
    tool = shared.rig.tool(f"Tool of {text}")
    work = await shared.prompt(session, f"Tool of {text}")
    await tool.started()
    held = await shared.prompt(session, text, "resumed-while-held")
    mark = shared.client.record.mark
    await shared.resume(session, replay=True)
    assert shared.client.view(session).state == "running"
    assert not held.done
    replayed = SessionView.of(shared.client.updates(session, mark))
    assert replayed.snapshot() == shared.client.view(session).snapshot()
    assert replayed.user_message_ids() == [await work.message_id()]
    await shared.client.cancel(session)
    assert (await shared.error(held)).code == -32800
    await shared.client.wait_state(session, "idle", since=mark)
    await shared.turn(session, f"After {text}")
    assert shared.states(session) == ["running", "idle:cancelled", "running", "idle:end_turn"]


async def test_a_replay_shows_what_was_shown_live_and_twice_changes_nothing(rig: Rig, text: str) -> None:
    """REPLAY-1..5, REPLAY-7, UPD-2, PROMPT-21: thoughts, tools, a prompt in mid-turn, a failed tool, a cancelled turn."""
    rig.answer(
        f"{text} think",
        Answer(
            (
                Thinking("Let me see."),
                Text(
                    "One, ",
                ),
                Text("two."),
            )
        ),
    )
    rig.answer(f"{text} fail", Answer((Shell("echo to-stderr >&2; exit 3"),)), say("It failed."))
    rig.answer(f"{text} folded", say("Taken in."))
    tool = rig.tool(f"{text} tool")
    gate = rig.hold_model(f"{text} stop", Text("Never shown."))
    link_blocks = [
        {"type": "text", "text": f"{text} blocks "},
        {"type": "resource_link", "name": "notes.md", "uri": f"file://{rig.project}/notes.md"},
        {"type": "text", "text": "\ud83d\ude00 \u2028 \u00e9 </context> <command-name>"},
    ]
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, f"{text} think")
        await link.turn(session, link_blocks, "blocks-of-a-prompt")
        await link.turn(session, f"{text} fail")
        work = await link.prompt(session, f"{text} tool")
        await tool.started()
        folded = await link.prompt(session, f"{text} folded")
        tool.release()
        await folded.message_id()
        await link.client.wait_state(session, "idle", since=work.mark)
        stopped = await link.prompt(session, f"{text} stop")
        await stopped.message_id()
        await gate.wait_arrival()
        await link.client.cancel(session)
        await link.client.wait_state(session, "idle", since=stopped.mark)
        gate.release()
        live = link.client.view(session).snapshot()
        mark = link.client.record.mark
        await link.resume(session, replay=True)
        assert link.client.view(session).snapshot() == live, "a replay on the same connection changes nothing"
        assert SessionView.of(link.client.updates(session, mark)).snapshot() == live
    async with rig.agent() as link:
        for _ in range(2):
            await link.resume(session, replay=True)
            assert link.client.view(session).snapshot() == live
        states = [u["state"] for u in link.client.updates(session) if u["sessionUpdate"] == "state_update"]
        assert states == ["idle", "idle"]
        assert not any(u["sessionUpdate"] == "notice" for u in link.client.updates(session))
        assert list(link.received("session/request_permission")) == []


async def test_the_state_comes_after_the_replay_and_before_the_answer(rig: Rig, text: str) -> None:
    """REPLAY-1, RESUME-4, STDIO-9."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, text)
    async with rig.agent() as link:
        call = await link.client.request(
            "session/resume",
            {"sessionId": session, "cwd": str(rig.project), "replayFrom": {"type": "start"}},
        )
        await call.result()
        kinds = [
            message.params["update"]["sessionUpdate"]
            for message in link.received("session/update")
            if call.answered_at is not None and message.index < call.answered_at
        ]
        assert "user_message" in kinds
        last_content = max(i for i, kind in enumerate(kinds) if kind.startswith(("user_", "agent_")))
        assert "state_update" in kinds[last_content:]
        assert kinds.count("state_update") == 1


# --- one writer --------------------------------------------------------------------------------------------------------------


async def test_a_second_agent_is_refused_while_the_first_lives_and_served_when_it_is_gone(rig: Rig, text: str) -> None:
    """ADP-14, E45, D6: refused naming the holder; the holder's death frees the session at once."""
    async with rig.agent() as first:
        session = await first.new()
        message_id = await first.turn(session, text, "e45-the-one-key")
        async with rig.agent() as second:
            with pytest.raises(AcpError) as caught:
                await second.resume(session)
            assert str(first.process.pid) in caught.value.message
            assert (await second.error(await second.prompt(session, text, "e45-the-one-key"))).code == -32002
            assert await (await first.prompt(session, text, "e45-the-one-key")).message_id() == message_id
            other = await second.new()
            await second.turn(other, f"Other {text}")
            first.process.kill()
            await first.process.wait()
            await second.resume(session)
            assert await (await second.prompt(session, text, "e45-the-one-key")).message_id() == message_id
    assert rig.stored_ids(session) == [message_id]
    assert rig.model.calls(text) == 1


async def test_a_closed_session_is_free_for_another_agent(rig: Rig, text: str) -> None:
    """CLOSE-6, D6: given back at close."""
    async with rig.agent() as first, rig.agent() as second:
        session = await first.new()
        message_id = await first.turn(session, text, "handed-over-key")
        await first.client.close(session)
        await second.resume(session)
        assert await (await second.prompt(session, text, "handed-over-key")).message_id() == message_id
        with pytest.raises(AcpError) as caught:
            await first.resume(session)
        assert str(second.process.pid) in caught.value.message


async def test_the_users_own_turns_in_between_stay_in_the_conversation(rig: Rig, text: str) -> None:
    """D6: the user's own runtime knows no lock of ours; its turns are neither lost nor do they hide ours."""
    async with rig.agent() as link:
        session = await link.new()
        first = await link.turn(session, f"{text} 1", "between-1-the-key")
        await link.user_turn(session, f"{text} own")
        assert await (await link.prompt(session, f"{text} 1", "between-1-the-key")).message_id() == first
        second = await link.turn(session, f"{text} 2", "between-2-the-key")
        await link.user_turn(session, f"{text} own again")
        third = await link.turn(session, f"{text} 3", "between-3-the-key")
        for part in ("1", "own", "2", "own again", "3"):
            assert rig.model.in_conversation(f"{text} {part}") == 1, part
        stored = rig.stored(session)
        assert [message.text for message in stored] == [
            f"{text} {part}" for part in ("1", "own", "2", "own again", "3")
        ]
        assert [stored[0].message_id, stored[2].message_id, stored[4].message_id] == [first, second, third]
        mark = link.client.record.mark
        await link.resume(session, replay=True)
        assert link.user_messages(session, mark) == [message.message_id for message in stored]


# --- commands ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["/clear", "/new", "/reset now please"])
async def test_a_command_that_would_move_the_conversation_is_answered_locally(
    shared: Link, text: str, command: str
) -> None:
    """CMD-4, D8, E29, E31, KEY-43: live-only; its retry in this process runs nothing and shows nothing."""
    session = await shared.new()
    first = await shared.turn(session, text)
    calls = shared.rig.model.total_calls
    mark = shared.client.record.mark
    message_id = await shared.turn(session, command, "local-command-key")
    assert shared.user_messages(session, mark) == [message_id]
    assert shared.client.view(session).items("agent")[-1].text != ""
    assert shared.states(session, mark) == ["running", "idle:end_turn"]
    mark = shared.client.record.mark
    assert await (await shared.prompt(session, command, "local-command-key")).message_id() == message_id
    assert list(shared.client.updates(session, mark)) == []
    assert shared.rig.model.total_calls == calls
    assert shared.rig.stored_ids(session) == [first]
    after = await shared.turn(session, f"After {text}")
    assert shared.rig.stored_ids(session) == [first, after]
    assert shared.rig.model.in_conversation(text) == 1


async def test_a_local_command_is_forgotten_by_a_restart_and_runs_again_under_another_id(rig: Rig) -> None:
    """E30, KEY-43, ADP-13: allowed, and its random id is not used twice."""
    async with rig.agent() as link:
        session = await link.new()
        await link.turn(session, "Something to store.")
        first = await link.turn(session, "/clear", "e30-local-key")
    async with rig.agent() as link:
        await link.resume(session)
        assert await link.turn(session, "/clear", "e30-local-key") != first


async def test_a_command_of_the_runtime_is_an_ordinary_prompt(shared: Link) -> None:
    """CMD-3, D8: run once, shown once, no model call, known afterwards.

    Where the runtime has none (NO_COMMANDS), one of ours stands in: known in this process, not stored (KEY-43, E31).
    """
    ours = shared.rig.deviates(Deviation.NO_COMMANDS)
    command = "/status" if ours else "/context"
    session = await shared.new()
    await shared.turn(session, "Something to store.")
    calls = shared.rig.model.total_calls
    first = await shared.turn(session, command, "runtime-command")
    assert shared.client.view(session).items("agent")[-1].text != ""
    assert shared.rig.model.total_calls == calls
    mark = shared.client.record.mark
    assert await (await shared.prompt(session, command, "runtime-command")).message_id() == first
    assert list(shared.client.updates(session, mark)) == []
    await shared.client.close(session)
    await shared.resume(session)
    if ours:
        assert first not in shared.rig.stored_ids(session)
    else:
        assert await (await shared.prompt(session, command, "runtime-command")).message_id() == first


async def test_a_slash_that_is_no_command_goes_to_the_model(shared: Link, text: str) -> None:
    """CMD-3: an unknown command is text."""
    session = await shared.new()
    message_id = await shared.turn(session, f"/nosuchcommand {text}", "slash-text-key")
    assert shared.rig.stored_ids(session) == [message_id]
    assert shared.rig.model.calls(f"/nosuchcommand {text}") == 1


async def test_advertised_commands_are_well_formed(shared: Link) -> None:
    """CMD-1, SETUP-11: no leading slash, no white space, unique; in the answer or by an update."""
    session = await shared.new()
    await shared.turn(session, "Anything.")
    if not shared.client.view(session).commands:
        await shared.client.wait_update(session, is_update("available_commands_update"))
    names = [command["name"] for command in shared.client.view(session).commands]
    assert names
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[^\s/]\S*", name) for name in names)
