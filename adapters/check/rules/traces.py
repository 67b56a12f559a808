"""The seven traces of the idempotency-key proposal, and its edge cases that the wire shows.

The rules count the ids of answers, the user messages in a replay, and the model's calls if a scripted model counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from adapters.acp.errors import AcpError
from adapters.acp.framing import encode
from adapters.check.bench import Bench, Busy
from adapters.check.link import MESSAGES, OUTPUT, Json, Link, is_state, show, update_of
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.calls import Call, PromptCall
from adapters.client.record import ConnectionLostError, Message

RFD = "idempotency-key RFD"
CANCELLED = -32800
MOMENTS = (0.0, 0.02, 0.06, 0.15, 0.4)
"""Seconds after a prompt at which the agent is killed."""


# --- what every trace counts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answered:
    """A prompt under a key, and the message id that it was answered with first."""

    session: str
    text: str
    key: str
    message_id: str


async def _answered(link: Link, text: str, key: str) -> _Answered:
    """A prompt in a session of its own whose work has ended."""
    session = await link.new()
    return _Answered(session, text, key, await link.turn(session, text, key))


async def _retried(link: Link, prompt: _Answered) -> PromptCall:
    """Send it again: it has the first answer's id; if not, its work is left to end."""
    retry = await link.prompt(prompt.session, prompt.text, prompt.key)
    first, got = prompt.message_id, await link.message_id(retry)
    if got != first:
        link.suspect = True
        raise Broken(f"the retry was inserted again, as {got}; the first answer was {first}", link.shown(retry))
    return retry


async def _retried_in_silence(link: Link, prompt: _Answered) -> PromptCall:
    """Send it again: it has the first answer's id, reports no message and changes no state."""
    retry = await _retried(link, prompt)
    await link.fence()
    updates = [m for m in link.updates(prompt.session, retry.mark) if _tells_of_work(m, prompt.session)]
    if updates:
        raise Broken("the retry of a known key reported a message or a state", (*link.shown(retry), *show(updates[:4])))
    return retry


def _tells_of_work(message: Message, session: str) -> bool:
    return update_of(message, session).get("sessionUpdate") in (*MESSAGES, *OUTPUT, "state_update")


async def _stored_once(bench: Bench, link: Link, prompt: _Answered) -> None:
    """The history shows the message once, and the model was asked at most once."""
    _once(await link.replay(prompt.session), prompt.message_id, prompt.text, "the history")
    calls = bench.stage.calls(prompt.text)
    if calls is not None and calls > 1:
        raise Broken(f"the model was asked {calls} times to answer the one prompt")


def _once(history: Mapping[str, str], message_id: str, text: str, where: str) -> None:
    """An agent may retain nothing, and a runtime may put messages of its own there: only the sent text counts."""
    ids = [shown for shown, replayed in history.items() if text in replayed]
    if history and ids != [message_id]:
        raise Broken(f"{where} shows the prompt as {ids}; the answer was {message_id}")


# --- the traces ------------------------------------------------------------------------------------------------------


async def trace_1(bench: Bench) -> None:
    """A retry on the same connection: KEY-12, KEY-13, KEY-15."""
    link = bench.link
    prompt = await _answered(link, bench.text("retried"), bench.key("trace-1"))
    await _retried_in_silence(link, prompt)
    await _stored_once(bench, link, prompt)


async def trace_2(bench: Bench) -> None:
    """After a resume on a new connection: KEY-41, KEY-42. On stdio that is a new process, ended in order."""
    async with bench.fresh() as link:
        prompt = await _answered(link, bench.text("retried on a new connection"), bench.key("trace-2"))
    for replay in (False, True):
        async with bench.fresh() as link:
            await link.resume(prompt.session, replay=replay)
            await _retried_in_silence(link, prompt)
            await _stored_once(bench, link, prompt)


