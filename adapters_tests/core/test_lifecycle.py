"""Sessions on the core: the initialize gate, cancel, close, permissions, state, replay; seen on the wire and at the runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.schema import AgentMessageChunk, TextBlock, ToolCallUpdate
from adapters.client import permissions
from adapters.client.client import Client
from adapters.client.view import SessionView
from adapters.core.memory_runtime import ScriptedSession, Store
from adapters_tests.core.rig import CWD, Rig, outcome, question, rig

pytestmark = pytest.mark.anyio


async def never(_question: permissions.Question) -> None:
    """A policy: the user does not answer."""
    await anyio.sleep_forever()


async def asked(r: Rig) -> tuple[Client, str, ScriptedSession]:
    """A client whose user does not answer the question of the running work."""
    client = await r.connect()
    client.policy = never
    session_id, runtime = await r.running(client)
    runtime.deliver(question())
    await client.wait_state(session_id, "requires_action")
    return client, session_id, runtime


async def allowed_by_another(r: Rig, session_id: str, runtime: ScriptedSession) -> None:
    """Another client resumes the session, is asked too, and allows it."""
    client = await r.connect()
    client.policy = permissions.allow
    await client.resume(session_id, CWD)
    await runtime.until(lambda: runtime.answers == [("q", "yes")])


async def error_of(call: Any) -> AcpError:
    error = await outcome(call.result())
    assert isinstance(error, AcpError), error
    return error


def states(client: Client, session_id: str, since: int = 0) -> list[tuple[str, str | None]]:
    updates = client.updates(session_id, since)
    return [(u["state"], u.get("stopReason")) for u in updates if u["sessionUpdate"] == "state_update"]


# --- initialize ------------------------------------------------------------------------------------------------------


async def test_everything_but_initialize_is_refused_before_it() -> None:
    """INIT-1, INIT-10, INIT-11."""
    async with rig() as r:
        client = await r.connect(initialize=False)
        assert (await error_of(await client.request("session/list"))).code == -32600
        await client.notify("session/cancel", {"sessionId": "x"})
        answer = await client.initialize(version=7)
        assert answer["protocolVersion"] == 2
        assert answer["capabilities"]["session"]["delete"] == {}
        assert "image" not in answer["capabilities"]["session"]["prompt"]
        assert await client.list() == []


async def test_initialize_may_be_repeated_only_before_other_requests() -> None:
    """INIT-2, INIT-8."""
    async with rig() as r:
        client = await r.connect(initialize=False)
        for version in (0, 1):
            error = await outcome(client.initialize(version=version))
            assert isinstance(error, AcpError)
            assert error.code == -32022
            said = {"reason": error.message, "details": error.message}
            assert error.data == {"requested": version, "supported": [2], **said}
        await client.initialize()
        await client.initialize()
        error = await outcome(client.initialize(version=1))
        assert isinstance(error, AcpError)
        assert error.code == -32600
        await client.list()
        error = await outcome(client.initialize())
        assert isinstance(error, AcpError)
        assert error.code == -32600


async def test_unknown_and_ungated_methods() -> None:
    """RPC-11, RPC-12, RPC-13, AUTH-1."""
    async with rig() as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        for method in ("session/fork", "auth/login", "_mine", "session/cancel", "nonsense"):
            error = await error_of(await client.request(method, {"sessionId": session_id}))
            assert (error.code, error.data) == (-32601, {"method": method})
        cancel = {"sessionId": session_id, "toolCallId": "t"}
        assert (await error_of(await client.request("tool_call/cancel", cancel))).code == -32602
        cancel = {"sessionId": session_id, "terminalId": "t"}
        assert (await error_of(await client.request("terminal/cancel", cancel))).code == -32602
        await client.notify("$/nonsense", {})
        await client.notify("_mine", {})
        await client.notify("session/cancel", {"sessionId": 7})
        await client.list()


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_folders_and_servers_are_checked_before_anything_starts(tmp_path: Any) -> None:
    """SETUP-1, SETUP-3..7, RESUME-7; the message names the path."""
    file = tmp_path / "file"
    file.write_text("x")
    server = {"type": "stdio", "name": "s", "command": "/bin/true"}
    bad: list[dict[str, Any]] = [
        {"cwd": "relative"},
        {"cwd": ""},
        {"cwd": str(tmp_path / "missing")},
        {"cwd": str(file)},
        {"cwd": "/nul\0byte"},
        {},
        {"cwd": CWD, "additionalDirectories": ["relative"]},
        {"cwd": CWD, "additionalDirectories": [str(tmp_path / "missing")]},
        {"cwd": CWD, "mcpServers": [{**server, "type": "sse"}]},
        {"cwd": CWD, "mcpServers": [{"name": "s", "command": "/bin/true"}]},
        {"cwd": CWD, "mcpServers": [server, server]},
    ]
    async with rig() as r:
        client = await r.connect()
        for params in bad:
            assert (await error_of(await client.request("session/new", params))).code == -32602, params
        error = await error_of(await client.request("session/new", {"cwd": str(tmp_path / "missing")}))
        assert "missing" in error.message
        assert r.runtime.sessions == {}
        for fine in (None, []):
            assert await client.new(CWD, mcpServers=fine, additionalDirectories=fine)


async def test_a_session_is_active_only_where_it_was_opened() -> None:
    """ERR-1, ERR-2, ERR-3, ERR-6, E14, DEL-2, RESUME-6."""
    async with rig(automatic=True) as r:
        one, two = await r.connect(), await r.connect()
        session_id, _ = await r.session(one)
        error = await error_of(await two.prompt(session_id, "hi", key="K"))
        assert error.code == -32002
        assert error.data == {"sessionId": session_id, "inserted": False}
        await two.close(session_id)
        await two.cancel(session_id)
        assert await (await one.prompt(session_id, "hi", key="K")).message_id()
        await one.close(session_id)
        await one.close(session_id)
        assert (await error_of(await one.prompt(session_id, "hi", key="K"))).code == -32002
        error = await outcome(one.resume("11111111-1111-4111-8111-111111111111", CWD))
        assert isinstance(error, AcpError)
        assert (error.code, error.data["sessionId"]) == (-32002, "11111111-1111-4111-8111-111111111111")
        await one.resume(session_id, CWD)
        assert await (await one.prompt(session_id, "hi", key="K")).message_id()
        assert r.runtime.sessions[session_id].submitted == []
        await one.delete(session_id)
        await one.delete(session_id)
        assert (await error_of(await one.prompt(session_id, "hi", key="K"))).code == -32002
        assert isinstance(await outcome(one.resume(session_id, CWD)), AcpError)
        assert await one.list() == []


async def test_pipelined_resume_and_prompt_insert_at_most_once() -> None:
    """E49."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        message_id = await (await client.prompt(session_id, "hi", key="K")).message_id()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        resume = await client.request("session/resume", {"sessionId": session_id, "cwd": CWD})
        early = await outcome((await client.prompt(session_id, "hi", key="K")).message_id())
        await resume.result()
        assert early == message_id or (isinstance(early, AcpError) and early.code == -32002)
        assert await (await client.prompt(session_id, "hi", key="K")).message_id() == message_id
        assert store.sessions[session_id].user_ids() == [message_id]


