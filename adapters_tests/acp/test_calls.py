"""calls.py: one request each way, cancelled or not."""

from typing import Any

import anyio
import pytest

from adapters.acp.errors import (
    AcpError,
    ConnectionLost,
    InvalidResult,
    MethodNotFound,
    RequestCancelled,
    ResourceNotFound,
)
from adapters.acp.rpc import Connection, IncomingRequest, OutgoingRequest
from adapters_tests.acp.wire import SECONDS, RawPeer, Recorder, answer, connected
from adapters_tests.schema import validate_agent_message

pytestmark = pytest.mark.anyio


class Waiting(Recorder):
    """Method `wait` runs until it is cancelled or `go` is set; `started` counts."""

    def __init__(self, **methods: Any) -> None:
        super().__init__(wait=self._wait, **methods)
        self.go = anyio.Event()
        self.started = 0
        self.ended: list[str] = []

    def _wait(self, request: IncomingRequest) -> None:
        request.run(self._work, request)

    async def _work(self, request: IncomingRequest) -> dict[str, Any]:
        self.started += 1
        self._notify()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return {"id": request.id}


async def cancel(peer: RawPeer, request_id: Any) -> None:
    await peer.tell("$/cancel_request", {"requestId": request_id})


# --- incoming --------------------------------------------------------------------------------------------------------


async def test_run_answers_with_what_the_function_returns() -> None:
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.call(1, "wait")
        await handler.until(lambda: handler.started)
        handler.go.set()
        assert await peer.read() == {"jsonrpc": "2.0", "id": 1, "result": {"id": 1}}


async def test_cancelling_a_running_request_answers_it_once() -> None:
    """RCAN-2, RCAN-3: -32800; more cancels change nothing."""
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.call("a", "wait")
        for _ in range(3):
            await cancel(peer, "a")
        message = await peer.read()
        validate_agent_message(message)
        assert (message["id"], message["error"]["code"], message["error"]["data"]) == ("a", -32800, {"requestId": "a"})
        await cancel(peer, "a")
        assert await peer.fence() == []


async def test_a_request_cancelled_before_its_task_starts_never_starts() -> None:
    """RCAN-2: both lines come in one read."""
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.send(
            {"jsonrpc": "2.0", "id": 1, "method": "wait"},
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}},
        )
        assert (await peer.read())["error"]["code"] == -32800
    assert handler.ended in ([], ["cancelled"])


@pytest.mark.parametrize("request_id", ["7", 8, 7.5, True, None, [7], {}, "absent"])
async def test_a_cancel_for_another_id_does_nothing(request_id: Any) -> None:
    """RCAN-3, RCAN-4: value and type must match."""
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.call(7, "wait")
        await peer.tell("$/cancel_request", {} if request_id == "absent" else {"requestId": request_id})
        assert await peer.fence() == []
        assert not handler.requests[0].cancelled
        handler.go.set()
        assert (await peer.read())["result"] == {"id": 7}


@pytest.mark.parametrize(("first", "second"), [(1, "1"), ("1", 1)])
async def test_ids_of_two_types_are_two_requests(first: Any, second: Any) -> None:
    """RPC-4, RCAN-4."""
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.call(first, "wait")
        await peer.call(second, "wait")
        await cancel(peer, second)
        message = await peer.read()
        assert (message["id"], type(message["id"])) == (second, type(second))
        handler.go.set()
        assert (await peer.read())["result"] == {"id": first}


async def test_a_whole_number_cancels_the_integer() -> None:
    """RPC-3: 1.0 is 1 here too."""
    async with connected(Waiting()) as (_, peer):
        await peer.call(1, "wait")
        await cancel(peer, 1.0)
        assert (await peer.read())["error"]["code"] == -32800


