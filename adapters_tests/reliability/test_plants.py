"""Faults planted in a copy of the agent are caught by the judge of the soak; without them the same steps pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability.plants import PLANTS, planted_copy
from adapters_tests.reliability.walk import BrokenPromiseError, Walk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", PLANTS)
async def test_a_planted_fault_is_caught(rig: Rig, name: str, tmp_path: Path) -> None:
    """The plant's own steps break the promise that it breaks."""
    plant = PLANTS[name]
    if rig.runtime.name not in plant.runtimes:
        pytest.skip("this fault is one of the other runtime's driver")
    rig.extra_env["PYTHONPATH"] = str(planted_copy(tmp_path / "copy", name))
    with pytest.raises(BrokenPromiseError) as caught:
        await Walk(rig, f"plant {name}", obliging=True).play(plant.steps.split())
    assert plant.says in str(caught.value)


async def test_without_a_fault_the_same_steps_pass(rig: Rig) -> None:
    """Else the test above would prove nothing."""
    plants = [plant for plant in PLANTS.values() if rig.runtime.name in plant.runtimes]
    steps = [step for plant in plants for step in plant.steps.split()]
    await Walk(rig, "no plant", obliging=True).play(steps)
