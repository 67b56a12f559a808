"""rpc.py: peers that do not read, go away, or never stop sending."""

from collections.abc import Callable
from itertools import pairwise

import anyio
import pytest

from adapters.acp import rpc
from adapters.acp.memory import memory_pair
from adapters.acp.rpc import Connection, IncomingRequest
from adapters_tests.acp.wire import LINKS, SECONDS, RawPeer, Recorder, answer, connected, link

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "FLUSH_SECONDS", 0.05)


async def until(connection: Connection, condition: Callable[[], bool]) -> None:
    """Wait until a condition over the connection's buffers holds, and nothing moves any more."""
    with anyio.fail_after(SECONDS):
        while not condition():
            await connection._changed.wait()
        await anyio.wait_all_tasks_blocked()


async def test_writable_waits_for_a_client_that_does_not_read() -> None:
    """A producer that awaits it keeps memory bounded."""
    async with connected(Recorder(), high_water=100_000) as (connection, peer):
        written = 0

        async def produce() -> None:
            nonlocal written
            while True:
                await connection.writable()
                connection.notify("update", {"text": "x" * 1000})
                written += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            await until(connection, lambda: connection._buffered >= 100_000)
            before = written
            assert before < 400
            assert connection._buffered < 102_000
            for _ in range(before + 200):
                await peer.read()
            assert written > before
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", LINKS)
async def test_reading_goes_on_while_the_client_does_not_read(kind: str) -> None:
    """STDIO-10: cancels and answers must get through."""
    handler = Recorder()
    async with connected(handler, kind) as (connection, peer):
        connection.notify("large", {"text": "x" * (8 << 20)})
        for n in range(200):
            await peer.tell("note", {"n": n})
        await handler.until(lambda: len(handler.notifications) == 200)
        assert connection._buffered > 4 << 20
        assert len((await peer.read())["params"]["text"]) == 8 << 20


async def test_requests_beyond_the_bound_are_refused_while_the_rest_gets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """STDIO-10: a permission answer or a cancel may be what the waiting requests need; nothing is lost."""
    monkeypatch.setattr(rpc, "MAX_REQUESTS", 50)
    handler = Recorder()
    async with connected(handler) as (_, peer):
        await peer.send(*({"jsonrpc": "2.0", "id": n, "method": "hold"} for n in range(80)))
        await peer.tell("note")
        await handler.until(lambda: bool(handler.notifications))
        assert len(handler.requests) == 50
        for n in range(50, 80):
            refused = await peer.read()
            assert (refused["id"], refused["error"]["code"]) == (n, -32603)
        for n in range(50):
            handler.requests[n].respond({})
            assert (await peer.read())["id"] == n
        await peer.send({"jsonrpc": "2.0", "id": 80, "method": "hold"})
        await handler.until(lambda: len(handler.requests) == 51)


