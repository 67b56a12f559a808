"""A v1 connection on the scripted runtime: who is answered when, with what, and what is shown until then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AuthRequired
from adapters.acp.memory import memory_pair
from adapters.acp.schema import (
    AgentMessageChunk,
    AvailableCommand,
    CommandInput,
    Notice,
    TextBlock,
    ToolCallUpdate,
)
from adapters.client.client import Client
from adapters.core import port
from adapters.core.front import AgentInfo, Server, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime, ScriptedSession, Store
from adapters.core.peer import OWN
from adapters.dialects.v1 import V1Dialect, V1Peer
from adapters_tests.core.rig import question
from adapters_tests.dialects.client import Call, Failed, V1Client
from adapters_tests.schema import validate_agent_message

pytestmark = pytest.mark.anyio

BOTH = {1: V1Dialect(), **OWN}


class Rig:
    """An agent that speaks both versions, and clients of both."""

    def __init__(self, runtime: ScriptedRuntime, server: Server, tasks: Any, stack: AsyncExitStack) -> None:
        self.runtime = runtime
        self._server = server
        self._tasks = tasks
        self._stack = stack
        self.clients: list[V1Client] = []
        self.others: list[Client] = []

    async def connect(self, *, initialize: bool = True, **capabilities: Any) -> V1Client:
        ours, theirs = memory_pair()
        self._tasks.start_soon(self._server.run_connection, theirs)
        client = await self._stack.enter_async_context(V1Client.over(ours))
        self.clients.append(client)
        if initialize:
            await client.initialize(**capabilities)
        return client

    async def connect_v2(self) -> Client:
        ours, theirs = memory_pair()
        self._tasks.start_soon(self._server.run_connection, theirs)
        client = await self._stack.enter_async_context(Client(ours))
        self.others.append(client)
        await client.initialize()
        return client

    async def session(self, client: V1Client) -> tuple[str, ScriptedSession]:
        session = await client.new()
        return session, self.runtime.sessions[session]

    async def working(self, client: V1Client, text: str = "work") -> tuple[str, ScriptedSession, Call]:
        """A session with a prompt inserted and its work going on."""
        session, runtime = await self.session(client)
        call = await client.prompt(session, text)
        await started(runtime, 0)
        return session, runtime, call


async def started(runtime: ScriptedSession, place: int) -> None:
    """The prompt at this place is handed over, and the work on it begins."""
    await runtime.until(lambda: len(runtime.submitted) > place)
    runtime.take(runtime.submitted[place][0])
    runtime.insert(runtime.submitted[place][0])


@asynccontextmanager
async def rig(store: Store | None = None, *, automatic: bool = False) -> AsyncIterator[Rig]:
    runtime = ScriptedRuntime(store, automatic=automatic)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            info = AgentInfo("test", "Test", "1")
            async with serve(lambda: runtime, FEATURES, info, dialects=BOTH) as server, AsyncExitStack() as stack:
                made = Rig(runtime, server, tasks, stack)
                yield made
                for client in made.clients:
                    assert client.faults == []
                for other in made.others:
                    assert other.faults == []
                    for message in other.record.since(0, sent=False):
                        validate_agent_message(message.value)
                runtime.automatic = True  # what still runs ends at once
            tasks.cancel_scope.cancel()


# --- initialize and sessions -------------------------------------------------------------------------------------------


async def test_a_client_that_asks_for_one_gets_the_shapes_of_one() -> None:
    """V1-INIT-1, V1-INIT-2, V1-INIT-3, V1-INIT-6."""
    async with rig() as r:
        client = await r.connect(initialize=False)
        assert await client.initialize() == {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "additionalDirectories": {},
                },
            },
            "agentInfo": {"name": "test", "title": "Test", "version": "1"},
            "authMethods": [],
        }


async def test_what_is_not_advertised_is_not_there() -> None:
    """RPC-11, V1-INIT-6, V1-MODE-1: neither methods of v1 that are optional, nor those of v2."""
    async with rig() as r:
        client = await r.connect()
        for method in ("authenticate", "logout", "session/set_mode", "session/fork", "auth/login", "tool_call/cancel"):
            with pytest.raises(Failed) as failed:
                await (await client.request(method)).result()
            assert (failed.value.code, failed.value.data) == (-32601, {"method": method})


async def test_a_session_is_made_listed_closed_and_deleted() -> None:
    """V1-SES-1, V1-SES-5, V1-SES-6."""
    async with rig() as r:
        client = await r.connect()
        call = await client.request("session/new", cwd="/", mcpServers=None)
        session = (await call.result())["sessionId"]
        listed = await (await client.request("session/list", cwd=None)).result()
        assert listed == {"sessions": [{"sessionId": session, "cwd": "/"}]}
        assert await (await client.request("session/close", sessionId=session)).result() == {}
        with pytest.raises(Failed) as failed:
            await (await client.prompt(session, "hi")).result()
        assert failed.value.code == -32002
        assert failed.value.data == {"sessionId": session, "inserted": False}
        assert await (await client.request("session/delete", sessionId=session)).result() == {}
        assert (await (await client.request("session/list")).result())["sessions"] == []


async def test_commands_come_after_the_answer() -> None:
    """V1-SES-7, V1-UPD-5."""
    async with rig() as r:
        r.runtime.commands = [
            AvailableCommand(name="review", description="Review it", input=CommandInput(hint="what")),
            AvailableCommand(name="compact", description="Compact it"),
        ]
        client = await r.connect()
        call = await client.request("session/new", cwd="/", mcpServers=[])
        assert set(await call.result()) == {"sessionId"}
        assert call.heard == 0
        await client.until(lambda: bool(client.updates))
        rows = [
            {"name": "review", "description": "Review it", "input": {"hint": "what"}},
            {"name": "compact", "description": "Compact it"},
        ]
        assert client.updates == [{"sessionUpdate": "available_commands_update", "availableCommands": rows}]


async def test_servers_over_sse_are_refused_by_their_place() -> None:
    """V1-SES-2, SETUP-3."""
    async with rig() as r:
        client = await r.connect()
        servers = [{"name": "a", "command": "/bin/a", "args": [], "env": []}, {"type": "sse", "name": "b", "url": "u"}]
        with pytest.raises(Failed, match=r"mcpServers\[1\]: servers of type sse are not supported"):
            await (await client.request("session/new", cwd="/", mcpServers=servers)).result()


async def test_load_replays_everything_before_its_answer_and_resume_nothing() -> None:
    """V1-SES-3, V1-SES-4, V1-PR-7."""
    async with rig(automatic=True) as r:
        first = await r.connect()
        session = await first.new()
        await (await first.prompt(session, "hello")).result()
        second = await r.connect()
        call = await second.request("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert await call.result() == {}
        told = [(update["sessionUpdate"], update["content"]["text"]) for update in second.updates[: call.heard]]
        assert told == [("user_message_chunk", "hello"), ("agent_message_chunk", "ok")]
        third = await r.connect()
        assert await third.resume(session) == {}
        assert third.updates == []


async def test_a_session_loaded_twice_is_replayed_twice() -> None:
    async with rig(automatic=True) as r:
        client = await r.connect()
        session = await client.new()
        await (await client.prompt(session, "hello")).result()
        for _ in range(2):
            mark = len(client.updates)
            await client.load(session)
            assert [update["content"]["text"] for update in client.updates[mark:]] == ["hello", "ok"]


# --- prompts -----------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_answered_at_the_end_of_its_work_after_every_update() -> None:
    """V1-INIT-5, V1-PR-1, V1-PR-7: and the client's own message is not shown to it."""
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        runtime.say("some words")
        await client.until(lambda: client.said() == "some words")
        assert call.answer is None
        runtime.say("!")
        runtime.end()
        assert await call.result() == {"stopReason": "end_turn"}
        assert call.heard == len(client.updates)
        assert client.said() == "some words!"
        assert client.shown("user_message_chunk", "state_update") == []


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"])
async def test_the_stop_reason_is_the_works_own(reason: str) -> None:
    """V1-PR-2."""
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        runtime.end(reason)
        assert await call.result() == {"stopReason": reason}