async def test_the_method_decides_what_cancellation_means() -> None:
    """RCAN-5: on_cancel is called once, and the answer stays the method's."""
    cancels: list[Any] = []

    def method(request: IncomingRequest) -> None:
        request.on_cancel = lambda: cancels.append(request.id)

    handler = Recorder(call=method)
    async with connected(handler) as (_, peer):
        await peer.call(1, "call")
        await cancel(peer, 1)
        await cancel(peer, 1)
        assert await peer.fence() == []
        assert cancels == [1]
        assert handler.requests[0].cancelled
        handler.requests[0].respond({"messageId": "m"})
        assert (await peer.read())["result"] == {"messageId": "m"}
        await cancel(peer, 1)
        await peer.fence()
    assert cancels == [1]


async def test_a_failing_on_cancel_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def method(request: IncomingRequest) -> None:
        def broken() -> None:
            raise ValueError("secret")

        request.on_cancel = broken

    handler = Recorder(call=method)
    async with connected(handler) as (_, peer):
        await peer.call(1, "call")
        await cancel(peer, 1)
        assert await peer.fence() == []
        handler.requests[0].respond({})
        assert (await peer.read())["id"] == 1
    assert "secret" not in capsys.readouterr().err


async def test_a_result_that_comes_in_spite_of_cancellation_is_the_answer() -> None:
    """RCAN-2: the normal result, if it finished."""

    async def stubborn() -> dict[str, Any]:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        return {"done": True}

    async with connected(Recorder(call=lambda request: request.run(stubborn))) as (_, peer):
        await peer.call(1, "call")
        await cancel(peer, 1)
        assert (await peer.read()) == {"jsonrpc": "2.0", "id": 1, "result": {"done": True}}


async def test_two_requests_with_one_id_are_both_answered() -> None:
    """A client's fault (RPC-5) that must not leave anything hanging; a cancel means both."""
    async with connected(Waiting()) as (_, peer):
        await peer.call(1, "wait")
        await peer.call(1, "wait")
        await cancel(peer, 1)
        assert [(await peer.read())["error"]["code"] for _ in range(2)] == [-32800, -32800]
        assert await peer.fence() == []


async def test_the_end_of_the_connection_cancels_what_runs() -> None:
    """STDIO-11: and the answers still go out to a client that only closed its sending side."""
    handler = Waiting()
    async with connected(handler) as (_, peer):
        await peer.call(1, "wait")
        await handler.until(lambda: handler.started)
        peer.transport.send_eof()  # type: ignore[attr-defined]
        (message,) = await peer.read_all()
        assert message["error"]["code"] == -32800
    assert handler.ended == ["cancelled"]


# --- outgoing --------------------------------------------------------------------------------------------------------


def outcomes(request: OutgoingRequest) -> list[Any]:
    seen: list[Any] = []
    request.on_done(seen.append)
    return seen


async def test_requests_of_ours_have_ids_of_their_own() -> None:
    """RPC-5: also while the peer uses the same ones."""
    async with connected(Recorder(echo=answer)) as (connection, peer):
        requests = [connection.request("ask", {"n": n}) for n in range(3)]
        assert len({request.id for request in requests}) == 3
        asked = [await peer.read() for _ in requests]
        assert [message["params"] for message in asked] == [{"n": 0}, {"n": 1}, {"n": 2}]
        await peer.call(asked[0]["id"], "echo")
        assert (await peer.read())["result"] == {"params": {}}
        assert not requests[0].done


@pytest.mark.parametrize("result", [{"a": 1}, {}, None, [], "text", 0])
async def test_a_result_reaches_the_request_it_answers(result: Any) -> None:
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        seen = outcomes(request)
        await peer.read()
        await peer.send({"jsonrpc": "2.0", "id": request.id, "result": result})
        with anyio.fail_after(SECONDS):
            assert await request.wait() == result
        assert seen == outcomes(request) == [result]
        assert await peer.fence() == []


