"""A short soak: random histories with everything in them. The long one is `bench/soak.py`."""

from __future__ import annotations

import pytest

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability.walk import STEPS, Walk

pytestmark = pytest.mark.anyio

HISTORIES = (1, 2, 3)
LENGTH = 20


@pytest.mark.parametrize("number", HISTORIES)
async def test_a_random_history(rig: Rig, number: int) -> None:
    """KEY-10..KEY-22, KEY-40, KEY-42, ERR-5, PROMPT-16, PROMPT-23, D2..D7: see `history.faults_of`."""
    tally = await Walk(rig, f"suite.{number}").run(LENGTH)
    assert tally.steps.total() == LENGTH


async def test_every_step_is_played(rig: Rig) -> None:
    """What a random history may leave out: each step once, in the order of the table."""
    await Walk(rig, "every step").play(STEPS)


def test_a_seed_gives_the_same_steps_again() -> None:
    first, second, other = (Walk.steps_of(seed, 50) for seed in ("7.1", "7.1", "7.2"))
    assert first == second != other