async def test_a_stop_reason_that_v1_does_not_have_is_the_end_of_a_turn() -> None:
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        runtime.end("_paused")
        assert await call.result() == {"stopReason": "end_turn"}


async def test_work_that_fails_is_an_error_that_says_that_the_message_is_stored() -> None:
    """V1-PR-2: whoever sends it again by hand doubles it."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, call = await r.working(client)
        runtime.end("error", error={"code": -32000, "message": "Log in.", "data": {"category": "auth"}})
        with pytest.raises(Failed, match=r"Log in\.") as failed:
            await call.result()
        [message_id] = r.runtime.store.sessions[session].user_ids()
        assert failed.value.code == -32000
        assert failed.value.data == {"category": "auth", "inserted": True, "messageId": message_id}


async def test_work_that_fails_without_a_reason_is_an_internal_error() -> None:
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        runtime.end("error")
        with pytest.raises(Failed) as failed:
            await call.result()
        assert (failed.value.code, failed.value.data["inserted"]) == (-32603, True)


async def test_a_prompt_that_is_not_inserted_says_so() -> None:
    """ERR-5."""
    async with rig() as r:
        client = await r.connect()
        session, runtime = await r.session(client)
        call = await client.prompt(session, "hi")
        await runtime.until(lambda: bool(runtime.submitted))
        runtime.fail(runtime.submitted[0][0], AuthRequired())
        with pytest.raises(Failed) as failed:
            await call.result()
        assert (failed.value.code, failed.value.data["inserted"]) == (-32000, False)


async def test_a_key_means_nothing() -> None:
    """KEY-9, E50, V1-PR-8: two prompts with one key are two messages."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session = await client.new()
        for _ in range(2):
            call = await client.prompt(session, "hi", idempotencyKey="k")
            assert await call.result() == {"stopReason": "end_turn"}
        assert len(set(r.runtime.store.sessions[session].user_ids())) == 2


