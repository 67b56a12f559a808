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


def one_of_each_kind(scenario: str, labels: list[str]) -> list[Point]:
    """The same places every time, as far as the run has the same operations."""
    random = Random(scenario)
    by_kind: dict[str, list[Point]] = {}
    for point in points_of(scenario, labels):
        # The last operations come after the answer, when the agent is about to end: it may not get there.
        if point.at < len(labels) * 0.8 and point.kind in PLAYED[scenario]:
            by_kind.setdefault(point.kind, []).append(point)
    return [random.choice(points) for points in by_kind.values()]


@pytest.mark.parametrize("scenario", PLAYED)
async def test_a_fault_of_each_kind(rig: Rig, scenario: str) -> None:
    """E9, E10, E11, E43, KEY-11, D2, D5, D6, D7: nothing doubled, nothing acknowledged lost, no request without an answer."""
    bench = Bench(rig)
    points = one_of_each_kind(scenario, await bench.operations(scenario))
    results = [await bench.play(point) for point in points]
    assert [f"{result.point}: {fault}" for result in results for fault in result.faults] == []
    assert sum(bool(result.hit) for result in results) >= len(results) * 0.6, "most faults were met"
