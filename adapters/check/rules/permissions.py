"""Permission requests: what counts as an approval, and what happens to open requests.

The evidence is outside of the agent: whether the file exists that the tool would write.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio

from adapters.acp.errors import InternalError
from adapters.check.bench import Bench
from adapters.check.link import Link, allow, is_state, reject, show
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client import permissions
from adapters.client.calls import PromptCall
from adapters.client.record import ConnectionLostError, Message, as_object


@dataclass
class _Asking:
    """A tool that waits for an approval."""

    link: Link
    session: str
    call: PromptCall
    request: Message
    file: Path


@asynccontextmanager
async def _asking(bench: Bench, policy: permissions.Policy) -> AsyncGenerator[_Asking]:
    """Work that has asked for a permission. Raises `NotApplicable` when the agent does not ask."""
    link = bench.link
    text = bench.text("that calls a tool")
    file = bench.cwd / f"written-by-tool-{bench.number()}"
    modes = bench.stage.ask(text, file)
    before, link.client.policy = link.client.policy, policy
    try:
        session = await _session_that_asks(link, modes)
        call = await link.prompt(session, text)
        request = await _first_request(link, session, call.mark)
        yield _Asking(link, session, call, request, file)
    finally:
        link.client.policy = before


async def _session_that_asks(link: Link, modes: Any) -> str:
    """A new session, in the first of these modes that it offers."""
    made = await link.ask("session/new", {"cwd": link.cwd, "mcpServers": []})
    result = await link.result(made)
    session = str(result.get("sessionId"))
    for option in map(as_object, cast("list[Any]", result.get("configOptions") or [])):
        if option.get("category") == "mode" and option.get("currentValue") not in modes:
            values = [as_object(value).get("value") for value in cast("list[Any]", option.get("options") or [])]
            chosen = next((mode for mode in modes if mode in values), None)
            if chosen is not None:
                params = {"sessionId": session, "configId": option.get("configId"), "type": "id", "value": chosen}
                await link.result(await link.ask("session/set_config_option", params))
    return session


async def _first_request(link: Link, session: str, since: int) -> Message:
    idle = is_state("idle")

    def wanted(message: Message) -> bool:
        if message.sent or message.params.get("sessionId") != session:
            return False
        return message.method == "session/request_permission" or idle(as_object(message.params.get("update")))

    try:
        found = await link.client.record.wait(wanted, since, link.bound)
    except ConnectionLostError:
        raise Broken(f"{await link.how_it_ended()} while a tool was called", show(link.tail(session, since))) from None
    except TimeoutError:
        link.suspect = True
        raise Broken(
            "a prompt that calls a tool neither asked for a permission nor ended", show(link.tail(session, since))
        ) from None
    if found.method != "session/request_permission":
        raise NotApplicable("the agent did not ask before it called the tool, or called none")
    return found


async def allowing_lets_the_tool_run(bench: Bench) -> None:
    """PERM-2, PERM-8: and the work goes on."""
    async with _asking(bench, allow) as asking:
        await asking.link.message_id(asking.call)
        await asking.link.idle(asking.session, asking.request.index)
        if not asking.file.exists():
            raise Broken(
                "the tool was allowed and did not run", show(asking.link.tail(asking.session, asking.call.mark, 12))
            )


async def rejecting_keeps_it_from_running(bench: Bench) -> None:
    """PERM-2."""
    await _must_not_run(bench, reject, "rejected")


async def other_answers_are_no_approval(bench: Bench) -> None:
    """PERM-2, PERM-3: an option that was not offered, cancelled, an unknown outcome, a malformed result, an error."""
    answers: tuple[tuple[str, str | Mapping[str, Any] | InternalError | None], ...] = (
        ("answered with an option that was not offered", "no-such-option-of-the-check"),
        ("answered as cancelled", None),
        ("answered with an unknown outcome", {"outcome": {"outcome": "_approved"}}),
        ("answered with a malformed result", {"approved": True}),
        ("answered with an error", InternalError()),
    )
    for what, answer in answers:

        async def policy(
            _: permissions.Question, answer: str | Mapping[str, Any] | InternalError | None = answer
        ) -> str | Mapping[str, Any] | InternalError | None:
            return answer

        await _must_not_run(bench, policy, what)


async def _must_not_run(bench: Bench, policy: permissions.Policy, what: str) -> None:
    async with _asking(bench, policy) as asking:
        await asking.link.message_id(asking.call)
        await asking.link.idle(asking.session, asking.request.index)
        if asking.file.exists():
            raise Broken(
                f"the request was {what}, and the tool ran",
                show(asking.link.tail(asking.session, asking.request.index)),
            )


async def cancelling_takes_the_question_back(bench: Bench) -> None:
    """PERM-6, CANCEL-8: by `$/cancel_request`; the tool does not run; the work ends as cancelled."""

    async def wait(_: permissions.Question) -> str | None:
        await anyio.sleep_forever()

    async with _asking(bench, wait) as asking:
        link = asking.link
        mark = link.mark
        await link.client.cancel(asking.session)
        await link.idle(asking.session, mark)
        request_id = as_object(asking.request.value).get("id")
        await link.fence()
        withdrawn = [m for m in link.client.record.since(mark, sent=False) if m.method == "$/cancel_request"]
        if not any(m.params.get("requestId") == request_id for m in withdrawn):
            raise Broken(
                "the open permission request was not taken back",
                show([asking.request, *link.tail(asking.session, mark)]),
            )
        if asking.file.exists():
            raise Broken("the tool of the cancelled work ran", show(link.tail(asking.session, mark)))


async def waiting_needs_an_action(bench: Bench) -> None:
    """STATE-5, STATE-6."""
    gate = anyio.Event()

    async def wait(question: permissions.Question) -> str | None:
        await gate.wait()
        return await allow(question)

    async with _asking(bench, wait) as asking:
        link = asking.link
        try:
            await link.until(
                asking.session,
                is_state("requires_action"),
                asking.call.mark,
                "requires_action is reported while the user is asked",
                3,
            )
        finally:
            link.suspect = False
            gate.set()
        await link.idle(asking.session, asking.request.index)


RULES = (
    Rule("PERM-1", "What the user allows is done", "schema 2.4.0", allowing_lets_the_tool_run, Need.PROMPT),
    Rule("PERM-2", "What the user rejects is not done", "schema 2.4.0", rejecting_keeps_it_from_running, Need.PROMPT),
    Rule(
        "PERM-3",
        "An answer that is no offered option is no approval",
        "schema 2.4.0",
        other_answers_are_no_approval,
        Need.PROMPT,
    ),
    Rule(
        "PERM-6",
        "Cancelling takes an open permission request back",
        "schema 2.4.0",
        cancelling_takes_the_question_back,
        Need.PROMPT,
    ),
    Rule(
        "STATE-5",
        "Work that waits for the user reports requires_action",
        "schema 2.4.0",
        waiting_needs_an_action,
        Need.PROMPT,
        "should",
    ),
)
