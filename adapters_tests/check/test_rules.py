"""Every rule of the check can say "held" and "broken": a conformant agent in memory, and the same one with planted faults."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from adapters.check.bench import Bench
from adapters.check.catalogue import CATALOGUE, rules
from adapters.check.run import Runner
from adapters.check.verdict import Outcome
from adapters_tests.check.agent import Fault, MemoryLauncher, PlayedStage
from adapters_tests.check.faults import FAULTS, Planted

pytestmark = pytest.mark.anyio


async def check(folder: Path, fault: type[Fault], chosen: frozenset[str] | None, bound: float) -> dict[str, Outcome]:
    stage = PlayedStage()
    bench = Bench(MemoryLauncher(stage, fault), stage, folder, bound)
    with anyio.fail_after(300):
        outcomes = await Runner(bench, CATALOGUE, chosen).run(lambda _: None)
    return {outcome.rule.id: outcome for outcome in outcomes}


async def test_a_conformant_agent_breaks_no_rule(tmp_path: Path) -> None:
    outcomes = await check(tmp_path, Fault, None, 20)
    assert [rule.id for rule in rules()] == list(outcomes)
    assert {name: (o.reason, o.shown) for name, o in outcomes.items() if o.standing == "broken"} == {}
    beside = {name for name, outcome in outcomes.items() if outcome.standing == "not applicable"}
    assert beside == {"INIT-13", "CFG-5", "CFG-6", "CFG-2", "CMD-1", "STATE-9"}


@pytest.mark.parametrize("planted", FAULTS, ids=lambda planted: planted.fault.__name__)
async def test_a_planted_fault_breaks_its_rules(tmp_path: Path, planted: Planted) -> None:
    bound = 1.0 if planted.silent else 20.0
    outcomes = await check(tmp_path, planted.fault, frozenset((*planted.breaks, *planted.beside)), bound)
    wrong = {name: (outcomes[name].standing, outcomes[name].reason) for name in planted.breaks if name in outcomes}
    assert {name: standing for name, (standing, _) in wrong.items()} == dict.fromkeys(planted.breaks, "broken"), wrong
    for name in planted.breaks:
        assert outcomes[name].reason
        assert "\n" not in outcomes[name].reason


def test_every_rule_is_broken_by_some_fault() -> None:
    broken = {name for planted in FAULTS for name in planted.breaks}
    assert {rule.id for rule in rules()} - broken == set()
    assert broken - {rule.id for rule in rules()} == set()