async def test_resume_refuses_unknown_cursors() -> None:
    """RESUME-3."""
    async with rig() as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        for cursor in ({"type": "end"}, {"type": "_x"}, {}, "start", 7):
            params = {"sessionId": session_id, "cwd": CWD, "replayFrom": cursor}
            assert (await error_of(await client.request("session/resume", params))).code == -32602


async def test_many_resumes_of_one_session_leave_one_runtime_session() -> None:
    """RESUME-5; known fault: repeated load leaves extra live children."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        params = {"sessionId": session_id, "cwd": CWD}
        calls = [await client.request("session/resume", params) for _ in range(20)]
        for call in calls:
            await call.result()
        first = r.runtime.sessions[session_id]
        assert not first.closed
        await (await client.prompt(session_id, "hi")).message_id()
        assert len(first.submitted) == 1


async def test_resume_of_an_active_session_brings_its_new_roots_and_servers(tmp_path: Any) -> None:
    """RESUME-1, RESUME-2, RESUME-5."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        await client.resume(session_id, CWD)
        assert runtime.setups == []
        server = {"type": "stdio", "name": "s", "command": "/bin/true"}
        for _ in range(2):
            await client.resume(session_id, CWD, mcpServers=[server], additionalDirectories=[str(tmp_path)])
        assert [setup.additional_directories for setup in runtime.setups] == [(str(tmp_path),)]
        assert runtime.interrupts == 0
        error = await outcome(client.resume(session_id, str(tmp_path)))
        assert isinstance(error, AcpError)
        assert error.code == -32602
        assert client.view(session_id).state == "running"


