"""Sessions: new, list, resume, close, delete, options."""

from __future__ import annotations

import uuid
from typing import Any, cast

from adapters.acp.errors import AcpError
from adapters.check.bench import Bench
from adapters.check.link import Json, Link, show, update_of
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.calls import Call
from adapters.client.record import as_object


def unknown_session() -> str:
    """An id that no session has."""
    return str(uuid.uuid4())


async def makes_sessions(bench: Bench) -> None:
    """SETUP-10."""
    sessions = [await bench.link.new() for _ in range(2)]
    if len(set(sessions)) != len(sessions):
        raise Broken(f"two new sessions have the id {sessions[0]}")


async def wants_an_absolute_folder(bench: Bench) -> None:
    """SETUP-1."""
    for cwd in ("", "relative/folder", "./here", f"file://{bench.link.cwd}", 7, None):
        await bench.link.refused("session/new", {"cwd": cwd, "mcpServers": []}, -32602)
    await bench.link.refused("session/new", {"mcpServers": []}, -32602)


async def takes_no_servers_in_any_spelling(bench: Bench) -> None:
    """SETUP-3."""
    spellings: tuple[Json, ...] = ({}, {"mcpServers": None}, {"mcpServers": []})
    for servers in spellings:
        await bench.link.result(await bench.link.ask("session/new", {"cwd": bench.link.cwd, **servers}))


async def refuses_bad_servers(bench: Bench) -> None:
    """SETUP-3, SETUP-4: none is skipped."""
    good: Json = {"type": "stdio", "name": "s", "command": "/bin/cat", "args": [], "env": []}
    for bad in (
        {"name": "s", "command": "/bin/cat"},
        {**good, "type": "sse", "url": "http://127.0.0.1:9/"},
        {**good, "type": "no-such-transport"},
        {"type": "stdio", "name": "s"},
        {**good, "env": [{"name": "only"}]},
        7,
    ):
        await bench.link.refused("session/new", {"cwd": bench.link.cwd, "mcpServers": [bad]}, -32602)


async def refuses_bad_directories(bench: Bench) -> None:
    """SETUP-7."""
    folder = bench.link.cwd
    wrong: tuple[Any, ...] = (["relative"], [""], [7], "text")
    if not bench.advertises("session", "additionalDirectories"):
        wrong = (*wrong, [folder])
    for directories in wrong:
        params: Json = {"cwd": folder, "mcpServers": [], "additionalDirectories": directories}
        await bench.link.refused("session/new", params, -32602)


async def starts_idle(bench: Bench) -> None:
    """SETUP-12."""
    session = await bench.link.new()
    await bench.link.fence()
    states = bench.link.states(session)
    if any(state.startswith("running") for state in states):
        raise Broken("a new session reports work that nobody asked for", show(bench.link.updates(session)[-6:]))


async def lists_sessions(bench: Bench) -> None:
    """LIST-1."""
    for params in ({}, {"cwd": None, "cursor": None}, {"cwd": bench.link.cwd}):
        call = await bench.link.ask("session/list", params)
        if not isinstance((await bench.link.result(call)).get("sessions"), list):
            raise Broken("the result has no array of sessions", bench.link.shown(call))


