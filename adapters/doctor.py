"""`acp-adapters doctor`: what would be started here, and what is missing. Owns the checks and both forms of the report.

Starts no session and opens no connection. Reads no credentials: of a login only the presence of what usually goes with one is
reported, by the name the user knows, never a value. Leaves nothing behind but the empty folder of the locks.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from adapters import __version__
from adapters.acp.errors import AcpError
from adapters.claude.environment import config_dir, find_claude, missing_text
from adapters.claude.state import state_folder

OK: Final = "ok"
UNSURE: Final = "unsure"
"""Nothing is proved to be wrong, but the user should know."""
FAILED: Final = "failed"
"""The agent would not work."""

_VERSION_SECONDS: Final = 10.0
"""Claude Code prints its version in 0.02 s; a wrapper script that asks the network may take seconds, a hanging one is ended."""

_LOGIN_VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `remedy` is the next step, for what is not "ok"."""

    name: str
    status: str
    detail: str
    remedy: str | None = None


def run_doctor(runtimes: Sequence[str], out: TextIO, *, as_json: bool = False) -> int:
    """Check `runtimes` and print the report; 1 if something would not work, else 0."""
    reports = {name: _CHECKS[name](os.environ) for name in runtimes}
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


def check_claude(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters claude` needs, in the order in which it needs it."""
    return [*_program(environ), _store(environ), _locks(environ), _login(environ)]


_CHECKS: Final = {"claude": check_claude}


# --- the checks --------------------------------------------------------------------------------------------------------


def _program(environ: Mapping[str, str]) -> list[Check]:
    found = find_claude(environ)
    if found is None:
        return [Check("program", FAILED, missing_text(environ))]
    program = Check("program", OK, f"{found.path} (from {found.source}{_package_version(found.source)})")
    version, problem = _version(found.path, environ)
    if problem is None:
        return [program, Check("version", OK, version)]
    return [program, Check("version", FAILED, problem, _other_program(found.source))]


def _package_version(source: str) -> str:
    try:
        return f" {importlib.metadata.version(source)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def _version(program: Path, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """What `--version` prints, and what went wrong. Bounded: a process that hangs is killed with its children."""
    try:
        process = subprocess.Popen(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        return "", f"it cannot be started: {error.strerror}"
    with process:
        try:
            output, errors = process.communicate(timeout=_VERSION_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return "", f"no answer to --version within {_VERSION_SECONDS:g} seconds"
    if process.returncode != 0 or not _first_line(output):
        return "", f"--version ended with status {process.returncode}: {_first_line(errors) or 'no output'}"
    return _first_line(output), None


def _other_program(source: str) -> str:
    if source == "CLAUDE_CODE_EXECUTABLE":
        return "unset CLAUDE_CODE_EXECUTABLE, or point it to a Claude Code that starts"
    return "reinstall it, or set CLAUDE_CODE_EXECUTABLE to a Claude Code that starts"


def _store(environ: Mapping[str, str]) -> Check:
    remedy = "make it writable, or set CLAUDE_CONFIG_DIR: prompts that are not stored are not recognized when they are sent again"
    return _folder("session store", config_dir(environ) / "projects", remedy)


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


def _login(environ: Mapping[str, str]) -> Check:
    signs = [f"{name} is set" for name in _LOGIN_VARIABLES if environ.get(name)]
    credentials = config_dir(environ) / ".credentials.json"
    if os.path.exists(credentials):  # noqa: PTH110 - False, not an error, where the folder may not be searched
        signs.append(f"{credentials} exists")
    if signs:
        return Check("login", OK, "; ".join(signs) + " (whether it is valid shows at the first prompt)")
    found = find_claude(environ)
    program = "claude" if found is None else shlex.quote(str(found.path))
    detail = "no sign of one (a system keychain and key helpers cannot be seen from here)"
    remedy = f"to log in: {program} auth login  or set ANTHROPIC_API_KEY; to ask: {program} auth status"
    return Check("login", UNSURE, detail, remedy)


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