# --- cancel and close ------------------------------------------------------------------------------------------------


async def test_cancel_stops_the_work_and_withdraws_what_is_held() -> None:
    """CANCEL-2..5, KEY-20, STOP-1, PROMPT-17, PROMPT-18: a prompt sent after the cancel is unaffected."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        runtime.held = True
        held = [await client.prompt(session_id, "held", key="K") for _ in range(2)]
        await client.list()
        await client.cancel(session_id)
        after = await client.prompt(session_id, "after", key="K2")
        for call in held:
            assert (await error_of(call)).code == -32800
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.held = False
        assert len(runtime.submitted) == 1
        mark = client.record.mark
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="last words")))
        runtime.end("error", error={"code": -32603, "message": "aborted"})
        await client.wait_state(session_id, "idle", mark)
        assert states(client, session_id)[-1] == ("idle", "cancelled")
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.insert(runtime.submitted[1][0])
        assert await after.message_id()
        assert client.view(session_id).item("agent", "a") is not None


async def test_work_that_ended_by_itself_keeps_its_own_stop_reason() -> None:
    """CANCEL-10."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        await client.cancel(session_id)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end("end_turn")
        await client.wait_state(session_id, "idle")
        assert states(client, session_id) == [("running", None), ("idle", "end_turn")]


async def test_cancel_on_an_idle_session_does_nothing() -> None:
    """CANCEL-6: also not to the work that comes later."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        await client.cancel(session_id)
        await client.list()
        assert (runtime.interrupts, states(client, session_id)) == (0, [])
        call = await client.prompt(session_id, "work")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        await call.message_id()
        assert runtime.interrupts == 0


async def test_a_submitted_prompt_that_cancel_could_not_withdraw_is_stopped() -> None:
    """CANCEL-3, CANCEL-4: inserted, so success; its work is cancelled."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "work", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        await client.cancel(session_id)
        await runtime.until(lambda: bool(runtime.withdrawals))
        runtime.take(runtime.submitted[0][0])
        runtime.insert(runtime.submitted[0][0])
        assert await call.message_id()
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end("error", interrupted=True)
        await client.wait_state(session_id, "idle")
        assert states(client, session_id)[-1] == ("idle", "cancelled")


async def test_close_ends_work_and_answers_everything_before_its_response() -> None:
    """CLOSE-1..5, KEY-20, E13."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        runtime.deliver(question())
        await client.wait_state(session_id, "requires_action")
        runtime.held = True
        held = await client.prompt(session_id, "held", key="K")
        await client.list()
        closing = await client.request("session/close", {"sessionId": session_id})
        await runtime.until(lambda: runtime.interrupts == 1)
        late = await client.prompt(session_id, "late", key="K")
        assert (await error_of(late)).code == -32002
        assert (await error_of(held)).code == -32800
        runtime.end("error", interrupted=True)
        await closing.result()
        assert closing.answered_at is not None
        assert states(client, session_id)[-1] == ("idle", "cancelled")
        assert list(client.updates(session_id, closing.answered_at)) == []
        assert runtime.closed


async def test_close_is_bounded_when_the_runtime_ignores_its_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: nothing waits for ever; the work is reported cancelled all the same."""
    monkeypatch.setattr("adapters.core.session._STOP_BOUND", 0.05)
    async with rig() as r:
        client = await r.connect()
        session_id, _runtime = await r.running(client)
        call = await client.prompt(session_id, "in flight", key="K")
        await client.close(session_id)
        assert (await error_of(call)).code == -32800
        assert states(client, session_id)[-1] == ("idle", "cancelled")


