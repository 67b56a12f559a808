"""`acp-adapters doctor`: what would be started here, and what is missing. Owns the checks and both forms of the report.

Starts no session and opens no connection. Of a login only its presence and kind are reported, as the runtime itself tells them
or by a name that the user knows, never a value. Writes nothing: the runtimes answer apart from the user's folders.
"""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from adapters import __version__, inquiry
from adapters.acp.errors import AcpError
from adapters.acp.shapes import as_mapping, as_text
from adapters.claude.cli import config_dir as claude_folder
from adapters.claude.cli import program as claude
from adapters.claude.cli.state_dir import state_place
from adapters.codex.server import home_dir as codex_folder
from adapters.codex.server import program as codex
from adapters.command_line import wrapped
from adapters.driver.executable import Found
from adapters.driver.version import numbers
from adapters.sources import fingerprint

OK: Final = "ok"
UNSURE: Final = "unsure"
"""Nothing is proved to be wrong, but the user should know."""
FAILED: Final = "failed"
"""The agent would not work."""

_SHOWS_LATER: Final = " (the first prompt shows whether it is valid)"

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
    return checks[0].name == _NOT_INSTALLED


def _as_optional(checks: list[Check]) -> list[Check]:
    """Of a runtime that nobody asked for and that is not installed, that alone."""
    return [replace(checks[0], status=UNSURE)] if _is_missing(checks) else checks


