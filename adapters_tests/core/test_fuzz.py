"""The whole agent under malformed input: any params of any method, and any bytes in place of a line.

Whatever comes: one answer to each request, the code that the schema asks for, nothing inserted by what is refused, no values in
error texts, and a connection that lives.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.acp.errors import AcpError, InvalidParams
from adapters.acp.framing import encode
from adapters.acp.schema import parse_params
from adapters.client.calls import Call
from adapters.core.front import AgentInfo, serve
from adapters.core.memory_runtime import FEATURES, ScriptedRuntime
from adapters_tests.acp.wire import RawPeer, link
from adapters_tests.core.rig import CWD, outcome, rig
from adapters_tests.schema import methods, schema, validate_agent_message

pytestmark = pytest.mark.anyio

FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SESSION, OTHER, SECRET = "$session", "$other", "canary-7f3a"
"""Two places to fill in: a session that stays, one that may be closed and deleted. The text that no error may repeat."""

_SERVERS = [
    {"type": "stdio", "name": "one", "command": "/bin/true", "args": ["a"], "env": [{"name": "A", "value": SECRET}]},
    {"type": "http", "name": "two", "url": "http://127.0.0.1/", "headers": [{"name": "B", "value": SECRET}]},
]
_BLOCKS = [
    {"type": "text", "text": SECRET, "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "resource_link", "name": "n", "uri": "file:///x", "size": 3},
    {"type": "resource", "resource": {"uri": "file:///x", "mimeType": "text/plain", "text": SECRET}},
]
VALID: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": 2, "info": {"name": "fuzz", "version": "1"}, "capabilities": {}},
    "auth/login": {"methodId": "m"},
    "auth/logout": {},
    "session/new": {"cwd": CWD, "mcpServers": _SERVERS, "additionalDirectories": [CWD], "_meta": {"a": [1]}},
    "session/resume": {"sessionId": SESSION, "cwd": CWD, "mcpServers": _SERVERS, "replayFrom": {"type": "start"}},
    "session/list": {"cwd": CWD, "cursor": None},
    "session/close": {"sessionId": OTHER},
    "session/delete": {"sessionId": OTHER},
    "session/prompt": {"sessionId": SESSION, "prompt": _BLOCKS, "idempotencyKey": f"{SECRET} key"},
    "session/cancel": {"sessionId": SESSION},
    "session/set_config_option": {"sessionId": SESSION, "configId": "mode", "type": "id", "value": "plan"},
    "tool_call/cancel": {"sessionId": SESSION, "toolCallId": "t"},
    "terminal/cancel": {"sessionId": SESSION, "terminalId": "t"},
    "$/cancel_request": {"requestId": 1},
}
"""Valid params of everything that a client may send."""

_KINDS = {method: kind for method, kind in methods() if kind != "Response" and method in VALID}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 2**63, -(2**200), 0.5, 1.0, 1e308]),
    st.text(st.characters(exclude_categories=()), max_size=12),  # lone surrogates included
    st.sampled_from(["", "\u2028", "\0", "\ud800", SECRET, SESSION, "start", "stdio", "image", "/", "../x", "k" * 256]),
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "text", "name", "_meta", "", SECRET, "sessionId"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every node of a JSON value, the root included."""
    yield path
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, node in inner:
        yield from places(node, (*path, name))


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Any]:
    """A method and its params with up to three faults in them."""
    method = draw(st.sampled_from(sorted(VALID)))
    params: Any = copy.deepcopy(VALID[method])
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(places(params))))
        if not path:
            if draw(st.integers(0, 4)) == 0:
                return method, draw(junk)
            params[draw(st.sampled_from(["unknown", "idempotency_key", "_meta", "idempotencyKey", "prompt"]))] = draw(
                junk
            )
            continue
        parent = params
        for step in path[:-1]:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "remove", "wrap", "repeat"])):
            case "remove":
                del parent[path[-1]]
            case "wrap":
                parent[path[-1]] = [parent[path[-1]]]
            case "repeat" if isinstance(parent, list):
                parent.append(parent[path[-1]])
            case _:
                parent[path[-1]] = draw(junk)
    return method, params


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: filled(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def wanted_codes(method: str, params: Any) -> set[int | None]:
    """The codes that an answer may have; None is success."""
    if params is not None and not isinstance(params, dict):
        return {-32602}
    if method == "initialize":
        return {-32600}  # too late
    if method.startswith("auth/"):
        return {-32601}  # nothing is advertised
    try:
        parse_params(method, params)
    except InvalidParams:
        return {-32602}
    return {
        None,
        -32602,
        -32002,
        *([-32800] if method == "session/prompt" else []),
    }  # the last: a cancel in the same batch


def test_every_method_of_the_schema_is_tried() -> None:
    """Those that a client sends, by the schema's own list."""
    sides = {"agent", "protocol"}
    assert set(VALID) == {
        method
        for (method, kind), name in methods().items()
        if kind != "Response" and schema()["$defs"][name]["x-side"] in sides
    }


@FUZZ
@given(batch=st.lists(calls(), min_size=1, max_size=12))
async def test_any_params_of_any_method_get_one_right_answer(batch: list[tuple[str, Any]]) -> None:
    """RPC-6, RPC-9, RPC-13, RPC-15, ERR-5, KEY-4, KEY-8, KEY-30, MAL-2, EXT-1."""
    async with rig(automatic=True) as r:
        client = await r.connect()
        names = {SESSION: (await r.session(client))[0], OTHER: (await r.session(client))[0]}
        await client.list()  # settles initialize
        sent: list[tuple[str, Any, Call]] = []
        for number, (method, template) in enumerate(batch):
            params = filled(template, names)
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
            if _KINDS[method] == "Request":
                request_id = f"f{number}"
                line = encode({**message, "id": request_id})[:-1]
                sent.append((method, params, await client.send_line(line, expecting=request_id)))
            else:
                await client.send_line(encode(message)[:-1])
        inserted: set[str] = set()
        for method, params, call in sent:
            with anyio.fail_after(10):
                await call._done.wait()
            assert call.outcome is not None
            code = call.outcome.code if isinstance(call.outcome, AcpError) else None
            assert code in wanted_codes(method, params), (method, params)
            if isinstance(call.outcome, AcpError):
                check_error(method, params, call.outcome)
            elif method == "session/prompt":
                assert isinstance(call.outcome, dict)
                inserted.add(call.outcome["messageId"])
        assert await (await client.prompt(names[SESSION], "alive")).message_id()
        await client.list()
        stored = r.runtime.store.sessions[names[SESSION]].user_ids()
        assert len(set(stored)) == len(stored) == len(inserted) + 1
        assert inserted < set(stored)


def check_error(method: str, params: Any, error: AcpError) -> None:
    """One sentence that repeats no value but the path of a folder; a prompt's says that nothing was inserted."""
    assert error.message
    assert "\n" not in error.message
    said = error.message + json.dumps({**error.data, "sessionId": ""} if isinstance(error.data, dict) else error.data)
    folders = json.dumps([params.get("cwd"), params.get("additionalDirectories")]) if isinstance(params, dict) else ""
    assert SECRET not in said or SECRET in folders
    if method == "session/prompt":
        assert isinstance(error.data, dict)
        assert error.data["inserted"] is False


# --- bytes -------------------------------------------------------------------------------------------------------------

_LINES = st.sampled_from(
    [json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": VALID[method]}).encode() for method in VALID]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line of any bytes, or a valid one with a few bytes changed, cut off or put in."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=40)).replace(b"\n", b"")
    line = bytearray(draw(_LINES))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(line) - 1)))
        match draw(st.sampled_from(["byte", "cut", "insert"])):
            case "byte" if line:
                line[place] = draw(st.sampled_from(list(b'{}[]",:0\\ux\x00\xff\xe2 \r')))
            case "cut":
                del line[place:]
            case _:
                line[place:place] = draw(
                    st.sampled_from([b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\r", b"\\ud800", b"1e999"])
                )
    return bytes(line).replace(b"\n", b"")


def owed(line: bytes) -> tuple[Any, int | None] | None:
    """The id of the answer that a line must get and its code, None where only the method decides; or no answer at all."""
    text = line.strip(b" \t\r\n").removeprefix(b"\xef\xbb\xbf")
    if not text:
        return None
    try:
        value = json.loads(text.decode(), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return None, -32700
    if not isinstance(value, dict):
        return None, -32600
    if "method" not in value and {"id", "result", "error"} & value.keys():
        return None
    if value.get("jsonrpc") != "2.0" or not isinstance(value.get("method"), str):
        return None, -32600
    if "id" not in value:
        return None
    known = isinstance(value["id"], str) or (type(value["id"]) is int and -(2**63) <= value["id"] < 2**63)
    if isinstance(value["id"], float) and value["id"].is_integer() and abs(value["id"]) < 2**63:
        return int(value["id"]), None
    return (value["id"], None) if known else (None, -32600)


@FUZZ
@given(lines=st.lists(damaged(), max_size=20), cuts=st.integers(1, 60))
async def test_any_bytes_get_the_answers_they_are_owed(lines: list[bytes], cuts: int) -> None:
    """STDIO-3, STDIO-6, STDIO-7, RPC-1..8: whatever the lines and however they are cut into reads."""
    async with anyio.create_task_group() as tasks:
        async with serve(lambda: ScriptedRuntime(automatic=True), FEATURES, AgentInfo("t", "T", "1")) as server:
            with link("memory") as (ours, theirs), anyio.fail_after(20):
                tasks.start_soon(server.run_connection, ours)
                peer = RawPeer(theirs)
                await peer.call("first", "initialize", VALID["initialize"])
                data = b"\n".join([*lines, encode({"jsonrpc": "2.0", "id": "last", "method": "session/list"})])
                for start in range(0, len(data), cuts):
                    await peer.send_bytes(data[start : start + cuts])
                theirs.send_eof()
                messages = await peer.read_all()
        tasks.cancel_scope.cancel()
    answers = [message for message in messages if "method" not in message]
    for message in messages:
        validate_agent_message(message)
    debts = [debt for line in lines if (debt := owed(line)) is not None]
    got = Counter(json.dumps(message["id"]) for message in answers)
    assert got == Counter(json.dumps(request_id) for request_id, _ in [("first", None), ("last", None), *debts])
    codes = Counter(code for _, code in debts if code is not None)
    assert codes == Counter(message["error"]["code"] for message in answers if message["id"] is None)


@pytest.mark.parametrize("why", ["positional", "full"])
async def test_a_prompt_that_never_reaches_its_method_says_so(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RPC-9, ERR-5: also where the connection itself refuses it."""
    async with rig() as r:
        client = await r.connect()
        session_id, _ = await r.session(client)
        params: Any = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        if why == "full":
            monkeypatch.setattr("adapters.acp.rpc.MAX_REQUESTS", 0)
        line = {"jsonrpc": "2.0", "id": "x", "method": "session/prompt"}
        call = await client.send_line(
            encode({**line, "params": [params] if why == "positional" else params})[:-1], expecting="x"
        )
        error = await outcome(call.result())
        assert isinstance(error, AcpError)
        assert (error.code, error.data) == (-32602 if why == "positional" else -32603, {"inserted": False})
