"""A session and its app-server, with a fake one: prompts, steers, races, deaths, interrupts, questions, ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError, InternalError, InvalidParams
from adapters.acp.schema import McpServerHttp
from adapters.codex.session import CodexSession
from adapters.core.port import (
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
from adapters_tests.codex.driving import (
    Fake,
    RefusedError,
    Sink,
    asked,
    began,
    closed,
    command,
    listed_of,
    opened,
    over,
    rig,
    said,
    text,
    user,
)

pytestmark = pytest.mark.anyio

K = "5b1f0a52-0000-4000-8000-000000000001"
L = "5b1f0a52-0000-4000-8000-000000000002"


async def running(active: CodexSession, fake: Fake, sink: Sink, turn: str = "N") -> None:
    """A turn runs whose prompt is inserted."""
    await active.submit(K, text())
    await fake.take(turn)
    await sink.until(PromptInserted, len(sink.of(PromptInserted)) + 1)


# --- prompts -----------------------------------------------------------------------------------------------------------


async def test_a_prompt_from_the_request_to_the_end(tmp_path: Path) -> None:
    """D2, PROMPT-9, STATE-1, STATE-2: the order of events, and what the request holds."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text("hello"))
        params = await fake.accept()
        assert params == {
            "threadId": active.session_id,
            "clientUserMessageId": K,
            "input": [{"type": "text", "text": "hello", "text_elements": []}],
        }
        await fake.tell(active.session_id, began(), opened(user(K)))
        await sink.until(PromptTaken)
        assert sink.of(PromptInserted) == []
        await fake.tell(active.session_id, closed(user(K)), opened(said("")), closed(said("hi")), over())
        await sink.until(WorkEnded)
        kinds = [type(event).__name__ for event in sink.events]
        assert kinds == ["WorkStarted", "PromptTaken", "PromptInserted", "Output", "ReadyChanged", "WorkEnded"]


async def test_a_prompt_in_mid_turn_is_steered_where_nothing_is_cut_short(tmp_path: Path) -> None:
    """D3: held while a tool runs, `turn/steer` with the running turn at its end."""
    async with rig(tmp_path, settle=0.0) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command()))
        with anyio.fail_after(5):
            while active.ready:
                await anyio.lowlevel.checkpoint()
        await active.submit(L, text())
        await fake.tell(active.session_id, closed(command(status="completed", exitCode=0)))
        await sink.until(ReadyChanged)
        params = await fake.accept(method="turn/steer")
        assert (params["expectedTurnId"], params["clientUserMessageId"]) == ("N", L)
        await fake.insert(params)
        await sink.until(PromptInserted, 2)
        assert len(sink.of(WorkStarted)) == 1
        assert len(fake.requests("turn/start")) == 1


async def test_a_steer_into_a_quiet_turn_waits_for_a_tool_to_be_told_of(tmp_path: Path) -> None:
    """D3: Codex tells of a tool up to 150 ms after its start; a prompt sent meanwhile could not be withdrawn."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.submit(L, text())
        await fake.tell(active.session_id, opened(command()))
        await active.withdraw(L)
        failed = await sink.until(PromptFailed)
        assert (failed.message_id, failed.error) == (L, None)
        assert fake.requests("turn/steer") == []


@pytest.mark.parametrize("words", ["no active turn to steer", "expected active turn id `N` but found `O`", "reworded"])
async def test_a_steer_that_loses_against_the_end_of_the_turn(tmp_path: Path, words: str) -> None:
    """Known faults: state is checked again, and one `turn/start` takes its place: one turn, one running, one idle."""
    async with rig(tmp_path, settle=0.0) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.submit(L, text())
        steer = await fake.hears("turn/steer")
        await fake.tell(active.session_id, over())
        await fake.refuse(steer, words)
        await fake.hears("thread/resume")
        await fake.take("O")
        await sink.until(PromptInserted, 2)
        await fake.tell(active.session_id, over("O"))
        await sink.until(WorkEnded, 2)
        assert len(sink.of(WorkStarted)) == 2
        assert sink.of(PromptFailed) == []


@pytest.mark.parametrize("how", ["answered", "refused", "dies"])
async def test_a_steer_that_comes_in_as_the_turn_ends_is_answered(tmp_path: Path, how: str) -> None:
    """Known faults: Codex inserts it and asks nobody; a turn without input asks. One running, one idle, one message."""
    async with rig(tmp_path, settle=0.0) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(said("Done.")), closed(said("Done.")), asked())
        await active.submit(L, text())
        await fake.insert(await fake.accept(method="turn/steer"))
        await sink.until(PromptInserted, 2)
        await fake.tell(active.session_id, over())
        await fake.until(lambda: len(fake.requests("turn/start")) == 2)
        request = fake.requests("turn/start")[-1]
        assert request["params"] == {"threadId": active.session_id, "input": []}
        assert sink.of(WorkEnded) == []
        if how == "answered":
            await fake.answer(request, turn={"id": "O"})
            await fake.tell(active.session_id, began("O"), opened(said("And that."), "O"), over("O"))
        elif how == "refused":
            await fake.refuse(request, "no input")
        else:
            fake.kill()
        ended = await sink.until(WorkEnded)
        assert ended.stop_reason == ("error" if how == "dies" else "end_turn")
        assert len(sink.of(WorkEnded)) == 1
        assert len(fake.requests("turn/start")) == 2


async def test_never_a_third_way(tmp_path: Path) -> None:
    """Known faults: fall back to `turn/start` at most once, never twice."""
    async with rig(tmp_path, settle=0.0) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.submit(L, text())
        await fake.refuse(await fake.hears("turn/steer"), "no")
        await fake.refuse(await fake.hears("turn/start"), "no, really")
        failed = await sink.until(PromptFailed)
        assert "no, really" in failed.error.message
        assert len(fake.requests("turn/start")) == 2


async def test_content_that_codex_refuses(tmp_path: Path) -> None:
    """PROMPT-13: `-32602`, tried once."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        data = {"input_error_code": "input_too_large", "max_chars": 1048576}
        await fake.refuse(await fake.hears("turn/start"), "Input exceeds the maximum length.", -32602, data)
        failed = await sink.until(PromptFailed)
        assert isinstance(failed.error, InvalidParams)
        assert len(fake.requests("turn/start")) == 1


