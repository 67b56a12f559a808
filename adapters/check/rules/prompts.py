"""The life of a prompt: insertion, work, its end, cancelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.acp.errors import AcpError
from adapters.check.bench import Bench
from adapters.check.link import FINAL, MESSAGES, OUTPUT, Json, Link, is_state, show, update_of
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.calls import PromptCall
from adapters.client.record import Message, as_object

CANCELLED = -32800


async def inserts_and_ends(bench: Bench) -> None:
    """PROMPT-3, STATE-1."""
    link = bench.link
    await link.turn(await link.new(), bench.text())


async def reports_the_message(bench: Bench) -> None:
    """PROMPT-4."""
    link = bench.link
    session = await link.new()
    prompt = await link.finished(session, await link.prompt(session, bench.text()))
    if prompt.message_id not in link.user_messages(session, prompt.call.mark):
        shown = (*link.shown(prompt.call), *_users(link, session))
        raise Broken("no user message was reported under the id of the answer", shown)


async def one_message_each(bench: Bench) -> None:
    """PROMPT-5, PROMPT-7, PROMPT-22: equal prompts without a key are two messages."""
    link = bench.link
    session, text = await link.new(), bench.text("sent twice without a key")
    ids = [await link.turn(session, text) for _ in range(2)]
    if ids[0] == ids[1]:
        raise Broken(f"two prompts have the one id {ids[0]}")
    shown = link.user_messages(session)
    if sorted(shown) != sorted(ids):
        raise Broken(f"two prompts were reported as {len(shown)} messages", _users(link, session))


async def running_then_idle(bench: Bench) -> None:
    """STATE-1, STATE-3, STATE-8."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text())
    await link.turn(session, bench.text())
    states = [state.partition(":")[0] for state in link.states(session)]
    if states != ["running", "idle"] * 2:
        raise Broken(f"two prompts reported the states {', '.join(link.states(session))}", _states(link, session))


async def says_why_it_ended(bench: Bench) -> None:
    """STATE-3."""
    link = bench.link
    session = await link.new()
    prompt = await link.finished(session, await link.prompt(session, bench.text()))
    idle = update_of(prompt.idle, session)
    if idle.get("stopReason") != "end_turn":
        raise Broken(f"finished work has the stop reason {idle.get('stopReason')}", _states(link, session))


async def idle_is_the_end(bench: Bench) -> None:
    """STATE-2."""
    link = bench.link
    session = await link.new()
    prompt = await link.finished(session, await link.prompt(session, bench.text()))
    await _nothing_follows(bench, session, prompt.idle, "the work")


async def _nothing_follows(bench: Bench, session: str, idle: Message, work: str) -> None:
    """No output comes after the idle update, for as long as a turn of another session takes."""
    link = bench.link
    await link.turn(await link.new(), bench.text("some time to go by"))
    late = [m for m in link.updates(session, idle.index + 1) if update_of(m, session).get("sessionUpdate") in OUTPUT]
    if late:
        raise Broken(f"output of {work} came after its idle state_update", (*show([idle]), *show(late[:4])))


async def answers_at_insertion(bench: Bench) -> None:
    """PROMPT-2: while the model has not said a word."""
    link = bench.link
    async with bench.busy(link, "model") as busy:
        await busy.message_id()
        busy.still()
        if "idle" in "".join(link.states(busy.session, busy.call.mark)):
            raise Broken("the work was reported as ended while the model was still silent", _states(link, busy.session))
        await busy.end()


async def no_busy_error(bench: Bench) -> None:
    """PROMPT-16: taken at once or later, in order."""
    link = bench.link
    async with bench.busy(link) as busy:
        first = await busy.message_id()
        calls = await busy.meanwhile(*[bench.text("while work runs") for _ in range(2)])
        busy.held.release()
        ids = [first, *[await link.message_id(call) for call in calls]]
        await link.until(busy.session, is_state("idle"), calls[-1].mark, "all work ends with an idle state_update")
        shown = [message_id for message_id in link.user_messages(busy.session, busy.call.mark) if message_id in ids]
        if len(set(ids)) != len(ids):
            raise Broken("two of three prompts have the same id", link.shown(busy.call, *calls))
        if shown != ids:
            raise Broken(
                "the prompts were not reported in the order in which they were sent", _users(link, busy.session)
            )