# --- permissions -----------------------------------------------------------------------------------------------------

ANSWERS: list[tuple[Any, str | None]] = [
    ("yes", "yes"),
    ("no", "no"),
    ("never offered", None),
    (None, None),
    ({"outcome": {"outcome": "selected"}}, None),
    ({"outcome": {"outcome": "selected", "optionId": 7}}, None),
    ({"outcome": {"outcome": "_odd", "optionId": "yes"}}, None),
    ({"outcome": "selected"}, None),
    ({}, None),
    (InternalError("no"), None),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
async def test_only_an_offered_option_approves(answer: Any, expected: str | None) -> None:
    """PERM-2, PERM-3, MAL-1, STATE-5, STATE-6."""

    async def policy(_question: permissions.Question) -> Any:
        return answer

    async with rig() as r:
        client = await r.connect()
        client.policy = policy
        session_id, runtime = await r.running(client)
        runtime.deliver(question())
        await runtime.until(lambda: bool(runtime.answers))
        assert runtime.answers == [("q", expected)]
        await client.list()
        assert [state for state, _ in states(client, session_id)] == ["running", "requires_action", "running"]


async def test_overlapping_requests_each_get_their_own_answer() -> None:
    """STATE-6: one answer of two does not mean running."""
    gates = {"first": anyio.Event(), "second": anyio.Event()}

    async def policy(asked: permissions.Question) -> str:
        await gates[asked.params["description"]].wait()
        return "yes" if asked.params["description"] == "first" else "no"

    async with rig() as r:
        client = await r.connect()
        client.policy = policy
        session_id, runtime = await r.running(client)
        runtime.deliver(question("q1", description="first"))
        runtime.deliver(question("q2", description="second"))
        gates["second"].set()
        await runtime.until(lambda: runtime.answers == [("q2", "no")])
        await client.list()
        assert client.view(session_id).state == "requires_action"
        gates["first"].set()
        await runtime.until(lambda: runtime.answers[1:] == [("q1", "yes")])
        await client.wait_state(session_id, "running")


async def test_cancelled_work_takes_its_questions_back_and_refuses_new_ones() -> None:
    """PERM-4, PERM-6, CANCEL-8, RCAN-7, STATE-7; known fault: permission requests of an abandoned turn fail one by one."""
    async with rig() as r:
        client = await r.connect()
        client.policy = never
        session_id, runtime = await r.running(client)
        runtime.deliver(question("q1"))
        runtime.deliver(question("q2", foreground=False))
        await client.wait_state(session_id, "requires_action")
        await client.cancel(session_id)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.deliver(question("q3"))
        await runtime.until(lambda: runtime.answers == [("q3", None)])
        runtime.end("error", interrupted=True)
        await client.wait_state(session_id, "idle")
        cancelled = [
            m.value["params"]["requestId"] for m in client.record.since(0, sent=False) if m.method == "$/cancel_request"
        ]
        asked = [m.value["id"] for m in client.record.since(0, sent=False) if m.method == "session/request_permission"]
        assert len(asked) == 2
        assert cancelled == asked[:1]


async def test_a_question_that_is_open_when_work_ends_by_itself_waits_for_its_answer() -> None:
    """PERM-6: what a sub-agent asks, which works on in the background. Taken back, nobody would ever answer the runtime."""
    released = anyio.Event()

    async def policy(_question: permissions.Question) -> str:
        await released.wait()
        return "yes"

    async with rig() as r:
        client = await r.connect()
        client.policy = policy
        session_id, runtime = await r.running(client)
        runtime.deliver(question())
        await client.wait_state(session_id, "requires_action")
        runtime.end()
        await client.wait_state(session_id, "idle")
        released.set()
        await runtime.until(lambda: runtime.answers == [("q", "yes")])
        await client.list()
        assert [state for state, _ in states(client, session_id)] == ["running", "requires_action", "idle"]
        assert not any(m.method == "$/cancel_request" for m in client.record.since(0, sent=False))


async def test_a_question_about_a_command_names_it_in_its_subject() -> None:
    """PERM-1: where there is no call of the session to show."""
    async with rig() as r:
        client = await r.connect()
        client.policy = never
        session_id, runtime = await r.running(client)
        runtime.deliver(replace(question(), tool_call=None, command=("make", "/w")))
        await client.wait_state(session_id, "requires_action")
        [asked] = [m for m in client.record.since(0, sent=False) if m.method == "session/request_permission"]
        assert asked.params["subject"] == {"type": "command", "command": "make", "cwd": "/w"}


async def test_a_question_goes_to_every_client_and_the_first_answer_counts() -> None:
    """PERM-9, REPLAY-10: a client that resumes meanwhile is asked too."""
    async with rig() as r:
        one, session_id, runtime = await asked(r)
        await allowed_by_another(r, session_id, runtime)
        await one.record.wait(lambda m: m.method == "$/cancel_request", 0, 5)


async def test_a_question_survives_the_loss_of_its_client() -> None:
    """PERM-9: not approved, not denied, asked again."""
    async with rig() as r:
        one, session_id, runtime = await asked(r)
        await one._transport.aclose()
        await allowed_by_another(r, session_id, runtime)


# --- replay ----------------------------------------------------------------------------------------------------------


async def test_a_client_that_joins_in_mid_turn_sees_what_the_others_see() -> None:
    """REPLAY-1..4, REPLAY-9, REPLAY-12: chunks before, during and after its synchronization; twice changes nothing."""
    async with rig() as r:
        one = await r.connect()
        session_id, runtime = await r.running(one)
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="one ")))
        runtime.output(ToolCallUpdate(tool_call_id="t", title="Bash", status="in_progress"))
        two = await r.connect()
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await two.request("session/resume", params)
        await one.list()
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="two ")))
        await one.list()
        r.runtime.replay_gate.set()
        await resume.result()
        assert two.view(session_id).state == "running"
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="three")))
        runtime.output(ToolCallUpdate(tool_call_id="t", status="completed"))
        await one.list()
        await two.list()
        assert one.view(session_id).snapshot() == two.view(session_id).snapshot()
        await two.resume(session_id, CWD, replay=True)
        assert one.view(session_id).snapshot() == two.view(session_id).snapshot()
        runtime.stored.messages.append(("agent", "a", [TextBlock(text="one two three")]))
        runtime.end()
        await two.wait_state(session_id, "idle")
        await two.resume(session_id, CWD, replay=True)
        texts = [item.text for item in two.view(session_id).items("agent")]
        assert texts == ["one two three"]


