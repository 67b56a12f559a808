"""Short questions to a runtime's program: its version, its configuration, its login. Each is bounded, offline and writes nothing.

Owns how a program is kept from writing into the user's folders while it answers (measured with Claude Code 2.1.332 and Codex
0.163.0). Its own words may hold secrets: what is given on is a status, a place or a word of a fixed kind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapters.acp.shapes import as_mapping, as_text
from adapters.claude.cli import config_dir as claude_folder
from adapters.codex.server import home_dir as codex_folder
from adapters.driver.env_folders import HOME

SECONDS: Final = 10.0
"""The longest wait for an answer: a version takes 0.02 s, a login of Claude Code 1.5 s, a wrapper on the network longer."""

_NOWHERE: Final = "http://127.0.0.1:9"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_OFFLINE: Final = {**dict.fromkeys(_PROXIES, _NOWHERE), "NO_PROXY": "", "no_proxy": ""}
_WORD: Final = re.compile(r"[\w.-]{1,40}", re.ASCII)
_PLACE: Final = re.compile(rb"Error loading configuration: (?:[^\n]*?)(:\d+:\d+): ")


@dataclass(frozen=True, slots=True)
class Login:
    """What a runtime says of its login."""

    known: bool | None
    """Whether there is one; None when it did not say."""
    method: str = ""
    """How, in the runtime's word; never a value."""


@dataclass(frozen=True, slots=True)
class CodexStatus:
    """What Codex says when it is asked for its login, for which it loads its configuration."""

    login: Login
    broken: bool = False
    """It cannot load its configuration."""
    place: str = ""
    """Where in it, as `:LINE:COLUMN`; empty when it does not say."""


def run(command: Sequence[str], environ: Mapping[str, str], cwd: str | None = None) -> tuple[int, bytes, bytes]:
    """Status and output of a short command. One that hangs is killed with its children.

    Raises `OSError` when it cannot be started, `subprocess.TimeoutExpired` when it hung.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        cwd=cwd,
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors


# --- Claude Code -------------------------------------------------------------------------------------------------------


def claude_state_file(environ: Mapping[str, str]) -> Path:
    """Where Claude Code keeps what it knows of itself: beside its folder by default, in a chosen one."""
    chosen = environ.get(claude_folder.VARIABLE)
    return Path(chosen or environ.get(HOME) or claude_folder.config_dir(environ).parent, ".claude.json")


def claude_login(program: Path, environ: Mapping[str, str]) -> Login:
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
            _, output, _ = run([str(program), "auth", "status"], {**environ, **_OFFLINE, **there}, apart)
            said = as_mapping(json.loads(output))
        except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError):
            return Login(None)
    known = said.get("loggedIn")
    words = (as_text(said.get(name)) for name in ("authMethod", "apiKeySource"))
    method = ", ".join(word for word in words if _WORD.fullmatch(word))
    return Login(known, method) if isinstance(known, bool) else Login(None)


# --- Codex -------------------------------------------------------------------------------------------------------------


def codex_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The settled `environ` so that Codex makes no helpers in its home: below the folder for temporary files it makes none."""
    home = os.path.realpath(codex_folder.codex_home(environ))
    chosen = {codex_folder.VARIABLE: home} if os.path.isdir(home) else {}  # noqa: PTH112
    return {**environ, **_OFFLINE, **chosen, "TMPDIR": os.path.dirname(home)}  # noqa: PTH120


def codex_status(program: Path, environ: Mapping[str, str]) -> CodexStatus:
    """Ask Codex for its login. `environ` is of `codex_environment`."""
    try:
        status, _, errors = run([str(program), "login", "status"], environ)
    except (OSError, subprocess.TimeoutExpired):
        return CodexStatus(Login(None))
    if b"Error loading configuration" in errors:
        found = _PLACE.search(errors)
        return CodexStatus(Login(None), broken=True, place=found[1].decode() if found else "")
    if status == 0:
        return CodexStatus(Login(known=True))
    return CodexStatus(Login(False if b"Not logged in" in errors else None))


# --- files -------------------------------------------------------------------------------------------------------------


def json_problem(path: Path) -> str | None:
    """What is wrong with a file that should hold a JSON object, and where in it; None for one that is right, empty or not there.

    It is read as the runtimes do: strictly. Nothing of its content is in the answer.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{path} is not a file"
        text = path.read_bytes().decode("utf-8-sig")
        value: Any = json.loads(text, parse_constant=_no_constant) if text.strip() else {}
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        return f"{path}:{error.lineno}:{error.colno}: {error.msg}"
    except UnicodeDecodeError:
        return f"{path} is not UTF-8 text"
    except (OSError, ValueError, RecursionError) as error:
        return f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not JSON'}"
    return None if isinstance(value, dict) else f"{path}:1:1: it is not a JSON object"


def _no_constant(_name: str) -> None:
    raise ValueError
