"""The agent of docs/own-agent.md, as it stands there, under the conformance check."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import adapters

ROOT = Path(adapters.__file__).parents[1]


def test_the_documented_agent_breaks_no_rule(tmp_path: Path) -> None:
    """Traces 1, 2, 3 and 6, two agents on one session, and whatever else can be looked at without a scripted model."""
    (program,) = re.findall(
        r"```python echo_agent\.py\n(.*?)```", (ROOT / "docs" / "own-agent.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "echo_agent.py").write_text(program)
    (tmp_path / "sessions").mkdir()
    agent = [sys.executable, str(tmp_path / "echo_agent.py"), str(tmp_path / "sessions")]
    ran = subprocess.run(
        [sys.executable, "-m", "adapters", "check", "--prompts", "--json", "--", *agent],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        check=False,
    )
    rules = {row["id"]: row["standing"] for row in json.loads(ran.stdout)["rules"]}
    assert [rule for rule, standing in rules.items() if standing == "broken"] == []
    traces = ("TRACE-1", "TRACE-2", "TRACE-3", "TRACE-3b", "TRACE-6", "E1", "E9", "E45")
    assert {rules[rule] for rule in traces} == {"held"}
    assert ran.returncode == 0
