"""History: what a replay shows, on the same connection and after a restart."""

from __future__ import annotations

from typing import Any, cast

from adapters.check.bench import Bench
from adapters.check.link import FINAL, Link, show, update_of
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.record import as_object
from adapters.client.view import MalformedUpdateError, SessionView


async def keeps_the_ids(bench: Bench) -> None:
    """REPLAY-2, REPLAY-3, PROMPT-21: across a restart of the agent."""
    async with bench.fresh() as link:
        session = await link.new()
        texts = [bench.text("to be replayed") for _ in range(2)]
        ids = [await link.turn(session, text) for text in texts]
    async with bench.fresh() as link:
        mark = link.mark
        history = await link.replay(session)
        ours = [message_id for message_id, shown in history.items() if any(text in shown for text in texts)]
        if not history:
            raise NotApplicable("the agent retains no prompts")
        if ours != ids:
            sentence = f"the replay shows the user messages {ours}, and the answers were {ids}"
            raise Broken(sentence, show(link.updates(session, mark)[:6]))


async def twice_is_as_once(bench: Bench) -> None:
    """REPLAY-4, RESUME-5: replayed onto what the client already has, nothing is there twice."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("to be replayed twice"))
    pictures: list[list[tuple[str, str]]] = []
    mark = link.mark
    for _ in range(2):
        await link.resume(session, replay=True)
        pictures.append(_texts(link, session, mark))
    if not pictures[0]:
        raise NotApplicable("the agent retains no prompts")
    if pictures[0] != pictures[1]:
        raise Broken(
            f"replayed twice, {pictures[0]} became {pictures[1]}"[:400], show(link.updates(session, mark)[:12])
        )


async def shows_what_was_live(bench: Bench) -> None:
    """REPLAY-2, REPLAY-4: onto the live view, too."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("seen live and replayed"))
    live = _texts(link, session, 0)
    await link.resume(session, replay=True)
    both = _texts(link, session, 0)
    if not link.user_messages(session):
        raise NotApplicable("the agent reports no user messages")
    if [text for kind, text in both if kind == "user"] != [text for kind, text in live if kind == "user"]:
        raise Broken(f"after a replay the user's messages {live} became {both}"[:400], show(link.updates(session)[:12]))


async def resumes_running_work(bench: Bench) -> None:
    """RESUME-5, REPLAY-8: the work goes on, its state is told, nothing is doubled."""
    link = bench.link
    async with bench.busy(link, "model") as busy:
        message_id = await busy.message_id()
        call = await link.resume(busy.session)
        busy.still()
        states = [
            m
            for m in link.updates(busy.session, call.mark)
            if m.index < (call.answered_at or 0) and update_of(m, busy.session).get("sessionUpdate") == "state_update"
        ]
        if not states or update_of(states[-1], busy.session).get("state") == "idle":
            raise Broken("the state of running work was not told before the answer", (*show(states), *link.shown(call)))
        idle = await busy.end()
        if idle.get("stopReason") == "cancelled":
            raise Broken("resuming stopped the running work", show(link.tail(busy.session, call.mark)))
        if link.user_messages(busy.session, busy.call.mark) != [message_id]:
            raise Broken("resuming doubled the message", show(link.tail(busy.session, busy.call.mark)))
        calls = bench.stage.calls(busy.text)
        if calls is not None and calls != 1:
            raise Broken(f"resuming made the model work {calls} times")


async def replays_finished_tools(bench: Bench) -> None:
    """REPLAY-7: after the agent was killed in mid-tool, nothing is open and nobody is asked again."""
    if not bench.stage.controlled:
        raise NotApplicable("needs --scripted: a real model cannot be made to call a certain tool")
    async with bench.fresh() as link, bench.busy(link, "tool") as busy:
        session = busy.session
        await busy.message_id()
        await link.kill()
    async with bench.fresh() as link:
        mark = link.mark
        await link.resume(session, replay=True)
        state = [update_of(m, session).get("state") for m in link.updates(session, mark)]
        if [value for value in state if value is not None][-1:] == ["running"]:
            raise NotApplicable("the agent carries the work on")
        if any(status not in FINAL for status in link.tool_statuses(session, mark).values()):
            raise Broken("a tool call of dead work is replayed as unfinished", show(link.updates(session, mark)[-6:]))
        if link.agent_requests("session/request_permission", mark):
            raise Broken(
                "the replay asked for a permission", show(link.agent_requests("session/request_permission", mark))
            )


def _texts(link: Link, session: str, since: int) -> list[tuple[str, str]]:
    """The messages of the conversation as a client has them: who, and the text."""
    view = SessionView()
    for message in link.updates(session, since):
        try:
            view.apply(update_of(message, session))
        except MalformedUpdateError:
            continue  # told by the rule about the schema
    found: list[tuple[str, str]] = []
    for item in view.items():
        if item.kind in ("user", "agent"):
            blocks = cast("list[Any]", item.fields.get("content") or [])
            found.append((item.kind, "".join(str(as_object(block).get("text", "")) for block in blocks)))
    return found


RULES = (
    Rule(
        "REPLAY-3",
        "After a restart a replay shows each prompt once, under the id it was answered with",
        "message-ID RFD, prompt-lifecycle RFD",
        keeps_the_ids,
        Need.PROMPT,
    ),
    Rule("REPLAY-4", "Replaying twice shows nothing twice", "prompt-lifecycle RFD", twice_is_as_once, Need.PROMPT),
    Rule(
        "REPLAY-2",
        "Replaying onto what was shown live changes no message of the user",
        "schema 2.4.0, prompt-lifecycle RFD",
        shows_what_was_live,
        Need.PROMPT,
    ),
    Rule(
        "REPLAY-7",
        "Tool calls of an agent that was killed are replayed as finished, and nobody is asked again",
        "prompt-lifecycle RFD",
        replays_finished_tools,
        Need.PROMPT,
    ),
    Rule(
        "RESUME-5",
        "Resuming a session with running work tells its state and disturbs nothing",
        "prompt-lifecycle RFD",
        resumes_running_work,
        Need.PROMPT,
    ),
)
