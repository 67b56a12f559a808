"""What an app-server is started with: the binary, its arguments, its environment. Owns Codex's variables except its home.

Imports nothing heavy: `codex_cli_bin` is found without importing it. Starts nothing. `CODEX_HOME` and the configuration in it
belong to the user and are not changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from adapters.core.port import Features
from adapters.driver.executable import Executable, Found

FEATURES: Final = Features(
    image=True, embedded_context=True, additional_directories=True, delete=True, mcp_stdio=True, mcp_http=True
)
"""What the sessions of Codex support."""

EXECUTABLE: Final = "CODEX_PATH"
"""Names another `codex` than the one of openai-codex-cli-bin: a path, or a name on PATH."""

TESTED: Final = "0.163.0"
"""The version that this agent is tested with."""

ARGUMENTS: Final[Sequence[str]] = ("app-server", "-c", "thread_unload_delay_secs=0")
"""Stdio is the default transport; everything else is the user's configuration. No secret: anybody can read arguments.

A thread that no session has any more is given back at once, not after half an hour (0.163.0; older versions pass it over).
"""

_INSIDE: Final = "CODEX_THREAD_ID"
_LEFT_BY_ANOTHER: Final = frozenset(
    {
        _INSIDE, "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID", "CODEX_VERSION",
    }
)  # fmt: skip
"""Variables that Codex sets for its commands (0.163.0). Left out, or our Codex would count as one of them."""


_PROGRAM: Final = Executable(
    runtime="Codex",
    command="codex",
    variable=EXECUTABLE,
    distribution="openai-codex-cli-bin",
    package="codex_cli_bin",
    bundled="bin/codex.exe" if os.name == "nt" else "bin/codex",
)


def find_codex(environ: Mapping[str, str]) -> Found | None:
    """The Codex to start, None when there is none."""
    return _PROGRAM.find(environ)


def missing_text(environ: Mapping[str, str]) -> str:
    """Why `find_codex` found none, and what to do."""
    return _PROGRAM.missing_text(environ)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, whole, without what another Codex left in it."""
    dropped = _LEFT_BY_ANOTHER if _INSIDE in environ else frozenset[str]()
    return {name: value for name, value in environ.items() if name not in dropped}