async def test_an_error_keeps_code_message_and_data() -> None:
    """RPC-16: also codes that nobody knows."""
    async with connected(Recorder()) as (connection, peer):
        for code, error_class in ((-32601, MethodNotFound), (-32002, ResourceNotFound), (4711, AcpError)):
            request = connection.request("ask", {})
            await peer.read()
            await peer.send(
                {"jsonrpc": "2.0", "id": request.id, "error": {"code": code, "message": "m", "data": {"d": 1}}}
            )
            with anyio.fail_after(SECONDS), pytest.raises(AcpError) as raised:
                await request.wait()
            assert type(raised.value) is error_class
            assert (raised.value.code, raised.value.message, raised.value.data) == (code, "m", {"d": 1})


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"result": {}, "error": {"code": 1, "message": "m"}},
        {"error": None},
        {"error": "text"},
        {"error": {"message": "m"}},
        {"error": {"code": "1", "message": "m"}},
        {"error": {"code": True, "message": "m"}},
        {"error": {"code": 1.5, "message": "m"}},
        {"error": {"code": 1}},
        {"error": {"code": 1, "message": None}},
        {"jsonrpc": "1.0", "result": {}},
    ],
)
async def test_a_malformed_response_fails_the_request_here(members: dict[str, Any]) -> None:
    """RPC-7: without a word to the peer."""
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        await peer.read()
        await peer.send({"jsonrpc": "2.0", "id": request.id, **members})
        with anyio.fail_after(SECONDS), pytest.raises(InvalidResult):
            await request.wait()
        assert await peer.fence() == []


async def test_only_the_id_as_it_was_sent_answers() -> None:
    """RPC-4: but 1.0 is 1."""
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        await peer.read()
        for other in (str(request.id), True, None, [request.id], 99):
            await peer.send({"jsonrpc": "2.0", "id": other, "result": {"wrong": True}})
        await peer.fence()
        assert not request.done
        await peer.send({"jsonrpc": "2.0", "id": float(request.id), "result": {"right": True}})
        with anyio.fail_after(SECONDS):
            assert await request.wait() == {"right": True}


async def test_cancelling_sends_one_notification_and_ignores_the_late_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """RCAN-7."""
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        seen = outcomes(request)
        asked = await peer.read()
        request.cancel()
        request.cancel()
        assert [type(outcome) for outcome in seen] == [RequestCancelled]
        await peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        (note,) = await peer.fence()
        validate_agent_message(note)
        assert note == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}}
        assert len(seen) == 1
    assert capsys.readouterr().err == ""


async def test_cancelling_an_answered_request_sends_nothing() -> None:
    """RCAN-3."""
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        await peer.read()
        await peer.send({"jsonrpc": "2.0", "id": request.id, "result": {}})
        with anyio.fail_after(SECONDS):
            await request.wait()
        request.cancel()
        assert await peer.fence() == []


async def test_a_wait_that_is_cancelled_cancels_the_request() -> None:
    """RCAN-7: the work that needed the answer has ended."""
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})
        with anyio.CancelScope() as scope:
            scope.cancel()
            await request.wait()
        assert [message["method"] for message in await peer.fence()] == ["ask", "$/cancel_request"]


async def test_a_failing_callback_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with connected(Recorder()) as (connection, peer):
        request = connection.request("ask", {})

        def broken(_outcome: Any) -> None:
            raise ValueError("secret")

        request.on_done(broken)
        seen = outcomes(request)
        await peer.read()
        await peer.send({"jsonrpc": "2.0", "id": request.id, "result": {}})
        await peer.fence()
        assert seen == [{}]
    assert "secret" not in capsys.readouterr().err


async def test_what_is_unanswered_at_the_end_has_failed() -> None:
    """STDIO-11: before the handler hears of the end; later requests fail at once."""
    seen_at_close: list[int] = []

    class Closing(Recorder):
        def handle_close(self, connection: Connection) -> None:
            seen_at_close.append(len(seen))
            super().handle_close(connection)

    handler = Closing()
    async with connected(handler) as (connection, _peer):
        seen = outcomes(connection.request("ask", {}))
        outcomes(connection.request("ask", {}))
    assert [type(outcome) for outcome in seen] == [ConnectionLost]
    assert seen_at_close == [1]
    assert [type(outcome) for outcome in outcomes(connection.request("ask", {}))] == [ConnectionLost]
