"""A session against a fake Claude Code: every order of frames, deaths, silence (D5, D6, D7; known faults)."""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from adapters.acp.errors import AcpError, InternalError, ResourceNotFound
from adapters.acp.schema import AgentMessageChunk, AudioBlock, Notice, ResumeSession, TextBlock, parse_params
from adapters.claude import session as driver
from adapters.claude.cli.program import AGENT
from adapters.core.port import (
    CommandsChanged,
    Output,
    PermissionRequested,
    PermissionWithdrawn,
    PromptFailed,
    PromptInserted,
    PromptLiveOnly,
    PromptTaken,
    ReadyChanged,
    WorkEnded,
    WorkStarted,
)
from adapters.driver import procfs
from adapters_tests.claude.driving import A, B, Fake, Rig, Sink, entry, rig, text

pytestmark = pytest.mark.anyio

CONVERSATION = (WorkStarted, PromptTaken, PromptInserted, PromptLiveOnly, PromptFailed, WorkEnded)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


@pytest.fixture
def _hasty(one: Rig) -> None:
    """Bounds that a test can wait for; none in which a fake must do something."""
    one.bound(ready_again=0.05, interrupt=0.4, interrupt_again=0.1, silence=0.05, look=0.2, withdraw_again=0.05)


# --- the usual way ---------------------------------------------------------------------------------------------------


async def test_a_prompt_is_taken_stored_worked_on_and_done(one: Rig) -> None:
    session, fake, sink = await one.new()
    assert session.ready
    await session.submit(A, text("hello"))
    assert not session.ready
    frame = await fake.hears("user")
    assert frame["uuid"] == A
    assert frame["message"]["content"] == [{"type": "text", "text": "hello"}]
    await fake.takes(A)
    await sink.until(PromptTaken)
    assert sink.of(PromptInserted) == []
    one.store(session.session_id, entry(A))
    await fake.mirror(entry(A))
    await sink.until(PromptInserted)
    assert session.ready
    await fake.say({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}})
    block = {"type": "text", "text": ""}
    await fake.say(
        {"type": "stream_event", "event": {"type": "content_block_start", "index": 0, "content_block": block}}
    )
    delta = {"type": "text_delta", "text": "well"}
    await fake.say({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": delta}})
    await fake.result(A)
    await sink.until(WorkEnded)
    assert sink.of(*CONVERSATION) == [WorkStarted(), PromptTaken(A), PromptInserted(A), WorkEnded("end_turn")]
    chunks = [event.update for event in sink.of(Output) if isinstance(event.update, AgentMessageChunk)]
    assert len(chunks) == 1
    assert isinstance(chunks[0].content, TextBlock)
    assert chunks[0].content.text == "well"
    assert sink.events.index(sink.of(Output)[0]) < sink.events.index(WorkEnded("end_turn"))
    assert await session.is_recorded(A)
    assert not await session.is_recorded(B)


async def test_a_prompt_during_work_goes_to_the_same_process_at_once(one: Rig) -> None:
    """D3."""
    session, fake, sink = await one.working()
    assert session.ready
    await session.submit(B, text())
    assert (await fake.hears("user"))["uuid"] == B
    await fake.lifecycle(B, "queued", "started")
    await fake.mirror({"type": "attachment", "uuid": "x", "attachment": {"type": "queued_command", "source_uuid": B}})
    await sink.until(PromptInserted, 2)
    await fake.result(A, B)
    await sink.until(WorkEnded)
    assert len(one.fakes) == 1


async def test_what_the_cli_cannot_take_is_refused_before_anything_happens(one: Rig) -> None:
    """PROMPT-13."""
    session, fake, _ = await one.new()
    with pytest.raises(AcpError):
        await session.submit(A, [AudioBlock(data="", mime_type="audio/wav")])
    assert session.ready
    assert fake.heard_of("user") == []


async def test_another_sessions_mirror_proves_nothing(one: Rig) -> None:
    _, fake, sink = await one.taken()
    await fake.say({"type": "transcript_mirror", "filePath": "/c/agent-x.jsonl", "entries": [entry(A)]})
    await fake.result(A)
    await sink.until(WorkEnded)
    assert sink.of(PromptInserted) == []


async def test_noise_unknown_frames_and_long_lines_hide_nothing(one: Rig) -> None:
    """D11; one line over a megabyte does not end the session."""
    _, fake, sink = await one.submitted()
    await fake.order(out='Welcome back!\n\n[1]\n{"type":\n{"type":"novel"}\n{"type":"assistant","message":7}\n')
    await fake.say({"type": "user", "isReplay": 1, "message": {"content": "x" * 3_000_000}})
    await fake.takes(A)
    await fake.mirror(entry(A))
    await sink.until(PromptInserted)


# --- storage ---------------------------------------------------------------------------------------------------------


async def test_without_mirror_frames_the_file_is_the_evidence(one: Rig) -> None:
    session, fake, sink = await one.taken()
    one.store(session.session_id, entry(A))
    await fake.result(A)
    assert await sink.until(PromptInserted) == PromptInserted(A)


@pytest.mark.usefixtures("_hasty")
async def test_a_long_turn_without_mirror_frames_is_looked_for_in_the_file(one: Rig) -> None:
    session, _, sink = await one.taken()
    one.store(session.session_id, entry(A))
    await sink.until(PromptInserted)
    assert sink.of(WorkEnded) == []


async def test_a_store_that_does_not_take_it_makes_it_live_only(one: Rig) -> None:
    """KEY-43."""
    _, fake, sink = await one.taken()
    await fake.say({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "done"}]}})
    await fake.result(A)
    assert await sink.until(PromptLiveOnly) == PromptLiveOnly(A)


