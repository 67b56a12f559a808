"""`acp-adapters doctor`: what would be started here, and what is missing. Owns the checks and both forms of the report.

Starts no session and opens no connection. Reads no credentials: of a login only its presence is reported, by a name that the user
knows or as Codex's own `login status` tells it, never a value. Leaves nothing behind but the empty folder of the locks.
"""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from adapters import __version__
from adapters.acp.errors import AcpError
from adapters.claude import environment as claude
from adapters.claude import folder as claude_folder
from adapters.claude.state import state_folder
from adapters.codex import environment as codex
from adapters.codex import folder as codex_folder
from adapters.core.executable import Found

OK: Final = "ok"
UNSURE: Final = "unsure"
"""Nothing is proved to be wrong, but the user should know."""
FAILED: Final = "failed"
"""The agent would not work."""

_PROGRAM_SECONDS: Final = 10.0
"""Both runtimes print their version in 0.02 s; a wrapper script that asks the network may take seconds."""

_SHOWS_LATER: Final = " (whether it is valid shows at the first prompt)"

_LOGIN_VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)


_NOT_INSTALLED: Final = "not installed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `remedy` is the next step, for what is not "ok"."""

    name: str
    status: str
    detail: str
    remedy: str | None = None


def run_doctor(runtimes: Sequence[str], out: TextIO, *, as_json: bool = False, named: bool = True) -> int:
    """Check `runtimes` and print the report; 1 if something would not work, else 0.

    `named` tells that the user asked for these runtimes; otherwise one that is not installed is no failure beside one that is.
    """
    reports = {name: _CHECKS[name](os.environ) for name in runtimes}
    if not named and not all(map(_is_missing, reports.values())):
        reports = {name: _as_optional(checks) for name, checks in reports.items()}
    healthy = all(check.status != FAILED for checks in reports.values() for check in checks)
    if as_json:
        value = {
            "version": __version__,
            "python": platform.python_version(),
            "ok": healthy,
            "runtimes": {
                name: {"ok": all(check.status != FAILED for check in checks), "checks": [_to_json(c) for c in checks]}
                for name, checks in reports.items()
            },
        }
        out.write(json.dumps(value, indent=2) + "\n")
    else:
        out.write(f"acp-adapters {__version__}, Python {platform.python_version()}, {platform.system()}\n")
        out.writelines(f"\n{name}\n{''.join(map(_to_text, checks))}" for name, checks in reports.items())
        verdict = "Nothing speaks against it." if healthy else "It would not work yet: see the lines marked [no]."
        out.write(f"\n{verdict}\n")
    out.flush()
    return 0 if healthy else 1


def _is_missing(checks: Sequence[Check]) -> bool:
    return checks[0].name == _NOT_INSTALLED


def _as_optional(checks: list[Check]) -> list[Check]:
    """Of a runtime that nobody asked for and that is not installed, that alone."""
    return [replace(checks[0], status=UNSURE)] if _is_missing(checks) else checks


