"""JSON-RPC: ids, envelopes, error codes."""

from __future__ import annotations

import json
from typing import Any

from adapters.acp.errors import AcpError
from adapters.check.bench import Bench
from adapters.check.link import Json, show
from adapters.check.verdict import Broken, Need, NotApplicable, Rule
from adapters.client.record import Message, as_object

UNSTABLE = (("session", "fork"), ("session", "status"), ("session", "archive"), ("session", "title"))
"""Capabilities of the unstable schema whose method can be called with a session id alone."""
METHOD_OF = {
    "fork": "session/fork",
    "status": "session/status",
    "archive": "session/archive",
    "title": "session/set_title",
}


async def wants_the_version_marker(bench: Bench) -> None:
    """RPC-1."""
    await _nameless_error(bench, {"id": 900, "method": "session/list", "params": {}})
    await _nameless_error(bench, {"jsonrpc": "1.0", "id": 901, "method": "session/list", "params": {}})


async def refuses_bad_ids(bench: Bench) -> None:
    """RPC-3: and does not run the method."""
    for request_id in (None, 1.5, True, [1], {"a": 1}):
        await _nameless_error(bench, {"jsonrpc": "2.0", "id": request_id, "method": "session/list", "params": {}})


async def answers_under_the_same_id(bench: Bench) -> None:
    """RPC-4: the type counts."""
    for request_id in ("7001", 7001, "", 0, -3, "\u00e9 id"):
        mark = bench.link.mark
        call = await bench.link.ask("session/list", {}, request_id)
        await bench.link.outcome(call)
        answers = [m for m in bench.link.client.record.since(mark, sent=False) if "method" not in as_object(m.value)]
        if not any(_same(as_object(m.value).get("id"), request_id) for m in answers):
            raise Broken("the answer has another id", show(answers))


async def refuses_what_is_no_message(bench: Bench) -> None:
    """RPC-8."""
    await _nameless_error(bench, {"jsonrpc": "2.0"})
    await _nameless_error(bench, {"jsonrpc": "2.0", "id": 902, "method": 7})


async def answers_no_notification(bench: Bench) -> None:
    """RPC-6, RPC-13, MAL-2: unknown and malformed ones are dropped."""
    mark = bench.link.mark
    for method, params in (
        ("session/cancel", {}),
        ("session/cancel", {"sessionId": 7}),
        ("$/cancel_request", {}),
        ("$/check_unknown", {"a": 1}),
        ("_check/unknown", {"a": 1}),
        ("check/unknown", {}),
    ):
        await bench.link.client.notify(method, params)
    await bench.link.fence()
    stray = [m for m in bench.link.client.record.since(mark, sent=False) if _is_nameless(m)]
    if stray:
        raise Broken("a notification was answered", show(stray))