async def test_bytes_of_unanswered_requests_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request of any size passes."""
    monkeypatch.setattr(rpc, "MAX_REQUEST_BYTES", 10_000)
    handler = Recorder()
    async with connected(handler) as (_, peer):
        large = ({"jsonrpc": "2.0", "id": n, "method": "hold", "params": {"text": "x" * 20_000}} for n in range(4))
        await peer.send(*large)
        assert [(await peer.read())["id"] for _ in range(2)] == [2, 3]
        assert len(handler.requests) == 2
        for request in handler.requests:
            request.respond({})
            await peer.read()


@pytest.mark.parametrize("line", [b"garbage\n", b"[]\n", b'{"jsonrpc":"2.0","id":1,"method":"echo"}\n'])
async def test_a_flood_without_reading_is_bounded(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers count as well: those nobody takes stop the reading."""
    monkeypatch.setattr(rpc, "MAX_REQUESTS", 1000)
    monkeypatch.setattr(rpc._log, "disabled", True)
    async with connected(Recorder(echo=answer)) as (connection, peer):
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await peer.transport.send(line * 100)
                sent += 100

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            await until(connection, lambda: connection._waiting >= 2000)
            assert connection._waiting == 2000
            assert connection._buffered < 2000 * 200
            assert sent * len(line) < 400_000
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", LINKS)
async def test_a_client_that_goes_away_ends_the_connection(kind: str) -> None:
    """STDIO-12: a broken pipe raises nothing; waiting producers wake; what is sent later is dropped."""
    handler = Recorder()
    with link(kind) as (ours, theirs), anyio.fail_after(SECONDS):
        connection = Connection(ours, handler, high_water=1000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            connection.notify("update", {"text": "x" * 4_000_000})
            tasks.start_soon(connection.writable)
            await RawPeer(theirs).tell("seen")
            await handler.until(lambda: handler.notifications)
            await theirs.aclose()
        assert handler.closed == 1
        assert connection.closed
        connection.notify("update", {})
        await connection.writable()


async def test_the_end_waits_a_bounded_time_for_a_client_that_does_not_read() -> None:
    """STDIO-11."""
    ours, theirs = memory_pair()
    handler = Recorder()
    connection = Connection(ours, handler)
    connection.notify("update", {"text": "x" * 1_000_000})
    theirs.send_eof()
    with anyio.fail_after(SECONDS):
        await connection.run()
    assert handler.closed == 1


async def test_the_end_waits_as_long_as_the_client_takes_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """STDIO-11: a slow reader gets everything."""
    monkeypatch.setattr(rpc, "FLUSH_SECONDS", 0.4)
    ours, theirs = memory_pair()
    connection = Connection(ours, Recorder())
    for n in range(25):
        connection.notify("update", {"n": n, "text": "x" * 300_000})
    theirs.send_eof()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            peer = RawPeer(theirs)
            for n in range(25):
                await anyio.sleep(0.02)
                assert (await peer.read())["params"]["n"] == n


async def test_a_run_that_is_cancelled_cleans_up() -> None:
    """STDIO-14: the owner of the connection ends it."""
    handler = Recorder(wait=lambda request: request.run(anyio.sleep_forever))
    ours, theirs = memory_pair()
    connection = Connection(ours, handler)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await RawPeer(theirs).call(1, "wait")
            await handler.until(lambda: handler.requests)
            outgoing = connection.request("ask", {})
            tasks.cancel_scope.cancel()
    assert handler.closed == 1
    assert outgoing.done
    with anyio.fail_after(SECONDS):
        assert await theirs.receive() in (b"", b'{"jsonrpc":"2.0","id":1,"method":"ask","params":{}}\n')


async def test_a_failing_handle_close_does_not_stop_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(Recorder):
        def handle_close(self, connection: Connection) -> None:
            super().handle_close(connection)
            raise ValueError("secret")

    async with connected(Failing()):
        pass
    assert "secret" not in capsys.readouterr().err


async def test_input_that_breaks_ends_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    """STDIO-11: as the end of input does."""

    class Broken:
        async def receive(self) -> bytes:
            raise OSError(5, "Input/output error")

        async def send(self, data: bytes) -> None:
            pass

        async def aclose(self) -> None:
            pass

    handler = Recorder()
    with anyio.fail_after(SECONDS):
        await Connection(Broken(), handler).run()
    assert handler.closed == 1
    assert "input broken" in capsys.readouterr().err


async def test_nothing_is_taken_after_close() -> None:
    """Not even what came in the same read."""
    handler = Recorder(stop=lambda request: request.connection.close())
    ours, theirs = memory_pair()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            peer = RawPeer(theirs)
            await peer.send(
                {"jsonrpc": "2.0", "id": 1, "method": "stop"}, {"jsonrpc": "2.0", "id": 2, "method": "late"}
            )
            tasks.start_soon(Connection(ours, handler).run)
            assert await peer.read_all() == []
    assert [request.method for request in handler.requests] == ["stop"]


async def test_others_run_while_a_read_of_many_messages_is_handled() -> None:
    """STDIO-10: a flood of small messages does not hold up the rest."""
    handler = Recorder()
    seen: list[int] = []
    async with connected(handler) as (_, peer), anyio.create_task_group() as tasks:

        async def watch() -> None:
            while True:
                seen.append(len(handler.notifications))
                await anyio.lowlevel.checkpoint()

        tasks.start_soon(watch)
        await peer.send_bytes(b'{"jsonrpc":"2.0","method":"n"}\n' * 1000)
        await handler.until(lambda: len(handler.notifications) == 1000)
        tasks.cancel_scope.cancel()
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 64


async def test_requests_run_after_the_end_do_nothing() -> None:
    """A late `run` neither fails nor leaves a task behind."""
    held: list[IncomingRequest] = []
    async with connected(Recorder(hold=held.append)) as (_, peer):
        await peer.call(1, "hold")
        await peer.fence()
    held[0].run(anyio.sleep_forever)
    held[0].respond({})
    assert held[0].answered