async def test_a_store_that_cannot_be_read_is_an_error_not_a_no(one: Rig) -> None:
    """ADP-6."""
    session, _, _ = await one.new()
    (one.config / "projects").mkdir(parents=True)
    one.file(session.session_id).mkdir()
    with pytest.raises(InternalError, match="cannot be read"):
        await session.is_recorded(A)


async def test_a_store_that_cannot_be_read_at_the_death_leaves_the_prompt_undecided(one: Rig) -> None:
    """D7, ADP-6: nobody can say that it was not inserted, so the error does not say so."""
    session, fake, sink = await one.taken()
    await sink.until(PromptTaken)
    one.file(session.session_id).mkdir()
    fake.kill()
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    assert failed.error.data["inserted"] is None
    await sink.until(WorkEnded)
    one.file(session.session_id).rmdir()
    await session.submit(B, text())
    assert (await (await one.fake(2)).hears("user"))["uuid"] == B


# --- withdrawing ------------------------------------------------------------------------------------------------------


async def test_a_confirmed_withdrawal_and_the_same_id_again(one: Rig) -> None:
    """E5, E52: the id is burnt in that process, so a fresh one runs it."""
    session, fake, sink = await one.submitted()
    await fake.lifecycle(A, "queued")
    await session.withdraw(A)
    request = await fake.hears("cancel_async_message")
    assert request["request"]["message_uuid"] == A
    await fake.lifecycle(A, "cancelled")
    await fake.answers(request, cancelled=True)
    assert await sink.until(PromptFailed) == PromptFailed(A, None)
    await session.submit(A, text())
    second = await one.fake(2)
    assert not second.resumed  # nothing is stored yet
    assert (await second.hears("user"))["uuid"] == A
    await second.takes(A)
    await second.mirror(entry(A))
    await sink.until(PromptInserted)
    assert fake.ended


async def test_a_refused_withdrawal_waits_for_the_truth(one: Rig) -> None:
    """E7."""
    session, fake, sink = await one.submitted()
    await fake.lifecycle(A, "queued")
    await session.withdraw(A)
    request = await fake.hears("cancel_async_message")
    await fake.takes(A)
    await fake.answers(request, cancelled=False)
    await fake.mirror(entry(A))
    assert await sink.until(PromptInserted) == PromptInserted(A)
    assert fake.heard_of("interrupt") == []


@pytest.mark.usefixtures("_hasty")
async def test_a_prompt_held_outside_the_queue_is_withdrawn_by_an_interrupt(one: Rig) -> None:
    """While it waits for MCP servers the CLI refuses to withdraw what it has not begun (2.1.332)."""
    session, fake, sink = await one.submitted()
    await fake.lifecycle(A, "queued")
    await session.withdraw(A)
    await fake.answers(await fake.hears("cancel_async_message"), cancelled=False)
    request = await fake.hears("interrupt")
    assert request["request"]["cancel_queued"] is True
    await fake.lifecycle(A, "cancelled")
    assert await sink.until(PromptFailed) == PromptFailed(A, None)


@asynccontextmanager
async def starting(home: Path) -> AsyncIterator[tuple[driver.ClaudeSession, Fake, Sink]]:
    """A session with A for its second process, which does not come up by itself."""

    def prepare(fake: Fake) -> None:
        fake.initialize = len(made.fakes) == 0

    async with rig(home, prepare) as made:
        session, fake, sink = await made.new()
        fake.kill()
        await sink.until(ReadyChanged)
        await session.submit(A, text())
        yield session, await made.fake(2), sink


