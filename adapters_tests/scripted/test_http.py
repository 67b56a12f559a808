"""HTTP on the wire: keep-alive, bodies, bounds, and clients that misbehave."""

from unittest.mock import patch

import pytest

from adapters.scripted import Answer, Rule, Script, ScriptedModel, Text, say
from adapters.scripted import http as scripted_http
from adapters_tests.scripted.wire import ask, connect, conversation

pytestmark = pytest.mark.anyio

GET_CALLS = b"GET /__calls HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_one_connection_takes_many_requests() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            for number in range(3):
                await wire.post("/v1/messages", conversation(f"p{number}"))
                assert (await wire.reply()).complete
        assert model.prompts_seen() == ["p0", "p1", "p2"]


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with ScriptedModel(Script((Rule((say("one"),), exact="1"), Rule((say("two"),), exact="2")))) as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.post("/v1/messages", conversation("1"))
            await wire.post("/v1/messages", conversation("2"))
            assert [(await wire.reply()).text, (await wire.reply()).text] == ["one", "two"]


async def test_chunked_bodies_with_extensions_and_trailers() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            body = b'c;x=y\r\n{"messages":\r\n4\r\n [] \r\n1\r\n}\r\n0\r\ntrailer: t\r\n\r\n'
            for byte in head + body:
                await wire.send(bytes([byte]))
            assert (await wire.reply()).status == 200
            await wire.send(GET_CALLS)
            assert (await wire.reply()).json["total"] == 1


async def test_expect_continue_is_answered_before_the_body() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.send(
                b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 15\r\n\r\n"
            )
            assert (await wire.head())[0] == 100
            await wire.send(b'{"messages":[]}')
            assert (await wire.reply()).status == 200


async def test_http_1_0_gets_a_plain_stream_and_a_closed_connection() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.send(b'POST /v1/messages HTTP/1.0\r\ncontent-length: 29\r\n\r\n{"messages":[],"stream":true}')
            reply = await wire.reply()
            assert reply.headers["connection"] == "close"
            assert reply.events[-1]["type"] == "message_stop"


async def test_a_closing_client_gets_its_answer() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.post("/v1/messages", conversation("p"), {"connection": "close"})
            assert (await wire.reply()).complete
            assert await wire.rest() == b""


async def test_unknown_paths_are_json_and_keep_the_connection() -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.send(b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await wire.reply(no_body=True)).status == 404
            await wire.send(b"GET http://127.0.0.1/v1/models?x=1 HTTP/1.1\r\nhost: x\r\n\r\n")
            reply = await wire.reply()
            assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
            await wire.send(b"GET /v1/messages HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await wire.reply()).status == 404
            await wire.send(GET_CALLS)
            assert (await wire.reply()).status == 200


BAD = {
    "no request line": (b"hello\r\n\r\n", 400),
    "version": (b"GET / HTTP/2.0\r\n\r\n", 505),
    "header without colon": (b"GET / HTTP/1.1\r\nhost: x\r\nname\r\n\r\n", 400),
    "folded header": (b"GET / HTTP/1.1\r\n host: x\r\n\r\n", 400),
    "length not a number": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
    "length and chunked": (
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
    "other coding": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 501),
    "compressed": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx", 415),
    "chunk size": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    "negative chunk": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n", 400),
    "chunk end": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", 400),
    "endless chunk size line": (
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"0" * 70000,
        431,
    ),
    "huge length": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999\r\n\r\n", 413),
    "absurd length": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", 400),
    "endless header": (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * 70000, 431),
    "body not JSON": (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{", 400),
    "body not an object": (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n[]", 400),
    "body too deep": (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n" + b"[" * 200000, 400),
    "no messages": (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}", 400),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_requests_are_answered_and_the_model_lives_on(name: str) -> None:
    data, status = BAD[name]
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        async with wire.stream:
            await wire.send(data)
            reply = await wire.reply()
            assert reply.status == status
            assert reply.json["error"]["message"]
            assert await wire.rest() == b""
        assert (await ask(model.port, conversation("p"))).text
        assert model.total_calls == 1


async def test_a_body_in_chunks_has_the_same_bound() -> None:
    async with ScriptedModel() as model:
        with patch.object(scripted_http, "MAX_BODY", 100):
            wire = await connect(model.port)
            async with wire.stream:
                head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                await wire.send(head + b"ffffffffff\r\n" + b"x" * 101)
                assert (await wire.reply()).status == 413
                assert await wire.rest() == b""


@pytest.mark.parametrize(
    "part", [b"", b"POST /v1/me", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"]
)
async def test_clients_that_leave_in_the_middle_harm_nobody(part: bytes) -> None:
    async with ScriptedModel() as model:
        wire = await connect(model.port)
        if part:
            await wire.send(part)
        await wire.stream.aclose()
        assert (await ask(model.port, conversation("p"))).text


async def test_a_client_that_stands_still_is_given_up() -> None:
    async with ScriptedModel() as model:
        with patch.object(scripted_http, "PEER_SECONDS", 0.05):
            wire = await connect(model.port)
            async with wire.stream:
                await wire.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
                assert await wire.rest() == b""


async def test_a_client_that_does_not_read_is_given_up() -> None:
    script = Script(default=(say("x" * 20_000_000),))
    async with ScriptedModel(script) as model:
        with patch.object(scripted_http, "PEER_SECONDS", 0.1):
            wire = await connect(model.port)
            async with wire.stream:
                await wire.post("/v1/messages", conversation("p"))
                await model.wait_ended(1, seconds=10)
                assert model.records[0].outcome == "left"


async def test_a_client_that_leaves_ends_its_waiting_answer() -> None:
    async with ScriptedModel(Script(default=(Answer((Text("x"),), gate="g"),))) as model:
        wire = await connect(model.port)
        await wire.post("/v1/messages", conversation("p"))
        await model.gate("g").wait_arrival()
        await wire.stream.aclose()
        await model.wait_ended(1)
        assert model.records[0].outcome == "left"


async def test_a_large_body_arrives_whole() -> None:
    prompt = "\u2028ü" * 4_000_000
    async with ScriptedModel() as model:
        assert (await ask(model.port, conversation(prompt))).status == 200
        assert model.calls(prompt) == 1
