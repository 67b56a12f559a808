"""A short soak: random histories with everything in them. The long one is `bench/soak.py`."""

from __future__ import annotations

from random import Random

import pytest

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability.walk import STEPS, Walk
from adapters_tests.reliability.worlds import WORLDS, steps_of, world_of, worlds_of

pytestmark = pytest.mark.anyio

HISTORIES = (1, 2)
LENGTH = 20


@pytest.mark.parametrize("number", HISTORIES)
async def test_a_random_history(rig: Rig, number: int) -> None:
    """KEY-10..KEY-22, KEY-40, KEY-42, ERR-5, PROMPT-16, PROMPT-23, D2..D7: see `history.faults_of`."""
    tally = await Walk(rig, f"suite.{number}").run(LENGTH)
    assert tally.steps.total() == LENGTH


async def test_every_step_is_played(rig: Rig) -> None:
    """What a random history may leave out: each step once, in the order of the table."""
    await Walk(rig, "every step").play(STEPS)


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "plain"])
async def test_every_step_of_a_world_is_played(rig: Rig, world: str) -> None:
    """Each once, with a prompt behind it; then a prompt behind the death of agent and runtime. `bench/soak.py` repeats them."""
    if rig.runtime.name not in WORLDS[world].runtimes:
        pytest.skip("this runtime has nothing of the kind")
    if lacking := WORLDS[world].needs():
        pytest.skip(lacking)
    steps = [step for name in WORLDS[world].steps for step in (name, "submit")]
    await Walk(rig, f"every step of {world}", world=world).play(
        [*steps, "settle", "kill_both", "settle", "submit", "settle"]
    )


def test_a_seed_chooses_the_world() -> None:
    names = worlds_of("claude")
    chosen = [world_of(f"7.{number}", names) for number in range(60)]
    assert chosen == [world_of(f"7.{number}", names) for number in range(60)]
    assert set(chosen) == set(names)


def test_a_world_adds_its_steps_and_changes_no_plain_history() -> None:
    plain = steps_of("7.1", 50, STEPS, WORLDS["plain"])
    assert set(plain) <= set(STEPS)
    assert plain == Random("steps of 7.1").choices(list(STEPS), list(STEPS.values()), k=50)
    for world in WORLDS.values():
        assert set(world.steps) <= set(steps_of("7.1", 2000, STEPS, world))


def test_a_seed_gives_the_same_steps_again() -> None:
    first, second, other = (steps_of(seed, 50, STEPS, WORLDS["plain"]) for seed in ("7.1", "7.1", "7.2"))
    assert first == second != other