async def test_content_that_never_reaches_codex(tmp_path: Path) -> None:
    """Trap 8: a lone surrogate would make it drop the request without a word."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        with pytest.raises(InvalidParams):
            await active.submit(K, text("\ud800"))
        assert active.ready
        await running(active, fake, sink)
        assert len(fake.requests("turn/start")) == 1


async def test_a_turn_that_ends_without_the_prompt(tmp_path: Path) -> None:
    """A hook of the user refused it, say: looked up, then told with Codex's own words."""
    async with rig(tmp_path, look=0.05) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        await fake.accept()
        await fake.tell(active.session_id, began(), over(status="failed", error={"message": "the hook says no"}))
        failed = await sink.until(PromptFailed)
        assert "the hook says no" in failed.error.message
        assert fake.requests("thread/items/list")
        assert active.ready


async def test_a_message_that_is_stored_a_moment_late(tmp_path: Path) -> None:
    """PROMPT-23: the turn is over, the store is not; nobody is told too early."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        await fake.accept()
        await fake.tell(active.session_id, began(), over(status="interrupted"))
        await fake.hears("thread/items/list")
        fake.store.add(active.session_id, user(K))
        assert (await sink.until(PromptInserted)).message_id == K
        assert sink.of(PromptFailed) == []


async def test_a_message_of_a_resumed_session_that_is_stored_a_moment_late(tmp_path: Path) -> None:
    """PROMPT-23: a prompt without a key in a session whose history nobody has read yet."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    async with rig(tmp_path) as made:
        made.store.add(thread, user(K))
        active, fake, sink = await made.open(thread)
        await active.submit(L, text())
        await fake.accept()
        await fake.tell(thread, began(), over())
        await fake.hears("thread/items/list")
        await fake.hears("thread/items/list")
        made.store.add(thread, user(L))
        assert (await sink.until(PromptInserted)).message_id == L


async def test_one_submission_at_a_time(tmp_path: Path) -> None:
    """D3: the driver does not merge."""
    async with rig(tmp_path) as made:
        active, _, _ = await made.new()
        await active.submit(K, text())
        assert not active.ready
        with pytest.raises(InternalError):
            await active.submit(L, text())


# --- looking up --------------------------------------------------------------------------------------------------------


async def test_a_new_session_reads_nothing(tmp_path: Path) -> None:
    """E53: its set is empty and complete; its own prompts are known from events."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        assert not await active.is_recorded(K)
        await running(active, fake, sink)
        assert await active.is_recorded(K)
        assert fake.requests("thread/items/list") == []


async def test_a_stored_session_is_read_whole_and_once(tmp_path: Path) -> None:
    """D4, ADP-4, ADP-5: resume first, every page, then events."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12

    def small_pages(fake: Fake) -> None:
        fake.page = 2

    async with rig(tmp_path, small_pages) as made:
        for number in range(5):
            made.store.add(thread, user(f"id-{number}"))
        active, fake, sink = await made.open(thread)
        assert fake.requests("thread/items/list") == []
        assert await active.is_recorded("id-4")
        assert await active.is_recorded("id-0")
        assert not await active.is_recorded(K)
        assert len(fake.requests("thread/items/list")) == 3
        methods = [message.get("method") for message in fake.heard]
        assert methods.index("thread/resume") < methods.index("thread/items/list")
        await running(active, fake, sink)
        assert await active.is_recorded(K)
        assert len(fake.requests("thread/items/list")) == 3