async def trace_2_while_running(bench: Bench) -> None:
    """Resumed while its work runs: KEY-12, RESUME-5."""
    link, key = bench.link, bench.key("trace-2-running")
    async with bench.busy(link, "model", key=key) as busy:
        prompt = _Answered(busy.session, busy.text, key, await busy.message_id())
        await link.resume(busy.session)
        busy.still()
        await _retried(link, prompt)
        await busy.end()
        await _stored_once(bench, link, prompt)


async def trace_3(bench: Bench) -> None:
    """After a crash of the agent in mid-work: KEY-42, KEY-46, E10."""
    key = bench.key("trace-3")
    async with bench.fresh() as link, bench.busy(link, "model", key=key) as busy:
        prompt = _Answered(busy.session, busy.text, key, await busy.message_id())
        await link.kill()
    async with bench.fresh() as link:
        await link.resume(prompt.session)
        await _retried(link, prompt)
        await _stored_once(bench, link, prompt)


async def trace_3_idle(bench: Bench) -> None:
    """After a crash of the agent when the work had ended: KEY-42, E10."""
    async with bench.fresh() as link:
        prompt = await _answered(link, bench.text("retried after a crash"), bench.key("trace-3-idle"))
        await link.kill()
    async with bench.fresh() as link:
        await link.resume(prompt.session, replay=True)
        await _retried_in_silence(link, prompt)
        await _stored_once(bench, link, prompt)


async def trace_4(bench: Bench) -> None:
    """While held: KEY-10, KEY-17. An agent that inserts at once holds nothing; the two attempts are still one message."""
    link, text, key = bench.link, bench.text("sent twice while held"), bench.key("trace-4")
    async with bench.busy(link) as busy:
        work = await busy.message_id()
        calls = await busy.meanwhile(text, text, key=key)
        await _end_of_all(link, busy, calls)
        first = await _one_id(link, calls)
        if link.user_messages(busy.session, busy.call.mark).count(first) != 1 or first == work:
            raise Broken(
                "the held prompt was not reported as one message", show(link.tail(busy.session, busy.call.mark))
            )
        await _stored_once(bench, link, _Answered(busy.session, text, key, first))


async def trace_5(bench: Bench) -> None:
    """After an error: KEY-14, KEY-21, E5, E33."""
    link, text, key = bench.link, bench.text("withdrawn and sent again"), bench.key("trace-5")
    async with bench.busy(link) as busy:
        await busy.message_id()
        first = await link.prompt(busy.session, text, key)
        await link.client.cancel_request(first.request_id)
        await link.fence()
        busy.still()
        answer: str | int | None = await link.id_or_code(first) if first.done else None
        busy.held.release()
        if answer is None:
            answer = await link.id_or_code(first)
        if isinstance(answer, str):
            raise NotApplicable("the agent had inserted the prompt before it could be withdrawn")
        await link.idle(busy.session, busy.call.mark)
        second = await link.finished(busy.session, await link.prompt(busy.session, text, key))
        if second.message_id not in link.user_messages(busy.session, second.call.mark):
            raise Broken("the prompt sent again after an error was not inserted", link.shown(first, second.call))
        await _stored_once(bench, link, _Answered(busy.session, text, key, second.message_id))


async def trace_6(bench: Bench) -> None:
    """The same key in another session: KEY-32, KEY-40."""
    link, text, key = bench.link, bench.text("in two sessions"), bench.key("trace-6")
    prompts = [await _answered(link, text, key) for _ in range(2)]
    if prompts[0].message_id == prompts[1].message_id:
        raise Broken(f"the same key in two sessions gave the one id {prompts[0].message_id}")
    for prompt in prompts:
        if prompt.message_id not in link.user_messages(prompt.session):
            raise Broken(f"the prompt was not inserted in session {prompt.session}")
        await _retried(link, prompt)


