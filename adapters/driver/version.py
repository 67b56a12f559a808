"""Versions of a runtime's program: how to read them, and the error text for a program that is too old.

Knows no runtime. The program is asked only after something went wrong: asking takes time and may hang.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

__all__ = [
    "lacking",
    "numbers",
    "version_of",
]

_BOUND: Final = 5.0
"""Seconds for an answer (measured: 0.02 to 0.1)."""
_NUMBER: Final = re.compile(r"\d+\.\d+\.\d+")


def numbers(version: str) -> tuple[int, ...]:
    """A version so that it can be compared; empty, and older than any other, where there is none in the text."""
    found = _NUMBER.search(version)
    return tuple(map(int, found[0].split("."))) if found else ()


async def version_of(program: Path, environ: Mapping[str, str]) -> str:
    """The number that `--version` prints; empty when there is none within a bound."""
    with anyio.move_on_after(_BOUND):
        try:
            ran = await anyio.run_process(
                [str(program), "--version"], env=environ, stdin=subprocess.DEVNULL, check=False, start_new_session=True
            )
        except OSError:
            return ""
        found = _NUMBER.search(ran.stdout.decode("utf-8", "replace"))
        return found[0] if found else ""
    return ""


def lacking(runtime: str, version: str, tested: str, what: str) -> str:
    """About a program that refuses what the agent asks of it: `what`. `version` may be empty. Has no full stop."""
    found = f"{runtime} {version}" if version else f"{runtime} of unknown version"
    step = "choose the tested one" if version and numbers(version) >= numbers(tested) else "update it"
    return f"{found} lacks what this agent needs ({what}): {step}; the agent is tested with {runtime} {tested}"