async def test_a_legacy_thread_is_read_in_one_piece(tmp_path: Path) -> None:
    """D12: its items cannot be paged. Its prompts count when the file holds them."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    async with rig(tmp_path) as made:
        made.store.legacy.add(thread)
        made.store.add(thread, user("old"))
        active, fake, sink = await made.open(thread)
        assert await active.is_recorded("old")
        assert fake.requests("thread/items/list") == []
        await active.submit(K, text())
        await fake.take()
        await sink.until(PromptTaken)
        await anyio.sleep(0.1)
        assert sink.of(PromptInserted) == []
        with made.store.rollout(thread).open("a") as file:
            file.write('{"type":"event_msg","payload":{"type":"user_message","client_id":"' + K + '"}}\n')
        await sink.until(PromptInserted)


async def test_a_store_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """ADP-6: never "unused"; the next look reads again."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    refusing = True

    def listed(_fake: Fake, _params: Mapping[str, Any]) -> dict[str, Any]:
        if refusing:
            raise RefusedError("the database is locked")
        return {"data": [], "nextCursor": None}

    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/items/list": listed})) as made:
        made.store.items[thread] = []
        active, _, _ = await made.open(thread)
        with pytest.raises(InternalError, match="the database is locked"):
            await active.is_recorded(K)
        refusing = False
        assert not await active.is_recorded(K)


@pytest.mark.parametrize("read", ["look", "replay"])
@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_process_that_dies_while_the_store_is_read_is_replaced_once(
    tmp_path: Path, read: str, deaths: int
) -> None:
    """D7, ADP-6: what was not read yet is read from another process; a second death is an error, never "unused"."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    left = deaths

    def dies(fake: Fake, params: Mapping[str, Any]) -> dict[str, Any] | None:
        nonlocal left
        if left:
            left -= 1
            fake.kill()
            return None
        return listed_of(fake, params)

    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/items/list": dies})) as made:
        made.store.add(thread, user(K))
        active, _, _ = await made.open(thread)

        async def found() -> bool:
            if read == "look":
                return await active.is_recorded(K)
            return [getattr(update, "message_id", None) async for update in active.replay()] == [K]

        if deaths > 1:
            with pytest.raises(InternalError, match="cannot be read"):
                await found()
        assert await found()


# --- death -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [True, False])
async def test_death_with_a_prompt_in_flight(tmp_path: Path, stored: bool) -> None:
    """D7: the work ends at once; another process is started, the stored items decide, the session lives on."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, over())
        await sink.until(WorkEnded)
        await active.submit(L, text())
        params = await fake.accept("O")
        await fake.tell(active.session_id, began("O"), opened(user(L), "O"))
        await sink.until(PromptTaken, 2)
        if stored:
            fake.store.add(active.session_id, user(L), "O")
        fake.kill()
        ended = await sink.until(WorkEnded, 2)
        assert (ended.stop_reason, ended.error["data"]["category"]) == ("error", "process_exit")
        if stored:
            assert (await sink.until(PromptInserted, 2)).message_id == L
        else:
            assert "ended unexpectedly" in (await sink.until(PromptFailed)).error.message
        second = await made.fake(2)
        resume = await second.hears("thread/resume")
        assert resume["params"]["threadId"] == active.session_id == params["threadId"]
        await active.submit("third", text())
        await second.take("P")
        await sink.until(PromptInserted, 3 if stored else 2)


async def test_a_process_that_died_while_idle(tmp_path: Path) -> None:
    """D7: the next prompt simply starts another one."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, over())
        await sink.until(WorkEnded)
        fake.kill()
        await active.submit(L, text())
        second = await made.fake(2)
        await second.take("O")
        assert (await sink.until(PromptInserted, 2)).message_id == L
        assert sink.of(PromptFailed) == []
        assert len(sink.of(WorkEnded)) == 1


async def test_a_session_that_was_never_prompted_survives(tmp_path: Path) -> None:
    """Section 9: a thread without a prompt would die with its process; it is made durable when it is made."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        injected = await fake.hears("thread/inject_items")
        assert injected["params"]["items"] == [{"type": "other"}]
        fake.kill()
        await sink.until(ReadyChanged)
        assert not await active.is_recorded(K)
        await active.submit(K, text())
        second = await made.fake(2)
        await second.take()
        await sink.until(PromptInserted)


async def test_a_session_that_could_not_be_kept(tmp_path: Path) -> None:
    """An older Codex knows no way: the error says what happened and what to do."""
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/inject_items": refused})) as made:
        active, fake, sink = await made.new()
        fake.kill()
        await sink.until(ReadyChanged)
        await active.submit(K, text())
        failed = await sink.until(PromptFailed)
        assert "start a new one" in failed.error.message


