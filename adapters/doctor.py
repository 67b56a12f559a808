"""`acp-adapters doctor`: which runtime an agent would start here, and what is missing.

Owns the checks and both forms of the report. Starts no session and opens no connection. Reports only presence and kind of a
login, in the runtime's own word or the name of a variable, never a value. Leaves no file behind: a runtime answers outside the
user's folders.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TextIO

from adapters import __version__
from adapters.command_line import wrapped
from adapters.plugins import FAILED, NOT_INSTALLED, OK, UNSURE, Check, load
from adapters.sources import fingerprint


def run_doctor(runtimes: Sequence[str], out: TextIO, *, as_json: bool = False, named: bool = True) -> int:
    """Check `runtimes` and print the report; 1 if something would not work, else 0.

    `named` tells that the user asked for these runtimes; otherwise one that is not installed is no failure beside one that is.
    """
    reports = {name: load(name).doctor(os.environ) for name in runtimes}
    if not named and not all(map(_is_missing, reports.values())):
        reports = {name: _as_optional(checks) for name, checks in reports.items()}
    healthy = all(check.status != FAILED for checks in reports.values() for check in checks)
    if as_json:
        value = {
            "version": __version__,
            "code": fingerprint(),
            "python": platform.python_version(),
            "ok": healthy,
            "runtimes": {
                name: {"ok": all(check.status != FAILED for check in checks), "checks": [_to_json(c) for c in checks]}
                for name, checks in reports.items()
            },
        }
        out.write(json.dumps(value, indent=2) + "\n")
    else:
        out.write(
            f"acp-adapters {__version__} (code {fingerprint()}), Python {platform.python_version()}, {platform.system()}\n"
        )
        out.writelines(f"\n{name}\n{''.join(map(_to_text, checks))}" for name, checks in reports.items())
        verdict = "No problems found." if healthy else "Problems found: see the lines marked [no]."
        out.write(f"\n{verdict}\n")
    out.flush()
    return 0 if healthy else 1


def _is_missing(checks: Sequence[Check]) -> bool:
    return checks[0].name == NOT_INSTALLED


def _as_optional(checks: Sequence[Check]) -> Sequence[Check]:
    """Of a runtime that nobody asked for and that is not installed, that alone."""
    return [replace(checks[0], status=UNSURE)] if _is_missing(checks) else checks


# --- the report ----------------------------------------------------------------------------------------------------------

_SIGNS: Final = {OK: "[ok]", UNSURE: "[??]", FAILED: "[no]"}


def _to_text(check: Check) -> str:
    finding = wrapped(f"  {_SIGNS[check.status]} {check.name}:", _words(check.detail))
    steps = [] if check.remedy is None else check.remedy.split("; ")
    return "".join(f"{line}\n" for line in (finding, *(wrapped("      ->", _words(step)).rstrip() for step in steps)))


def _words(text: str) -> list[str]:
    """The words, but a command that is set off by two blanks as one: it is copied, and would be two in two lines."""
    words: list[str] = []
    for place, part in enumerate(text.split("  ")):
        words += [f"  {part} "] if place % 2 else [f" {word}" for word in part.split(" ")]
    return words


def _to_json(check: Check) -> dict[str, str]:
    value = {"name": check.name, "status": check.status, "detail": check.detail}
    return value if check.remedy is None else {**value, "remedy": check.remedy}