async def trace_7(bench: Bench) -> None:
    """Inserted during active work: KEY-47, ADP-5, E22. Known here and after a crash, never run again."""
    text, key = bench.text("sent while work runs"), bench.key("trace-7")
    async with bench.fresh() as link, bench.busy(link) as busy:
        await busy.message_id()
        [call] = await busy.meanwhile(text, key=key)
        await _end_of_all(link, busy, [call])
        prompt = _Answered(busy.session, text, key, await link.message_id(call))
        await _retried_in_silence(link, prompt)
        await link.kill()
    async with bench.fresh() as link:
        await link.resume(prompt.session)
        await _retried_in_silence(link, prompt)
        await _stored_once(bench, link, prompt)


# --- edges -----------------------------------------------------------------------------------------------------------


async def two_attempts_in_one_write(bench: Bench) -> None:
    """E1, KEY-10: nothing lies between the two lines."""
    link = bench.link
    session, text, key = await link.new(), bench.text("twice in one write"), bench.key("e1")
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key}
    lines = [
        encode({"jsonrpc": "2.0", "id": name, "method": "session/prompt", "params": params})
        for name in ("e1-a", "e1-b")
    ]
    first = await link.raw(b"".join(lines).rstrip(b"\n"), expecting="e1-a")
    second = await link.raw(b"", expecting="e1-b")
    message_id = await _one_id(link, [first, second])
    await link.idle(session, first.mark)
    await _stored_once(bench, link, _Answered(session, text, key, message_id))


async def many_attempts_while_held(bench: Bench) -> None:
    """E44, KEY-17."""
    link, text, key = bench.link, bench.text("sent many times while held"), bench.key("e44")
    async with bench.busy(link) as busy:
        await busy.message_id()
        calls = await busy.meanwhile(*[text] * 20, key=key)
        await _end_of_all(link, busy, calls)
        await _stored_once(bench, link, _Answered(busy.session, text, key, await _one_id(link, calls)))


async def killed_at_any_moment(bench: Bench) -> None:
    """E9, E10, PROMPT-23: killed before or after the answer, the prompt is inserted once when it is sent again."""
    for number, moment in enumerate(MOMENTS):
        when = f"killed {moment * 1000:g} ms after the prompt and asked again"
        text, key = bench.text(f"with a kill {moment * 1000:g} ms after it"), bench.key(f"e9-{number}")
        async with bench.fresh() as link:
            session = await link.new()
            await link.turn(session, bench.text("a prompt before it"), bench.key("before"))
            call = await link.prompt(session, text, key)
            await anyio.sleep(moment)
            await link.kill()
            first = await _answer_before_death(link, call)
        async with bench.fresh() as link:
            await link.resume(session)
            retry = await link.prompt(session, text, key)
            got = await link.message_id(retry)
            if first is not None and got != first:
                raise Broken(f"{when}, it was inserted again as {got}; the first answer was {first}", link.shown(retry))
            await link.turn(session, bench.text("a prompt after it"), bench.key("after"))
            _once(await link.replay(session), got, text, f"{when}, the history")
            calls = bench.stage.calls(text)
            if calls is not None and calls > 1:
                raise Broken(f"{when}, the model was asked {calls} times", link.shown(retry))


async def _answer_before_death(link: Link, call: Call) -> str | None:
    try:
        value = (await call.result(link.bound)).get("messageId")
    except (ConnectionLostError, TimeoutError):
        return None
    return value if isinstance(value, str) else None


async def cancelling_one_attempt_withdraws_all(bench: Bench) -> None:
    """E6, KEY-18: all attempts are answered, and alike."""
    link, text, key = bench.link, bench.text("withdrawn by its second attempt"), bench.key("e6")
    async with bench.busy(link) as busy:
        await busy.message_id()
        calls = await busy.meanwhile(text, text, key=key)
        await link.client.cancel_request(calls[1].request_id)
        await link.fence()
        busy.held.release()
        answer = await _alike(link, calls, "withdrawn")
        if isinstance(answer, int) and bench.stage.calls(text):
            raise Broken("the model was asked about a prompt that was answered as withdrawn", link.shown(*calls))


