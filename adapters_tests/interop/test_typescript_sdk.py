"""The TypeScript SDK as a client: the example of docs/clients.md, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import adapters
from adapters_tests.interop.conftest import NODE, SDK

pytestmark = pytest.mark.real

ROOT = Path(adapters.__file__).parents[1]
PAGE = ROOT / "docs" / "clients.md"


@pytest.mark.parametrize("runtime", ["claude", "codex"])
def test_the_example_sends_a_key_twice_and_gets_one_message(node_modules: Path, runtime: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert SDK in text
    (program,) = re.findall(r"```ts chat\.mts\n(.*?)```", text, re.DOTALL)
    (node_modules / "chat.mts").write_text(program)
    with tempfile.TemporaryDirectory(prefix="aa-") as folder:
        (Path(folder) / ".git").mkdir()
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"default": ["Answer."]}))
        agent = [sys.executable, "-m", "adapters", runtime, "--scripted", str(script)]
        ran = subprocess.run(
            [str(NODE), str(node_modules / "chat.mts"), *agent],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=120,
            check=False,
        )
    assert ran.stdout.decode().splitlines() == ["reads keys: true", "one message"], ran.stderr.decode()
