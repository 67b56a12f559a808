"""Single rules of the protocol that no other test of the core is about."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters.acp.schema import TextBlock, ToolCallUpdate, UsageUpdate
from adapters.client import permissions
from adapters.core import port
from adapters.core.foreground import State
from adapters.core.memory_runtime import Store
from adapters.core.submissions import derived_id
from adapters_tests.core.rig import CWD, outcome, rig

pytestmark = pytest.mark.anyio

ON, OFF, ODD = {}, None, True
CAPABILITIES = [
    {"auth": {"terminal": terminal}, "elicitation": {"form": form, "url": url}, "_meta": {"x": 1}}
    for terminal, form, url in itertools.product((ON, OFF, ODD), repeat=3)
]


@pytest.mark.parametrize("capabilities", [{}, {"auth": 7, "elicitation": []}, *CAPABILITIES])
async def test_any_mix_of_client_capabilities_is_served_alike(capabilities: Any) -> None:
    """INIT-13, INIT-14, ELIC-1: no login method and no elicitation is offered to anybody."""
    async with rig(automatic=True) as r:
        client = await r.connect(initialize=False)
        answer = await client.initialize(capabilities=capabilities)
        assert answer["authMethods"] == []
        session_id, _ = await r.session(client)
        assert await (await client.prompt(session_id, "hi")).message_id()


async def test_version_one_is_not_spoken(capsys: pytest.CaptureFixture[str]) -> None:
    """KEY-9, E50, INIT-4: there is no v1 connection on which a key could come. Every part that a client may show says why."""
    async with rig() as r:
        client = await r.connect(initialize=False)
        params = {"protocolVersion": 1, "clientInfo": {"name": "x", "version": "1"}}
        error = await outcome((await client.request("initialize", params)).result())
        assert isinstance(error, AcpError)
        said = (
            "The client asks for version 1 of ACP, and this agent supports version 2 only: "
            "use a client that speaks version 2."
        )
        assert (error.code, error.message) == (-32022, said)
        assert error.data == {"requested": 1, "supported": [2], "reason": said, "details": said}
        told = f'acp-adapters: initialize refused code=-32022 asked=1 supported=2 reason="{said}"\n'
        assert capsys.readouterr().err == told
        assert (await client.initialize())["protocolVersion"] == 2


async def test_custom_methods_and_meta_mean_nothing_here() -> None:
    """EXT-4, EXT-5, EXT-1: unknown requests are refused, notifications and `_meta` ignored, trace context let through."""
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "mine": {"a": 1}}
    async with rig(automatic=True) as r:
        client = await r.connect()
        error = await outcome((await client.request("_mine/do", {"_meta": meta})).result())
        assert isinstance(error, AcpError)
        assert error.code == -32601
        await client.notify("_mine/tell", {"_meta": meta})
        session_id = await client.new(CWD, _meta=meta, later=1)
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi", "_meta": meta}], "_meta": meta}
        assert (await (await client.request("session/prompt", params)).result())["messageId"]


async def test_sessions_have_ids_of_their_own_and_their_whole_setup(tmp_path: Any) -> None:
    """SETUP-8, SETUP-10: the runtime gets the folder and every root, in order."""
    async with rig() as r:
        setups: list[port.SessionSetup] = []
        new_session = r.runtime.new_session

        async def noting(setup: port.SessionSetup, sink: port.EventSink) -> Any:
            setups.append(setup)
            return await new_session(setup, sink)

        r.runtime.new_session = noting
        client = await r.connect()
        ids = {await client.new(CWD, additionalDirectories=[str(tmp_path), "/"]) for _ in range(20)}
        assert len(ids) == 20
        assert {(setup.cwd, setup.additional_directories) for setup in setups} == {(CWD, (str(tmp_path), "/"))}


async def test_updates_come_while_nothing_runs_and_change_no_state() -> None:
    """SETUP-14, UPD-8: with no request pending and no state update around them."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.output(ToolCallUpdate(tool_call_id="t", status="completed"))
        runtime.output(UsageUpdate(used=1, size=2))
        await client.list()
        assert [u["sessionUpdate"] for u in client.updates(session_id)] == ["tool_call_update", "usage_update"]


async def test_no_option_can_be_set_where_none_is_offered() -> None:
    """CFG-5, CFG-8: refused, also while work runs, and only where the session is active."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.start()
        for target, code in ((session_id, -32602), ("unknown", -32002)):
            error = await outcome(client.set_option(target, "model", "any"))
            assert isinstance(error, AcpError)
            assert error.code == code


@pytest.mark.parametrize(("method", "name"), [("tool_call/cancel", "toolCallId"), ("terminal/cancel", "terminalId")])
async def test_nothing_is_cancelled_by_itself(method: str, name: str) -> None:
    """TOOL-8, TOOL-9, TERM-5: no capability is advertised, and the state stays as it is."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.start()
        runtime.output(ToolCallUpdate(tool_call_id="t", status="in_progress"))
        error = await outcome((await client.request(method, {"sessionId": session_id, name: "t"})).result())
        assert isinstance(error, AcpError)
        assert error.code == -32602
        assert client.view(session_id).state == "running"
        assert runtime.interrupts == 0


def test_only_standard_states_are_reported() -> None:
    """STATE-9, STATE-11: and no background list, so that none has to be complete."""
    assert {state.value for state in State} == {"idle", "running", "requires_action"}