async def lists_what_was_prompted(bench: Bench) -> None:
    """LIST-1, LIST-2, LIST-5."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("a session to list"))
    found = await _listed(link, {"cwd": link.cwd})
    if session not in found:
        found = await _listed(link, {})
    if session not in found:
        raise Broken(f"session {session} has a prompt and is not listed")
    if found[session].get("cwd") != link.cwd:
        raise Broken(f"the session is listed with another cwd than {link.cwd}", [f"<- {found[session]}"])
    elsewhere = await _listed(link, {"cwd": f"{link.cwd}/no-such-folder-of-the-check"})
    if session in elsewhere:
        raise Broken("the session is listed for a folder that is not its own", [f"<- {elsewhere[session]}"])


async def refuses_bad_lists(bench: Bench) -> None:
    """LIST-2, LIST-4."""
    for params in ({"cwd": "relative"}, {"cwd": 7}, {"cursor": 7}, {"cursor": ["a"]}):
        await bench.link.refused("session/list", params, -32602)


async def refuses_a_bad_cursor(bench: Bench) -> None:
    """LIST-3."""
    await bench.link.refused("session/list", {"cursor": "no-cursor-of-this-agent"}, -32602)


async def names_unknown_sessions(bench: Bench) -> None:
    """ERR-1, ERR-2, PROMPT-15, RESUME-6."""
    session, text = unknown_session(), [{"type": "text", "text": "to nobody"}]
    requests: tuple[tuple[str, Json], ...] = (
        ("session/prompt", {"prompt": text}),
        ("session/resume", {"cwd": bench.link.cwd, "mcpServers": []}),
        ("session/set_config_option", {"configId": "mode", "type": "id", "value": "x"}),
    )
    for method, params in requests:
        call = await bench.link.ask(method, {"sessionId": session, **params})
        error = await bench.link.error(call, -32002)
        if as_object(error.data).get("sessionId") != session:
            raise Broken("the error's data lacks the sessionId", bench.link.shown(call))


async def closes_what_is_not_there(bench: Bench) -> None:
    """ERR-3: clients take -32002 for success too."""
    call = await bench.link.ask("session/close", {"sessionId": unknown_session()})
    await bench.link.result(call)


async def deletes_what_is_not_there(bench: Bench) -> None:
    """ERR-4, DEL-2."""
    _needs_delete(bench)
    await bench.link.result(await bench.link.ask("session/delete", {"sessionId": unknown_session()}))


async def cancels_nothing_for_nobody(bench: Bench) -> None:
    """ERR-6, CANCEL-6: without a sound."""
    session = await bench.link.spare()
    mark = bench.link.mark
    await bench.link.client.cancel(unknown_session())
    await bench.link.client.cancel(session)
    await bench.link.fence()
    if any(state.startswith("running") for state in bench.link.states(session, mark)):
        raise Broken("a cancel on an idle session started something", show(bench.link.updates(session, mark)))


async def closes_and_resumes(bench: Bench) -> None:
    """CLOSE-6, E14, ERR-1: closed twice, not active in between, there again afterwards."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("a session to close"))
    await link.close(session)
    await link.error(await link.prompt(session, bench.text("too late")), -32002)
    call = await link.ask("session/close", {"sessionId": session})
    outcome = await link.outcome(call)
    if isinstance(outcome, AcpError) and outcome.code != -32002:  # noqa: PLR2004
        raise Broken(f"closing again was answered with error {outcome.code}", link.shown(call))
    await link.resume(session)
    await link.turn(session, bench.text("after the resume"))


