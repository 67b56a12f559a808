"""The recordings in `fixtures/` hold nothing of the machine they were made on, nor the vendors' prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = [path for runtime in ("claude", "codex") for path in sorted((FIXTURES / runtime).rglob("*.json*"))]
MACHINE = re.compile(
    r"(?<!/fixture)/(?:tmp|home|root|work|Users|usr/lib)/|site-packages|127\.0\.0\.1:\d|(?:sk|key)-[A-Za-z0-9]{20}"
)
"""Paths of a machine, a port, a key. The temporary folder is called /fixture."""
LONGEST_TEXT = 4000
"""Characters; the longest text of the scenarios is far below it, a vendor's prompt far above."""


def texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    return [text for inner in value for text in texts(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("runtime", ["claude", "codex"])
def test_every_scenario_is_whole(runtime: str) -> None:
    folders = [path for path in (FIXTURES / runtime).iterdir() if path.is_dir()]
    assert len(folders) > 10
    names = {frozenset(file.name for file in folder.iterdir()) for folder in folders}
    assert len(names) == 1
    versions = {json.loads((folder / "scenario.json").read_text(encoding="utf-8"))["version"] for folder in folders}
    assert len(versions) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: "-".join(file.relative_to(FIXTURES).parts))
def test_a_recording_is_redacted(file: Path) -> None:
    whole = file.read_text(encoding="utf-8")
    assert MACHINE.search(whole) is None
    values = (
        [json.loads(line) for line in whole.split("\n") if line] if file.suffix == ".jsonl" else [json.loads(whole)]
    )
    assert max((len(text) for text in texts(values)), default=0) < LONGEST_TEXT
