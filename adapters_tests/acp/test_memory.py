"""memory.py: two ends in one process."""

import anyio
import pytest

from adapters.acp.memory import memory_pair
from adapters_tests.acp.wire import SECONDS

pytestmark = pytest.mark.anyio


async def test_bytes_go_both_ways() -> None:
    ours, theirs = memory_pair()
    with anyio.fail_after(SECONDS):
        await ours.send(b"ab")
        await ours.send(b"c")
        await theirs.send(b"d")
        assert (await theirs.receive(), await ours.receive()) == (b"abc", b"d")


async def test_a_peer_that_does_not_read_holds_the_sender() -> None:
    ours, theirs = memory_pair(10)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ours.send, b"x" * 25)
            await anyio.wait_all_tasks_blocked()
            assert [len(await theirs.receive()) for _ in range(3)] == [10, 10, 5]


async def test_closing_ends_both_directions() -> None:
    """What was sent before can still be read, as from a pipe."""
    ours, theirs = memory_pair()
    with anyio.fail_after(SECONDS):
        await ours.send(b"last")
        await ours.aclose()
        assert [await theirs.receive(), await theirs.receive()] == [b"last", b""]
        with pytest.raises(anyio.BrokenResourceError):
            await theirs.send(b"x")
        with pytest.raises(anyio.BrokenResourceError):
            await ours.send(b"x")
        assert await ours.receive() == b""


async def test_one_direction_can_end_alone() -> None:
    ours, theirs = memory_pair()
    with anyio.fail_after(SECONDS):
        ours.send_eof()
        assert await theirs.receive() == b""
        await theirs.send(b"answer")
        assert await ours.receive() == b"answer"


@pytest.mark.parametrize("waiting", ["sender", "receiver"])
async def test_closing_wakes_whoever_waits(waiting: str) -> None:
    ours, theirs = memory_pair(10)
    seen: list[object] = []

    async def send() -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await ours.send(b"x" * 25)
        seen.append("broken")

    async def receive() -> None:
        seen.append(await ours.receive())

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send if waiting == "sender" else receive)
            await anyio.wait_all_tasks_blocked()
            await theirs.aclose()
    assert seen == ["broken" if waiting == "sender" else b""]
