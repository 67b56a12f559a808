"""Folders that environment variables name: each becomes one absolute path, or an error that names the variable.

A runtime's programs start in other folders than the agent, so they would resolve a relative path differently; and only a shell
expands `~`. Owns the meaning of the values. Knows no variable of a runtime. Changes nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Final

from adapters.acp.errors import InternalError

HOME: Final = "HOME"


def unusable(what: str, reason: str, remedy: str) -> InternalError:
    """A folder, or the variable that names it, cannot be used."""
    return InternalError(f"{what} cannot be used ({reason}): {remedy}.", {"category": "start"})


def named_folder(environ: Mapping[str, str], variable: str) -> str | None:
    """The absolute path that the variable names; None when it is unset or empty. A relative one is relative to our own folder.

    `~` is expanded. `..` stays: what it means behind a link is up to the reader. Raises `InternalError` that names the variable.
    """
    value = _readable(environ, variable)
    if value == "~" or value.startswith("~/"):
        value = home_folder(environ) + value[1:]
    elif value.startswith("~"):
        raise _wrong(variable, value, "only a shell expands ~NAME")
    return _absolute(variable, value) if value else None


def home_folder(environ: Mapping[str, str]) -> str:
    """The absolute path of the user's home: HOME, else what the system knows. Raises `InternalError` that names HOME."""
    value = _readable(environ, HOME)
    if value.startswith("~"):
        raise _wrong(HOME, value, "only a shell expands ~")
    if value:
        return _absolute(HOME, value)
    import pwd  # noqa: PLC0415 - hardly ever needed, and not before `initialize` is answered

    try:
        known = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        known = ""
    if not os.path.isabs(known):  # noqa: PTH117 - texts, no paths, here and below
        raise unusable(HOME, "it is not set, and the system has no home folder for this user", "set it to a folder")
    return known


def require_usable(folder: str | os.PathLike[str], what: str, remedy: str) -> None:
    """Raise `InternalError` when files cannot be made in the folder, or the folder itself cannot.

    `what` names it in the message. The system is asked for permissions; a full disk does not show here.
    """
    path = os.path.abspath(folder)  # noqa: PTH100
    try:
        while not os.path.lexists(path):
            path = os.path.dirname(path)  # noqa: PTH120
        if not os.path.isdir(path):  # noqa: PTH112
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a folder")
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"no permission to write to {path}")
    except OSError as error:
        raise unusable(f"{what} {os.fspath(folder)}", error.strerror or type(error).__name__, remedy) from None


def _readable(environ: Mapping[str, str], variable: str) -> str:
    """The value as runtimes read it. They are no Python: bytes that are no UTF-8 become other characters there, or nothing."""
    value = environ.get(variable, "")
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        raise _wrong(variable, value, "it is not UTF-8") from None


def _absolute(variable: str, value: str) -> str:
    if value.startswith("/"):
        return value
    try:
        return os.path.join(os.getcwd(), value)  # noqa: PTH109, PTH118
    except OSError as error:
        reason = f"it is relative, and the agent's working folder does not exist: {error.strerror}"
        raise _wrong(variable, value, reason) from None


def _wrong(variable: str, value: str, reason: str) -> InternalError:
    return unusable(f"{variable}={value!a}", reason, "set it to the whole path of a folder")
