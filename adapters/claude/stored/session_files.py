"""Where Claude Code keeps a session: the files with its name, and which of them Claude Code uses.

Owns the names under `<config>/projects`. Reads no line of a file, and never writes. Calls block: run them in a worker thread.

A session is `<config>/projects/<folder>/<session id>.jsonl`. The folder's name is made of the working folder's path. If a folder
was copied or a file was moved by hand, several files have one name. Then Claude Code 2.1.332 uses (measured)

    1. the file in the folder of its working folder, whatever the modification times are;
    2. else the file in any other folder, if it is the only one; a link to it is no second one;
    3. else none: it says that there is no such conversation.

Claude Code ignores an empty file and a link that leads nowhere. A folder in place of the file makes it fail. For this agent an
empty file means "unknown": it was emptied, or a full disk kept everything from it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.core import file_calls

_SESSION_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
"""What may become a file name. Claude Code's own ids are UUIDs; no room is left for separators, dots or patterns."""

_SQUEEZED: Final = re.compile(r"[^a-zA-Z0-9]")
_LONGEST: Final = 200
"""Characters of a folder's name; a longer one is cut and ends in a hash."""

_ONE_UNIT: Final = 0xFFFF
"""Larger characters are two units of UTF-16, which JavaScript replaces one by one."""

ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors that prove that there is no such file. Any other error proves nothing."""


_ADVICE: Final = (
    "it is stored in several project folders and none is that of this cwd; "
    "use the cwd it was made in, or move the other files away"
)


class AmbiguousError(OSError):
    """Several files bear the session's name, and Claude Code works with none of them from this folder."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one session."""

    used: Path | None = None
    """The one that Claude Code works with, None while there is none."""
    copies: tuple[Path, ...] = ()
    """The others: what they hold was stored once, too."""


def valid_session_id(session_id: str) -> bool:
    """Whether the id can name a stored session at all: no separators, no dots, no patterns, nothing outside ASCII."""
    return _SESSION_ID.fullmatch(session_id) is not None


def find_files(config_dir: Path, session_id: str, cwd: str, *, made_here: bool = False) -> Files:
    """The files of a session that works in `cwd`; none also for an id that cannot name a file.

    Raises `OSError` where nobody can say (ADP-6): the projects cannot be listed; what has the session's name in its own folder is
    no file; or there is no file, but such a thing elsewhere, an empty file, or a folder that cannot be looked into. Only a
    session that was `made_here` cannot be in such a folder, and may have an empty file. Raises `AmbiguousError` where Claude
    Code would find none although there are several.
    """
    if not valid_session_id(session_id):
        return Files()
    own = Project(cwd)
    found: list[Path] = []
    unclear: OSError | None = None
    for folder in project_folders(config_dir):
        path = os.path.join(folder, session_id + ".jsonl")  # noqa: PTH118 - thousands of folders, Path is slow
        try:
            there = file_calls.stat(path)
        except OSError as error:
            if error.errno in ABSENT:
                continue
            if own.is_at(folder):
                raise
            unclear = unclear if made_here else error
            continue
        if not stat.S_ISREG(there.st_mode):
            unclear = OSError(errno.EINVAL, "the path of its file is not a regular file", path)
            if own.is_at(folder):
                raise unclear
        elif there.st_size:
            found.append(Path(path))
        elif not made_here:
            unclear = unclear or OSError(
                errno.ENODATA, "its file is empty: its messages are lost, or were never written", path
            )
    if unclear and not found:
        raise unclear
    return _choose(found, own)


def _choose(found: list[Path], own: Project) -> Files:
    ours = [path for path in found if own.is_at(str(path.parent))]
    if ours:
        used = ours[0]
    elif len({file_calls.real_path(path) for path in found}) > 1:
        names = ", ".join(map(str, sorted(found)))
        raise AmbiguousError(errno.ENOTUNIQ, f"{_ADVICE}: {names}")
    else:
        used = next(iter(found), None)
    return Files(used, tuple(path for path in found if path != used))


class Project:
    """The project folder of a working folder, known by its name."""

    def __init__(self, cwd: str) -> None:
        real = unicodedata.normalize("NFC", file_calls.real_path(cwd))
        units = "".join(char if ord(char) <= _ONE_UNIT else "--" for char in real)
        self._name = _SQUEEZED.sub("-", units)

    def is_at(self, folder: str) -> bool:
        """Whether this is its path."""
        name = os.path.basename(folder)  # noqa: PTH119
        return name.startswith(self._name[:_LONGEST] + "-") if len(self._name) > _LONGEST else name == self._name


def project_folders(config_dir: Path) -> list[str]:
    """All project folders, and the other entries beside them. Raises `OSError` when they cannot be listed."""
    try:
        return [entry.path for entry in file_calls.scan(config_dir / "projects")]
    except FileNotFoundError:
        return []
