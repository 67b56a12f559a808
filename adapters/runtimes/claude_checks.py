"""What `doctor` checks for Claude Code. Of a login only its presence and kind are reported, never a value."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from adapters import inquiry
from adapters.acp.errors import AcpError
from adapters.acp.shapes import as_mapping, as_text
from adapters.claude.cli import config_dir as claude_folder
from adapters.claude.cli import program as claude
from adapters.claude.cli.state_dir import state_place
from adapters.driver.env_folders import HOME
from adapters.driver.executable import Found
from adapters.plugins import FAILED, OK, UNSURE, Check
from adapters.runtimes.checks import SHOWS_LATER, Known, check_folder, check_leftovers, check_program, check_store

_LOGIN_VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)

_WORD: Final = re.compile(r"[\w.-]{1,40}", re.ASCII)
_KNOWN: Final = Known(
    "Claude Code", claude.EXECUTABLE, re.compile(r"(\d+\.\d+\.\d+)\S* \(Claude Code\)"), claude.TESTED
)


def check_claude(environ: Mapping[str, str]) -> list[Check]:
    """Everything that `acp-adapters claude` needs, in the order in which it needs it."""
    found = claude.find_claude(environ)
    program = check_program(found, _KNOWN, claude.missing_text, environ)
    try:
        environ = claude_folder.settled(environ)
        claude_folder.require_config_dir(environ)
    except AcpError as error:
        return [*program, Check("session store", FAILED, error.message)]
    store = check_store(claude_folder.config_dir(environ) / "projects", claude_folder.VARIABLE)
    usable = found if program[-1].status != FAILED else None
    checks = [*program, _claude_settings(environ), store, _locks(environ), _claude_login(usable, environ)]
    return [*checks, *check_leftovers("a prompt that is sent again may be inserted twice", _KNOWN.title)]


def _claude_settings(environ: Mapping[str, str]) -> Check:
    """Claude Code passes over a file that it cannot read, with every permission rule in it, and says nothing."""
    settings = claude_folder.config_dir(environ) / "settings.json"
    for file in (settings, claude_state_file(environ)):
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


def _locks(environ: Mapping[str, str]) -> Check:
    name, remedy = "state folder", "make it writable, or set ACP_ADAPTERS_STATE_DIR to another folder"
    try:
        folder = state_place(environ)
    except AcpError as error:
        return Check(name, FAILED, error.message)
    try:
        if folder.exists() and folder.stat().st_uid != os.geteuid():
            return Check(name, FAILED, f"{folder} belongs to another user", remedy)
        return check_folder(name, folder, remedy)
    except OSError as error:
        return Check(name, FAILED, f"{folder} cannot be checked: {error.strerror}", remedy)


def _claude_login(usable: Found | None, environ: Mapping[str, str]) -> Check:
    program = shlex.quote(str(usable.path)) if usable else "claude"
    remedy = f"to log in:  {program} auth login  or set ANTHROPIC_API_KEY; to check:  {program} auth status"
    said = claude_login(usable.path, environ) if usable else inquiry.Login(None)
    if said.known:
        return Check("login", OK, f"Claude Code has a login ({said.method or 'kind unknown'})" + SHOWS_LATER)
    if said.known is False:
        if sys.platform == "darwin":
            return Check("login", UNSURE, "none found, but doctor cannot read the keychain", remedy)
        return Check("login", FAILED, "not logged in", remedy)
    signs = [f"{name} is set" for name in _LOGIN_VARIABLES if environ.get(name)]
    credentials = claude_folder.config_dir(environ) / ".credentials.json"
    if os.path.exists(credentials):  # noqa: PTH110 - False, not an error, where the folder may not be searched
        signs.append(f"{credentials} exists")
    if signs:
        return Check("login", OK, "; ".join(signs) + SHOWS_LATER)
    detail = "none found, but doctor cannot read a system keychain or a key helper"
    return Check("login", UNSURE, detail, remedy)


def claude_state_file(environ: Mapping[str, str]) -> Path:
    """Where Claude Code keeps what it knows of itself: beside its folder by default, in a chosen one."""
    chosen = environ.get(claude_folder.VARIABLE)
    return Path(chosen or environ.get(HOME) or claude_folder.config_dir(environ).parent, ".claude.json")


def claude_login(program: Path, environ: Mapping[str, str]) -> inquiry.Login:
    """Ask Claude Code for its login. `environ` is settled.

    It writes into a folder that it has not used yet, so it answers in another one, where it sees the same settings and login. A
    keychain of macOS belongs to one folder, and is not seen there.
    """
    config = claude_folder.config_dir(environ)
    with tempfile.TemporaryDirectory(prefix="acp-adapters-", ignore_cleanup_errors=True) as apart:
        for name in (".credentials.json", "settings.json"):
            if os.path.exists(config / name):  # noqa: PTH110 - False, not an error, where the folder may not be searched
                Path(apart, name).symlink_to(config / name)
        with suppress(OSError):
            if stat.S_ISREG(os.stat(claude_state_file(environ)).st_mode):  # noqa: PTH116
                shutil.copyfile(claude_state_file(environ), Path(apart, ".claude.json"))
        there = {claude_folder.VARIABLE: apart, "TMPDIR": apart, "CLAUDE_CODE_TMPDIR": apart}
        try:
            _, output, _ = inquiry.run([str(program), "auth", "status"], {**environ, **inquiry.OFFLINE, **there}, apart)
            said = as_mapping(json.loads(output))
        except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
            return inquiry.Login(None)
    known = said.get("loggedIn")
    words = (as_text(said.get(name)) for name in ("authMethod", "apiKeySource"))
    method = ", ".join(word for word in words if _WORD.fullmatch(word))
    return inquiry.Login(known, method) if isinstance(known, bool) else inquiry.Login(None)
