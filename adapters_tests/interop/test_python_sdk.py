"""The Python SDK as a v1 client, on both runtimes: whole conversations, every line of the agent judged against closed v1."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, Implementation, RequestPermissionResponse

from adapters.scripted.script import Answer, Shell, ToolUse, say
from adapters_tests.e2e.processes import wait_for
from adapters_tests.e2e.rig import Rig
from adapters_tests.v1_schema import validate_sent

pytestmark = [pytest.mark.anyio, pytest.mark.real]

Json = dict[str, Any]


class Editor:
    """What an editor does with what it is told: remembers it, and answers questions."""

    def __init__(self) -> None:
        self.updates: list[Json] = []
        self.questions: list[Json] = []
        self.approves = True
        self.faults: list[BaseException] = []
        self.asked: dict[Any, str] = {}
        self.agent: ClientSideConnection

    def observe(self, event: StreamEvent) -> None:
        """Every message, as it is on the wire."""
        message = event.message
        if event.direction is StreamDirection.OUTGOING:
            if "method" in message and "id" in message:
                self.asked[message["id"]] = message["method"]
            return
        try:
            validate_sent(message, None if "method" in message else self.asked.get(message["id"]))
        except Exception as fault:  # noqa: BLE001 - told at the end
            self.faults.append(fault)
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        """The SDK has read it."""

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_more: Any
    ) -> RequestPermissionResponse:
        self.questions.append({"session": session_id, "call": tool_call, "options": options})
        kind = "allow_once" if self.approves else "reject_once"
        for option in options:
            if option.kind == kind:
                return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    # --- what a person sees ------------------------------------------------------------------------------------------

    def shown(self, *kinds: str) -> list[Json]:
        return [update for update in self.updates if update["sessionUpdate"] in kinds]

    def said(self) -> str:
        """What the model wrote: a notice is a message of its own."""
        chunks = (chunk for chunk in self.shown("agent_message_chunk") if not chunk["messageId"].startswith("notice-"))
        return "".join(chunk["content"].get("text", "") for chunk in chunks)

    def calls(self) -> dict[str, Json]:
        """Every tool call as its updates left it. A card for each `tool_call`, and none for anything else."""
        cards: dict[str, Json] = {}
        for update in self.shown("tool_call", "tool_call_update"):
            name = update["toolCallId"]
            assert (name in cards) == (update["sessionUpdate"] == "tool_call_update"), update
            card = cards.setdefault(name, {"meta": []})
            card.update({key: value for key, value in update.items() if value is not None})
            card["meta"].append(update.get("_meta") or {})
        return cards

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        await wait_for(condition, 30, what)


@asynccontextmanager
async def editor(rig: Rig, *, initialize: Json | None = None, **env: str) -> AsyncIterator[Editor]:
    """An agent with the SDK as its client."""
    made = Editor()
    command, *arguments = rig.runtime.command
    async with acp.spawn_agent_process(
        made,
        command,
        *arguments,
        env={**rig.env, **env},
        cwd=rig.root,
        transport_kwargs={"stderr": None, "limit": 50 * 1024 * 1024},
        observers=[made.observe],
    ) as (agent, _process):
        made.agent = agent
        answer = await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities.model_validate(initialize or {}),
            client_info=Implementation(name="editor", version="1"),
        )
        assert answer.protocol_version == 1
        assert answer.agent_capabilities.load_session
        yield made
    assert made.faults == []
    made.calls()


async def new(made: Editor, rig: Rig) -> str:
    return (await made.agent.new_session(cwd=str(rig.project), mcp_servers=[])).session_id


async def prompt(made: Editor, session: str, text: str) -> str:
    """Send it and wait for the end of its work."""
    with anyio.fail_after(60):
        return (await made.agent.prompt(session_id=session, prompt=[acp.text_block(text)])).stop_reason


async def failing(answer: Awaitable[Any]) -> acp.RequestError:
    with pytest.raises(acp.RequestError) as failed:
        await answer
    return failed.value


TERMINALS: Json = {"_meta": {"terminal_output": True}}


@pytest.mark.parametrize("declared", [True, False], ids=["terminals", "text"])
async def test_a_command(rig: Rig, text: str, *, declared: bool) -> None:
    """V1-PR-1, V1-UPD-2, V1-UPD-3: one card, its output readable, then the answer, then the end of the turn."""
    rig.answer(text, Answer((Shell("printf '\\033[31mred\\033[0m\\none\\rtwo\\n'; exit 3"),)), say("That failed."))
    async with editor(rig, initialize=TERMINALS if declared else None) as made:
        session = await new(made, rig)
        assert await prompt(made, session, text) == "end_turn"
        [card] = made.calls().values()
        assert card["status"] == "failed"
        assert card["kind"] == "execute"
        assert made.said() == "That failed."
        assert made.shown("user_message_chunk") == []
        if not card["content"] or card["content"][0]["type"] == "content":
            whole = "".join(item["content"]["text"] for item in card["content"])
            assert "\x1b" not in whole
            assert "red" in whole
            assert "two" in whole
            assert "one" not in whole
            assert whole.count("```") == 2


@pytest.mark.parametrize("approves", [True, False], ids=["allowed", "rejected"])
async def test_a_question(rig: Rig, text: str, *, approves: bool) -> None:
    """V1-PERM-1: the call is there before it is asked about, with what it will do; no means that it did not run."""
    path = rig.project / "made"
    rig.answer(text, Answer((rig.runtime.asking(f"touch '{path}'"),)), say("Done with it."))
    async with editor(rig) as made:
        made.approves = approves
        session = await new(made, rig)
        assert await prompt(made, session, text) in ("end_turn", "cancelled")
        assert path.exists() == approves
        [asked] = made.questions
        [card] = made.calls().values()
        assert asked["call"].tool_call_id == card["toolCallId"]
        assert asked["call"].title
        assert str(path) in str(asked["call"].raw_input) + asked["call"].title
        assert card["status"] == ("completed" if approves else "failed")


async def test_an_edit(rig: Rig, text: str) -> None:
    """V1-UPD-3: the lines before and after, with what is around them."""
    path = rig.project / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    fresh = rig.project / "new.txt"
    if rig.runtime.name == "claude":
        steps = [
            Answer((ToolUse("Read", {"file_path": str(path)}),)),
            Answer((ToolUse("Edit", {"file_path": str(path), "old_string": "two", "new_string": "2"}),)),
            Answer((ToolUse("Write", {"file_path": str(fresh), "content": "hello\n"}),)),
        ]
    else:
        changed = "*** Update File: a.txt\n@@\n one\n-two\n+2\n three"
        patch = f"*** Begin Patch\n{changed}\n*** Add File: new.txt\n+hello\n*** End Patch"
        steps = [Answer((Shell(f"apply_patch <<'EOF'\n{patch}\nEOF"),))]
    rig.answer(text, *steps, say("Edited."))
    async with editor(rig) as made:
        session = await new(made, rig)
        assert await prompt(made, session, text) == "end_turn"
        blocks = [item for card in made.calls().values() for item in card.get("content", ()) if item["type"] == "diff"]
        assert {
            "type": "diff",
            "path": str(path),
            "oldText": "one\ntwo\nthree\n",
            "newText": "one\n2\nthree\n",
        } in blocks
        assert {"type": "diff", "path": str(fresh), "oldText": None, "newText": "hello\n"} in blocks
        assert fresh.read_text() == "hello\n"


async def test_a_cancel_in_a_tool(rig: Rig, text: str) -> None:
    """V1-PR-3: the turn ends as cancelled, no card is left open, and the next prompt works."""
    tool = rig.tool(text)
    rig.answer("after", say("Here."))
    async with editor(rig) as made:
        session = await new(made, rig)
        ended: list[str] = []

        async def run() -> None:
            ended.append(await prompt(made, session, text))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await tool.started()
            await made.agent.cancel(session_id=session)
        assert ended == ["cancelled"]
        assert {card["status"] for card in made.calls().values()} <= {"failed", "completed"}
        assert await prompt(made, session, "after") == "end_turn"
        assert made.said().endswith("Here.")


async def test_two_prompts_queue(rig: Rig, text: str) -> None:
    """V1-PR-6: each is answered by its own work, in order."""
    tool = rig.tool(text, "First is done.")
    rig.answer("second", say("Second is done."))
    async with editor(rig) as made:
        session = await new(made, rig)
        heard: list[str] = []

        async def run(words: str) -> None:
            assert await prompt(made, session, words) == "end_turn"
            heard.append(made.said())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, text)
            await tool.started()
            tasks.start_soon(run, "second")
            await wait_for(lambda: list(made.asked.values()).count("session/prompt") == 2, 10, "both are sent")
            tool.release()
        assert heard == ["First is done.", "First is done.Second is done."]
        assert len(rig.stored_ids(session)) == 2


async def test_load_list_and_resume(rig: Rig, text: str) -> None:
    """V1-SES-3..5: the whole conversation before the answer; resume shows nothing of it; both take prompts."""
    rig.answer(text, Answer((Shell("echo done"),)), say("It ran."))
    rig.answer("more", say("More."))
    async with editor(rig) as made:
        session = await new(made, rig)
        await prompt(made, session, text)
    async with editor(rig) as made:
        listed = (await made.agent.list_sessions(cwd=str(rig.project))).sessions
        assert [row.session_id for row in listed] == [session]
        await made.agent.load_session(session_id=session, cwd=str(rig.project), mcp_servers=[])
        first = made.updates[0]
        assert (first["sessionUpdate"], first["content"]["text"]) == ("user_message_chunk", text)
        [card] = made.calls().values()
        assert card["status"] == "completed"
        assert made.said() == "It ran."
        assert await prompt(made, session, "more") == "end_turn"
    async with editor(rig) as made:
        await made.agent.resume_session(session_id=session, cwd=str(rig.project), mcp_servers=[])
        kinds = ("user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update")
        assert made.shown(*kinds) == []
        assert await prompt(made, session, "more") == "end_turn"
        assert made.said() == "More."
        await made.agent.close_session(session_id=session)


async def test_a_command_of_the_runtime(rig: Rig, text: str) -> None:
    """V1-SES-7: it is listed after the answer, runs like a prompt, and its work ends."""
    rig.answer(text, say("Something."))
    async with editor(rig) as made:
        session = await new(made, rig)
        await made.until(lambda: bool(made.shown("available_commands_update")), "commands are listed")
        rows = made.shown("available_commands_update")[-1]["availableCommands"]
        assert "compact" in [row["name"] for row in rows]
        assert await prompt(made, session, text) == "end_turn"
        with anyio.fail_after(60):
            answer = await made.agent.prompt(session_id=session, prompt=[acp.text_block("/compact")])
        assert answer.stop_reason == "end_turn"
        assert "think" in [card.get("kind") for card in made.calls().values()]


@pytest.mark.parametrize(("status", "code"), [(401, -32000), (529, None)])
async def test_the_model_fails(rig: Rig, text: str, status: int, code: int | None) -> None:
    """V1-PR-2: an error that says that the message is stored; the session lives on."""
    rig.fail(text, status, "by the script")
    rig.answer("after", say("Here."))
    async with editor(rig, CLAUDE_CODE_MAX_RETRIES="1") as made:
        session = await new(made, rig)
        error = await failing(prompt(made, session, text))
        assert code in (None, error.code)
        assert error.data["inserted"] is True
        assert error.data["messageId"] in rig.stored_ids(session)
        assert await prompt(made, session, "after") == "end_turn"


async def test_the_runtime_dies(rig: Rig, text: str) -> None:
    """V1-PR-2: the prompt is stored, and answered with an error that says so; the next prompt starts the runtime again."""
    tool = rig.tool(text)
    rig.answer("after", say("Here."))
    async with editor(rig) as made:
        session = await new(made, rig)
        errors: list[acp.RequestError] = []

        async def run() -> None:
            errors.append(await failing(prompt(made, session, text)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await tool.started()
            await made.until(lambda: bool(made.calls()), "the call is shown")
            rig.runtime_of(session).kill(signal.SIGKILL)
        tool.release()
        [error] = errors
        assert error.data["inserted"] is True
        assert rig.stored_ids(session) == [error.data["messageId"]]
        assert {card["status"] for card in made.calls().values()} == {"failed"}
        assert await prompt(made, session, "after") == "end_turn"
        assert made.said().endswith("Here.")


async def test_a_session_that_is_not_there(rig: Rig, tmp_path: Path) -> None:
    """V1-SES-6."""
    async with editor(rig) as made:
        error = await failing(
            made.agent.load_session(session_id="00000000-0000-7000-8000-000000000000", cwd=str(rig.project))
        )
        assert error.code == -32002
        assert error.data["sessionId"] == "00000000-0000-7000-8000-000000000000"
        error = await failing(made.agent.new_session(cwd=str(tmp_path / "none"), mcp_servers=[]))
        assert error.code == -32602