def check_claude(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters claude` needs, in the order in which it needs it."""
    found = claude.find_claude(environ)
    program = _program(found, _CLAUDE, claude.missing_text, environ)
    try:
        environ = claude_folder.settled(environ)
        claude_folder.require_config_dir(environ)
    except AcpError as error:
        return [*program, Check("session store", FAILED, error.message)]
    store = _store(claude_folder.config_dir(environ) / "projects", claude_folder.VARIABLE)
    usable = found if program[-1].status != FAILED else None
    checks = [*program, _claude_settings(environ), store, _locks(environ), _claude_login(usable, environ)]
    return [*checks, *_leftovers("a prompt that is sent again may be inserted twice", _CLAUDE.title)]


def check_codex(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters codex` needs, in the order in which it needs it."""
    found = codex.find_codex(environ)
    try:
        environ = codex_folder.settled(environ)
        codex_folder.require_codex_home(environ)
        environ = inquiry.codex_environment(environ)
    except AcpError as error:
        return [*_program(found, _CODEX, codex.missing_text, environ), Check("configuration", FAILED, error.message)]
    program = _program(found, _CODEX, codex.missing_text, environ)
    home = codex_folder.codex_home(environ)
    usable = found if program[-1].status != FAILED else None
    status = inquiry.codex_status(usable.path, environ) if usable else None
    configuration, login = _codex_configuration(str(usable.path) if usable else "codex", home, status)
    store = _store(home / "sessions", codex_folder.VARIABLE)
    return [*program, configuration, store, login, *_leftovers("the tools among them go on", _CODEX.title)]


_CHECKS: Final = {"claude": check_claude, "codex": check_codex}


# --- the checks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """How a runtime's program is recognized."""

    title: str
    variable: str
    version: re.Pattern[str]
    """What `--version` prints: the number is the first group."""
    tested: str
    """The version that this agent is tested with."""


_CLAUDE: Final = _Known(
    "Claude Code", claude.EXECUTABLE, re.compile(r"(\d+\.\d+\.\d+)\S* \(Claude Code\)"), claude.TESTED
)
_CODEX: Final = _Known("Codex", codex.EXECUTABLE, re.compile(r"codex(?:-cli)? (\d+\.\d+\.\d+)\S*"), codex.TESTED)


def _program(
    found: Found | None, known: _Known, missing: Callable[[Mapping[str, str]], str], environ: Mapping[str, str]
) -> list[Check]:
    if found is None:
        return [Check("program" if environ.get(known.variable) else _NOT_INSTALLED, FAILED, missing(environ))]
    program = Check("program", OK, f"{found.path} (from {found.source}{_package_version(found.source)})")
    remedy = f"reinstall {known.title}, or set {known.variable} to a program that starts"
    if found.source == known.variable:
        remedy = f"unset {known.variable}, or set it to a program that starts"
    version, problem = _version(found.path, environ)
    if problem is not None:
        return [program, Check("version", FAILED, problem, remedy)]
    number = known.version.fullmatch(version)
    if number is None:
        text = f"this program is not {known.title}: --version prints {version}"
        return [program, Check("version", FAILED, text, f"unset {known.variable}, or set it to {known.title}")]
    if numbers(number[1]) < numbers(known.tested):
        text = f"{version}, older than the tested {known.tested}"
        return [program, Check("version", UNSURE, text, f"update {known.title} if something does not work")]
    return [program, Check("version", OK, f"{version}, tested with {known.tested}")]


def _package_version(source: str) -> str:
    try:
        return f" {importlib.metadata.version(source)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def _version(program: Path, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """What `--version` prints, and what went wrong."""
    try:
        status, output, errors = inquiry.run([str(program), "--version"], environ)
    except OSError as error:
        return "", f"the program cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"no answer to --version within {inquiry.SECONDS:g} seconds"
    if status != 0 or not _first_line(output):
        return "", f"--version ended with status {status}: {_first_line(errors) or 'no output'}"
    return _first_line(output), None


def _store(folder: Path, variable: str) -> Check:
    reason = "only a stored prompt is recognized when it is sent again"
    return _folder("session store", folder, f"make it writable, or set {variable} to another folder: {reason}")


def _locks(environ: Mapping[str, str]) -> Check:
    name, remedy = "lock folder", "make it writable, or set ACP_ADAPTERS_STATE_DIR to another folder"
    try:
        folder = state_place(environ)
    except AcpError as error:
        return Check(name, FAILED, error.message)
    try:
        if folder.exists() and folder.stat().st_uid != os.geteuid():
            return Check(name, FAILED, f"{folder} belongs to another user", remedy)
        return _folder(name, folder, remedy)
    except OSError as error:
        return Check(name, FAILED, f"{folder} cannot be checked: {error.strerror}", remedy)


def _folder(name: str, folder: Path, remedy: str) -> Check:
    """Whether files can be made in the folder, or the folder in the nearest one above it that exists."""
    detail = str(folder)
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if existing != folder:
            detail += " (will be made)"
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is not a folder")
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Check(name, FAILED, f"{detail} cannot be written: {error.strerror}", remedy)
    return Check(name, OK, detail)


def _claude_settings(environ: Mapping[str, str]) -> Check:
    """Claude Code passes over a file that it cannot read, with every permission rule in it, and says nothing."""
    settings = claude_folder.config_dir(environ) / "settings.json"
    for file in (settings, inquiry.claude_state_file(environ)):
        if problem := inquiry.json_problem(file):
            return Check(
                "settings",
                FAILED,
                problem,
                "correct the file: Claude Code ignores all of it, permission rules included",
            )
    return Check(
        "settings", OK, str(settings) if settings.exists() else f"{settings} (none: Claude Code's own defaults)"
    )


def _claude_login(usable: Found | None, environ: Mapping[str, str]) -> Check:
    program = shlex.quote(str(usable.path)) if usable else "claude"
    remedy = f"to log in:  {program} auth login  or set ANTHROPIC_API_KEY; to check:  {program} auth status"
    said = inquiry.claude_login(usable.path, environ) if usable else inquiry.Login(None)
    if said.known:
        return Check("login", OK, f"Claude Code has a login ({said.method or 'kind unknown'})" + _SHOWS_LATER)
    if said.known is False:
        if sys.platform == "darwin":
            return Check("login", UNSURE, "none found, but doctor cannot read the keychain", remedy)
        return Check("login", FAILED, "not logged in", remedy)
    signs = [f"{name} is set" for name in _LOGIN_VARIABLES if environ.get(name)]
    credentials = claude_folder.config_dir(environ) / ".credentials.json"
    if os.path.exists(credentials):  # noqa: PTH110 - False, not an error, where the folder may not be searched
        signs.append(f"{credentials} exists")
    if signs:
        return Check("login", OK, "; ".join(signs) + _SHOWS_LATER)
    detail = "none found, but doctor cannot read a system keychain or a key helper"
    return Check("login", UNSURE, detail, remedy)


def _leftovers(consequence: str, title: str) -> list[Check]:
    """A warning where processes cannot be found by the mark of their agent, which takes /proc."""
    if sys.platform != "darwin":
        return []
    detail = f"macOS: processes left by a killed agent are not stopped; {consequence}"
    return [
        Check("crash safety", UNSURE, detail, f"after a crash of the agent, end the {title} that it left, then resume")
    ]


def _codex_configuration(program: str, home: Path, status: inquiry.CodexStatus | None) -> tuple[Check, Check]:
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
        return loaded, Check("login", OK, "Codex has a login" + _SHOWS_LATER)
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


def _first_line(output: bytes) -> str:
    """The first line as printable text, cut to a line's length."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return "".join(character for character in lines[0] if character.isprintable())[:200] if lines else ""
