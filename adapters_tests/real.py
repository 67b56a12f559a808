"""Which tests start a real runtime: those that use the fixture `runtime`, and those that say so by the mark `real`.

Every other test is held to it: a command that would start one is refused before it runs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

FIXTURE = "runtime"
"""All fixtures that start a runtime are made with it."""

_BINARIES = ("/claude_agent_sdk/_bundled/claude", "/codex_cli_bin/bin/codex")

_CHOSEN_BY = {"claude": "CLAUDE_CODE_EXECUTABLE", "codex": "CODEX_PATH"}
"""Runtime -> the variable that has our agent start another program in its place."""


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that are given a runtime."""
    for item in items:
        if FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)


def place(item: pytest.Item) -> int:
    """Where a test comes: the longest first, so that at the end no worker sits with one of them while the others are idle."""
    if item.get_closest_marker("real") is None:
        return 2
    return 0 if "reliability" in item.path.parts else 1


def starts_one(command: Sequence[Any], env: Mapping[str, str]) -> bool:
    """Whether this is the program of a runtime, or our own command that starts it."""
    words = [os.fsdecode(word) for word in command]
    if any(word.endswith(_BINARIES) for word in words):
        return True
    if "adapters" not in words or {"-h", "--help", "--version"} & set(words):
        return False
    called, *more = [*words[words.index("adapters") + 1 :], ""]
    if called == "demo":
        return more[0] in ("", *_CHOSEN_BY)
    return called in _CHOSEN_BY and _CHOSEN_BY[called] not in env


def refuse(patch: pytest.MonkeyPatch) -> None:
    """Let no runtime be started from here on."""
    start = subprocess.Popen.__init__

    def checked(self: Any, args: Any, *more: Any, **options: Any) -> None:
        command = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        if starts_one(command, options.get("env") or os.environ):
            pytest.fail(f"a test without the mark `real` starts a runtime: {command}")
        start(self, args, *more, **options)

    patch.setattr(subprocess.Popen, "__init__", checked)