async def test_a_prompt_is_withdrawn_while_its_process_starts(tmp_path: Path) -> None:
    async with starting(tmp_path) as (session, second, sink):
        request = await second.hears("initialize")
        await session.withdraw(A)
        assert await sink.until(PromptFailed) == PromptFailed(A, None)
        assert not session.ready
        await second.answers(request, commands=[])
        await sink.until(ReadyChanged, 2)
        assert session.ready
        await session.submit(B, text())
        assert (await second.hears("user"))["uuid"] == B


# --- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_hasty")
async def test_a_swallowed_prompt_fails_and_its_retry_runs_in_a_fresh_process(one: Rig) -> None:
    """A known fault: the follow-up that nobody ever sees. The process lives and answers, and has no word for the prompt."""
    session, fake, sink = await one.submitted()
    for _ in range(one.runtime.bounds.skipped_after):
        await fake.answers(await fake.hears("mcp_status"), mcpServers=[])
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    await session.submit(A, text())
    await (await one.fake(2)).hears("user")


@pytest.mark.usefixtures("_hasty")
async def test_a_follow_up_that_is_swallowed_in_mid_turn_fails_and_leaves_the_turn_alone(one: Rig) -> None:
    """A known fault: the input clears, the agent never sees it. Its retry waits for the end of the turn."""
    session, fake, sink = await one.working()
    await session.submit(B, text())
    await fake.hears("user")
    for _ in range(one.runtime.bounds.skipped_after):
        await fake.answers(await fake.hears("mcp_status"), mcpServers=[])
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    await session.submit(B, text())
    await fake.result(A)
    await sink.until(WorkEnded)
    assert (await (await one.fake(2)).hears("user"))["uuid"] == B


@pytest.mark.usefixtures("_hasty")
async def test_a_process_that_answers_nothing_any_more_is_ended(one: Rig) -> None:
    one.bound(answer=0.2)
    session, fake, sink = await one.submitted()
    await fake.lifecycle(A, "queued")
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    assert failed.error.data == {"category": "process_exit", "exitCode": -signal.SIGTERM}
    assert fake.ended
    await sink.until(ReadyChanged)
    assert session.ready


async def test_an_echo_alone_is_a_skipped_prompt(one: Rig) -> None:
    _, fake, sink = await one.submitted()
    await fake.say({"type": "user", "uuid": A, "isReplay": True, "message": {"content": "hi"}})
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    assert sink.of(WorkStarted) == []


@pytest.mark.usefixtures("_hasty")
async def test_servers_that_hold_the_prompt_up_are_named_once(one: Rig) -> None:
    """A known fault: MCP start-up waited for without a word."""
    params = {"sessionId": "x", "cwd": "/w", "mcpServers": [{"type": "stdio", "name": "slow", "command": "/bin/cat"}]}
    parsed = parse_params("session/resume", params)
    assert isinstance(parsed, ResumeSession)
    sink = Sink()
    session = await one.runtime.new_session(one.setup(*parsed.mcp_servers), sink)
    fake = await one.fake()
    await session.submit(A, text())
    await fake.hears("user")
    await fake.lifecycle(A, "queued")
    servers = [{"name": "slow", "status": "pending"}, {"name": "the users own", "status": "failed"}]
    for _ in range(one.runtime.bounds.skipped_after + 2):
        await fake.answers(await fake.hears("mcp_status"), mcpServers=servers)
    await fake.takes(A)
    await sink.until(WorkStarted)
    notices = [event.update for event in sink.of(Output) if isinstance(event.update, Notice)]
    assert len(notices) == 1
    assert "slow" in notices[0].title


# --- faults of our own ------------------------------------------------------------------------------------------------