async def refuses_unsupported_blocks(bench: Bench) -> None:
    """PROMPT-13: the whole prompt, without inserting it."""
    link = bench.link
    session = await link.spare()
    good = {"type": "text", "text": bench.text("with a bad block")}
    blocks: list[Any] = [{"type": "no-such-block"}, {"type": "_check_block"}, {"type": "text"}, {"text": "no type"}, 7]
    if not bench.advertises("session", "prompt", "audio"):
        blocks.append({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"})
    if not bench.advertises("session", "prompt", "image"):
        blocks.append({"type": "image", "data": "AAAA", "mimeType": "image/png"})
    if not bench.advertises("session", "prompt", "embeddedContext"):
        blocks.append({"type": "resource", "resource": {"uri": "file:///a", "text": "a"}})
    for block in blocks:
        mark = link.mark
        await link.refused("session/prompt", {"sessionId": session, "prompt": [good, block]}, -32602)
        if link.user_messages(session, mark):
            raise Broken("the refused prompt was reported as a message", show(link.tail(session, mark)))


async def takes_links(bench: Bench) -> None:
    """PROMPT-13: text and resource links always."""
    link = bench.link
    session = await link.new()
    linked = {"type": "resource_link", "name": "notes.txt", "uri": "file:///notes.txt"}
    await link.turn(session, [{"type": "text", "text": bench.text("with a link")}, linked])


async def failures_after_insertion_are_no_errors(bench: Bench) -> None:
    """PROMPT-10, ERR-5, STOP-5: an error response and a stored message exclude each other."""
    link = bench.link
    session, text = await link.new(), bench.text("which the model refuses")
    bench.stage.fail(text)
    call = await link.prompt(session, text)
    outcome = await link.outcome(call)
    if isinstance(outcome, AcpError):
        if text in "".join((await link.replay(session)).values()):
            raise Broken("the prompt was answered with an error and is in the history", link.shown(call))
        return
    idle = await link.idle(session, call.mark)
    if idle.get("stopReason") != "error":
        raise Broken(f"failed work has the stop reason {idle.get('stopReason')}", _states(link, session))
    code: Any = as_object(idle.get("error")).get("code")
    if idle.get("error") is not None and (not isinstance(code, int) or isinstance(code, bool)):
        raise Broken("the error of the idle update has no code", _states(link, session))


# --- cancelling ----------------------------------------------------------------------------------------------------------


async def cancel_ends_the_work(bench: Bench) -> None:
    """CANCEL-2, CANCEL-7, CANCEL-10, STOP-1."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        mark = await busy.cancel()
        idle = await link.until(busy.session, is_state("idle"), mark, "cancelled work ends with an idle state_update")
        if update_of(idle, busy.session).get("stopReason") != "cancelled":
            raise Broken("cancelled work does not end as cancelled", show([idle]))
        busy.held.release()
        await _nothing_follows(bench, busy.session, idle, "the cancelled work")
        again = [state for state in link.states(busy.session, idle.index + 1) if state.startswith("running")]
        if again:
            raise Broken("the cancelled work went on", _states(link, busy.session))


async def cancel_finishes_tools(bench: Bench) -> None:
    """CANCEL-9, STOP-4."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        await link.idle(busy.session, await busy.cancel())
        statuses = link.tool_statuses(busy.session, busy.call.mark)
        if not statuses:
            raise NotApplicable("the agent reported no tool call")
        if any(status not in FINAL for status in statuses.values()):
            raise Broken(
                "a tool call of the cancelled work has no final status", show(link.tail(busy.session, busy.call.mark))
            )


async def cancel_gives_held_prompts_back(bench: Bench) -> None:
    """CANCEL-4: -32800 to those not inserted; what is answered with an error is in no history."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        held = await busy.meanwhile(*[bench.text("to be cancelled") for _ in range(2)])
        mark = await busy.cancel()
        answers = [await link.id_or_code(call) for call in held]
        wrong = [answer for answer in answers if isinstance(answer, int) and answer != CANCELLED]
        if wrong:
            raise Broken(f"a held prompt was answered with error {wrong[0]}", link.shown(*held))
        await link.idle(busy.session, mark)
        busy.held.release()
        await _told_the_truth(link, busy.session, held, answers)


async def later_prompts_are_not_cancelled(bench: Bench) -> None:
    """CANCEL-5, PROMPT-18: sent right behind the cancel, three times, because it is a race in some agents."""
    for _ in range(3):
        await _prompt_right_after_a_cancel(bench)


async def _prompt_right_after_a_cancel(bench: Bench) -> None:
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        mark = await busy.cancel()
        call = await link.prompt(busy.session, bench.text("right after a cancel"))
        answer = await link.id_or_code(call)
        if isinstance(answer, int):
            shown = (*show(link.tail(busy.session, mark, 4)), *link.shown(call)[1:])
            raise Broken(f"the later prompt was answered with error {answer}", shown)
        await link.until(busy.session, _is_own_end, call.mark, "the later prompt's work ends by itself")


def _is_own_end(update: Json) -> bool:
    return is_state("idle")(update) and update.get("stopReason") != "cancelled"


async def cancel_request_withdraws(bench: Bench) -> None:
    """RCAN-2, RCAN-5, ERR-5, PROMPT-23: a held prompt is withdrawn, or it is inserted; the answer says which."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        text = bench.text("to be withdrawn")
        [call] = await busy.meanwhile(text)
        await link.client.cancel_request(call.request_id)
        await link.fence()
        busy.held.release()
        answer = await link.id_or_code(call)
        if isinstance(answer, int) and answer != CANCELLED:
            raise Broken(f"the withdrawn prompt was answered with error {answer}", link.shown(call))
        await link.until(busy.session, is_state("idle"), busy.call.mark, "the work ends with an idle state_update")
        await _told_the_truth(link, busy.session, [call], [answer])
        if isinstance(answer, int) and bench.stage.calls(text):
            raise Broken("the model was asked about a prompt that was answered as withdrawn", link.shown(call))


async def cancel_request_after_insertion(bench: Bench) -> None:
    """RCAN-3, RCAN-5: nothing happens; the work goes on."""
    link = bench.link
    async with bench.busy(link, "model") as busy:
        await busy.message_id()
        await link.client.cancel_request(busy.call.request_id)
        await link.client.cancel_request("no-such-request")
        await link.fence()
        busy.still()
        idle = await busy.end()
        if idle.get("stopReason") == "cancelled":
            raise Broken("cancelling an answered request stopped the work", _states(link, busy.session))


async def _told_the_truth(link: Link, session: str, calls: Sequence[PromptCall], answers: Sequence[str | int]) -> None:
    """Prompts answered with an id were reported; those answered with an error are not in the history.

    A runtime may put user messages of its own into the history (PROMPT-25): only the sent texts count.
    """
    shown, history = link.user_messages(session), await link.replay(session)
    for call, answer in zip(calls, answers, strict=True):
        text = call.params["prompt"][0]["text"]
        if isinstance(answer, str) and answer not in shown:
            raise Broken("a prompt was answered with an id that was never reported", link.shown(call))
        if isinstance(answer, int) and any(text in replayed for replayed in history.values()):
            raise Broken(f"a prompt was answered with error {answer} and is in the history", link.shown(call))


def _users(link: Link, session: str) -> tuple[str, ...]:
    return show([m for m in link.updates(session) if update_of(m, session).get("sessionUpdate") in MESSAGES][-6:])


def _states(link: Link, session: str) -> tuple[str, ...]:
    return show([m for m in link.updates(session) if update_of(m, session).get("sessionUpdate") == "state_update"][-6:])


OPENING = (
    Rule(
        "PROMPT-3",
        "A prompt is answered with a message id, and its work ends with idle",
        "schema 2.4.0, prompt-lifecycle RFD",
        inserts_and_ends,
        Need.SESSION,
        opens=Need.PROMPT,
    ),
)

RULES = (
    Rule(
        "PROMPT-2",
        "A prompt is answered when it is inserted, not when the work is done",
        "prompt-lifecycle RFD",
        answers_at_insertion,
        Need.PROMPT,
    ),
    Rule(
        "PROMPT-4",
        "An inserted prompt is reported as a user message under the id of its answer",
        "schema 2.4.0",
        reports_the_message,
        Need.PROMPT,
    ),
    Rule("PROMPT-5", "Equal prompts are two messages", "message-ID RFD", one_message_each, Need.PROMPT),
    Rule(
        "PROMPT-10",
        "Failed work ends with idle and an error; an error as answer means that nothing was inserted",
        "prompt-lifecycle RFD",
        failures_after_insertion_are_no_errors,
        Need.PROMPT,
    ),
    Rule(
        "PROMPT-13",
        "A prompt with an unsupported or malformed block is refused as a whole",
        "schema 2.4.0",
        refuses_unsupported_blocks,
        Need.PROMPT,
    ),
    Rule("PROMPT-13b", "Resource links are taken", "schema 2.4.0", takes_links, Need.PROMPT),
    Rule(
        "PROMPT-16",
        "Prompts sent while work runs are taken in order, without a busy error",
        "prompt-lifecycle RFD",
        no_busy_error,
        Need.PROMPT,
    ),
    Rule(
        "STATE-1", "Work is reported as running, then idle, once each", "schema 2.4.0", running_then_idle, Need.PROMPT
    ),
    Rule("STATE-2", "Idle comes after all output of the work", "prompt-lifecycle RFD", idle_is_the_end, Need.PROMPT),
    Rule("STATE-3", "Idle says why the work ended", "schema 2.4.0", says_why_it_ended, Need.PROMPT, "should"),
)

CANCELLING = (
    Rule(
        "CANCEL-2",
        "Cancelled work ends as cancelled, and nothing of it follows",
        "schema 2.4.0, guides of August 2026",
        cancel_ends_the_work,
        Need.PROMPT,
    ),
    Rule(
        "CANCEL-4",
        "A cancel answers prompts that were not inserted with -32800",
        "schema 2.4.0",
        cancel_gives_held_prompts_back,
        Need.PROMPT,
    ),
    Rule(
        "CANCEL-5",
        "A prompt sent after a cancel is not touched by it",
        "SDK 2.4.0",
        later_prompts_are_not_cancelled,
        Need.PROMPT,
    ),
    Rule(
        "CANCEL-9",
        "Tool calls of cancelled work get a final status",
        "guides of August 2026",
        cancel_finishes_tools,
        Need.PROMPT,
        "should",
    ),
    Rule(
        "RCAN-5",
        "$/cancel_request withdraws a prompt that is not inserted, and the answer tells the truth",
        "schema 2.4.0, prompt-lifecycle RFD",
        cancel_request_withdraws,
        Need.PROMPT,
    ),
    Rule(
        "RCAN-3",
        "$/cancel_request for answered and unknown requests does nothing",
        "schema 2.4.0",
        cancel_request_after_insertion,
        Need.PROMPT,
    ),
)