async def test_death_while_a_question_is_open(tmp_path: Path) -> None:
    """RCAN-7: nobody waits for the answer any more; a late one goes nowhere."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command()))
        await fake.ask("item/commandExecution/requestApproval", threadId=active.session_id, itemId="c1", command="ls")
        asked = await sink.until(PermissionRequested)
        fake.kill()
        assert (await sink.until(PermissionWithdrawn)).request_id == asked.request_id
        await active.answer_permission(asked.request_id, "accept")
        statuses = [update.get("status") for update in sink.updates if update["sessionUpdate"] == "tool_call_update"]
        assert statuses[-1] == "failed"


async def test_every_session_is_told_of_a_death(tmp_path: Path) -> None:
    """One process holds all sessions: its death is D7 for each of them, and one new one serves them all."""
    async with rig(tmp_path) as made:
        sessions = [await made.new() for _ in range(3)]
        fake = made.fakes[0]
        assert len(made.fakes) == 1
        for number, (active, _, sink) in enumerate(sessions):
            await running(active, fake, sink, f"turn-{number}")
        fake.kill()
        for _, _, sink in sessions:
            await sink.until(WorkEnded)
        for active, _, _ in sessions:
            assert await active.is_recorded(K)
        assert len(made.fakes) == 2


async def test_a_request_without_an_answer_ends_the_process(tmp_path: Path) -> None:
    """Trap 8: no wait without a bound. What may or may not have happened is decided by the store."""
    async with rig(tmp_path, accept=0.3) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        request = await fake.hears("turn/start")
        fake.store.add(active.session_id, user(K))
        assert (await sink.until(PromptInserted)).message_id == K
        assert request["params"]["clientUserMessageId"] == K
        assert len(made.fakes) == 2


# --- withdrawing and interrupting ----------------------------------------------------------------------------------------


async def test_withdrawing_a_prompt_that_waits(tmp_path: Path) -> None:
    """D5: it is still ours; Codex never hears of it."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(said("")))
        await active.submit(L, text())
        await active.withdraw(L)
        assert (await sink.until(PromptFailed)).error is None
        assert fake.requests("turn/steer") == []


async def test_withdrawing_a_prompt_that_is_not_inserted_yet(tmp_path: Path) -> None:
    """E7: nothing takes it back; in a turn of its own an interrupt prevents it."""
    async with rig(tmp_path, reclaim=0.05, look=0.05) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        await fake.accept()
        await fake.tell(active.session_id, began())
        await sink.until(WorkStarted)
        await active.withdraw(K)
        interrupt = await fake.hears("turn/interrupt")
        assert interrupt["params"] == {"threadId": active.session_id, "turnId": "N"}
        await fake.answer(interrupt)
        await fake.tell(active.session_id, over(status="interrupted"))
        assert (await sink.until(PromptFailed)).error is None
        assert (await sink.until(WorkEnded)).interrupted


async def test_withdrawing_a_prompt_that_is_inserted_after_all(tmp_path: Path) -> None:
    """KEY-19: success, and the work goes on."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await active.submit(K, text())
        params = await fake.accept()
        await active.withdraw(K)
        await fake.tell(active.session_id, began())
        await fake.insert(params)
        await sink.until(PromptInserted)
        await fake.tell(active.session_id, over())
        assert not (await sink.until(WorkEnded)).interrupted
        assert fake.requests("turn/interrupt") == []


async def test_an_interrupt_drops_a_steer(tmp_path: Path) -> None:
    """D5: an interrupt drops it and nobody tells; the stored items do. Its id can be submitted again."""
    async with rig(tmp_path, look=0.05, settle=0.0) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.submit(L, text())
        await fake.accept(method="turn/steer")
        await active.interrupt()
        await fake.answer(await fake.hears("turn/interrupt"))
        await fake.tell(active.session_id, over(status="interrupted"))
        failed = await sink.until(PromptFailed)
        assert (failed.message_id, failed.error) == (L, None)
        assert (await sink.until(WorkEnded)).interrupted
        await active.submit(L, text())
        await fake.take("O")
        assert (await sink.until(PromptInserted, 2)).message_id == L


async def test_an_interrupt_ends_the_commands_of_the_turn(tmp_path: Path) -> None:
    """Trap 11, STOP-4: those that run, not those of earlier turns; their end comes before idle."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command("old", processId="1")), opened(said("")), closed(said("x")))
        await fake.tell(active.session_id, over())
        await sink.until(WorkEnded)
        await active.submit(L, text())
        await fake.take("O")
        await fake.tell(active.session_id, opened(command("new", processId="2"), "O"))
        await sink.until(PromptInserted, 2)
        await active.interrupt()
        await fake.answer(await fake.hears("turn/interrupt"))
        await fake.tell(active.session_id, over("O", "interrupted"))
        terminate = await fake.hears("thread/backgroundTerminals/terminate")
        assert terminate["params"] == {"threadId": active.session_id, "processId": "2"}
        assert len(sink.of(WorkEnded)) == 1
        ended = command("new", processId="2", status="failed", exitCode=-1)
        await fake.tell(active.session_id, closed(ended, "O"))
        assert (await sink.until(WorkEnded, 2)).interrupted
        statuses = {update["toolCallId"]: update["status"] for update in sink.updates if "toolCallId" in update}
        assert statuses == {"old": "in_progress", "new": "cancelled"}
        assert len(fake.requests("thread/backgroundTerminals/terminate")) == 1