async def test_a_frame_that_cannot_be_shown_costs_only_itself(
    one: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D11: whatever goes wrong with one frame, the prompt still gets its outcome, and the work its end."""
    session, fake, sink = await one.new()
    feed = session._translator.feed

    def brittle(frame: Any) -> Any:
        if frame.get("type") == "assistant":
            raise KeyError("secret words")
        return feed(frame)

    monkeypatch.setattr(session._translator, "feed", brittle)
    await session.submit(A, text())
    await fake.hears("user")
    await fake.takes(A)
    await fake.say({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "lost"}]}})
    await fake.mirror(entry(A))
    await fake.result(A)
    assert (await sink.until(WorkEnded)).stop_reason == "end_turn"
    assert sink.of(PromptInserted) == [PromptInserted(A)]
    said = capsys.readouterr().err
    assert said.count("a frame could not be handled") == 1
    assert "secret words" not in said


class Broken(anyio.Event):
    """An event that cannot be waited for. An `anyio.Event` makes one of its backend: hence the detour."""

    def __new__(cls) -> Any:
        return object.__new__(cls)

    def is_set(self) -> bool:
        return False

    async def wait(self) -> None:
        raise RuntimeError


async def test_a_reader_that_fails_ends_the_process_and_the_session_lives_on(one: Rig) -> None:
    """D7: the same path as for a process that died; nobody waits for ever."""
    session, fake, sink = await one.working()
    was_open, sink.open = sink.open, Broken()
    await fake.say({"type": "novel"})
    ended = await sink.until(WorkEnded)
    sink.open = was_open
    assert ended.stop_reason == "error"
    assert procfs.look(fake.pid) is None
    await session.submit(B, text())
    assert (await (await one.fake(2)).hears("user"))["uuid"] == B


# --- interrupts -------------------------------------------------------------------------------------------------------


async def test_an_interrupt_ends_the_work(one: Rig) -> None:
    session, fake, sink = await one.working()
    await session.interrupt()
    await session.interrupt()
    request = await fake.hears("interrupt")
    assert not session.ready
    await fake.answers(request, still_queued=[])
    await fake.result(A, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    assert await sink.until(WorkEnded) == WorkEnded("cancelled", None, interrupted=True)
    assert session.ready
    await session.interrupt()
    assert sink.of(*CONVERSATION)[-1] == sink.of(WorkEnded)[0]


async def test_an_interrupt_before_the_turn_began_inside_is_sent_again(one: Rig) -> None:
    """A known fault: an interrupt during start-up resolves and does nothing."""
    one.bound(interrupt_again=60)  # so the beginning of the turn is what sends it again
    session, fake, sink = await one.submitted()
    await fake.lifecycle(A, "queued", "started")
    await sink.until(WorkStarted)
    await session.interrupt()
    await fake.answers(await fake.hears("interrupt"), still_queued=[A])
    await fake.say({"type": "system", "subtype": "init", "user_message_uuids": [A]})
    await fake.hears("interrupt")
    await fake.mirror(entry(A))
    await fake.result(A, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    await sink.until(WorkEnded)


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("deaf", [False, True])
async def test_an_ignored_interrupt_ends_the_process_and_the_session_lives_on(one: Rig, deaf: bool) -> None:
    """A known fault: the fake ignores the interrupt, and TERM."""
    session, fake, sink = await one.working()
    if deaf:
        await fake.order(deaf=True)
        await fake.hears("deaf")
    await session.interrupt()
    assert await sink.until(WorkEnded) == WorkEnded("cancelled", None, interrupted=True)
    await sink.until(ReadyChanged)
    await session.submit(B, text())
    second = await one.fake(2)
    assert second.resumed
    assert (await second.hears("user"))["uuid"] == B


@pytest.mark.usefixtures("_hasty")
async def test_the_bound_of_an_interrupt_does_not_run_while_a_client_does_not_read(one: Rig) -> None:
    one.bound(interrupt=1.0)
    session, fake, sink = await one.working()
    sink.open = anyio.Event()
    await fake.say({"type": "novel"})
    process = session._process
    assert process is not None
    await sink.stuck.wait()
    await session.interrupt()
    for _ in range(12):
        await fake.hears("interrupt")
    assert not process.gone.is_set()
    await fake.result(A, subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    sink.open.set()
    assert (await sink.until(WorkEnded)).interrupted
    assert not process.gone.is_set()


async def test_the_end_of_one_turn_is_not_inherited_by_the_next(one: Rig) -> None:
    """A known fault: the leftover result of a cancelled turn ends the next one."""
    session, fake, sink = await one.working()
    await fake.result(A)
    await sink.until(WorkEnded)
    await session.submit(B, text())
    await fake.hears("user")
    await fake.takes(B)
    await fake.result(A, subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming")
    await fake.mirror(entry(B))
    await sink.until(PromptInserted, 2)
    assert len(sink.of(WorkEnded)) == 1
    await fake.result(B)
    assert await sink.until(WorkEnded, 2) == WorkEnded("end_turn")


async def test_background_follow_up_work_has_its_own_bracket(one: Rig) -> None:
    """A known fault: a turn reported done while its background work goes on."""
    _, fake, sink = await one.working()
    await fake.result(A)
    await sink.until(WorkEnded)
    await fake.say({"type": "system", "subtype": "init"})
    await sink.until(WorkStarted, 2)
    await fake.result(origin={"kind": "task-notification"})
    await sink.until(WorkEnded, 2)


# --- deaths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reached", ["sent", "queued", "started"])
async def test_death_before_storage_is_an_error_and_the_next_prompt_starts_anew(one: Rig, reached: str) -> None:
    """D7, E9."""
    session, fake, sink = await one.submitted()
    if reached != "sent":
        await fake.lifecycle(A, "queued")
    if reached == "started":
        await fake.lifecycle(A, "started")
        await sink.until(PromptTaken)
    await fake.order(err="Claude usage limit reached\n", exit=143)
    failed = await sink.until(PromptFailed)
    assert failed.error is not None
    assert "usage limit reached" in failed.error.message
    if reached == "started":
        ended = await sink.until(WorkEnded)
        assert ended.stop_reason == "error"
    await sink.until(ReadyChanged)
    await session.submit(A, text())
    second = await one.fake(2)
    assert (await second.hears("user"))["uuid"] == A
    assert second.session_id == fake.session_id
    assert not second.resumed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_prompt_is_not_sent_to_a_process_whose_death_is_still_news(one: Rig) -> None:
    session, fake, sink = await one.new()
    found = procfs.look(fake.pid)
    assert found is not None
    fake.kill()
    while found.alive:
        pass  # not a moment for the event loop to hear of it
    await session.submit(A, text())
    assert (await (await one.fake(2)).hears("user"))["uuid"] == A
    assert sink.of(PromptFailed) == []


async def test_death_after_storage_is_a_success_and_an_error_of_the_work(one: Rig) -> None:
    """D7, E10: the file decides, although no mirror frame came."""
    session, fake, sink = await one.taken()
    await sink.until(PromptTaken)
    one.store(session.session_id, entry(A))
    fake.kill()
    assert await sink.until(PromptInserted) == PromptInserted(A)
    ended = await sink.until(WorkEnded)
    assert ended.error["data"] == {"category": "process_exit", "exitCode": -9}
    await sink.until(ReadyChanged)
    await session.submit(B, text())
    assert (await one.fake(2)).resumed


async def test_death_closes_tool_calls_and_withdraws_questions(one: Rig) -> None:
    """STOP-4, RCAN-7."""
    _, fake, sink = await one.working()
    tool = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "sleep 9"}}
    await fake.say({"type": "assistant", "message": {"id": "m", "content": [tool]}})
    ask = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "toolu_1", "input": tool["input"]}
    await fake.say({"type": "control_request", "request_id": "q", "request": ask})
    await sink.until(PermissionRequested)
    fake.kill()
    await sink.until(PermissionWithdrawn)
    last = [event.update for event in sink.of(Output)][-1]
    assert (last.tool_call_id, last.status) == ("toolu_1", "failed")
    assert sink.events.index(sink.of(Output)[-1]) < sink.events.index(sink.of(WorkEnded)[0])


async def test_death_while_idle_costs_nothing(one: Rig) -> None:
    session, fake, sink = await one.new()
    fake.kill()
    await sink.until(ReadyChanged)
    assert session.ready
    await session.submit(A, text())
    await (await one.fake(2)).hears("user")
    assert sink.of(PromptFailed) == []


async def test_tools_of_a_process_that_died_are_ended(one: Rig) -> None:
    """SIGKILL leaves tool children running; a retry must not run beside them."""
    session, fake, sink = await one.working()
    tool = await anyio.open_process(["sleep", "60"], env={**fake.env}, start_new_session=True)
    async with tool:
        fake.kill()
        await sink.until(WorkEnded)
        with anyio.fail_after(15):
            assert await tool.wait() == -signal.SIGTERM
    assert not session._turns.working


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", [True, False])
async def test_an_installation_that_does_not_start_is_an_error_at_once(tmp_path: Path, death: bool) -> None:
    def prepare(fake: Fake) -> None:
        fake.initialize = False

    async with rig(tmp_path, prepare) as made:
        if not death:
            made.bound(initialize=3.0)
        errors: list[AcpError] = []

        async def start() -> None:
            try:
                await made.runtime.new_session(made.setup(), Sink())
            except AcpError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            fake = await made.fake()
            if death:
                await fake.order(err="error: settings.json is malformed\n", exit=1)
        [error] = errors
        assert ("settings.json is malformed" in error.message) == death
        assert "did not start" in error.message
        assert sorted(path.name for path in (made.state / "claude").iterdir()) == []
        assert procfs.look(fake.pid) is None


async def test_a_missing_program_names_what_to_install(one: Rig) -> None:
    one.runtime._environ["CLAUDE_CODE_EXECUTABLE"] = "/nowhere/claude"
    with pytest.raises(InternalError, match="CLAUDE_CODE_EXECUTABLE"):
        await one.runtime.new_session(one.setup(), Sink())


async def test_secrets_of_servers_are_in_a_private_file_that_is_gone_after_the_start(tmp_path: Path) -> None:
    """STDIO-15: anybody can read arguments."""
    seen: list[Any] = []

    def prepare(fake: Fake) -> None:
        path = Path(fake.argv[fake.argv.index("--mcp-config") + 1])
        seen.append((path, stat.S_IMODE(path.stat().st_mode), json.loads(path.read_text())))
        assert "s3cret" not in " ".join(fake.argv)

    server = {"type": "stdio", "name": "a", "command": "/bin/a", "env": [{"name": "TOKEN", "value": "s3cret"}]}
    parsed = parse_params("session/resume", {"sessionId": "x", "cwd": "/w", "mcpServers": [server]})
    assert isinstance(parsed, ResumeSession)
    async with rig(tmp_path, prepare) as made:
        await made.runtime.new_session(made.setup(*parsed.mcp_servers), Sink())
        [(path, mode, content)] = seen
        assert mode == 0o600
        assert content["mcpServers"]["a"]["env"] == {"TOKEN": "s3cret"}
        assert not path.exists()


async def test_commands_are_offered_and_changes_are_told(tmp_path: Path) -> None:
    """CMD-2."""

    def prepare(fake: Fake) -> None:
        fake.commands = [{"name": "compact"}, {"name": "clear"}, *([{"name": "new-skill"}] if made.fakes else [])]

    async with rig(tmp_path, prepare) as made:
        session, fake, sink = await made.new()
        assert [command.name for command in session.commands] == ["compact"]
        assert sink.events == []
        fake.kill()
        await sink.until(ReadyChanged)
        await session.submit(A, text())
        changed = await sink.until(CommandsChanged)
        assert [command.name for command in changed.commands] == ["compact", "new-skill"]


async def test_clear_is_answered_here(one: Rig) -> None:
    """D8."""
    session, _, _ = await one.new()
    assert session.local_reply(text("/clear")) is not None
    assert session.local_reply(text("/compact")) is None


# --- permissions ------------------------------------------------------------------------------------------------------

ASK = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {"command": "ls"}}


async def test_a_permission_goes_to_the_client_and_its_answer_to_the_cli(one: Rig) -> None:
    session, fake, sink = await one.working()
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": ASK["input"]}
    await fake.say({"type": "assistant", "message": {"id": "m", "content": [tool]}})
    await fake.say({"type": "control_request", "request_id": "q", "request": ASK})
    asked = await sink.until(PermissionRequested)
    assert asked.foreground
    assert asked.tool_call is not None
    assert asked.tool_call.tool_call_id == "t1"
    await session.answer_permission("q", "allow_once")
    await session.answer_permission("q", "reject_once")
    answer = await fake.hears("control_response")
    assert answer["response"] == {
        "subtype": "success",
        "request_id": "q",
        "response": {"behavior": "allow", "updatedInput": {"command": "ls"}},
    }
    await fake.say(answer, {"type": "control_request", "request_id": "q2", "request": ASK})
    await sink.until(PermissionRequested, 2)
    await fake.say({"type": "control_cancel_request", "request_id": "q2"})
    assert await sink.until(PermissionWithdrawn) == PermissionWithdrawn("q2")
    await session.answer_permission("q2", "allow_once")
    await fake.say({"type": "control_request", "request_id": "q3", "request": {"subtype": "hook_callback"}})
    refusal = await fake.hears("control_response")
    assert refusal["response"]["subtype"] == "error"


async def test_a_question_about_a_call_that_nobody_saw_says_all_of_it(one: Rig) -> None:
    """PERM-1: a subagent's call is none of the conversation; as a call of it, it would stay open for ever."""
    _, fake, sink = await one.working()
    command = "echo a\n" + "echo b; " * 60 + "\nrm -rf build"
    ask = {**ASK, "agent_id": "a1", "input": {"command": command}}
    await fake.say({"type": "control_request", "request_id": "q", "request": ask})
    asked = await sink.until(PermissionRequested)
    assert asked.tool_call is None
    assert f"```\n{command}\n```" in asked.description
    assert asked.command[0] == command


async def test_questions_of_a_stopped_turn_are_denied_at_once(one: Rig) -> None:
    """A known fault: the abandoned turn's requests fail one by one, ten minutes long."""
    session, fake, sink = await one.working()
    await session.interrupt()
    await fake.hears("interrupt")
    await fake.say({"type": "control_request", "request_id": "q", "request": ASK})
    assert (await fake.hears("control_response"))["response"]["response"]["behavior"] == "deny"
    assert sink.of(PermissionRequested) == []


async def test_questions_that_cannot_be_shown_are_answered_here(one: Rig) -> None:
    _, fake, sink = await one.working()
    ask = {"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "tool_use_id": "t", "input": {"questions": []}}
    await fake.say({"type": "control_request", "request_id": "q", "request": ask})
    assert (await fake.hears("control_response"))["response"]["response"]["behavior"] == "deny"
    assert sink.of(PermissionRequested) == []


# --- other writers ----------------------------------------------------------------------------------------------------


async def test_a_session_continued_elsewhere_is_taken_up_by_a_fresh_process(one: Rig) -> None:
    """D6: the user's own claude in a terminal."""
    session, fake, sink = await one.working()
    await fake.result(A)
    await sink.until(WorkEnded)
    one.store(session.session_id, entry("theirs"))
    await session.submit(B, text())
    second = await one.fake(2)
    assert second.resumed
    assert (await second.hears("user"))["uuid"] == B
    assert await session.is_recorded("theirs")
    assert fake.ended


async def test_entries_that_our_process_announces_a_moment_later_restart_nothing(one: Rig) -> None:
    session, fake, sink = await one.working()
    await fake.result(A)
    await sink.until(WorkEnded)
    one.store(session.session_id, {"type": "assistant", "uuid": "late"})
    await session.submit(B, text())
    await fake.mirror({"type": "assistant", "uuid": "late"})
    assert (await fake.hears("user"))["uuid"] == B
    assert len(one.fakes) == 1


async def test_a_process_that_leaves_the_session_gets_no_further_prompt(one: Rig) -> None:
    """D8: whatever made it do that."""
    session, fake, sink = await one.working()
    await fake.say({"type": "conversation_reset", "trigger": "clear", "new_conversation_id": "x"})
    await fake.result(A)
    await sink.until(WorkEnded)
    await session.submit(B, text())
    second = await one.fake(2)
    assert second.session_id == fake.session_id
    assert (await second.hears("user"))["uuid"] == B


async def test_one_holder_per_session(one: Rig) -> None:
    """E45, D6."""
    one.bound(lock=0.1)
    session, _, _ = await one.working()
    with pytest.raises(InternalError, match="is active in process"):
        await one.runtime.open_session(session.session_id, one.setup(), Sink())
    with pytest.raises(InternalError, match="is active in process"):
        await one.runtime.delete_session(session.session_id)
    await session.close()
    again = await one.runtime.open_session(session.session_id, one.setup(), Sink())
    assert (await one.fake(2)).resumed
    assert await again.is_recorded(A)


@pytest.mark.parametrize("how", ["dies", "closed"])
async def test_a_stored_session_whose_process_does_not_come_up(tmp_path: Path, how: str) -> None:
    """RESUME-7, D6: its history can be read meanwhile; then an error that says why, no process, and the session free again."""
    stored = "aaaaaaaa-0000-4000-8000-00000000000d"

    def prepare(fake: Fake) -> None:
        fake.initialize = len(made.fakes) > 0

    async with rig(tmp_path, prepare) as made:
        made.store(stored, entry(A))
        session = await made.runtime.open_session(stored, made.setup(), Sink())
        fake = await made.fake()
        assert len([update async for update in session.replay()]) == 1
        if how == "dies":
            await fake.order(err="error: settings.json is malformed\n", exit=1)
            with pytest.raises(InternalError, match=r"settings\.json is malformed"):
                await session.started()
        await session.close()
        with pytest.raises(InternalError, match="did not start"):
            await session.started()
        assert procfs.look(fake.pid) is None
        again = await made.runtime.open_session(stored, made.setup(), Sink())
        await again.started()
        assert await again.is_recorded(A)


async def test_a_session_that_is_closed_before_its_start_never_comes_up(one: Rig) -> None:
    """D7: who waits for it is told."""
    launcher = await one.runtime._launcher()
    lock = await launcher.lock(A, bound=0)
    session = driver.ClaudeSession(A, one.setup(), Sink(), launcher, lock)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await tasks.start(session.tasks.run)
            await session.close()
            with pytest.raises(InternalError, match="being closed"):
                await session.started()
    assert one.fakes == []


async def test_a_stored_session_without_a_program_is_refused_before_its_history(one: Rig) -> None:
    """RESUME-7."""
    session, _, _ = await one.working()
    await session.close()
    one.runtime._environ["CLAUDE_CODE_EXECUTABLE"] = "/nowhere/claude"
    with pytest.raises(InternalError, match="CLAUDE_CODE_EXECUTABLE"):
        await one.runtime.open_session(session.session_id, one.setup(), Sink())


@pytest.mark.parametrize("session_id", ["0b6d6b4e-8f39-4c57-9d2c-111111111111", "../../etc/passwd", "a title", ""])
async def test_a_session_that_is_not_stored_is_not_found(one: Rig, session_id: str) -> None:
    """ERR-2; nothing is left behind (RESUME-7)."""
    with pytest.raises(ResourceNotFound) as refused:
        await one.runtime.open_session(session_id, one.setup(), Sink())
    assert refused.value.data == {"sessionId": session_id}
    assert one.fakes == []
    assert not (one.state / "claude").exists() or list((one.state / "claude").iterdir()) == []


async def test_an_orphan_is_gone_before_the_session_is_looked_into(one: Rig) -> None:
    """ADP-15."""
    session, fake, _ = await one.working()
    session_id = session.session_id
    await session.close()
    command = [one.environ["CLAUDE_CODE_EXECUTABLE"], f"--resume={session_id}"]
    async with await anyio.open_process(command, env={**fake.env, AGENT: "1:0"}, start_new_session=True):
        orphan = await one.fake(2)
        found = procfs.look(orphan.pid)
        assert found is not None
        again = await one.runtime.open_session(session_id, one.setup(), Sink())
        assert not found.alive
        assert await again.is_recorded(A)


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_closing_ends_everything_and_gives_the_lock_back(one: Rig) -> None:
    session, fake, sink = await one.new()
    await session.close()
    await session.close()
    assert fake.ended
    assert list((one.state / "claude").iterdir()) == []
    assert not session.ready
    assert sink.events == []
    with pytest.raises(AcpError):
        await session.submit(A, text())


async def test_closing_decides_an_open_prompt_by_the_store(one: Rig) -> None:
    """CLOSE-4."""
    for stored, outcome in ((True, PromptInserted(A)), (False, PromptFailed(A, None))):
        session, _, sink = await one.taken()
        await sink.until(PromptTaken)
        if stored:
            one.store(session.session_id, entry(A))
        await session.close()
        assert sink.of(*CONVERSATION)[2:] == [outcome, WorkEnded("cancelled", None, interrupted=True)]


async def test_closing_a_session_whose_process_ignores_everything_is_bounded(one: Rig) -> None:
    session, fake, _ = await one.working()
    await fake.order(deaf=True)
    await fake.hears("deaf")
    with anyio.fail_after(15):
        await session.close()
    assert procfs.look(fake.pid) is None


async def test_closing_during_the_start_of_a_process_ends_that_start(tmp_path: Path) -> None:
    async with starting(tmp_path) as (session, second, sink):
        await second.hears("initialize")
        with anyio.fail_after(15):
            await session.close()
        assert sink.of(PromptFailed) == [PromptFailed(A, None)]
        assert second.ended


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    """`$/cancel_request` of session/new."""

    def prepare(fake: Fake) -> None:
        fake.initialize = False

    async with rig(tmp_path, prepare) as made:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.runtime.new_session, made.setup(), Sink())
            fake = await made.fake()
            tasks.cancel_scope.cancel()
        assert procfs.look(fake.pid) is None
        assert list((made.state / "claude").iterdir()) == []


async def test_many_sessions_opened_closed_and_cancelled_at_random_leave_nothing(one: Rig) -> None:
    """A known fault: close hangs, or a scope ends in another task."""

    async def live(index: int) -> None:
        with anyio.move_on_after(0.05 * (index % 7)):
            session, _, _ = await one.new()
            await session.submit(A, text())
            await session.close()

    for start in range(0, 20, 5):
        async with anyio.create_task_group() as tasks:
            for index in range(start, start + 5):
                tasks.start_soon(live, index)
    await one.runtime.aclose()
    assert list((one.state / "claude").iterdir()) == []
    for fake in one.fakes:
        assert procfs.look(fake.pid) is None


async def test_replay_of_a_session_without_history_is_empty(one: Rig) -> None:
    session, _, _ = await one.new()
    assert [update async for update in session.replay()] == []


async def test_replay_reads_the_stored_session(one: Rig) -> None:
    session, _, _ = await one.working()
    updates = [update async for update in session.replay()]
    assert [update.message_id for update in updates] == [A]  # pyright: ignore[reportAttributeAccessIssue]
