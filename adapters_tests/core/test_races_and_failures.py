"""Races and failures at the core's seams: a runtime that fails or hangs at a call, requests cancelled half-way, lost clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError
from adapters.acp.memory import memory_pair
from adapters.acp.schema import (
    AgentMessageChunk,
    Notice,
    SessionInfoUpdate,
    SessionUpdate,
    TerminalOutput,
    TerminalOutputChunk,
    TerminalUpdate,
    TextBlock,
    ToolCallUpdate,
)
from adapters.client.client import Client
from adapters.core import port
from adapters.core.front import AgentInfo, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime, ScriptedSession, Store
from adapters.core.submissions import derived_id
from adapters_tests.core.rig import CWD, Rig, outcome, question, rig
from adapters_tests.e2e.processes import wait_for

pytestmark = pytest.mark.anyio


async def code_of(call: Any) -> int | None:
    """The error code of an answer, None for a result."""
    error = await outcome(call.result())
    return error.code if isinstance(error, AcpError) else None


def gate_close(monkeypatch: pytest.MonkeyPatch) -> tuple[anyio.Event, anyio.Event]:
    """Makes the runtime session's close wait: (it was called, let it go on)."""
    called, gate = anyio.Event(), anyio.Event()
    close = ScriptedSession.close

    async def slow(self: ScriptedSession) -> None:
        called.set()
        await gate.wait()
        await close(self)

    monkeypatch.setattr(ScriptedSession, "close", slow)
    return called, gate


async def broken(*_: Any) -> None:
    raise OSError


# --- closing ---------------------------------------------------------------------------------------------------------


async def test_a_close_that_is_cancelled_or_loses_its_connection_still_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOSE-1, CLOSE-6, RCAN-2: half a close is none; a later resume waits for its end and gets a runtime of its own."""
    called, gate = gate_close(monkeypatch)
    async with rig() as r:
        client, other = await r.connect(), await r.connect()
        session_id, runtime = await r.session(client)
        await other.resume(session_id, CWD)
        closing = await client.request("session/close", {"sessionId": session_id})
        await called.wait()
        await client.cancel_request(closing.request_id)
        assert await code_of(closing) == -32800
        await client._transport.aclose()
        resuming = await other.request("session/resume", {"sessionId": session_id, "cwd": CWD})
        await other.list()
        assert not resuming.done
        assert r.runtime.sessions[session_id] is runtime
        gate.set()
        await resuming.result()
        assert runtime.closed
        assert r.runtime.sessions[session_id] is not runtime


async def test_a_repeated_close_answers_when_the_first_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOSE-3, CLOSE-6: nothing of the session follows either response."""
    called, gate = gate_close(monkeypatch)
    async with rig() as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        first = await client.request("session/close", {"sessionId": session_id})
        await called.wait()
        second = await client.request("session/close", {"sessionId": session_id})
        await client.list()
        assert not second.done
        gate.set()
        assert await first.result() == await second.result() == {}


async def test_a_runtime_that_cannot_close_does_not_keep_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOSE-4, RPC-6, D7: every prompt is answered, the agent lives, the session can be resumed."""
    monkeypatch.setattr("adapters.core.session._STOP_BOUND", 0.05)
    monkeypatch.setattr(ScriptedSession, "close", broken)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        call = await client.prompt(session_id, "in flight", key="K")
        await runtime.until(lambda: len(runtime.submitted) == 2)
        await client.close(session_id)
        assert await code_of(call) == -32800
        await client.resume(session_id, CWD)
        await client._transport.aclose()
        other = await r.connect()
        await other.list()


async def test_a_close_during_the_look_up_waits_for_the_truth() -> None:
    """CLOSE-4, CLOSE-7, KEY-20, ERR-5: -32800 for a recorded key would be a lie, looked up already or waiting for it."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        ids = [await (await client.prompt(session_id, "hello", key=key)).message_id() for key in ("K", "L")]
    async with rig(store) as r:
        client = await r.connect()
        await client.resume(session_id, CWD)
        runtime = r.runtime.sessions[session_id]
        r.runtime.lookup_gate = anyio.Event()
        calls = [await client.prompt(session_id, "hello", key=key) for key in ("K", "L", "M")]
        await runtime.until(lambda: runtime.lookups == 1)
        closing = await client.request("session/close", {"sessionId": session_id})
        assert await code_of(await client.prompt(session_id, "late")) == -32002
        assert not any(call.done for call in calls)
        r.runtime.lookup_gate.set()
        assert [await call.message_id() for call in calls[:2]] == ids
        assert await code_of(calls[2]) == -32800
        await closing.result()
        assert runtime.submitted == []


