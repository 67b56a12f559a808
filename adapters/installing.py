"""The shell command that adds a package to the agent's own environment, for each kind of environment.

`acp-adapters` is on no package index, so its extras cannot be requested there. The packages that the extras name can.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def install_command(package: str) -> str:
    """The shell command that adds the package, for each way of installing this agent. Reads files, changes nothing."""
    prefix = Path(sys.prefix)
    python = shlex.quote(sys.executable or "python3")
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(prefix.name)} {package}"
    with_uv = f"uv pip install --python {python} {package}"
    if (prefix / "uv-receipt.toml").exists():
        return with_uv
    if find_spec("pip"):
        return f"{python} -m pip install {_option()}{package}"
    if shutil.which("uv") or not find_spec("ensurepip"):
        return with_uv
    return f"{python} -m ensurepip && {python} -m pip install {package}"


def _option() -> str:
    """The pip option for a system's own Python in which the agent was installed all the same (PEP 668)."""
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")  # noqa: PTH118
    managed = sys.prefix == sys.base_prefix and os.path.exists(marker)  # noqa: PTH110
    return "--break-system-packages " if managed else ""
