"""The layers: who may import whom, and what must not be imported before `initialize` is answered (D10)."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adapters

ROOT = Path(adapters.__file__).parent
RUNTIMES = re.compile(r"claude|anthropic|codex|openai", re.IGNORECASE)

MAY_IMPORT = {
    "streams": {"streams"},
    "log": {"log", "streams"},
    "installing": set(),
    "changed": set(),
    "private_files": set(),
    "acp": {"acp", "changed", "log"},
    "core": {"core", "changed", "acp", "log", "installing"},
    "dialects": {"dialects", "core", "acp", "log"},
    "driver": {"driver", "changed", "core", "acp", "log", "installing"},
    "claude": {"claude", "driver", "core", "acp", "log", "private_files"},
    "codex": {"codex", "driver", "core", "acp", "log"},
    "client": {"client", "changed", "acp", "log", "private_files"},
    "scripted": {"scripted", "changed", "log", "streams"},
    "check": {"check", "client", "scripted", "acp", "log", "installing"},
}
"""Layer -> layers it may import. What is not named here is the frame (command line, doctor, demo): nobody imports it."""


def modules() -> Iterator[Path]:
    return (path for path in sorted(ROOT.rglob("*.py")) if "__pycache__" not in path.parts)


def layer_of(module: str) -> str:
    """`adapters.core.session` -> `core`; `adapters` itself -> `adapters`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """Every module of ours that the file imports anywhere, also in functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "adapters" else [module]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "adapters")


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in modules()])
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    layer = layer_of(name_of(path))
    for module in imported(path):
        if module == "adapters.__version__":
            continue
        target = layer_of(module)
        allowed = MAY_IMPORT.get(layer)
        if allowed is None:
            assert layer in {
                "adapters",
                "__main__",
                "cli",
                "command_line",
                "demo",
                "doctor",
                "inquiry",
                "plugins",
                "reaper",
                "reaper_main",
                "runtimes",
                "sources",
                "stdio_server",
            }, f"{layer} is a new layer: say in MAY_IMPORT what it may import"
        else:
            assert target in allowed, f"{name_of(path)} imports {module}"


def test_the_check_sees_an_import_upwards(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "def late():\n    from adapters.core.agent import Agent\n    import adapters.claude.cli.lock as lock\n"
    )
    assert sorted(imported(file)) == ["adapters.claude.cli.lock", "adapters.core.agent"]


@pytest.mark.parametrize("layer", ["acp", "core", "driver", "dialects"])
def test_the_neutral_layers_name_no_runtime(layer: str) -> None:
    named = [
        f"{name_of(path)}:{number}"
        for path in modules()
        if layer_of(name_of(path)) == layer
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if RUNTIMES.search(line)
    ]
    assert named == []


# --- what is loaded when ---------------------------------------------------------------------------------------------

HEAVY = ("pydantic", "claude_agent_sdk", "mcp", "logging.config", "argparse", "uuid_utils", "importlib.metadata")

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 2, "info": {"name": "test", "version": "1"}, "capabilities": {}},
}

WATCH = f"""
import os, sys
real, heavy = os.write, {HEAVY!r}
def write(descriptor, data):
    os.write = real
    print("loaded:", [name for name in heavy if name in sys.modules], file=sys.stderr, flush=True)
    return real(descriptor, data)
os.write = write
from adapters.cli import main
sys.exit(main(["claude"]))
"""
"""The agent, reporting at its first write to the client which heavy modules it has loaded."""


@pytest.mark.parametrize("version", [1, 2])
def test_initialize_is_answered_before_anything_heavy_is_imported(tmp_path: Path, version: int) -> None:
    """D10: models, the runtime's package and a parser of arguments are not loaded yet when the answer is written."""
    stub = tmp_path / "claude"  # is looked for at the start, not started
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CODE_EXECUTABLE": str(stub)}
    ran = subprocess.run(
        [sys.executable, "-c", WATCH],
        input=json.dumps({**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": version}}).encode()
        + b"\n",
        capture_output=True,
        env=environ,
        cwd=ROOT.parent,
        timeout=60,
        check=False,
    )
    assert json.loads(ran.stdout.splitlines()[0])["result"]["protocolVersion"] == version
    assert ran.stderr.decode().splitlines()[0] == "loaded: []"


def test_the_command_line_itself_loads_next_to_nothing() -> None:
    code = "import sys; import adapters.cli; print([m for m in ('anyio', 'asyncio', 'pydantic', 'json') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True, cwd=ROOT.parent)
    assert ran.stdout.decode().strip() == "[]"