async def test_a_look_up_that_never_ends_does_not_hold_up_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: bounded."""
    monkeypatch.setattr("adapters.core.session._STOP_BOUND", 0.05)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        r.runtime.lookup_gate = anyio.Event()
        call = await client.prompt(session_id, "hello", key="K")
        await runtime.until(lambda: runtime.lookups == 1)
        await client.close(session_id)
        assert await code_of(call) == -32800
        r.runtime.lookup_gate.set()
        await client.resume(session_id, CWD)


async def test_the_end_of_the_agent_does_not_wait_for_a_slow_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """STDIO-11, D7: a client that closes its session and leaves at once; the work ignores its interrupt."""
    monkeypatch.setattr("adapters.core.session._STOP_BOUND", 60)
    interrupt = ScriptedSession.interrupt

    async def deaf(self: ScriptedSession) -> None:
        self._runtime.automatic = False
        await interrupt(self)

    monkeypatch.setattr(ScriptedSession, "interrupt", deaf)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        await client.request("session/close", {"sessionId": session_id})
        await runtime.until(lambda: runtime.interrupts == 1)
        await client._transport.aclose()
        left = anyio.current_time()
    assert runtime.closed
    assert anyio.current_time() - left < 30


async def test_a_background_question_while_closing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOSE-3, CLOSE-5: it would stay open behind the close response."""
    called, gate = gate_close(monkeypatch)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        closing = await client.request("session/close", {"sessionId": session_id})
        await called.wait()
        runtime.deliver(question(foreground=False))
        await runtime.until(lambda: runtime.answers == [("q", None)])
        gate.set()
        await closing.result()
        assert not any(m.method == "session/request_permission" for m in client.record.since(0, sent=False))


async def test_a_delete_waits_for_a_resume_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEL-1, DEL-3: the session is not deleted under a runtime that is just being started on it."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
    opening, gate = anyio.Event(), anyio.Event()
    open_session = ScriptedRuntime.open_session

    async def slow(self: ScriptedRuntime, *args: Any) -> ScriptedSession:
        opening.set()
        await gate.wait()
        return await open_session(self, *args)

    monkeypatch.setattr(ScriptedRuntime, "open_session", slow)
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        resuming = await client.request("session/resume", {"sessionId": session_id, "cwd": CWD})
        await opening.wait()
        deleting = await client.request("session/delete", {"sessionId": session_id})
        await client.list()
        gate.set()
        await resuming.result()
        await deleting.result()
        assert r.runtime.sessions[session_id].closed
        assert await code_of(await client.prompt(session_id, "hi")) == -32002


# --- resuming --------------------------------------------------------------------------------------------------------


async def stored_session() -> tuple[Store, str]:
    """A store with one session in it that holds one prompt, and its id."""
    store = Store()
    async with rig(store, automatic=True) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        await (await client.prompt(session_id, "hi")).message_id()
    return store, session_id


async def replay_waits(r: Rig) -> None:
    """Return once a replay has come to the gate."""
    await wait_for(lambda: r.runtime.replay_gate.statistics().tasks_waiting > 0, 10, "the replay waits")


async def test_a_connection_lost_during_its_replay_leaves_no_session_behind() -> None:
    """RESUME-7, STDIO-13: the runtime session is freed, and the next client can resume."""
    store, session_id = await stored_session()
    async with rig(store) as r:
        client, other = await r.connect(), await r.connect()
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        await client.request("session/resume", params)
        await replay_waits(r)
        runtime = r.runtime.sessions[session_id]
        await client._transport.aclose()
        await runtime.until(lambda: runtime.closed)
        r.runtime.replay_gate.set()
        await other.resume(session_id, CWD, replay=True)
        assert len(other.view(session_id).user_message_ids()) == 1


