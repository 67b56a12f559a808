"""`docs/conformance.md` is true: its tests exist and name the rules they stand beside; it knows every rule that a test names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "conformance.md"
STANDINGS = ("held", "choice", "not applicable", "not yet")
HEAD = "| Rule | What it asks | Claude Code | Codex | Tests |"
"""The tables of rules; others on the page are not read here."""
ELSEWHERE = {"Claude Code": ("codex/",), "Codex": ("claude/", "e2e/test_claude.py")}
"""Runtime -> tests that prove nothing for it. All others are about what both share, or run with both."""
REPORTED = re.compile(r"F\d+")
"""Ids of the faults that users reported; no docstring names them."""


@dataclass(frozen=True)
class Row:
    rule: str
    asks: str
    standings: tuple[str, ...]
    """One for each runtime, in the order of `ELSEWHERE`."""
    tests: tuple[str, ...]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


@cache
def rows() -> list[Row]:
    found: list[Row] = []
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        inside = line == HEAD or (inside and line.startswith("|"))
        if inside and line.startswith("| ") and line != HEAD:
            rule, asks, *standings, tests = cells(line)
            found.append(Row(rule, asks, tuple(standings), tuple(re.findall(r"`([^`]+)`", tests))))
    return found


@cache
def rule_pattern() -> re.Pattern[str]:
    """Rule ids in a text, with ranges: `KEY-3`, `E1..E8`, `REPLAY-1..4`, `KEY-10 to KEY-22`, `trace 3`."""
    prefixes = {re.sub(r"\d+$", "", row.rule) for row in rows() if not REPORTED.fullmatch(row.rule)}
    names = "|".join(sorted(map(re.escape, prefixes), key=len, reverse=True))
    return re.compile(rf"\b({names})(\d+)(?:(?:\.\.| to )(?:{names})?(\d+))?\b", re.IGNORECASE)


def rules_in(text: str | None) -> set[str]:
    found: set[str] = set()
    for prefix, first, last in rule_pattern().findall(text or ""):
        if prefix == prefix.upper() or prefix.lower() == "trace ":
            name = prefix.capitalize() if prefix.lower() == "trace " else prefix
            found |= {f"{name}{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def cases_in(body: list[ast.stmt], above: str) -> Iterator[tuple[str, str]]:
    """The tests of a module or a class with all the docstrings they stand under; a state machine is one test.

    One that is expected to fail proves nothing.
    """
    for node in body:
        if isinstance(node, ast.ClassDef):
            inner = f"{above}\n{ast.get_docstring(node) or ''}"
            if any(ast.unparse(base) == "RuleBasedStateMachine" for base in node.bases):
                yield node.name, inner
            yield from cases_in(node.body, inner)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            if any("xfail" in ast.unparse(decorator) for decorator in node.decorator_list):
                continue
            yield node.name, f"{above}\n{ast.get_docstring(node) or ''}"


@cache
def cases() -> dict[str, str]:
    """Every test, as `file::name`, with the text that says what it proves."""
    found: dict[str, str] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        name = file.relative_to(TESTS).as_posix()
        for test, text in cases_in(module.body, ast.get_docstring(module) or ""):
            found[f"{name}::{test}"] = text
    return found


def test_the_page_has_every_rule_once() -> None:
    counts = Counter(row.rule for row in rows())
    assert len(counts) > 300
    assert [rule for rule, count in counts.items() if count > 1] == []


def test_every_row_says_how_it_stands() -> None:
    for row in rows():
        assert row.asks, row.rule
        assert len(row.standings) == len(ELSEWHERE), row.rule
        for standing in row.standings:
            word, _, reason = standing.partition(": ")
            assert word in STANDINGS, row.rule
            assert reason or word == "held", f"{row.rule}: {word} without a reason"


@pytest.mark.parametrize("runtime", ELSEWHERE)
def test_what_is_held_is_proved_for_that_runtime(runtime: str) -> None:
    index = list(ELSEWHERE).index(runtime)
    held = [row for row in rows() if row.standings[index].partition(":")[0] == "held"]
    assert len(held) > 300
    unproved = [row.rule for row in held if all(test.startswith(ELSEWHERE[runtime]) for test in row.tests)]
    assert unproved == []


def test_the_tests_of_a_row_exist_and_name_its_rule() -> None:
    wrong: list[str] = []
    for row in rows():
        for test in row.tests:
            if test not in cases():
                wrong.append(f"{row.rule}: there is no {test}")
            elif not REPORTED.fullmatch(row.rule) and row.rule not in rules_in(cases()[test]):
                wrong.append(f"{row.rule}: {test} does not name it")
    assert wrong == []


def test_every_rule_that_a_test_names_is_on_the_page() -> None:
    known = {row.rule for row in rows()}
    named = {(rule, test) for test, text in cases().items() for rule in rules_in(text)}
    assert sorted((rule, test) for rule, test in named if rule not in known) == []


def test_rules_are_read_out_of_texts() -> None:
    text = "KEY-3, E1..E3, REPLAY-1..2: trace 7, and RPC-4 to RPC-6; not key-9, not E"
    assert rules_in(text) == {
        *("KEY-3", "E1", "E2", "E3", "REPLAY-1", "REPLAY-2", "Trace 7", "RPC-4", "RPC-5", "RPC-6"),
    }