async def test_nothing_but_the_evidence_is_insertion() -> None:
    """PROMPT-1..3, PROMPT-7..9: looked up, held, handed over, shown: no answer; one id throughout."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: bool(runtime.submitted))
        message_id = runtime.submitted[0][0]
        runtime.take(message_id)
        await client.list()
        assert client.view(session_id).user_message_ids() == [message_id]
        assert not call.done
        runtime.insert(message_id)
        assert await call.result() == {"messageId": message_id}
        runtime.end()
        await client.resume(session_id, CWD, replay=True)
        assert client.view(session_id).user_message_ids() == [message_id]


async def test_a_local_command_is_in_no_replay_and_does_not_run_again() -> None:
    """CMD-5, REPLAY-6."""
    async with rig() as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        await (await client.prompt(session_id, "/status", key="K")).message_id()
        runs = r.runtime.local_runs
        mark = client.record.mark
        await client.resume(session_id, CWD, replay=True)
        assert [u["sessionUpdate"] for u in client.updates(session_id, mark)] == ["state_update"]
        assert r.runtime.local_runs == runs


async def test_abort_errors_of_a_cancel_are_no_failure() -> None:
    """CANCEL-7, STOP-1: the idle update says cancelled and carries no error; a retry of the prompt gets its id."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client, "hello", key="K")
        await client.cancel(session_id)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end("error", error={"code": -32603, "message": "aborted"})
        idle = await client.wait_state(session_id, "idle", 0)
        assert idle == {"sessionUpdate": "state_update", "state": "idle", "stopReason": "cancelled"}


async def test_questions_need_no_capability() -> None:
    """PERM-8: a client that advertised nothing is asked, and runs nothing itself."""
    async with rig() as r:
        client = await r.connect()
        client.policy = permissions.allow
        session_id, runtime = await r.session(client)
        runtime.start()
        options = [port.PermissionOption("yes", "Allow", "allow_once")]
        runtime.deliver(port.PermissionRequested("q", "May I?", options, ToolCallUpdate(tool_call_id="t")))
        await runtime.until(lambda: runtime.answers == [("q", "yes")])
        asked = {m.method for m in client.record.since(0, sent=False) if m.method and "id" in m.value}
        assert asked == {"session/request_permission"}
        assert session_id


async def test_cancelling_is_supported_for_every_request_that_waits() -> None:
    """RCAN-1, RCAN-6: `$/cancel_request` of a call in progress, and cancellation from inside, are both -32800."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        runtime.held = True
        named = await client.prompt(session_id, "one")
        other = await client.prompt(session_id, "two")
        await client.cancel_request(named.request_id)
        await client.close(session_id)
        for call in (named, other):
            error = await outcome(call.result())
            assert isinstance(error, AcpError)
            assert error.code == -32800


async def test_the_agent_looks_itself_and_covers_more_than_a_replay_shows() -> None:
    """ADP-2, ADP-3, E46, E51: a message that the store holds and no view shows is known, and its id is never submitted."""
    store = Store()
    async with rig(store) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
    hidden = derived_id(session_id, "K")

    class Rewound(list[Any]):
        """Holds a message of an abandoned branch that no reader of the history gets."""

        def __iter__(self) -> Any:
            return (message for message in list.__iter__(self) if message[1] != hidden)

    messages = store.sessions[session_id].messages = Rewound()
    messages.append(("user", hidden, [TextBlock(text="old")]))
    store.sessions[session_id].user_ids = lambda: [item[1] for item in list.__iter__(messages)]  # type: ignore[method-assign]
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        await client.resume(session_id, CWD, replay=True)
        assert client.view(session_id).user_message_ids() == []
        assert await (await client.prompt(session_id, "again", key="K")).message_id() == hidden
        assert r.runtime.sessions[session_id].submitted == []


async def test_a_key_used_in_a_copy_first_is_unused_in_the_original() -> None:
    """E24, E23, KEY-40, FORK-3."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        one, original = await r.session(client)
        two, copy = await r.session(client)
        await (await client.prompt(one, "before", key="B")).message_id()
        copy.stored.messages.extend(original.stored.messages)
        ids = [await (await client.prompt(session, "hi", key="K")).message_id() for session in (two, one)]
        assert len(set(ids)) == 2
        assert (len(copy.submitted), len(original.submitted)) == (1, 2)


async def test_no_key_in_lists_replays_and_updates() -> None:
    """UPD-9, KEY-30, LIST-5."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        await (await client.prompt(session_id, "hi", key="SECRET-KEY")).message_id()
        await client.resume(session_id, CWD, replay=True)
        await client.list()
        await client.close(session_id)
        await client.resume(session_id, CWD, replay=True)
        assert "SECRET-KEY" not in str([m.value for m in client.record.since(0, sent=False)])


async def test_a_deleted_session_takes_its_keys_with_it() -> None:
    """KEY-44, E25: the session is not active and cannot be resumed."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        await (await client.prompt(session_id, "hi", key="K")).message_id()
        await client.delete(session_id)
        for call in (
            await client.prompt(session_id, "hi", key="K"),
            await client.request("session/resume", {"sessionId": session_id, "cwd": CWD}),
        ):
            error = await outcome(call.result())
            assert isinstance(error, AcpError)
            assert error.code == -32002