async def test_history_is_sent_while_the_runtime_comes_up() -> None:
    """F26, REPLAY-1: the state and the answer wait for it, and a prompt is refused till then."""
    store, session_id = await stored_session()
    async with rig(store) as r:
        client = await r.connect()
        r.runtime.start_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await client.request("session/resume", params)
        await client.wait_update(session_id, lambda update: update["sessionUpdate"] == "user_message")
        assert await client.list()
        assert client.view(session_id).state_update == {}
        assert not resume.done
        assert await code_of(await client.prompt(session_id, "too early")) == -32002
        r.runtime.start_gate.set()
        await resume.result()
        assert client.view(session_id).state == "idle"
        await client.prompt(session_id, "now")
        await r.runtime.sessions[session_id].until(lambda: bool(r.runtime.sessions[session_id].submitted))


@pytest.mark.parametrize("how", ["fails", "cancelled", "lost"])
async def test_a_runtime_that_does_not_come_up_leaves_no_session_behind(how: str) -> None:
    """RESUME-7: by its own fault, by the client's `$/cancel_request`, by the end of the connection; then a resume starts anew."""
    store, session_id = await stored_session()
    async with rig(store) as r:
        client, other = await r.connect(), await r.connect()
        r.runtime.start_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await client.request("session/resume", params)
        await client.wait_update(session_id, lambda update: update["sessionUpdate"] == "user_message")
        runtime = r.runtime.sessions[session_id]
        again = await other.request("session/resume", params)  # right behind it
        if how == "fails":
            r.runtime.start_error = InternalError("it does not start")
            r.runtime.start_gate.set()
            assert await code_of(resume) == -32603
            assert await code_of(again) == -32603
            r.runtime.start_error = None
            again = await other.request("session/resume", params)
        elif how == "cancelled":
            await client.cancel_request(resume.request_id)
            assert await code_of(resume) == -32800
        else:
            await client._transport.aclose()
        await runtime.until(lambda: runtime.closed)
        r.runtime.start_gate.set()
        await again.result()
        assert r.runtime.sessions[session_id] is not runtime
        assert len(other.view(session_id).user_message_ids()) == 1
        assert other.view(session_id).state == "idle"


class _BrokenReplay(ScriptedSession):
    async def replay(self) -> AsyncIterator[SessionUpdate]:
        await self._runtime.replay_gate.wait()
        if self.closed:
            yield AgentMessageChunk(message_id="never", content=TextBlock(text=""))
        raise InternalError


