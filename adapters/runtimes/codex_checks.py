"""What `doctor` checks for Codex. Its own words may hold secrets: only a status or a place is given on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from adapters import inquiry
from adapters.acp.errors import AcpError
from adapters.acp.shapes import as_mapping, as_text
from adapters.codex.server import home_dir as codex_folder
from adapters.codex.server import program as codex
from adapters.plugins import FAILED, OK, UNSURE, Check
from adapters.runtimes.checks import SHOWS_LATER, Known, check_leftovers, check_program, check_store

_PLACE: Final = re.compile(rb"Error loading configuration: (?:[^\n]*?)(:\d+:\d+): ")
_KNOWN: Final = Known("Codex", codex.EXECUTABLE, re.compile(r"codex(?:-cli)? (\d+\.\d+\.\d+)\S*"), codex.TESTED)


@dataclass(frozen=True, slots=True)
class CodexStatus:
    """What Codex says when it is asked for its login, for which it loads its configuration."""

    login: inquiry.Login
    broken: bool = False
    """It cannot load its configuration."""
    place: str = ""
    """Where in it, as `:LINE:COLUMN`; empty when it does not say."""


def check_codex(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters codex` needs, in the order in which it needs it."""
    found = codex.find_codex(environ)
    try:
        environ = codex_folder.settled(environ)
        codex_folder.require_codex_home(environ)
        environ = codex_environment(environ)
    except AcpError as error:
        return [
            *check_program(found, _KNOWN, codex.missing_text, environ),
            Check("configuration", FAILED, error.message),
        ]
    program = check_program(found, _KNOWN, codex.missing_text, environ)
    home = codex_folder.codex_home(environ)
    usable = found if program[-1].status != FAILED else None
    status = codex_status(usable.path, environ) if usable else None
    configuration, login = _codex_configuration(str(usable.path) if usable else "codex", home, status)
    store = check_store(home / "sessions", codex_folder.VARIABLE)
    return [*program, configuration, store, login, *check_leftovers("tools keep running", "tools")]


def _codex_configuration(program: str, home: Path, status: CodexStatus | None) -> tuple[Check, Check]:
    """Whether Codex can load its configuration, and whether it finds a login. Its own words may hold secrets: not shown.

    `status` is None when it was not asked.
    """
    file, command = home / "config.toml", shlex.quote(program)
    remedy = f"to log in:  {command} login; to check:  {command} login status"
    unsure = Check("login", UNSURE, "unknown", remedy)
    name = str(file) if file.exists() else f"{file} (none: Codex's own defaults)"
    if status is None:
        return Check("configuration", UNSURE, name), unsure
    if status.broken:
        see = f"to see the error:  {command} login status"
        return Check("configuration", FAILED, f"{file}{status.place} cannot be loaded", see), unsure
    loaded = Check("configuration", OK, name)
    if status.login.known:
        return loaded, Check("login", OK, "Codex has a login" + SHOWS_LATER)
    if status.login.known is None:
        return replace(loaded, status=UNSURE, detail=f"{name} (no answer to login status)"), unsure
    if _own_provider(file):
        detail = f"Codex has no login; the model provider in {file} may need none"
        return loaded, Check("login", UNSURE, detail, remedy)
    return loaded, Check("login", FAILED, "not logged in", remedy)


def _own_provider(file: Path) -> bool:
    """Whether the configuration chooses another provider than the default one, which needs a login."""
    try:
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    profile = as_mapping(as_mapping(known.get("profiles")).get(as_text(known.get("profile"))))
    return (as_text(profile.get("model_provider")) or as_text(known.get("model_provider"))) not in ("", "openai")


def codex_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The settled `environ` so that Codex makes no helpers in its home: below the folder for temporary files it makes none."""
    home = os.path.realpath(codex_folder.codex_home(environ))
    chosen = {codex_folder.VARIABLE: home} if os.path.isdir(home) else {}  # noqa: PTH112
    return {**environ, **inquiry.OFFLINE, **chosen, "TMPDIR": os.path.dirname(home)}  # noqa: PTH120


def codex_status(program: Path, environ: Mapping[str, str]) -> CodexStatus:
    """Ask Codex for its login. `environ` is of `codex_environment`."""
    try:
        status, _, errors = inquiry.run([str(program), "login", "status"], environ)
    except (OSError, subprocess.TimeoutExpired):
        return CodexStatus(inquiry.Login(None))
    if b"Error loading configuration" in errors:
        found = _PLACE.search(errors)
        return CodexStatus(inquiry.Login(None), broken=True, place=found[1].decode() if found else "")
    if status == 0:
        return CodexStatus(inquiry.Login(known=True))
    return CodexStatus(inquiry.Login(False if b"Not logged in" in errors else None))
