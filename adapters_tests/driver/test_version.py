"""Versions of programs: what they are, how they are asked for, and what is said of one that lacks something."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from adapters.driver import version
from adapters.driver.version import lacking, numbers, version_of

pytestmark = pytest.mark.anyio


def test_versions_are_compared_by_their_numbers() -> None:
    assert numbers("2.1.9") < numbers("2.1.10 (Claude Code)") < numbers("codex-cli 10.0.0-alpha.1")
    assert numbers("none") < numbers("0.0.0")


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo 'the program 1.22.333 (x)'", "1.22.333"),
        ("echo 'program 1.2'", ""),
        ("echo 1.2.3; exit 1", "1.2.3"),
        ("exit 3", ""),
        ("exec sleep 60", ""),
    ],
)
async def test_a_program_is_asked_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, answer: str
) -> None:
    monkeypatch.setattr(version, "_BOUND", 0.2 if "sleep" in script else 20)
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with anyio.fail_after(30):
        assert await version_of(path, {"PATH": os.environ["PATH"]}) == answer
    assert await version_of(tmp_path / "nothing", {}) == ""


def test_what_is_said_names_both_versions_and_the_next_step() -> None:
    tested = "the agent is tested with Prog 2.0.0"
    assert lacking("Prog", "1.9.9", "2.0.0", "x") == f"Prog 1.9.9 lacks what this agent needs (x): update it; {tested}"
    assert "Prog 2.1.0 lacks" in lacking("Prog", "2.1.0", "2.0.0", "x")
    assert "choose the tested one" in lacking("Prog", "2.1.0", "2.0.0", "x")
    assert lacking("Prog", "", "2.0.0", "x").startswith("Prog of unknown version lacks")