@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_a_resume_that_fails_costs_an_attached_client_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RESUME-5, UPD-2, STATE-2: what happened during the failed replay reaches it all the same, the idle update too."""
    monkeypatch.setattr(ScriptedSession, "replay", _BrokenReplay.replay)
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="one ")))
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await client.request("session/resume", params)
        await replay_waits(r)
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="two")))
        runtime.deliver(question())
        if how == "fails":
            r.runtime.replay_gate.set()
        else:
            await client.cancel_request(resume.request_id)
        assert await code_of(resume) == (-32603 if how == "fails" else -32800)
        await runtime.until(lambda: bool(runtime.answers))
        runtime.end()
        await client.wait_state(session_id, "idle")
        assert [item.text for item in client.view(session_id).items("agent")] == ["one two"]


@pytest.mark.parametrize("closer", ["itself", "another"])
async def test_a_close_during_a_replay_ends_it_and_is_seen(closer: str) -> None:
    """CLOSE-2, CLOSE-3, CLOSE-6: the end of the work comes before the answers, and nothing of the session after its own close.

    A close by another client ends the session for everybody; who resumes just then gets it anew, complete.
    """
    async with rig() as r:
        client, other = await r.connect(), await r.connect()
        session_id, runtime = await r.running(client)
        await other.resume(session_id, CWD)
        for n in range(5):
            runtime.stored.messages.append(("agent", f"m{n}", [TextBlock(text="stored")]))
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await client.request("session/resume", params)
        await replay_waits(r)
        by = client if closer == "itself" else other
        closing = await by.request("session/close", {"sessionId": session_id})
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end("error", interrupted=True)
        await closing.result()
        r.runtime.replay_gate.set()
        assert client.view(session_id).state_update["stopReason"] == "cancelled"
        if closer == "itself":
            assert await code_of(resume) == -32002
            assert closing.answered_at is not None
            assert list(client.updates(session_id, closing.answered_at)) == []
        else:
            await resume.result()
            assert runtime.closed
            again = r.runtime.sessions[session_id]
            assert again is not runtime
            assert [item.text for item in client.view(session_id).items("agent")] == ["stored"] * 5
            assert client.view(session_id).state == "idle"
            assert await code_of(await other.prompt(session_id, "hi")) == -32002
            call = await client.prompt(session_id, "hi", key="after")
            await again.until(lambda: bool(again.submitted))
            again.insert(again.submitted[0][0])
            await call.message_id()


async def test_a_resume_is_not_repeated_for_ever_against_clients_that_close() -> None:
    """CLOSE-6, RESUME-7: after a few tries it says so; the agent goes on."""

    class Closed(ScriptedRuntime):
        opened = 0

        async def open_session(
            self, session_id: str, setup: port.SessionSetup, sink: port.EventSink
        ) -> ScriptedSession:
            self.opened += 1
            session = await super().open_session(session_id, setup, sink)
            session.replay = lambda: closed_in_replay(sink)  # type: ignore[method-assign]
            return session

    async def closed_in_replay(sink: Any) -> AsyncIterator[SessionUpdate]:
        await sink.close(0)
        return
        yield

    store = Store()
    async with rig(store) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
    async with rig(runtime=(runtime := Closed(store))) as r:
        client = await r.connect()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        assert await code_of(await client.request("session/resume", params)) == -32002
        assert runtime.opened == 3
        assert await client.list()


async def test_a_failed_resume_of_a_session_that_lost_its_last_client_frees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """RESUME-7, KEY-43."""
    monkeypatch.setattr(ScriptedSession, "replay", _BrokenReplay.replay)
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        r.runtime.replay_gate = anyio.Event()
        params = {"sessionId": session_id, "cwd": CWD, "replayFrom": {"type": "start"}}
        resume = await two.request("session/resume", params)
        await two.list()
        await one._transport.aclose()
        await two.list()
        r.runtime.replay_gate.set()
        assert await code_of(resume) == -32603
        await runtime.until(lambda: runtime.closed)


async def test_a_session_is_not_freed_under_a_client_that_is_about_to_join(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """RESUME-5, STDIO-13: the last client leaves while another one's resume waits for the runtime."""
    reconfiguring, gate = anyio.Event(), anyio.Event()

    async def slow(_self: ScriptedSession, _setup: port.SessionSetup) -> None:
        reconfiguring.set()
        await gate.wait()

    monkeypatch.setattr(ScriptedSession, "reconfigure", slow)
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        params = {"sessionId": session_id, "cwd": CWD, "additionalDirectories": [str(tmp_path)]}
        resume = await two.request("session/resume", params)
        await reconfiguring.wait()
        await one._transport.aclose()
        await two.list()
        gate.set()
        await resume.result()
        assert not runtime.closed
        await two.prompt(session_id, "hi")
        await runtime.until(lambda: bool(runtime.submitted))


