"""A plan is approved as it was shown, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.claude.shown_plan import ShownPlan


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    folder = tmp_path / "plans"
    folder.mkdir()
    return folder


def shown(path: Path, text: str) -> ShownPlan:
    return ShownPlan.of({"plan": text, "planFilePath": str(path)})


@pytest.mark.parametrize("text", ["# Plan\n", "a\r\nb", "", "é\u2028\N{GRINNING FACE}", "no newline"])
def test_a_plan_stands_while_its_file_is_as_it_was_shown(plans: Path, text: str) -> None:
    path = plans / "a plan.md"
    path.write_bytes(text.encode())
    assert shown(path, text).stands(plans)
    path.write_bytes((text + " and more").encode())
    assert not shown(path, text).stands(plans)
    path.unlink()
    assert not shown(path, text).stands(plans)


def test_what_cannot_be_read_does_not_stand(plans: Path) -> None:
    os.mkfifo(plans / "pipe.md")
    assert not shown(plans / "pipe.md", "x").stands(plans)
    assert not shown(plans, "x").stands(plans)


def test_no_plan_stands_until_one_is_written(plans: Path) -> None:
    old = plans / "of another session.md"
    old.write_text("x")
    os.utime(old, (1, 1))
    nothing = ShownPlan.of({})
    assert nothing.stands(plans)
    assert nothing.stands(plans / "no such folder")
    (plans / "new.md").write_text("x")
    assert not nothing.stands(plans)
