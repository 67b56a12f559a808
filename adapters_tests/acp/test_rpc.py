"""rpc.py: envelopes, answers, order; over every transport where the transport could matter."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp.errors import AcpError, AuthRequired, InvalidParams, MethodNotFound, ResourceNotFound
from adapters.acp.rpc import IncomingRequest, as_id
from adapters_tests.acp.wire import LINKS, RawPeer, Recorder, answer, connected
from adapters_tests.schema import validate_agent_message

pytestmark = pytest.mark.anyio

CALL = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {}}


def refusals(messages: list[Any]) -> list[tuple[Any, int]]:
    for message in messages:
        validate_agent_message(message)
    return [(message["id"], message["error"]["code"]) for message in messages]


# --- envelopes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),  # STDIO-6
        (b'{"jsonrpc":"2.0","id":1,"method":"echo"', -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"echo"}', -32700),
        (b"[]", -32600),  # STDIO-7
        (b'[{"jsonrpc":"2.0","id":1,"method":"echo"},{"jsonrpc":"2.0","id":2,"method":"echo"}]', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"result":{}}]', -32600),
        (b"1", -32600),  # STDIO-8
        (b'"text"', -32600),
        (b"true", -32600),
        (b"null", -32600),
        (b"{}", -32600),  # RPC-8
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","params":{}}', -32600),
        (b'{"id":1,"method":"echo"}', -32600),  # RPC-1
        (b'{"jsonrpc":"1.0","id":1,"method":"echo"}', -32600),
        (b'{"jsonrpc":2.0,"id":1,"method":"echo"}', -32600),
        (b'{"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),  # RPC-2
        (b'{"jsonrpc":"2.0","method":null}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"echo"}', -32600),  # RPC-3
        (b'{"jsonrpc":"2.0","id":true,"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":false,"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":1e300,"method":"echo"}', -32600),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"echo"}', -32600),
    ],
)
async def test_what_is_no_message_gets_one_error_without_id(line: bytes, code: int) -> None:
    """STDIO-6..8, RPC-1..3, RPC-8: and nothing is run, and the connection lives."""
    handler = Recorder(echo=answer)
    async with connected(handler) as (_, peer):
        await peer.send_bytes(line + b"\n")
        assert refusals(await peer.fence()) == [(None, code)]
    assert [request.method for request in handler.requests] == ["fence"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":77,"result":{},"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":77}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":77,"error":"text"}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","error":{}}',
        b'{"id":{},"result":5}',
        b'{"result":{}}',
    ],
)
async def test_a_response_is_never_answered(line: bytes) -> None:
    """RPC-7: however malformed, and whatever it answers."""
    async with connected(Recorder()) as (_, peer):
        await peer.send_bytes(line + b"\n")
        assert await peer.fence() == []


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (0, 0),
        (-1, -1),
        (7, 7),
        ("7", "7"),
        ("", ""),
        (1.0, 1),
        (-0.0, 0),
        (1e15, 10**15),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        ("\ud800", "\ud800"),
    ],
)
async def test_the_answer_has_the_id_of_the_request(sent: Any, known: Any) -> None:
    """RPC-3, RPC-4: same value, same type; 1.0 is the integer 1."""
    async with connected(Recorder(echo=answer)) as (_, peer):
        await peer.call(sent, "echo")
        (message,) = await peer.fence()
        assert message["id"] == known
        assert type(message["id"]) is type(known)


def test_booleans_are_no_ids() -> None:
    """RPC-3: although True == 1 in Python."""
    assert [as_id(value) for value in (True, False, None, 1.5, float("inf"), float("nan"), [], {})] == [None] * 8


@pytest.mark.parametrize("params", ["absent", "null", "{}"])
async def test_omitted_and_null_params_are_an_empty_object(params: str) -> None:
    """RPC-9."""
    member = "" if params == "absent" else f',"params":{params}'
    async with connected(Recorder(echo=answer)) as (_, peer):
        await peer.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"echo"%s}\n' % member.encode())
        assert await peer.fence() == [{"jsonrpc": "2.0", "id": 1, "result": {"params": {}}}]


@pytest.mark.parametrize("params", [[], [1], "text", 5, True])
async def test_params_that_are_no_object_are_invalid(params: Any) -> None:
    """RPC-10."""
    handler = Recorder(echo=answer)
    async with connected(handler) as (_, peer):
        await peer.call(1, "echo", params)
        assert refusals(await peer.fence()) == [(1, -32602)]
    assert len(handler.requests) == 1


async def test_unknown_members_of_an_envelope_are_ignored() -> None:
    """EXT-1."""
    async with connected(Recorder(echo=answer)) as (_, peer):
        await peer.send({**CALL, "extra": 1, "result": {}})
        assert [message["id"] for message in await peer.fence()] == [1]


async def test_the_last_line_needs_no_newline() -> None:
    """STDIO-4."""
    handler = Recorder()
    async with connected(handler) as (_, peer):
        await peer.send_bytes(b'{"jsonrpc":"2.0","method":"last"}')
    assert handler.notifications == [("last", {})]


async def test_a_line_over_the_bound_costs_only_itself() -> None:
    """STDIO-5."""
    async with connected(Recorder(echo=answer), max_line=1000) as (_, peer):
        await peer.send({**CALL, "params": {"text": "x" * 1000}}, CALL)
        first, second = await peer.fence()
        assert refusals([first]) == [(None, -32600)]
        assert second["id"] == 1


# --- any input ---------------------------------------------------------------------------------------------------------

_SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(1.0) | st.just(1.5) | st.sampled_from(["2.0", "a", ""])
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)
_MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1", None]),
    "id": _SCALARS,
    "method": st.sampled_from(["echo", "boom", "$/cancel_request", "$/other", "_x", None, 5]),
    "params": _VALUES,
    "result": _VALUES,
    "error": _VALUES,
}
_MESSAGES = st.fixed_dictionaries({}, optional=_MEMBERS) | _VALUES


def expected_answer(message: Any) -> tuple[Any, str] | None:
    """The id of the one answer that is owed, and whether it is an error; None where none is owed."""
    if not isinstance(message, dict):
        return None, "error"
    if "method" not in message and {"id", "result", "error"} & message.keys():
        return None
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return None, "error"
    if "id" not in message:
        return None
    if (type(message["id"]) not in (int, str) and message["id"] != 1.0) or isinstance(message["id"], bool):
        return None, "error"
    works = message["method"] == "echo" and isinstance(message.get("params") or {}, dict)
    works = works and (message.get("params") is None or isinstance(message["params"], dict))
    return message["id"], "result" if works else "error"


def _boom(_request: IncomingRequest) -> None:
    raise ZeroDivisionError("secret")


def _unknown(request: IncomingRequest) -> None:
    raise MethodNotFound(request.method)


@given(st.lists(_MESSAGES, max_size=8))
@settings(deadline=None, max_examples=150)
async def test_every_request_is_answered_exactly_once_whatever_else_comes(messages: list[Any]) -> None:
    """RPC-6: and nothing that is no request is, but for the one error without id."""
    unknown = {"$/cancel_request": _unknown, "$/other": _unknown, "_x": _unknown}
    async with connected(Recorder(echo=answer, boom=_boom, **unknown)) as (_, peer):
        await peer.send(*messages)
        answers = [(message["id"], "result" if "result" in message else "error") for message in await peer.fence()]
    assert answers == [owed for owed in map(expected_answer, messages) if owed is not None]


# --- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LINKS)
async def test_requests_are_handled_and_answered_in_order(kind: str) -> None:
    """STDIO-9: whole lines, in the order in which they were put."""

    def noisy(request: IncomingRequest) -> None:
        request.connection.notify("before", {"n": request.id})
        request.respond({"text": "\u2028" * 1000})
        request.connection.notify("after", {"n": request.id})

    handler = Recorder(noisy=noisy)
    async with connected(handler, kind) as (_, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.send, *({"jsonrpc": "2.0", "id": n, "method": "noisy"} for n in range(300)))
            messages = [await peer.read() for _ in range(900)]
        assert [request.id for request in handler.requests] == list(range(300))
    for n, (before, response, after) in enumerate(zip(*[iter(messages)] * 3, strict=True)):
        assert (before["method"], before["params"]) == ("before", {"n": n})
        assert (response["id"], len(response["result"]["text"])) == (n, 1000)
        assert (after["method"], after["params"]) == ("after", {"n": n})


@pytest.mark.parametrize("kind", LINKS)
async def test_a_large_message_passes_both_ways(kind: str) -> None:
    """STDIO-5: 8 MiB; reading goes on while it is written."""
    text = "x\u00e9" * (2 << 20)
    async with connected(Recorder(echo=answer), kind) as (_, peer), anyio.create_task_group() as tasks:
        tasks.start_soon(peer.call, 1, "echo", {"text": text})
        message = await peer.read()
        assert message["result"]["params"]["text"] == text


def _twice(request: IncomingRequest) -> None:
    request.respond({"first": 1})
    request.respond({"second": 1})
    request.fail(InvalidParams("third"))


def _answer_then_raise(request: IncomingRequest) -> None:
    request.respond({"first": 1})
    raise ValueError


@pytest.mark.parametrize("method", [_twice, _answer_then_raise])
async def test_only_the_first_answer_is_sent(method: Any) -> None:
    """RPC-6."""
    async with connected(Recorder(call=method)) as (_, peer):
        await peer.call(1, "call")
        assert await peer.fence() == [{"jsonrpc": "2.0", "id": 1, "result": {"first": 1}}]


@pytest.mark.parametrize(
    ("error", "wire"),
    [
        (MethodNotFound("call"), {"code": -32601, "message": "Method not found.", "data": {"method": "call"}}),
        (InvalidParams("cwd is required."), {"code": -32602, "message": "cwd is required."}),
        (AcpError("Odd.", [1], code=77), {"code": 77, "message": "Odd.", "data": [1]}),
        (
            ExceptionGroup("g", [ValueError("secret"), AuthRequired()]),
            {"code": -32000, "message": "Authentication required."},
        ),
        (ValueError("secret"), {"code": -32603, "message": "Internal error."}),
        (RecursionError("secret"), {"code": -32603, "message": "Internal error."}),
        (ExceptionGroup("secret", [ValueError("secret")]), {"code": -32603, "message": "Internal error."}),
    ],
)
@pytest.mark.parametrize("how", ["raise", "fail", "run"])
async def test_what_a_method_raises_is_its_answer(
    how: str, error: Exception, wire: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """RPC-14, RPC-15: one boundary, which says nothing of foreign exceptions; the log names type and place only."""

    async def later() -> Any:
        await anyio.lowlevel.checkpoint()
        raise error

    def method(request: IncomingRequest) -> None:
        if how == "run":
            request.run(later)
        elif how == "fail":
            request.fail(error)
        else:
            raise error

    handler = Recorder(call=method)
    async with connected(handler) as (_, peer):
        await peer.call(1, "call", {"text": "secret"})
        message = await peer.read()
        assert message == {"jsonrpc": "2.0", "id": 1, "error": wire}
        validate_agent_message(message)
    logged = capsys.readouterr().err
    assert "secret" not in logged
    assert ("request failed" in logged) is (wire["code"] == -32603)


async def test_the_error_of_a_session_carries_its_id() -> None:
    """ERR-1."""

    def method(request: IncomingRequest) -> None:
        raise ResourceNotFound(request.params["sessionId"])

    async with connected(Recorder(call=method)) as (_, peer):
        await peer.call(1, "call", {"sessionId": "s"})
        (message,) = await peer.fence()
        validate_agent_message(message)
        assert message["error"]["data"] == {"sessionId": "s"}


async def test_a_result_that_is_no_json_is_an_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    """RPC-6, RPC-14: the request is answered all the same."""

    def bad_result(request: IncomingRequest) -> None:
        request.respond({"secret": object()})

    def bad_data(request: IncomingRequest) -> None:
        request.fail(InvalidParams("Bad.", {"secret": object()}))

    async with connected(Recorder(result=bad_result, data=bad_data)) as (_, peer):
        await peer.call(1, "result")
        await peer.call(2, "data")
        assert [(m["id"], m["error"]) for m in await peer.fence()] == [
            (1, {"code": -32603, "message": "Internal error."}),
            (2, {"code": -32602, "message": "Bad."}),
        ]
    assert "secret" not in capsys.readouterr().err


# --- notifications -----------------------------------------------------------------------------------------------------


async def test_notifications_are_never_answered(capsys: pytest.CaptureFixture[str]) -> None:
    """RPC-6, RPC-13, MAL-2: unknown, malformed or failing."""

    class Failing(Recorder):
        def handle_notification(self, method: str, params: dict[str, Any], connection: Any) -> None:
            super().handle_notification(method, params, connection)
            raise ValueError("secret")

    handler = Failing()
    async with connected(handler) as (_, peer):
        await peer.tell("_custom", {"a": 1})
        await peer.tell("$/unknown")
        await peer.tell("session/cancel", ["secret"])
        await peer.tell("session/cancel", "secret")
        assert await peer.fence() == []
    assert handler.notifications == [("_custom", {"a": 1}), ("$/unknown", {})]
    assert "secret" not in capsys.readouterr().err


# --- the end -------------------------------------------------------------------------------------------------------------


async def read_rest(peer: RawPeer) -> list[Any]:
    return [json.loads(json.dumps(message)) for message in await peer.read_all()]


async def test_everything_answered_is_written_before_the_end() -> None:
    """STDIO-11: close() flushes."""
    handler = Recorder(echo=answer)
    async with connected(handler) as (connection, peer):
        for n in range(100):
            await peer.call(n, "echo", {"text": "x" * 5000})
            if n == 50:
                await handler.until(lambda: len(handler.requests) == 51)
                connection.close()
                break
        messages = await read_rest(peer)
    assert [message["id"] for message in messages] == list(range(51))