async def test_work_that_starts_and_ends_during_a_replay_is_not_missed() -> None:
    """REPLAY-12."""
    store = Store()
    async with rig(store, automatic=True) as r:
        one = await r.connect()
        session_id, runtime = await r.session(one)
        await (await one.prompt(session_id, "first")).message_id()
        await one.wait_state(session_id, "idle")
        two = await r.connect()
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await two.request("session/resume", params)
        mark = one.record.mark
        await (await one.prompt(session_id, "second")).message_id()
        await one.wait_state(session_id, "idle", mark)
        r.runtime.replay_gate.set()
        await resume.result()
        assert SessionView.of(two.updates(session_id)).snapshot() == one.view(session_id).snapshot()
        assert len(two.view(session_id).user_message_ids()) == 2
        assert runtime.closed is False


async def test_a_slow_client_slows_the_runtime_and_not_the_memory() -> None:
    """Known fault: unbounded output; the sink's `writable` is the producer's brake."""
    async with rig() as r:
        client = await r.connect()
        _session_id, runtime = await r.running(client)
        with anyio.fail_after(5):
            await runtime.sink.writable()


async def test_a_session_without_clients_is_freed_when_its_work_is_done() -> None:
    """STDIO-13, KEY-43."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        await client._transport.aclose()
        other = await r.connect()
        await other.list()
        assert not runtime.closed
        runtime.end()
        await runtime.until(lambda: runtime.closed)
        await other.resume(session_id, CWD)
        assert r.runtime.sessions[session_id] is not runtime