async def cancelling_answers_all_attempts(bench: Bench) -> None:
    """KEY-20, CANCEL-4."""
    link, text, key = bench.link, bench.text("cancelled with its session's work"), bench.key("key-20")
    async with bench.busy(link) as busy:
        await busy.message_id()
        calls = await busy.meanwhile(text, text, key=key)
        await busy.cancel()
        await _alike(link, calls, "cancelled")


async def _alike(link: Link, calls: Sequence[PromptCall], how: str) -> str | int:
    """The one answer to all attempts: the message id, or the code of having been cancelled."""
    answers = [await link.id_or_code(call) for call in calls]
    if len(set(answers)) != 1 or (isinstance(answers[0], int) and answers[0] != CANCELLED):
        raise Broken(f"the attempts of one {how} prompt were answered {answers}", link.shown(*calls))
    return answers[0]


async def failed_work_is_not_run_again(bench: Bench) -> None:
    """E34, KEY-22."""
    link = bench.link
    session, text, key = await link.new(), bench.text("whose work fails"), bench.key("e34")
    bench.stage.fail(text)
    call = await link.prompt(session, text, key)
    answer = await link.id_or_code(call)
    if isinstance(answer, int):
        raise NotApplicable("the agent reports the model's refusal before it inserts the prompt")
    await link.idle(session, call.mark)
    before = bench.stage.calls(text)
    retry = await _retried_in_silence(link, _Answered(session, text, key, answer))
    if bench.stage.calls(text) != before:
        raise Broken("the retry ran the failed work again", link.shown(call, retry))


async def another_prompt_under_a_known_key(bench: Bench) -> None:
    """E37, KEY-15, KEY-16: the first id, or -32602; nothing is inserted."""
    link = bench.link
    prompt = await _answered(link, bench.text("the first under its key"), bench.key("e37"))
    other = await link.prompt(prompt.session, bench.text("another under the same key"), prompt.key)
    answer = await link.id_or_code(other)
    if answer not in (prompt.message_id, -32602):
        link.suspect = True
        raise Broken("another prompt under a known key was inserted", link.shown(other))
    await _retried(link, prompt)


async def known_keys_are_answered_while_work_runs(bench: Bench) -> None:
    """E27, E12, KEY-12: at once, without waiting for other work."""
    link = bench.link
    prompt = await _answered(link, bench.text("known while work runs"), bench.key("e27"))
    async with bench.busy(link, session=prompt.session) as busy:
        await busy.message_id()
        await _retried(link, prompt)
        busy.still()


async def closed_sessions_know_no_key(bench: Bench) -> None:
    """E14: not active is said before the key is looked at; after a resume it is known."""
    link = bench.link
    prompt = await _answered(link, bench.text("in a closed session"), bench.key("e14"))
    await link.close(prompt.session)
    await link.error(await link.prompt(prompt.session, prompt.text, prompt.key), -32002)
    await link.resume(prompt.session)
    await _retried(link, prompt)


async def two_agents_on_one_session(bench: Bench) -> None:
    """E45, ADP-14: a second agent may refuse the session while the first has it; the key is known to it in the end."""
    async with bench.fresh() as second:
        async with bench.fresh() as first:
            prompt = await _answered(first, bench.text("known to a second agent"), bench.key("e45"))
            params: Json = {"sessionId": prompt.session, "cwd": second.cwd, "mcpServers": []}
            shared = not isinstance(await second.outcome(await second.ask("session/resume", params)), AcpError)
            if shared:
                await _retried(second, prompt)
            await _retried(first, prompt)
        await second.resume(prompt.session)
        await _retried(second, prompt)
        await _stored_once(bench, second, prompt)


async def ids_are_no_keys(bench: Bench) -> None:
    """E47, KEY-31: an id that was seen on the wire is just a key, and a key is no id."""
    link = bench.link
    prompt = await _answered(link, bench.text("under a key"), bench.key("key-31"))
    first = prompt.message_id
    if prompt.key in first:
        raise Broken(f"the message id {first} shows the key")
    call = await link.prompt(prompt.session, bench.text("under the id of another"), first)
    second = await link.message_id(call)
    if second == first:
        raise Broken("a prompt whose key is the id of another message was swallowed", link.shown(call))
    await link.idle(prompt.session, call.mark)