@pytest.mark.parametrize("way", ["new", "resume"])
async def test_events_that_come_before_the_session_is_open_are_not_lost(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STATE-1, REPLAY-8, REPLAY-11: a runtime may start to talk before its opening call returns."""
    store = Store()
    async with rig(store) as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
    opened = ScriptedRuntime._open

    def talkative(self: ScriptedRuntime, name: str, sink: port.EventSink) -> ScriptedSession:
        session = opened(self, name, sink)
        session.start()
        session.deliver(port.PermissionWithdrawn("unknown"))
        session.deliver(port.PromptFailed("unknown"))
        session.end()
        session.output(SessionInfoUpdate(title="early"))
        return session

    monkeypatch.setattr(ScriptedRuntime, "_open", talkative)
    async with rig(store) as r:
        client = await r.connect()
        session_id = await client.new(CWD) if way == "new" else session_id
        await client.resume(session_id, CWD)
        runtime = r.runtime.sessions[session_id]
        assert client.view(session_id).state == "idle"
        assert any(update.get("title") == "early" for update in client.updates(session_id))
        await client.prompt(session_id, "hi")
        await runtime.until(lambda: bool(runtime.submitted))
        assert not runtime.closed


async def test_what_describes_the_session_is_merged_for_a_client_that_joins() -> None:
    """REPLAY-11, INFO-1, EXT-7: a later patch does not hide what an earlier one said."""
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.session(one)
        runtime.output(SessionInfoUpdate(title="A title"))
        runtime.output(SessionInfoUpdate(updated_at="2026-01-01T00:00:00Z"))
        await two.resume(session_id, CWD)
        last = [u for u in two.updates(session_id) if u["sessionUpdate"] == "session_info_update"][-1]
        assert (last["title"], last["updatedAt"]) == ("A title", "2026-01-01T00:00:00Z")


async def test_terminals_of_the_running_work_reach_a_client_that_joins() -> None:
    """REPLAY-2, REPLAY-12, TERM-3: one snapshot per terminal, with all of its output."""
    async with rig() as r:
        one, two = await r.connect(), await r.connect()
        session_id, runtime = await r.running(one)
        for name in ("t1", "t2"):
            runtime.output(TerminalUpdate(terminal_id=name, command="make", output=TerminalOutput(data="YQ==")))
            runtime.output(TerminalOutputChunk(terminal_id=name, data="Yg=="))
        await two.resume(session_id, CWD)
        shown = {u["terminalId"]: u for u in two.updates(session_id) if u["sessionUpdate"] == "terminal_update"}
        assert {name: (u["command"], u["output"]["data"]) for name, u in shown.items()} == {
            "t1": ("make", "YWI="),
            "t2": ("make", "YWI="),
        }


# --- prompts ---------------------------------------------------------------------------------------------------------


async def test_a_cancel_reaches_no_further_than_the_work_of_its_prompt() -> None:
    """CANCEL-5, PROMPT-18: its proof of storage comes after the end of its work; the next prompt's work is left alone."""
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        first = await client.prompt(session_id, "first")
        await runtime.until(lambda: len(runtime.submitted) == 1)
        await client.cancel(session_id)
        await runtime.until(lambda: bool(runtime.withdrawals))
        runtime.take(runtime.submitted[0][0])
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end("error", interrupted=True)
        runtime.insert(runtime.submitted[0][0])
        await first.message_id()
        second = await client.prompt(session_id, "second")
        await runtime.until(lambda: len(runtime.submitted) == 2)
        runtime.take(runtime.submitted[1][0])
        runtime.insert(runtime.submitted[1][0])
        await second.message_id()
        await client.list()
        assert runtime.interrupts == 1


@pytest.mark.parametrize("method", ["submit", "is_recorded", "local_reply", "withdraw", "interrupt"])
async def test_a_runtime_that_raises_anything_costs_one_prompt_at_most(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RPC-14, ERR-5, KEY-14: the error says what is known of the insertion; the key is unused; the session goes on."""
    async with rig(automatic=method not in ("withdraw", "interrupt")) as r:
        client = await r.connect()
        session_id, runtime = await r.session(client)
        with monkeypatch.context() as patch:
            if method == "local_reply":
                patch.setattr(ScriptedSession, "local_reply", lambda _self, _prompt: 1 // 0)
            else:
                patch.setattr(ScriptedSession, method, broken)
            call = await client.prompt(session_id, "hi", key="K")
            if method in ("withdraw", "interrupt"):
                await runtime.until(lambda: bool(runtime.submitted))
                await client.cancel(session_id)
                runtime.take(runtime.submitted[0][0])
                runtime.insert(runtime.submitted[0][0])
                assert await call.message_id()
                runtime.end()
            else:
                error = await outcome(call.message_id())
                assert isinstance(error, AcpError)
                inserted = None if method == "is_recorded" else False
                assert (error.code, error.data) == (-32603, {"inserted": inserted})
        again = await client.prompt(session_id, "hi", key="K")
        assert await again.message_id() == derived_id(session_id, "K")


async def test_every_prompt_error_says_that_nothing_was_inserted() -> None:
    """ERR-5; known fault: a client must tell an error before insertion by machine, whatever refused the prompt."""
    async with rig() as r:
        client = await r.connect(initialize=False)
        params = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}
        calls = [await client.request("session/prompt", params)]
        await outcome(calls[0].result())
        await client.initialize()
        calls += [await client.request("session/prompt", bad) for bad in (params, {**params, "prompt": 7}, {})]
        for call in calls:
            error = await outcome(call.result())
            assert isinstance(error, AcpError)
            assert error.data["inserted"] is False


async def test_a_runtime_that_cannot_be_loaded_is_an_answer_and_not_the_end() -> None:
    """RPC-14, ERR-5: each request gets its error; the connection lives."""

    def load() -> ScriptedRuntime:
        raise ImportError

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            async with serve(load, FEATURES, AgentInfo("test", "Test", "1")) as server:
                ours, theirs = memory_pair()
                tasks.start_soon(server.run_connection, theirs)
                async with Client(ours) as client:
                    await client.initialize()
                    for _ in range(2):
                        assert await code_of(await client.request("session/list")) == -32603
                    error = await outcome((await client.prompt("s", "hi")).result())
                    assert isinstance(error, AcpError)
                    assert error.data == {"inserted": False}
            tasks.cancel_scope.cancel()


async def test_an_update_that_is_no_json_costs_only_itself() -> None:
    """RPC-14, STDIO-1: a driver's `deliver` never raises; what follows is shown."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    async with rig() as r:
        client = await r.connect()
        session_id, runtime = await r.running(client)
        for value in (deep, object(), {1, 2}, 10**5000):
            runtime.output(ToolCallUpdate(tool_call_id="t", raw_input=value))
        runtime.output(AgentMessageChunk(message_id="a", content=TextBlock(text="goes on")))
        runtime.end()
        await client.wait_state(session_id, "idle")
        assert [item.text for item in client.view(session_id).items("agent")] == ["goes on"]


async def test_a_question_under_an_id_that_is_still_open_replaces_it() -> None:
    """RCAN-7: the client is left with one question."""

    async def wait(_question: Any) -> str:
        await anyio.sleep_forever()
        return "no"

    async with rig() as r:
        client = await r.connect()
        client.policy = wait
        session_id, runtime = await r.running(client)
        mark = client.record.mark
        runtime.deliver(question())
        runtime.deliver(question())
        runtime.deliver(port.PermissionWithdrawn("q"))
        await client.wait_state(session_id, "running", mark)
        sent = list(client.record.since(mark, sent=False))
        asked = [m.value["id"] for m in sent if m.method == "session/request_permission"]
        cancelled = [m.params["requestId"] for m in sent if m.method == "$/cancel_request"]
        assert sorted(asked) == sorted(cancelled)
        assert len(asked) == 2


# --- notices from before the first client ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["new_session", "open_session"])
async def test_a_notice_from_before_the_first_client_comes_behind_the_answer_and_once(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """SETUP-12: a client knows no session that it was not answered with, and misses nothing that was said of it before."""
    opening = getattr(ScriptedRuntime, method)

    async def telling(self: ScriptedRuntime, *args: Any) -> ScriptedSession:
        args[-1].deliver(port.Output(Notice(severity="warning", title="early")))
        session = await opening(self, *args)
        args[-1].deliver(port.Output(Notice(severity="warning", title="late")))
        return session

    async with rig() as made:
        client = await made.connect()
        session_id, _ = await made.session(client)
        await client.close(session_id)
        monkeypatch.setattr(ScriptedRuntime, method, telling)
        mark = client.record.mark
        if method == "new_session":
            session_id = await client.new(CWD)
        else:
            await client.resume(session_id, CWD)
        await client.wait_update(session_id, lambda update: update.get("title") == "late", since=mark)
        heard = [message.value for message in client.record.since(mark, sent=False)]
        titles = [m["params"]["update"].get("title") if "method" in m else "the answer" for m in heard]
        assert list(filter(None, titles)) == ["the answer", "early", "late"]
        other = await made.connect()
        mark = other.record.mark
        await other.resume(session_id, CWD)
        assert not [u for u in other.updates(session_id, mark) if u["sessionUpdate"] == "notice"]