async def answers_no_answer(bench: Bench) -> None:
    """RPC-7."""
    mark = bench.link.mark
    fakes: tuple[Json, ...] = (
        {"jsonrpc": "2.0", "id": "nobody-asked", "result": {}},
        {"jsonrpc": "2.0", "id": "nobody-asked", "error": {"code": -32603, "message": "no"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": "not a number"}},
    )
    for message in fakes:
        await bench.link.raw(json.dumps(message))
    await bench.link.fence()
    stray = [m for m in bench.link.client.record.since(mark, sent=False) if _is_stray(m)]
    if stray:
        raise Broken("something that looks like an answer was answered", show(stray))


async def takes_missing_params(bench: Bench) -> None:
    """RPC-9."""
    for number, extra in enumerate(({}, {"params": None})):
        request = {"jsonrpc": "2.0", "id": f"bare{number}", "method": "session/list", **extra}
        call = await bench.link.raw(json.dumps(request), expecting=f"bare{number}")
        outcome = await bench.link.outcome(call)
        if isinstance(outcome, AcpError):
            shown = [f"-> {json.dumps(request)}", *bench.link.shown(call)]
            raise Broken(f"session/list without params was answered with error {outcome.code}", shown)
    await bench.link.refused("session/close", {}, -32602)


async def refuses_positional_params(bench: Bench) -> None:
    """RPC-10."""
    request = {"jsonrpc": "2.0", "id": "positional", "method": "session/new", "params": [bench.link.cwd]}
    call = await bench.link.raw(json.dumps(request), expecting="positional")
    await bench.link.error(call, -32602)


async def knows_no_unknown_method(bench: Bench) -> None:
    """RPC-11, EXT-4."""
    for method in ("check/unknown", "session/load", "session/set_mode", "_check/unknown"):
        await bench.link.refused(method, {"sessionId": "none"}, -32601)


async def offers_no_more_than_it_says(bench: Bench) -> None:
    """RPC-11: methods behind a capability that was not advertised."""
    tried = 0
    if not bench.advertises("session", "delete"):
        tried += 1
        await bench.link.refused("session/delete", {"sessionId": "none"}, -32601)
    for path in UNSTABLE:
        if not bench.advertises(*path):
            tried += 1
            params = {"sessionId": "none", "cwd": bench.link.cwd, "title": "t"}
            await bench.link.refused(METHOD_OF[path[-1]], params, -32601)
    if not tried:
        raise NotApplicable("the agent advertises all of them")


async def takes_unknown_fields(bench: Bench) -> None:
    """EXT-1, EXT-5."""
    extra: dict[str, Any] = {"fieldOfTomorrow": {"a": [1]}, "_meta": {"check": True, "traceparent": "00-0-0-00"}}
    await bench.link.result(await bench.link.ask("session/list", extra))
    await bench.link.result(await bench.link.ask("session/new", {"cwd": bench.link.cwd, "mcpServers": [], **extra}))


async def _nameless_error(bench: Bench, message: dict[str, Any]) -> None:
    line = json.dumps(message)
    got = await bench.link.answers_to(line, _is_stray)
    codes = [as_object(as_object(m.value).get("error")).get("code") for m in got]
    if codes != [-32600] or any(as_object(m.value).get("id") is not None for m in got):
        raise Broken("the line must get one error -32600 without id", [f"-> {line}", *show(got)])


def _is_nameless(message: Message) -> bool:
    value = as_object(message.value)
    return not message.sent and "method" not in value and value.get("id") is None


def _is_stray(message: Message) -> bool:
    """An answer that belongs to no request of ours: those have numbers below 900 or names of their own."""
    value = as_object(message.value)
    request_id: Any = value.get("id")
    ours = isinstance(request_id, int) and not isinstance(request_id, bool) and request_id not in (900, 901, 902)
    return not message.sent and "method" not in value and not ours


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


RULES = (
    Rule(
        "RPC-1",
        "A message without the JSON-RPC version gets one error without id",
        "SDK 2.4.0",
        wants_the_version_marker,
        Need.VERSION,
    ),
    Rule(
        "RPC-3",
        "A request id that is no string or integer gets one error without id",
        "schema 2.4.0, SDK 2.4.0",
        refuses_bad_ids,
        Need.VERSION,
    ),
    Rule(
        "RPC-4",
        "Answers carry the id of their request, in its type",
        "schema 2.4.0",
        answers_under_the_same_id,
        Need.VERSION,
    ),
    Rule(
        "RPC-6",
        "Notifications are never answered, malformed and unknown ones too",
        "guides of August 2026, schema 2.4.0",
        answers_no_notification,
        Need.VERSION,
    ),
    Rule("RPC-7", "What looks like an answer is never answered", "SDK 2.4.0", answers_no_answer, Need.VERSION),
    Rule(
        "RPC-8",
        "An object that is no message gets one error without id",
        "SDK 2.4.0",
        refuses_what_is_no_message,
        Need.VERSION,
    ),
    Rule("RPC-9", "Missing params are empty params", "SDK 2.4.0", takes_missing_params, Need.VERSION, "should"),
    Rule("RPC-10", "Positional params are refused", "inference", refuses_positional_params, Need.VERSION),
    Rule("RPC-11", "Unknown methods are refused as not found", "error page", knows_no_unknown_method, Need.VERSION),
    Rule(
        "RPC-11b",
        "Methods that were not advertised are refused as not found",
        "error page",
        offers_no_more_than_it_says,
        Need.VERSION,
    ),
    Rule("EXT-1", "Unknown fields are ignored", "guides of August 2026", takes_unknown_fields, Need.SESSION),
)