async def closing_ends_the_work(bench: Bench) -> None:
    """CLOSE-1, CLOSE-2: idle, cancelled, before the answer."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        mark = link.mark
        busy.still()
        close = await link.close(busy.session)
        states = link.states(busy.session, mark)
        before = [m for m in link.updates(busy.session, mark) if close.answered_at and m.index < close.answered_at]
        if not any(update_of(m, busy.session).get("state") == "idle" for m in before):
            raise Broken(
                "no idle state_update came before the answer to session/close", (*show(before[-5:]), *link.shown(close))
            )
        if states[-1:] != ["idle:cancelled"]:
            raise Broken(f"the closed work ended as {states[-1:]}", (*show(before[-5:]), *link.shown(close)))


async def closed_is_silent(bench: Bench) -> None:
    """CLOSE-3."""
    link = bench.link
    async with bench.busy(link) as busy:
        await busy.message_id()
        close = await link.close(busy.session)
        busy.held.release()
        await link.fence()
        await link.turn(await link.new(), bench.text("some time to go by"))
        late = link.updates(busy.session, close.answered_at or close.mark)
        if late:
            raise Broken(
                "updates of the session came after session/close was answered", (*link.shown(close), *show(late[:5]))
            )


async def deleted_is_gone(bench: Bench) -> None:
    """DEL-1."""
    _needs_delete(bench)
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("a session to delete"))
    call = await link.ask("session/delete", {"sessionId": session})
    await link.result(call)
    link.closed.add(session)
    if session in await _listed(link, {}):
        raise Broken("the deleted session is still listed", link.shown(call))


async def refuses_unknown_cursors(bench: Bench) -> None:
    """RESUME-3."""
    link = bench.link
    session = await link.new()
    await link.turn(session, bench.text("a session to resume"))
    for cursor in ({"type": "no-such-cursor"}, {}, "start", 7, {"type": 7}):
        params: Json = {"sessionId": session, "cwd": link.cwd, "mcpServers": [], "replayFrom": cursor}
        await link.refused("session/resume", params, -32602)


async def state_before_the_answer(bench: Bench) -> None:
    """RESUME-4, REPLAY-1, REPLAY-8: with and without replay; without one no history."""
    link = bench.link
    session = await link.new()
    message_id = await link.turn(session, bench.text("a session to resume"))
    await link.close(session)
    for replay in (False, True):
        call = await link.resume(session, replay=replay)
        came = [m for m in link.updates(session, call.mark) if m.index < (call.answered_at or 0)]
        states = [m for m in came if update_of(m, session).get("sessionUpdate") == "state_update"]
        if not states:
            raise Broken(
                "no state_update came before the answer to session/resume", (*show(came[-4:]), *link.shown(call))
            )
        if update_of(states[-1], session).get("state") != "idle":
            raise Broken("the state of a session without work is not idle", (*show(states[-1:]), *link.shown(call)))
        shown = link.user_messages(session, call.mark)
        if not replay and message_id in shown:
            raise Broken("history was replayed without being asked for", (*show(came[:4]), *link.shown(call)))
        if replay and message_id in shown and came.index(states[-1]) < _last_message(came, session):
            raise Broken("the state came before the end of the replay", show(came[-5:]))


def _last_message(came: list[Any], session: str) -> int:
    kinds = ("user_message", "user_message_chunk", "agent_message", "agent_message_chunk")
    return max(i for i, m in enumerate(came) if update_of(m, session).get("sessionUpdate") in kinds)


async def refuses_unknown_options(bench: Bench) -> None:
    """CFG-5: and changes nothing."""
    link = bench.link
    session, options = await _with_options(link)
    option = options[0]
    wrong: tuple[Json, ...] = (
        {"configId": "no-such-option", "type": "id", "value": "x"},
        {"configId": option.get("configId"), "type": "no-such-type", "value": "x"},
    )
    if option.get("type") == "select":
        wrong = (*wrong, {"configId": option.get("configId"), "type": "id", "value": "no-such-value-of-the-check"})
    for params in wrong:
        await link.refused("session/set_config_option", {"sessionId": session, **params}, -32602)


async def gives_all_options_back(bench: Bench) -> None:
    """CFG-6, CFG-9: the same value again."""
    link = bench.link
    session, options = await _with_options(link)
    for option in options:
        kind = "boolean" if option.get("type") == "boolean" else "id"
        params = {
            "sessionId": session,
            "configId": option.get("configId"),
            "type": kind,
            "value": option.get("currentValue"),
        }
        call = await link.ask("session/set_config_option", params)
        given: Any = (await link.result(call)).get("configOptions")
        ids = {as_object(item).get("configId") for item in cast("list[Any]", given or [])}
        if not {item.get("configId") for item in options} <= ids:
            raise Broken("the answer is not the complete list of options", link.shown(call))


async def _with_options(link: Link) -> tuple[str, list[Json]]:
    call: Call = await link.ask("session/new", {"cwd": link.cwd, "mcpServers": []})
    result = await link.result(call)
    options: Any = result.get("configOptions")
    if not options:
        raise NotApplicable("the agent offers no options")
    return str(result.get("sessionId")), [as_object(option) for option in cast("list[Any]", options)]


async def _listed(link: Link, params: Json) -> dict[str, Json]:
    """All listed sessions by id, at most a hundred pages."""
    found: dict[str, Json] = {}
    for _ in range(100):
        page = await link.result(await link.ask("session/list", params))
        rows: Any = page.get("sessions")
        for row in map(as_object, cast("list[Any]", rows) if isinstance(rows, list) else []):
            found[str(row.get("sessionId"))] = row
        if page.get("nextCursor") is None:
            break
        params = {**params, "cursor": page["nextCursor"]}
    return found


def _needs_delete(bench: Bench) -> None:
    if not bench.advertises("session", "delete"):
        raise NotApplicable("session.delete is not advertised")


OPENING = (
    Rule(
        "SETUP-10",
        "A new session has an id of its own",
        "schema 2.4.0",
        makes_sessions,
        Need.VERSION,
        opens=Need.SESSION,
    ),
)

RULES = (
    Rule(
        "SETUP-1",
        "A folder that is not an absolute path is refused",
        "schema 2.4.0, guides of August 2026",
        wants_an_absolute_folder,
    ),
    Rule("SETUP-3", "No tool servers may be left out, null or empty", "schema 2.4.0", takes_no_servers_in_any_spelling),
    Rule(
        "SETUP-4",
        "A malformed tool server, or one of an unknown kind, fails the request",
        "schema 2.4.0",
        refuses_bad_servers,
    ),
    Rule(
        "SETUP-7",
        "Further folders that are malformed, or not offered, are refused",
        "guides of August 2026",
        refuses_bad_directories,
    ),
    Rule("SETUP-12", "A new session is idle", "schema 2.4.0", starts_idle),
    Rule("LIST-1", "Sessions are listed, with and without params", "schema 2.4.0", lists_sessions),
    Rule("LIST-3", "An unknown cursor is refused", "error page", refuses_a_bad_cursor),
    Rule("LIST-4", "A folder or cursor of the wrong kind is refused", "schema 2.4.0", refuses_bad_lists),
    Rule("ERR-1", "An unknown session is named in the error", "error page", names_unknown_sessions),
    Rule("ERR-3", "Closing what is not there succeeds", "schema 2.4.0", closes_what_is_not_there, level="should"),
    Rule(
        "ERR-4",
        "Deleting what is not there succeeds",
        "guides of August 2026, error page",
        deletes_what_is_not_there,
        level="should",
    ),
    Rule(
        "ERR-6",
        "A cancel without work, or for nobody, does nothing",
        "prompt-lifecycle RFD",
        cancels_nothing_for_nobody,
    ),
    Rule("CFG-5", "Unknown options and values are refused", "schema 2.4.0", refuses_unknown_options),
    Rule("CFG-6", "Setting an option gives the complete list back", "schema 2.4.0", gives_all_options_back),
)

PROMPTED = (
    Rule(
        "LIST-2",
        "A session with a prompt is listed with its folder, and for no other folder",
        "schema 2.4.0",
        lists_what_was_prompted,
        Need.PROMPT,
    ),
    Rule(
        "RESUME-3", "An unknown place to replay from is refused", "schema 2.4.0", refuses_unknown_cursors, Need.PROMPT
    ),
    Rule(
        "RESUME-4",
        "Resuming gives the replay, if asked for, then the state, then the answer",
        "schema 2.4.0",
        state_before_the_answer,
        Need.PROMPT,
    ),
    Rule(
        "CLOSE-6",
        "A closed session is not active, can be closed again, and can be resumed",
        "schema 2.4.0, error page",
        closes_and_resumes,
        Need.PROMPT,
    ),
    Rule(
        "CLOSE-2",
        "Closing ends running work as cancelled before it is answered",
        "schema 2.4.0",
        closing_ends_the_work,
        Need.PROMPT,
    ),
    Rule(
        "CLOSE-3",
        "Nothing of a session is sent after its close was answered",
        "schema 2.4.0",
        closed_is_silent,
        Need.PROMPT,
    ),
    Rule("DEL-1", "A deleted session is no longer listed", "guides of August 2026", deleted_is_gone, Need.PROMPT),
)
