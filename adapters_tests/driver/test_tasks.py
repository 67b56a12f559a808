"""The tasks of a session: bounded waiting, failures that stay alone, an end that leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from adapters.driver.tasks import Tasks

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running() -> AsyncIterator[Tasks]:
    tasks = Tasks("s")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            await group.start(tasks.run)
            yield tasks
            tasks.end()


async def test_a_change_wakes_everybody_who_waits() -> None:
    state = {"n": 0}
    seen: list[int] = []
    async with running() as tasks:

        async def wait_for(number: int) -> None:
            assert await tasks.until(lambda: state["n"] >= number)
            seen.append(number)

        for number in (2, 1, 1):
            tasks.start(wait_for, number)
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            state["n"] += 1
            tasks.changed()
        await anyio.wait_all_tasks_blocked()
    assert seen == [1, 1, 2]


async def test_waiting_is_bounded() -> None:
    """Also where changes come that are not the one waited for."""
    async with running() as tasks:

        async def change() -> None:
            while True:
                tasks.changed()
                await anyio.lowlevel.checkpoint()

        tasks.start(change)
        assert not await tasks.until(lambda: False, 0.05)
        assert await tasks.until(lambda: True, 0)


async def test_a_failure_takes_nobody_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    """It is logged by its kind: the text can hold what a user wrote."""

    async def fail(text: str) -> None:
        raise ValueError(text)

    async with running() as tasks:
        over = anyio.Event()
        tasks.start(fail, "secret words")
        tasks.start(partial(fail, "secret words"))

        async def go_on() -> None:
            await anyio.wait_all_tasks_blocked()
            over.set()

        tasks.start(go_on)
        await over.wait()
    said = capsys.readouterr().err
    assert said.count("ValueError") == 2
    assert "secret" not in said


async def test_the_end_cancels_what_runs_and_is_waited_for() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            cleaned.append("work")

    async with running() as tasks:
        tasks.start(work)
        await anyio.wait_all_tasks_blocked()
        assert not tasks.ending
        tasks.end()
        assert tasks.ending
        await tasks.wait_ended()
        assert tasks.ended
        assert cleaned == ["work"]
