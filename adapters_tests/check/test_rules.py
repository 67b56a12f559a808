"""Every rule of the check can say "held" and "broken": a conformant agent in memory, and the same one with planted faults."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from adapters.check import report
from adapters.check.bench import Bench
from adapters.check.catalogue import CATALOGUE, rules
from adapters.check.rules import handshake
from adapters.check.run import Runner
from adapters.check.stage import FreeStage
from adapters.check.verdict import Need, Outcome, Rule, Section
from adapters.installing import install_command
from adapters_tests.check.agent import Fault, MemoryLauncher, PlayedStage
from adapters_tests.check.faults import FAULTS, KnowsNoKeys, Planted

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


async def test_with_a_model_of_its_own_nothing_is_blamed_that_could_not_be_arranged(tmp_path: Path) -> None:
    """The played agent ends all work at once, so no work can be met while it runs; nobody counts model calls."""
    bench = Bench(MemoryLauncher(PlayedStage()), FreeStage(), tmp_path, 20)
    with anyio.fail_after(300):
        outcomes = await Runner(bench, CATALOGUE).run(lambda _: None)
    assert {o.rule.id: (o.reason, o.shown) for o in outcomes if o.standing == "broken"} == {}
    reasons = {outcome.rule.id: outcome.reason for outcome in outcomes}
    assert reasons["CANCEL-2"] == "the work ended before the rule could be checked: try --scripted"
    assert reasons["PERM-1"].startswith("needs --scripted")
    assert [outcome.rule.id for outcome in outcomes if outcome.undecided] == []
    assert "Model calls were not counted" in " ".join(report.remarks(outcomes, bench))


async def test_an_agent_that_ignores_keys_is_said_to_ignore_them(tmp_path: Path) -> None:
    """The counts alone would say that it is broken in many ways; it has one gap."""
    stage = PlayedStage()
    bench = Bench(MemoryLauncher(stage, KnowsNoKeys), stage, tmp_path, 20)
    outcomes = await Runner(bench, CATALOGUE, frozenset({"KEY-4", "TRACE-1"})).run(lambda _: None)
    assert report.reads_keys(outcomes) is False
    assert report.reads_keys(outcomes[:1]) is None
    assert "ignores idempotencyKey" in report.remarks(outcomes, bench)[0]


async def test_without_a_validator_the_rule_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "adapters.check.wire", raising=False)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    outcomes = await check(tmp_path, Fault, frozenset({"UPD-7", "STDIO-1"}), 20)
    assert outcomes["STDIO-1"].standing == "held"
    assert outcomes["UPD-7"].standing == "not applicable"
    assert install_command("jsonschema") in outcomes["UPD-7"].reason


async def test_a_check_that_fails_itself_blames_nobody_and_is_no_success(tmp_path: Path) -> None:
    async def fails(_: Bench) -> None:
        raise KeyError("a mistake")

    rule = Rule("X-1", "A rule whose function is wrong", "nowhere", fails, Need.VERSION)
    stage = PlayedStage()
    bench = Bench(MemoryLauncher(stage), stage, tmp_path, 20)
    table = (Section("First", handshake.RULES[:1]), Section("Second", (rule,)))
    outcomes = await Runner(bench, table).run(lambda _: None)
    assert [(outcome.standing, outcome.undecided) for outcome in outcomes] == [
        ("held", False),
        ("not applicable", True),
    ]
    assert "the check itself failed (KeyError)" in outcomes[1].reason


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
