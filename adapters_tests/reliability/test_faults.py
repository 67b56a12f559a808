"""A fault at an operation of a keyed prompt's way: one of each kind here, all of them by `bench/faults.py`."""

from __future__ import annotations

from random import Random

import pytest

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability.points import KINDS, Bench, Point, points_of

pytestmark = pytest.mark.anyio

PLAYED = {
    "resume": [kind for kind in KINDS if kind != "lost"],
    "fold": ["kill-agent", "kill-runtime", "doubled"],
    "new": ["kill-runtime", "closed"],
}
"""Kinds of faults by scenario. A lost line is left to the bench: it is waited for until a bound is over, which takes its time."""


WRITES = {"enospc", "enospc-on"}
"""Kinds that need a file which the agent writes: for Codex it writes none."""

_TRIES = 4
"""Points of a kind until the fault of one is met: the run with it may have fewer operations than the one that was counted."""


def some_of_each_kind(scenario: str, labels: list[str]) -> dict[str, list[Point]]:
    """The same places every time, as far as the run has the same operations."""
    random = Random(scenario)
    by_kind: dict[str, list[Point]] = {kind: [] for kind in PLAYED[scenario]}
    for point in points_of(scenario, labels):
        # The last operations come after the answer, when the agent is about to end: it may not get there.
        if point.at < len(labels) * 0.8 and point.kind in by_kind:
            by_kind[point.kind].append(point)
    return {kind: random.sample(points, min(_TRIES, len(points))) for kind, points in by_kind.items()}


@pytest.mark.parametrize("scenario", PLAYED)
async def test_a_fault_of_each_kind(rig: Rig, scenario: str) -> None:
    """E9, E10, E11, E43, KEY-11, D2, D5, D6, D7: nothing doubled, nothing acknowledged lost, no request without an answer."""
    bench = Bench(rig)
    faults: list[str] = []
    some = some_of_each_kind(scenario, await bench.operations(scenario))
    assert {kind for kind, points in some.items() if not points} <= (WRITES if rig.runtime.name == "codex" else set())
    missed = {kind for kind, points in some.items() if points}
    for points in some.values():
        for point in points:
            result = await bench.play(point)
            faults += [f"{point}: {fault}" for fault in result.faults]
            if result.hit:
                missed.remove(point.kind)
                break
    assert faults == []
    assert missed == set(), "a fault of each kind was met"