async def test_commands_that_do_not_end(tmp_path: Path) -> None:
    """D7: a bound; their late end says nothing new."""
    async with rig(tmp_path, commands=0.05) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command()))
        await active.interrupt()
        await fake.hears("turn/interrupt")
        await fake.tell(active.session_id, over(status="interrupted"))
        assert (await sink.until(WorkEnded)).interrupted
        await fake.tell(active.session_id, closed(command(status="failed", exitCode=137)))
        await fake.tell(active.session_id, began("O"))
        await sink.until(WorkStarted, 2)
        calls = [update for update in sink.updates if update["sessionUpdate"] == "tool_call_update"]
        assert [call["status"] for call in calls] == ["in_progress", "cancelled", "cancelled"]


async def test_a_refused_interrupt_is_asked_for_again(tmp_path: Path) -> None:
    """Trap 5: before the turn has begun inside, it is refused and the turn would run on."""
    async with rig(tmp_path, interrupt_again=0.02) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.interrupt()
        await fake.refuse(await fake.hears("turn/interrupt"), "no active turn to interrupt")
        await fake.answer(await fake.hears("turn/interrupt"))
        await fake.tell(active.session_id, over(status="interrupted"))
        assert (await sink.until(WorkEnded)).interrupted
        assert len(fake.requests("turn/interrupt")) == 2


async def test_a_turn_that_ignores_its_interrupt(tmp_path: Path) -> None:
    """Trap 6, known faults: one interrupt, a bound, then the process is ended; the session lives on."""
    async with rig(tmp_path, interrupt=0.2) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.interrupt()
        await active.interrupt()
        await fake.hears("turn/interrupt")
        ended = await sink.until(WorkEnded)
        assert ended.interrupted
        assert len(fake.requests("turn/interrupt")) == 1
        await active.submit(L, text())
        await (await made.fake(2)).take("O")
        await sink.until(PromptInserted, 2)


