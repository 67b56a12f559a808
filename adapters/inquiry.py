"""Short questions to a runtime's program: its version, its configuration, its login. Each is bounded and works offline.

Owns how a program is kept from writing into the user's folders while it answers (measured with Claude Code 2.1.332 and Codex
0.163.0). A program's output may hold secrets, so callers get a status, a place, or a word from a fixed list.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 10.0
"""The longest wait for an answer: a version takes 0.02 s, a login of Claude Code 1.5 s, a wrapper on the network longer."""

_NOWHERE: Final = "http://127.0.0.1:9"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
OFFLINE: Final = {**dict.fromkeys(_PROXIES, _NOWHERE), "NO_PROXY": "", "no_proxy": ""}


@dataclass(frozen=True, slots=True)
class Login:
    """A runtime's answer about its login."""

    known: bool | None
    """Whether there is one; None when it did not say."""
    method: str = ""
    """How, in the runtime's word; never a value."""


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
