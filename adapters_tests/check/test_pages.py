"""What the pages say of the check is so: every rule is in the generated tables, our agents break none, the counts are right."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.check.catalogue import rules

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- bench/conformance.py writes from here -->", "<!-- to here -->"


def section() -> list[str]:
    page = (DOCS / "conformance.md").read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    return page.partition(BEGIN)[2].partition(END)[0].splitlines()


def table() -> list[list[str]]:
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in section() if line.startswith("| ")
    ]
    return [row for row in rows if row[0] != "Rule"]


def test_every_rule_is_in_the_tables_once_and_in_order() -> None:
    """Fails after a rule was added or reworded: run `bench/conformance.py` again."""
    wanted = [(rule.id, f"{rule.sentence}{' (should)' if rule.level == 'should' else ''}") for rule in rules()]
    assert [(row[0], row[1]) for row in table()] == wanted


def test_every_cell_says_how_it_stands() -> None:
    for row in table():
        assert len(row) == 2 + 4, row
        assert set(row[2:]) <= {"held", "**broken**", "no", "-"}, row


def test_our_own_agents_break_no_rule() -> None:
    """Their columns are the first two; what they are not held to has a reason below the tables."""
    reasons = "\n".join(section())
    for rule, _, *standings in table():
        for name, standing in zip(("acp-adapters claude", "acp-adapters codex"), standings, strict=False):
            assert standing in ("held", "-"), (rule, name)
            assert standing == "held" or f"* {name}, {rule}: " in reasons, (rule, name)


def test_the_page_of_the_check_counts_its_rules() -> None:
    text = (DOCS / "check.md").read_text(encoding="utf-8")
    assert f"each of {len(list(rules()))} rules" in text.replace("\n", " ")


def test_no_page_names_a_folder_or_an_id_of_one_run() -> None:
    text = "\n".join(section())
    assert not re.search(r"(?<![\w.$])/\w+/\w|[0-9a-f]{8}-[0-9a-f]{4}-", text)