async def test_prompts_that_queue_get_work_of_their_own() -> None:
    """V1-PR-6, BR-2: each is answered by its own work, though the runtime could take the second into the first's."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, first = await r.working(client, "one")
        second = await client.prompt(session, "two")
        runtime.say("of one")
        await client.until(lambda: client.said() == "of one")
        assert len(runtime.submitted) == 1
        runtime.end()
        assert await first.result() == {"stopReason": "end_turn"}
        await started(runtime, 1)
        assert second.answer is None
        runtime.end("refusal")
        assert await second.result() == {"stopReason": "refusal"}


async def test_a_local_command_is_answered_like_any_other_prompt() -> None:
    async with rig() as r:
        client = await r.connect()
        session = await client.new()
        assert await (await client.prompt(session, "/status")).result() == {"stopReason": "end_turn"}
        assert client.said() == "all is well"


# --- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_cancel_stops_the_work_and_answers_cancelled() -> None:
    """V1-PR-3: even where the runtime ends with an error."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, call = await r.working(client)
        await client.cancel(session)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.say("last words")
        runtime.end("error", error={"code": -32603, "message": "aborted"})
        assert await call.result() == {"stopReason": "cancelled"}
        assert client.said() == "last words"


async def test_a_cancel_withdraws_what_waits() -> None:
    """V1-PR-3: the prompt behind the running one is answered too, and nothing of it is stored."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, first = await r.working(client)
        second = await client.prompt(session, "two")
        await client.cancel(session)
        assert await second.result() == {"stopReason": "cancelled"}
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end(interrupted=True)
        assert await first.result() == {"stopReason": "cancelled"}
        assert len(r.runtime.store.sessions[session].user_ids()) == 1


async def test_a_cancel_before_the_runtime_has_decided() -> None:
    """V1-PR-3: taken back, or stopped when it is inserted all the same."""
    async with rig() as r:
        client = await r.connect()
        session, runtime = await r.session(client)
        for place, inserted in enumerate((False, True)):
            call = await client.prompt(session, "hi")
            await runtime.until(lambda place=place: len(runtime.submitted) > place)
            await client.cancel(session)
            await runtime.until(lambda place=place: len(runtime.withdrawals) > place)
            if inserted:
                await started(runtime, place)
                await runtime.until(lambda: runtime.interrupts == 1)
                runtime.end("error", interrupted=True)
            else:
                runtime.fail(runtime.submitted[place][0])
            assert await call.result() == {"stopReason": "cancelled"}


async def test_cancelling_the_request_stops_the_work_too() -> None:
    """V1-PR-5: the work of the prompt is what the request waits for."""
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        await client.notify("$/cancel_request", requestId=call.number)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end(interrupted=True)
        assert await call.result() == {"stopReason": "cancelled"}


async def test_cancelling_a_request_that_waits_withdraws_it_alone() -> None:
    """V1-PR-5, RCAN-2."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, first = await r.working(client)
        second = await client.prompt(session, "two")
        await client.notify("$/cancel_request", requestId=second.number)
        with pytest.raises(Failed) as failed:
            await second.result()
        assert (failed.value.code, failed.value.data["inserted"]) == (-32800, False)
        assert runtime.interrupts == 0
        runtime.end()
        assert await first.result() == {"stopReason": "end_turn"}


