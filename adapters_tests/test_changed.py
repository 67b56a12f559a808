"""changed.py: who waits is woken by each change, and never waits longer than its bound."""

from __future__ import annotations

import anyio
import pytest

from adapters.changed import Changed

pytestmark = pytest.mark.anyio


async def test_all_who_wait_are_woken_and_look_again() -> None:
    changed, state, seen = Changed(), {"n": 0}, list[int]()

    async def wait_for(number: int) -> None:
        assert await changed.until(lambda: state["n"] >= number)
        seen.append(number)

    async with anyio.create_task_group() as group:
        for number in (2, 1, 2):
            group.start_soon(wait_for, number)
        for number in (1, 2):
            await anyio.wait_all_tasks_blocked()
            state["n"] = number
            changed.notify()
    assert seen == [1, 2, 2]


async def test_a_change_that_nobody_waits_for_is_not_remembered() -> None:
    changed = Changed()
    changed.notify()
    with anyio.move_on_after(0.05) as scope:
        await changed.wait()
    assert scope.cancelled_caught


async def test_the_wait_ends_at_its_bound_with_the_last_value() -> None:
    changed = Changed()
    assert not await changed.until(lambda: False, 0.05)
    assert await changed.until(lambda: True, 0)
    with pytest.raises(TimeoutError):
        await changed.require(lambda: False, 0.05)


async def test_changes_without_end_do_not_hold_up_the_bound() -> None:
    changed = Changed()

    async def change_in_every_round() -> None:
        while True:
            changed.notify()
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(change_in_every_round)
        with anyio.fail_after(10):
            assert not await changed.until(lambda: False, 0.05)
        group.cancel_scope.cancel()
