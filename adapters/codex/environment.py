"""What an app-server is started with: the binary, its arguments, its environment. Owns Codex's variables.

Imports nothing heavy: `codex_cli_bin` is only looked for. Starts nothing. `CODEX_HOME` and the configuration in it are the
user's and stay as they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from adapters.core.runtime import Features

FEATURES: Final = Features(
    image=True, embedded_context=True, additional_directories=True, delete=True, mcp_stdio=True, mcp_http=True
)
"""What sessions of Codex can be given."""

EXECUTABLE: Final = "CODEX_PATH"
"""Names another `codex` than the one of openai-codex-cli-bin: a path, or a name on PATH."""

ARGUMENTS: Final[Sequence[str]] = ("app-server",)
"""Stdio is the default transport; everything else is the user's configuration. No secret: anybody can read arguments."""

_INSIDE: Final = "CODEX_THREAD_ID"
_LEFT_BY_ANOTHER: Final = frozenset(
    {
        _INSIDE, "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID", "CODEX_VERSION",
    }
)  # fmt: skip
"""What a Codex tells its own commands (0.163.0). Where one runs around us, ours must not be taken for its child."""


@dataclass(frozen=True, slots=True)
class Found:
    """A Codex binary."""

    path: Path
    source: str
    """Where it was found: CODEX_PATH, openai-codex-cli-bin or PATH."""


def find_codex(environ: Mapping[str, str]) -> Found | None:
    """The Codex to start: the chosen one, else the one that openai-codex-cli-bin brings, else `codex` on PATH.

    None when there is none, and when the chosen one cannot be run (nothing is started in its place).
    """
    search = environ.get("PATH", os.defpath)
    if chosen := environ.get(EXECUTABLE):
        path = shutil.which(chosen, path=search)
        return Found(Path(path).absolute(), EXECUTABLE) if path else None
    spec = find_spec("codex_cli_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder) / "bin" / ("codex.exe" if os.name == "nt" else "codex")
        if os.access(bundled, os.X_OK):
            return Found(bundled, "openai-codex-cli-bin")
    path = shutil.which("codex", path=search)
    return Found(Path(path).absolute(), "PATH") if path else None


def missing_text(environ: Mapping[str, str]) -> str:
    """Why `find_codex` found none, and what to do."""
    if environ.get(EXECUTABLE):
        return f"{EXECUTABLE} names no program that can be run: correct it, or unset it."
    return f"Codex is not installed: run  pip install 'acp-adapters[codex]'  or set {EXECUTABLE} to it."


def codex_home(environ: Mapping[str, str]) -> Path:
    """Where Codex keeps its configuration and stored sessions."""
    chosen = environ.get("CODEX_HOME")
    return Path(chosen) if chosen else Path(environ.get("HOME") or Path.home()) / ".codex"


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, whole, without what another Codex left in it."""
    dropped = _LEFT_BY_ANOTHER if _INSIDE in environ else frozenset[str]()
    return {name: value for name, value in environ.items() if name not in dropped}