async def test_nothing_is_kept_of_a_closed_session() -> None:
    """An editor keeps one connection for weeks."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        session = await client.new()
        assert (await (await client.prompt(session, "hi")).result())["stopReason"] == "end_turn"
        [door] = r._server._doors.values()
        assert isinstance(door.peer, V1Peer)
        assert list(door.peer._renderers) == [session]
        await (await client.request("session/close", sessionId=session)).result()
        assert door.peer._renderers == {}


async def test_a_close_answers_the_prompt_as_cancelled() -> None:
    """V1-SES-5."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, call = await r.working(client)
        closing = await client.request("session/close", sessionId=session)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end(interrupted=True)
        assert await call.result() == {"stopReason": "cancelled"}
        assert await closing.result() == {}


# --- questions ---------------------------------------------------------------------------------------------------------


async def test_a_question_shows_its_call_first_and_once() -> None:
    """V1-PERM-1, V1-UPD-2: the call's own title comes back with the next that is heard of it."""
    async with rig() as r:
        client = await r.connect()
        _, runtime, call = await r.working(client)
        runtime.deliver(question())
        await runtime.until(lambda: runtime.answers == [("q", "yes")])
        runtime.output(ToolCallUpdate(tool_call_id="t", status="completed"))
        runtime.end()
        await call.result()
        [asked] = client.questions
        assert asked["toolCall"] == {"toolCallId": "t", "title": "May I?", "status": "pending"}
        assert [option["optionId"] for option in asked["options"]] == ["yes", "no"]
        assert client.updates == [
            {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Bash", "status": "pending"},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Bash", "status": "completed"},
        ]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_question_about_no_call_gets_one_that_ends_with_it(*, approved: bool) -> None:
    """V1-PERM-1: a command is shown as it is, every character of it."""
    async with rig() as r:
        client = await r.connect()

        async def answer(params: Any) -> Any:
            option = params["options"][0 if approved else 1]["optionId"]
            return {"outcome": {"outcome": "selected", "optionId": option}}

        client.policy = answer
        _, runtime, call = await r.working(client)
        options = [port.PermissionOption("y", "Yes", "allow_once"), port.PermissionOption("n", "No", "reject_once")]
        runtime.deliver(port.PermissionRequested("q", "Run it?", options, command=("rm `x`", "/w")))
        await runtime.until(lambda: bool(runtime.answers))
        runtime.end()
        await call.result()
        [asked] = client.questions
        assert asked["toolCall"]["kind"] == "execute"
        assert asked["toolCall"]["title"] == "Run it?"
        assert asked["toolCall"]["rawInput"] == {"command": "rm `x`", "cwd": "/w"}
        assert asked["toolCall"]["content"][0]["content"]["text"] == "```\nrm `x`\n```"
        first, last = client.updates
        assert first["sessionUpdate"] == "tool_call"
        assert (last["toolCallId"], last["status"]) == (first["toolCallId"], "completed" if approved else "failed")


async def test_a_question_is_answered_after_its_session_was_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    """PERM-9: history does not hold the call that was made for it, and nothing is told of a call that is not shown."""
    async with rig() as r:
        client = await r.connect()

        async def later(_params: Any) -> None:
            return None

        client.policy = later
        session, runtime, call = await r.working(client)
        options = [port.PermissionOption("y", "Yes", "allow_once")]
        runtime.deliver(port.PermissionRequested("q", "Run it?", options, command=("ls", "/w")))
        await client.until(lambda: bool(client.questions))
        mark = len(client.updates)
        await client.load(session)
        await client.respond(client.question_ids[0], {"outcome": {"outcome": "selected", "optionId": "y"}})
        await runtime.until(lambda: runtime.answers == [("q", "y")])
        runtime.end()
        await call.result()
        assert [update["sessionUpdate"] for update in client.updates[mark:]] == ["user_message_chunk"]
    assert "not handled" not in caplog.text


async def test_the_work_is_cancelled_while_a_question_waits() -> None:
    """V1-PR-3, RCAN-7."""
    async with rig() as r:
        client = await r.connect()

        async def silent(_params: Any) -> None:
            return None

        client.policy = silent
        session, runtime, call = await r.working(client)
        runtime.deliver(question())
        await client.until(lambda: bool(client.questions))
        await client.cancel(session)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end(interrupted=True)
        assert await call.result() == {"stopReason": "cancelled"}
        await client.until(lambda: len(client.withdrawn) == 1)


# --- several clients, work of nobody -----------------------------------------------------------------------------------


