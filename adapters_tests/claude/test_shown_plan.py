"""A plan is approved as it was shown, or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.claude.shown_plan import Plans, ShownPlan


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    folder = tmp_path / "plans"
    folder.mkdir()
    return Plans(folder, lambda: None)


def shown(path: Path, text: str) -> ShownPlan:
    return ShownPlan.of({"plan": text, "planFilePath": str(path)})


@pytest.mark.parametrize("text", ["# Plan\n", "a\r\nb", "", "é\u2028\N{GRINNING FACE}", "no newline"])
def test_a_plan_stands_while_its_file_is_as_it_was_shown(plans: Path, text: str) -> None:
    path = plans.folder / "a plan.md"
    path.write_bytes(text.encode())
    assert shown(path, text).stands(plans)
    path.write_bytes((text + " and more").encode())
    assert not shown(path, text).stands(plans)
    path.unlink()
    assert not shown(path, text).stands(plans)


def test_what_cannot_be_read_does_not_stand(plans: Plans) -> None:
    os.mkfifo(plans.folder / "pipe.md")
    assert not shown(plans.folder / "pipe.md", "x").stands(plans)
    assert not shown(plans.folder, "x").stands(plans)


def test_no_plan_stands_until_one_is_written(plans: Plans) -> None:
    old = plans.folder / "of another session.md"
    old.write_text("x")
    os.utime(old, (1, 1))
    later = old.stat().st_ctime + 10
    nothing = replace(ShownPlan.of({}), asked_at=later)
    assert nothing.stands(plans)
    assert nothing.stands(replace(plans, folder=plans.folder / "no such folder"))
    new = plans.folder / "new.md"
    new.write_text("x")
    os.utime(new, (later, later))
    assert not nothing.stands(plans)


def test_an_older_file_that_is_moved_there_is_a_plan_too(plans: Plans, tmp_path: Path) -> None:
    older = tmp_path / "older.md"
    older.write_text("x")
    os.utime(older, (1, 1))
    nothing = ShownPlan.of({})
    older.rename(plans.folder / "moved.md")
    assert not nothing.stands(plans)


def test_no_plan_stands_until_the_file_that_the_session_names_has_one(plans: Plans, tmp_path: Path) -> None:
    """Whatever the folder is, and whatever other sessions write meanwhile; what the model says names nothing."""
    path = tmp_path / "elsewhere" / "a plan.md"
    transcript = tmp_path / "s.jsonl"
    said = {"type": "tool_use", "name": "ExitPlanMode", "input": {"planFilePath": "/etc/hostname", "x": "plan_mode"}}
    entries = [
        {"type": "attachment", "attachment": {"type": "plan_mode", "planFilePath": "/etc/hostname"}},
        {"type": "attachment", "attachment": {"type": "plan_mode", "planFilePath": str(path)}},
        {"type": "assistant", "message": {"content": [said]}},
        {"type": "attachment", "attachment": {"type": "plan_mode_reentry"}},
    ]
    transcript.write_text("".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries))
    plans = replace(plans, transcript=lambda: transcript)
    nothing = ShownPlan.of({})
    (plans.folder / "of another session.md").write_text("x")
    assert nothing.stands(plans)
    path.parent.mkdir()
    path.write_text(" \n")
    assert nothing.stands(plans)
    path.write_text("x")
    os.utime(path, (1, 1))
    assert not nothing.stands(plans)


def test_a_byte_order_mark_is_no_change(plans: Plans) -> None:
    """Claude Code shows it as a part of the text."""
    path = plans.folder / "marked.md"
    path.write_bytes(b"\xef\xbb\xbfplan")
    assert shown(path, "\ufeffplan").stands(plans)
    assert shown(path, "plan").stands(plans)