def check_claude(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters claude` needs, in the order in which it needs it."""
    found = claude.find_claude(environ)
    program = _program(found, claude.missing_text(environ), claude.EXECUTABLE, environ)
    try:
        environ = claude_folder.settled(environ)
        claude_folder.require_config_dir(environ)
    except AcpError as error:
        return [*program, Check("session store", FAILED, error.message)]
    store = _store(claude_folder.config_dir(environ) / "projects", claude_folder.VARIABLE)
    return [*program, store, _locks(environ), _claude_login(found, environ)]


def check_codex(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters codex` needs, in the order in which it needs it."""
    found = codex.find_codex(environ)
    program = _program(found, codex.missing_text(environ), codex.EXECUTABLE, environ)
    try:
        environ = codex_folder.settled(environ)
        codex_folder.require_codex_home(environ)
    except AcpError as error:
        return [*program, Check("configuration", FAILED, error.message)]
    home = codex_folder.codex_home(environ)
    usable = found is not None and program[-1].status == OK
    configuration, login = _codex_configuration(str(found.path) if found and usable else None, home, environ)
    store = _store(home / "sessions", "CODEX_HOME")
    return [*program, configuration, store, login]


_CHECKS: Final = {"claude": check_claude, "codex": check_codex}


# --- the checks --------------------------------------------------------------------------------------------------------


def _program(found: Found | None, missing: str, variable: str, environ: Mapping[str, str]) -> list[Check]:
    if found is None:
        return [Check("program" if environ.get(variable) else _NOT_INSTALLED, FAILED, missing)]
    program = Check("program", OK, f"{found.path} (from {found.source}{_package_version(found.source)})")
    version, problem = _version(found.path, environ)
    if problem is None:
        return [program, Check("version", OK, version)]
    remedy = f"reinstall it, or set {variable} to one that starts"
    if found.source == variable:
        remedy = f"unset {variable}, or point it to one that starts"
    return [program, Check("version", FAILED, problem, remedy)]


def _package_version(source: str) -> str:
    try:
        return f" {importlib.metadata.version(source)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def _version(program: Path, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """What `--version` prints, and what went wrong."""
    try:
        status, output, errors = _run([str(program), "--version"], environ)
    except OSError as error:
        return "", f"it cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"no answer to --version within {_PROGRAM_SECONDS:g} seconds"
    if status != 0 or not _first_line(output):
        return "", f"--version ended with status {status}: {_first_line(errors) or 'no output'}"
    return _first_line(output), None


def _run(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Status and output of a short command. Bounded: one that hangs is killed with its children.

    Raises `OSError` when it cannot be started, `subprocess.TimeoutExpired` when it hung.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=_PROGRAM_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors


def _store(folder: Path, variable: str) -> Check:
    reason = "prompts that are not stored are not recognized when they are sent again"
    return _folder("session store", folder, f"make it writable, or set {variable}: {reason}")


def _locks(environ: Mapping[str, str]) -> Check:
    name, remedy = "lock folder", "make it writable, or set ACP_ADAPTERS_STATE_DIR to another one"
    try:
        return _folder(name, state_folder(environ), remedy)
    except AcpError as error:
        return Check(name, FAILED, error.message)


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Whether files can be made in the folder, or the folder in the nearest one above it that exists."""
    detail = str(folder)
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if existing != folder:
            detail += " (will be made)"
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is no folder")
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Check(name, FAILED, f"{detail} cannot be written: {error.strerror}", remedy)
    return Check(name, OK, detail)


def _claude_login(found: Found | None, environ: Mapping[str, str]) -> Check:
    signs = [f"{name} is set" for name in _LOGIN_VARIABLES if environ.get(name)]
    credentials = claude_folder.config_dir(environ) / ".credentials.json"
    if os.path.exists(credentials):  # noqa: PTH110 - False, not an error, where the folder may not be searched
        signs.append(f"{credentials} exists")
    if signs:
        return Check("login", OK, "; ".join(signs) + _SHOWS_LATER)
    program = "claude" if found is None else shlex.quote(str(found.path))
    detail = "no sign of one (a system keychain and key helpers cannot be seen from here)"
    remedy = f"to log in: {program} auth login  or set ANTHROPIC_API_KEY; to ask: {program} auth status"
    return Check("login", UNSURE, detail, remedy)


def _codex_configuration(program: str | None, home: Path, environ: Mapping[str, str]) -> tuple[Check, Check]:
    """Whether Codex can load its configuration, and whether it finds a login. Its own words may hold secrets: not shown."""
    name, file = "configuration", home / "config.toml"
    command = "codex" if program is None else shlex.quote(program)
    unsure = Check("login", UNSURE, "not known", f"to log in: {command} login; to ask: {command} login status")
    if not home.is_dir():
        return Check(name, OK, f"{file} (none: Codex's own defaults)"), replace(unsure, detail="no sign of one")
    if program is None:
        return Check(name, UNSURE, str(file)), unsure
    try:
        status, _, errors = _run([program, "login", "status"], environ)
    except (OSError, subprocess.TimeoutExpired):
        return Check(name, UNSURE, f"{file} (no answer to login status)"), unsure
    if b"Error loading configuration" in errors:
        remedy = f"to see what is wrong in it: {command} login status"
        return Check(name, FAILED, f"{file} cannot be loaded", remedy), unsure
    loaded = Check(name, OK, str(file) if file.exists() else f"{file} (none: Codex's own defaults)")
    if status == 0:
        return loaded, Check("login", OK, "Codex has one" + _SHOWS_LATER)
    detail = "Codex has none of its own (a model provider of your own in config.toml needs none)"
    return loaded, Check("login", UNSURE, detail, unsure.remedy)


# --- the report ----------------------------------------------------------------------------------------------------------

_SIGNS: Final = {OK: "[ok]", UNSURE: "[??]", FAILED: "[no]"}


def _to_text(check: Check) -> str:
    remedy = "" if check.remedy is None else f"      -> {check.remedy}\n"
    return f"  {_SIGNS[check.status]} {check.name}: {check.detail}\n{remedy}"


def _to_json(check: Check) -> dict[str, str]:
    value = {"name": check.name, "status": check.status, "detail": check.detail}
    return value if check.remedy is None else {**value, "remedy": check.remedy}


def _first_line(output: bytes) -> str:
    """The first line as printable text, cut to a line's length."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return "".join(character for character in lines[0] if character.isprintable())[:200] if lines else ""
