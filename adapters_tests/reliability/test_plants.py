"""Faults planted in a copy of the agent are caught by the judge of the soak; without them the same steps pass."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability.plants import PACKAGE, PLANTS, plant_in, planted_copy
from adapters_tests.reliability.walk import BrokenPromiseError, Walk
from adapters_tests.reliability.worlds import WORLDS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_plant_replaces_is_in_the_product_once(name: str, tmp_path: Path) -> None:
    """So that a plant that the product has left behind shows itself without a runtime; what it makes is Python."""
    for file in {change.file for change in PLANTS[name].changes}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / file, tmp_path / file)
    plant_in(tmp_path, name)
    for path in tmp_path.rglob("*.py"):
        compile(path.read_text(), path, "exec")


_TRIES = 3
"""Histories in which a fault is to be caught: whether the steps meet it is up to the runtime's timing as well."""


@pytest.mark.parametrize("name", PLANTS)
async def test_a_planted_fault_is_caught(rig: Rig, name: str, tmp_path: Path) -> None:
    """The plant's own steps break the promise that it breaks."""
    plant = PLANTS[name]
    if rig.runtime.name not in plant.runtimes:
        pytest.skip("this fault is one of the other runtime's driver")
    if lacking := WORLDS[plant.world].needs():
        pytest.skip(lacking)
    rig.extra_env["PYTHONPATH"] = str(planted_copy(tmp_path / "copy", name))
    caught = ""
    for number in range(_TRIES):
        try:
            await Walk(rig, f"plant {name} {number}", world=plant.world, obliging=True).play(
                plant.times * plant.steps.split()
            )
        except BrokenPromiseError as error:
            caught = str(error)
            break
    assert plant.says in caught


@pytest.mark.parametrize("world", sorted({plant.world for plant in PLANTS.values()}))
async def test_without_a_fault_the_same_steps_pass(rig: Rig, world: str) -> None:
    """Each plant's once, in one home. Else the test above would prove nothing."""
    plants = [plant for plant in PLANTS.values() if plant.world == world and rig.runtime.name in plant.runtimes]
    if not plants:
        pytest.skip("no fault of this runtime's driver is planted in this world")
    if lacking := WORLDS[world].needs():
        pytest.skip(lacking)
    steps = [step for plant in plants for step in plant.steps.split()]
    await Walk(rig, f"no plant in {world}", world=world, obliging=True).play(steps)