async def test_both_versions_share_a_session() -> None:
    """BR-2, BR-3: each gets its own kind of answer; a cancel of one ends the work of both."""
    async with rig() as r:
        old, new = await r.connect(), await r.connect_v2()
        session, runtime, first = await r.working(old, "of one")
        await new.resume(session, "/")
        second = await new.prompt(session, "of two")
        await started(runtime, 1)
        assert await second.message_id()
        assert first.answer is None
        await old.cancel(session)
        await runtime.until(lambda: runtime.interrupts == 1)
        runtime.end(interrupted=True)
        assert await first.result() == {"stopReason": "cancelled"}
        idle = await new.wait_state(session, "idle", since=second.mark)
        assert idle["stopReason"] == "cancelled"


async def test_a_prompt_waits_for_the_work_of_another_client() -> None:
    """BR-2: its answer must not be the end of somebody else's work."""
    async with rig() as r:
        old, new = await r.connect(), await r.connect_v2()
        session = await new.new("/")
        runtime = r.runtime.sessions[session]
        await new.prompt(session, "of two")
        await started(runtime, 0)
        await old.resume(session)
        mine = await old.prompt(session, "of one")
        runtime.say("for the other")
        await old.until(lambda: old.said() == "for the other")
        assert len(runtime.submitted) == 1
        runtime.end()
        await started(runtime, 1)
        assert mine.answer is None
        runtime.end()
        assert await mine.result() == {"stopReason": "end_turn"}


async def test_work_that_no_prompt_asked_for_is_shown_and_answers_nobody() -> None:
    async with rig() as r:
        client = await r.connect()
        session, runtime, call = await r.working(client)
        runtime.end()
        await call.result()
        runtime.start()
        runtime.say("by the way")
        runtime.end()
        mine = await client.prompt(session, "next")
        await started(runtime, 1)
        assert client.said() == "by the way"
        assert mine.answer is None
        runtime.end()
        assert await mine.result() == {"stopReason": "end_turn"}


async def test_late_news_of_a_call_are_updates_and_of_an_unknown_one_nothing() -> None:
    """V1-UPD-2: an editor would make a card of an update whose call it does not know."""
    async with rig() as r:
        client = await r.connect()
        session, runtime, call = await r.working(client)
        runtime.output(ToolCallUpdate(tool_call_id="t", title="Bash", status="in_progress"))
        runtime.end()
        await call.result()
        runtime.output(ToolCallUpdate(tool_call_id="t", status="completed"))
        runtime.output(ToolCallUpdate(tool_call_id="never-seen", status="completed"))
        runtime.output(AgentMessageChunk(message_id="m", content=TextBlock(text="end")))
        await client.until(lambda: client.said() == "end")
        assert [update["sessionUpdate"] for update in client.updates[:-1]] == ["tool_call", "tool_call_update"]
        await client.resume(session)


async def test_a_client_that_comes_in_the_middle_of_work_is_told_of_its_calls_first() -> None:
    """V1-UPD-2, V1-SES-4: what goes on is no history; the message that began it is."""
    async with rig() as r:
        first, second = await r.connect(), await r.connect()
        session, runtime, call = await r.working(first)
        runtime.output(ToolCallUpdate(tool_call_id="t", title="Bash", status="in_progress"))
        runtime.say("half")
        await second.resume(session)
        runtime.output(ToolCallUpdate(tool_call_id="t", status="completed"))
        runtime.end()
        await call.result()
        await second.until(lambda: len(second.updates) == 3)
        assert [update["sessionUpdate"] for update in second.updates] == [
            "tool_call",
            "agent_message_chunk",
            "tool_call_update",
        ]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_notice_is_one_or_a_line_of_text(*, declared: bool) -> None:
    async with rig() as r:
        client = await r.connect(**({"session": {"notices": {}}} if declared else {}))
        _, runtime, call = await r.working(client)
        runtime.output(Notice(severity="warning", title="Slow", description="The model is busy."))
        runtime.end()
        await call.result()
        [update] = client.updates
        if declared:
            assert update == {
                "sessionUpdate": "notice",
                "severity": "warning",
                "title": "Slow",
                "description": "The model is busy.",
            }
        else:
            assert update["content"]["text"] == "**Warning:** Slow: The model is busy.\n\n"


async def test_a_prompt_outlives_a_client_that_leaves() -> None:
    """STDIO-13: its work goes on; nobody is answered."""
    async with rig() as r:
        first, second = await r.connect(), await r.connect()
        session, runtime, _ = await r.working(first)
        await second.resume(session)
        await first._transport.aclose()
        runtime.say("still here")
        await second.until(lambda: second.said() == "still here")
        runtime.end()
        mine = await second.prompt(session, "next")
        await started(runtime, 1)
        runtime.end()
        assert await mine.result() == {"stopReason": "end_turn"}