async def test_sub_agents_are_stopped_with_their_parent(tmp_path: Path) -> None:
    """Their turns are work of the turn that started them; they do not speak in the conversation."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        spawned = {"type": "collabAgentToolCall", "id": "a1", "tool": "spawnAgent", "receiverThreadIds": ["child"]}
        await fake.tell(active.session_id, opened(spawned), closed({**spawned, "status": "completed"}))
        await fake.tell("child", began("C"), opened(said("", "m9"), "C"), closed(said("inside", "m9"), "C"))
        await fake.tell(active.session_id, opened(said("", "m1")), closed(said("outside", "m1")))
        await sink.until(Output, 3)  # the call, begun and ended, and the message: all was heard
        await active.interrupt()
        stopped = [(await fake.hears("turn/interrupt"))["params"] for _ in range(2)]
        assert {stop["turnId"] for stop in stopped} == {"N", "C"}
        shown = [update for update in sink.updates if update["sessionUpdate"].startswith("agent_message")]
        assert [update["messageId"] for update in shown] == ["m1"]


# --- questions -----------------------------------------------------------------------------------------------------------


async def test_a_question_and_its_answer(tmp_path: Path) -> None:
    """PERM-1, TOOL-10: the waiting call is shown; after a yes it runs."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command()))
        asked = await fake.ask(
            "item/commandExecution/requestApproval", threadId=active.session_id, itemId="c1", command="ls"
        )
        question = await sink.until(PermissionRequested)
        assert question.foreground
        assert (question.tool_call.tool_call_id, question.tool_call.status) == ("c1", "pending")
        assert not active.ready
        await active.answer_permission(question.request_id, "accept")
        assert (await fake.hears_answer(asked))["result"] == {"decision": "accept"}
        assert sink.updates[-1] == {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress"}
        await active.answer_permission(question.request_id, "decline")
        await fake.tell(active.session_id, ("serverRequest/resolved", {"requestId": asked}))
        await fake.tell(active.session_id, closed(command(status="completed")), over())
        await sink.until(WorkEnded)
        assert sink.of(PermissionWithdrawn) == []


async def test_no_answer_declines(tmp_path: Path) -> None:
    """PERM-2, PERM-3."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        asked = await fake.ask("item/fileChange/requestApproval", threadId=active.session_id, itemId="f1")
        question = await sink.until(PermissionRequested)
        await active.answer_permission(question.request_id, None)
        assert (await fake.hears_answer(asked))["result"] == {"decision": "decline"}


async def test_codex_takes_a_question_back(tmp_path: Path) -> None:
    """RCAN-7."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        asked = await fake.ask("item/fileChange/requestApproval", threadId=active.session_id, itemId="f1")
        question = await sink.until(PermissionRequested)
        await fake.tell(active.session_id, ("serverRequest/resolved", {"requestId": asked}))
        assert (await sink.until(PermissionWithdrawn)).request_id == question.request_id
        assert active.ready


async def test_questions_of_stopped_work_are_declined_at_once(tmp_path: Path) -> None:
    """Known faults: an abandoned turn that goes on asking."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.interrupt()
        await fake.hears("turn/interrupt")
        asked = await fake.ask("item/fileChange/requestApproval", threadId=active.session_id, itemId="f1")
        assert (await fake.hears_answer(asked))["result"] == {"decision": "decline"}
        assert sink.of(PermissionRequested) == []
        await fake.tell(active.session_id, over(status="interrupted"))


async def test_a_question_of_a_sub_agent_goes_to_the_same_user(tmp_path: Path) -> None:
    """Its thread is no session's: the call that made it names it, or Codex does."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        spawned = {"type": "collabAgentToolCall", "id": "a1", "receiverThreadIds": ["child"], "status": "completed"}
        await fake.tell(active.session_id, closed(spawned))
        asked = await fake.ask("item/commandExecution/requestApproval", threadId="child", itemId="c9", command="ls")
        question = await sink.until(PermissionRequested)
        assert question.tool_call is None
        await active.answer_permission(question.request_id, "accept")
        assert (await fake.hears_answer(asked))["result"] == {"decision": "accept"}
        fake.answers["thread/read"] = lambda _fake, _params: {"thread": {"parentThreadId": active.session_id}}
        await fake.ask("item/commandExecution/requestApproval", threadId="grandchild", itemId="c9", command="ls")
        await sink.until(PermissionRequested, 2)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("something/new", {"threadId": "here"}),
        ("item/tool/call", {"threadId": "here", "tool": "t"}),
        ("currentTime/read", {}),
        ("item/commandExecution/requestApproval", {"threadId": "nobodys"}),
    ],
)
async def test_requests_that_nobody_can_answer_get_an_error(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    """Trap 9: never silence, never an automatic yes."""
    async with rig(tmp_path) as made:
        active, fake, _ = await made.new()
        fake.answers["thread/read"] = lambda _fake, _params: {"thread": {}}
        here = {name: active.session_id if value == "here" else value for name, value in params.items()}
        answer = await fake.hears_answer(await fake.ask(method, **here))
        assert answer["error"]["code"] == -32601
        assert "result" not in answer


# --- compaction ----------------------------------------------------------------------------------------------------------


async def test_compact_waits_for_the_end_of_the_turn(tmp_path: Path) -> None:
    """A compaction in mid-turn would interrupt it. Its prompt is live-only, by design."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.submit(L, text("/compact"))
        await fake.tell(active.session_id, over())
        await sink.until(WorkEnded)
        await fake.answer(await fake.hears("thread/compact/start"))
        compaction = {"type": "contextCompaction", "id": "k1"}
        await fake.tell(active.session_id, began("C"), opened(compaction, "C"))
        assert await sink.until(PromptLiveOnly) == PromptLiveOnly(L, by_design=True)
        assert not active.ready
        await fake.tell(active.session_id, closed(compaction, "C"), over("C"))
        await sink.until(WorkEnded, 2)
        statuses = [update["status"] for update in sink.updates if update["sessionUpdate"] == "compaction_update"]
        assert statuses == ["in_progress", "completed"]


# --- roots and servers -----------------------------------------------------------------------------------------------------


async def test_new_roots_and_servers_reach_an_active_session(tmp_path: Path) -> None:
    """RESUME-1, RESUME-5: a loaded thread ignores overrides; it is let go and resumed, at a moment without work."""
    server = McpServerHttp(name="My Server", url="http://127.0.0.1:1", headers=[])
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await active.reconfigure(made.setup(server, roots=("/x",)))
        assert fake.requests("thread/unsubscribe") == []
        await fake.tell(active.session_id, over())
        await fake.hears("thread/unsubscribe")
        resume = await fake.hears("thread/resume")
        assert resume["params"]["runtimeWorkspaceRoots"] == [str(made.cwd), "/x"]
        assert resume["params"]["config"]["mcp_servers"] == {
            "My-Server-0x20": {"url": "http://127.0.0.1:1", "http_headers": {}}
        }
        await active.submit(L, text())
        await fake.take("O")
        await sink.until(PromptInserted, 2)
        assert len(fake.requests("thread/resume")) == 1


async def test_a_server_that_does_not_start_is_told_once(tmp_path: Path) -> None:
    """Known faults: under the client's own name; servers of the user's configuration are the user's business."""
    server = McpServerHttp(name="My Server", url="http://127.0.0.1:1", headers=[])
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new(server)
        for name in ("My-Server-0x20", "users", "My-Server-0x20"):
            status = {"name": name, "status": "failed", "error": "refused"}
            await fake.tell(active.session_id, ("mcpServer/startupStatus/updated", status))
        await running(active, fake, sink)
        notices = [update for update in sink.updates if update["sessionUpdate"] == "notice"]
        assert [notice["title"] for notice in notices] == [
            "The MCP server My Server did not start; its tools are missing."
        ]
        reply = active.local_reply(text("/status"))
        assert reply is not None
        assert "My Server (failed), users (failed)" in reply.text


# --- replay ----------------------------------------------------------------------------------------------------------------


async def test_replay_in_the_order_in_which_it_was_shown(tmp_path: Path) -> None:
    """REPLAY-2..7: stored in the order of ends, replayed in that of beginnings; what was killed was cancelled."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    async with rig(tmp_path) as made:
        store = made.store
        store.turns["I"] = "interrupted"
        store.add(thread, user(K), "N", 1)
        store.add(thread, command("second", status="completed"), "N", 3)
        store.add(thread, command("first", status="completed"), "N", 2)
        store.add(thread, user(L), "I", 10)
        store.add(thread, command("killed", status="failed", exitCode=-1), "I", 11)
        store.add(thread, user(K), "O", 20)
        store.add(thread, user(None), "O", 21)
        active, _, _ = await made.open(thread)
        shown = [update async for update in active.replay()]
        ids = [getattr(update, "message_id", None) or getattr(update, "tool_call_id", None) for update in shown]
        assert ids == [K, "first", "second", L, "killed", f"item-of-{K}", "item-of-None"]
        assert shown[4].status == "cancelled"  # type: ignore[union-attr]


async def test_replay_asks_for_a_page_ahead(tmp_path: Path) -> None:
    """REPLAY-2: Codex reads the next page while a client is sent this one, and is never more than one ahead."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12

    def small_pages(fake: Fake) -> None:
        fake.page = 1

    async with rig(tmp_path, small_pages) as made:
        for number in range(4):
            made.store.add(thread, user(f"id-{number}"), f"turn-{number}", number)
        active, fake, _ = await made.open(thread)
        replay = active.replay()
        first = await anext(replay)
        await fake.hears("thread/items/list")
        await fake.hears("thread/items/list")
        asked = len(fake.requests("thread/items/list"))
        shown = [first, *[update async for update in replay]]
        assert [getattr(update, "message_id", None) for update in shown] == [f"id-{number}" for number in range(4)]
        assert 2 <= asked < len(fake.requests("thread/items/list")) == 4


async def test_replay_of_a_legacy_thread_repeats_the_ids_that_were_shown(tmp_path: Path) -> None:
    """REPLAY-4: Codex numbers the items of a legacy history when it reads it."""
    thread = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    async with rig(tmp_path) as made:
        made.store.legacy.add(thread)
        made.store.add(thread, said("old", "item-1"), "A")
        active, fake, sink = await made.open(thread)
        await fake.tell(thread, began("B"))
        for item_id in ("msg_x", "msg_y"):
            await fake.tell(thread, opened(said("", item_id), "B"), closed(said(item_id, item_id), "B"))
        await fake.tell(thread, over("B"))
        await sink.until(WorkEnded)
        for place in (2, 3, 4):
            made.store.add(thread, said(f"text {place}", f"item-{place}"), "B")
        shown = [update.message_id async for update in active.replay()]  # type: ignore[union-attr]
        assert shown == ["item-1", "msg_x", "msg_y", "item-4"]


# --- the end ---------------------------------------------------------------------------------------------------------------


async def test_closing_in_mid_turn(tmp_path: Path) -> None:
    """CLOSE-1, CLOSE-2: interrupted, commands ended, idle cancelled; the thread is let go, the last one ends the process."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(command()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.close)
            await fake.answer(await fake.hears("turn/interrupt"))
            await fake.tell(
                active.session_id, over(status="interrupted"), closed(command(status="failed", exitCode=-1))
            )
        assert (await sink.until(WorkEnded)).interrupted
        await fake.hears("eof")
        assert fake.requests("thread/unsubscribe") == []
        before = len(sink.events)
        await active.close()
        assert len(sink.events) == before


async def test_closing_what_codex_does_not_end(tmp_path: Path) -> None:
    """CLOSE-4, E13: every prompt gets its answer within a bound, and it is true."""
    async with rig(tmp_path, close=0.1) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        await fake.tell(active.session_id, opened(said("")), closed(said("x")))
        await sink.until(ReadyChanged)
        await active.submit(L, text())
        await fake.accept(method="turn/steer")
        with anyio.fail_after(5):
            await active.close()
        assert sink.of(WorkEnded)[-1].interrupted
        [failed] = sink.of(PromptFailed)
        assert failed.message_id == L
        assert failed.error is None or failed.error.data == {"inserted": None}


async def test_a_session_that_was_never_prompted_leaves_nothing_behind(tmp_path: Path) -> None:
    """SETUP-13: an editor that opens a session at its start fills no list and no disk."""
    async with rig(tmp_path) as made:
        empty, fake, _ = await made.new()
        used, _, sink = await made.new()
        await running(used, fake, sink)
        await fake.tell(used.session_id, over())
        await sink.until(WorkEnded)
        await empty.close()
        await used.close()
        assert [m["params"]["threadId"] for m in fake.requests("thread/delete")] == [empty.session_id]
        assert fake.requests("thread/unsubscribe") == []  # the process ends, and frees it


async def test_a_session_that_somebody_else_may_have_written_to_is_not_removed(tmp_path: Path) -> None:
    """SETUP-13, D6: never prompted here, but its process was gone for a while, and with it the lock."""
    async with rig(tmp_path) as made:
        empty, fake, _ = await made.new()
        first = empty._thread.server
        with anyio.fail_after(10):
            while empty.session_id not in made.store.items:  # noqa: ASYNC110 - there is no event of it
                await anyio.sleep(0.005)
            fake.kill()
            while empty._thread.server is first:  # noqa: ASYNC110 - there is no event of it
                await anyio.sleep(0.005)
        assert not await empty.is_recorded(K)
        second = await made.fake(2)
        second.store.add(empty.session_id, user("the-user's-own"))
        await empty.close()
        assert second.requests("thread/resume")
        assert second.requests("thread/delete") == []


async def test_a_closed_session_is_given_back_while_others_go_on(tmp_path: Path) -> None:
    """D6, CLOSE-6: Codex closes a thread that nobody watches. Nothing in the store changes for it, so a kill loses nothing."""
    async with rig(tmp_path) as made:
        first, fake, sink = await made.new()
        second, _, _ = await made.new()
        third, _, other = await made.new()
        for active, told in ((first, sink), (third, other)):
            await running(active, fake, told, f"turn of {active.session_id}")
            await fake.tell(active.session_id, over(f"turn of {active.session_id}"))
            await told.until(WorkEnded)
        await first.close()
        fake.answers["thread/unsubscribe"] = refused
        await third.close()
        ids = [request["params"]["threadId"] for request in fake.requests("thread/unsubscribe")]
        assert ids == [first.session_id, third.session_id]
        assert not {"thread/archive", "thread/unarchive", "thread/delete"} & {m.get("method") for m in fake.heard}
        assert fake.requests("eof") == []
        assert second.ready


def refused(_fake: Fake, _params: Mapping[str, Any]) -> dict[str, Any]:
    raise RefusedError("no")


async def test_a_slow_client_slows_codex_and_is_no_reason_to_end_it(tmp_path: Path) -> None:
    """Back-pressure: while nobody reads, silence means nothing and no bound runs out."""
    async with rig(tmp_path, interrupt=0.2) as made:
        active, fake, sink = await made.new()
        await running(active, fake, sink)
        sink.open = anyio.Event()
        await fake.tell(
            active.session_id, opened(said("")), ("item/agentMessage/delta", {"itemId": "m1", "delta": "x"})
        )
        await sink.until(Output)
        await active.interrupt()
        await fake.answer(await fake.hears("turn/interrupt"))
        await fake.tell(active.session_id, over(status="interrupted"))
        await anyio.sleep(0.5)
        assert sink.of(WorkEnded) == []
        sink.open.set()
        assert (await sink.until(WorkEnded)).interrupted
        assert len(made.fakes) == 1


async def test_noise_on_the_pipe_is_passed_over(tmp_path: Path) -> None:
    """D11, known faults: what is no message, an unknown one, an answer to nobody."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        await fake.order(out='Welcome back\n\n[]\nnull\n{"id":999,"result":{}}\n{"id":"x","error":7}\n{"method":7}\n')
        await fake.order(out='{"method":"new/thing","params":[1]}\n{"method":"turn/started","params":{"turn":"N"}}\n')
        await fake.order(
            out='{"method":"item/completed","params":{"threadId":"' + active.session_id + '","item":[]}}\n'
        )
        await running(active, fake, sink)
        with pytest.raises(AcpError):
            await active.submit(L, text("\udcff"))


async def test_a_test_that_fails_in_the_rig_fails(tmp_path: Path) -> None:
    """The rig once swallowed what went wrong in it: its clean-up took place in a cancelled scope."""
    with pytest.raises(ExceptionGroup) as caught:
        async with rig(tmp_path):
            raise AssertionError
    assert caught.group_contains(AssertionError)