async def _one_id(link: Link, calls: Sequence[Call]) -> str:
    """The one message id of all attempts."""
    ids = [await link.message_id(call) for call in calls]
    if len(set(ids)) != 1:
        link.suspect = True
        raise Broken(
            f"{len(calls)} attempts of one prompt were inserted as {len(set(ids))} messages", link.shown(*calls[:3])
        )
    return ids[0]


async def _end_of_all(link: Link, busy: Busy, calls: Sequence[PromptCall]) -> None:
    """Let the work go on, and wait until the prompts sent meanwhile are answered and their work has ended."""
    session, last = busy.session, link.mark
    busy.held.release()
    for call in calls:
        message_id = await link.message_id(call)
        message = await link.until(session, _is_message(message_id), 0, f"message {message_id} is reported")
        last = max(last, message.index)
    await link.until(session, is_state("idle"), last, "the work ends with an idle state_update")


def _is_message(message_id: str) -> Callable[[Json], bool]:
    return lambda update: update.get("sessionUpdate") in MESSAGES and update.get("messageId") == message_id


RULES = (
    Rule("TRACE-1", "A retry on the same connection gets the first id and does nothing", RFD, trace_1, Need.PROMPT),
    Rule("TRACE-2", "The same after the session was resumed on a new connection", RFD, trace_2, Need.PROMPT),
    Rule("TRACE-2b", "The same after a resume while the work runs", RFD, trace_2_while_running, Need.PROMPT),
    Rule("TRACE-3", "The same after the agent was killed in mid-work", RFD, trace_3, Need.PROMPT),
    Rule("TRACE-3b", "The same after the agent was killed when the work had ended", RFD, trace_3_idle, Need.PROMPT),
    Rule(
        "TRACE-4",
        "Sent twice while held, a prompt is one message, and both are answered with it",
        RFD,
        trace_4,
        Need.PROMPT,
    ),
    Rule("TRACE-5", "After an error the key is unused and the prompt is inserted", RFD, trace_5, Need.PROMPT),
    Rule("TRACE-6", "The same key in another session is another prompt", RFD, trace_6, Need.PROMPT),
    Rule("TRACE-7", "A prompt taken in during work is known here and after a crash", RFD, trace_7, Need.PROMPT),
    Rule("E1", "Two attempts in one write are one message", RFD, two_attempts_in_one_write, Need.PROMPT),
    Rule(
        "E6", "$/cancel_request for one attempt withdraws all", RFD, cancelling_one_attempt_withdraws_all, Need.PROMPT
    ),
    Rule(
        "E9", "Killed at any moment and sent again, a prompt is inserted once", RFD, killed_at_any_moment, Need.PROMPT
    ),
    Rule(
        "E14",
        "In a closed session the key is not known, after a resume it is",
        RFD,
        closed_sessions_know_no_key,
        Need.PROMPT,
    ),
    Rule(
        "E27",
        "A known key is answered while other work runs",
        RFD,
        known_keys_are_answered_while_work_runs,
        Need.PROMPT,
    ),
    Rule("E34", "Work that failed is not run again by a retry", RFD, failed_work_is_not_run_again, Need.PROMPT),
    Rule("E37", "Another prompt under a known key inserts nothing", RFD, another_prompt_under_a_known_key, Need.PROMPT),
    Rule(
        "E44",
        "Twenty attempts while held are one message, and all are answered",
        RFD,
        many_attempts_while_held,
        Need.PROMPT,
    ),
    Rule("E45", "Two agents on one session insert a prompt once", RFD, two_agents_on_one_session, Need.PROMPT),
    Rule("KEY-20", "session/cancel answers all attempts alike", RFD, cancelling_answers_all_attempts, Need.PROMPT),
    Rule(
        "KEY-31", "A message id does not show its key, and is no key of its message", RFD, ids_are_no_keys, Need.PROMPT
    ),
)
