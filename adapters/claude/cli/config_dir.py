"""The folder in which Claude Code keeps settings and sessions. Pure. The one answer for every part of this agent.

Claude Code (2.1.332) takes CLAUDE_CONFIG_DIR literally: relative to the folder in which it starts, `~` unexpanded, empty as that
folder itself. It resolves `..` in the path without regard to links. It composes Unicode (NFC) for sessions and settings, but not
for `.claude.json`. So the child gets an absolute path that is not composed, and sessions are in the composed one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from adapters.driver.env_folders import HOME, home_folder, named_folder, require_usable

VARIABLE: Final = "CLAUDE_CONFIG_DIR"


def config_dir(environ: Mapping[str, str]) -> Path:
    """The folder in which Claude Code keeps settings and stored sessions. Raises `InternalError` that names the variable."""
    return Path(_composed(_named(environ)))


def _named(environ: Mapping[str, str]) -> str:
    return os.path.normpath(named_folder(environ, VARIABLE) or f"{home_folder(environ)}/.claude")


def _composed(text: str) -> str:
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - hardly ever needed, and not before `initialize` is answered

    return unicodedata.normalize("NFC", text)


def settled(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with which a Claude Code uses `config_dir`, wherever it is started; otherwise the same.

    A variable that is not set stays so: with it Claude Code keeps its login elsewhere. Raises `InternalError` as `config_dir`.
    """
    kept = {name: value for name, value in environ.items() if name != VARIABLE or value}
    if chosen := named_folder(environ, VARIABLE):
        kept[VARIABLE] = os.path.normpath(chosen)
    if environ.get(HOME):
        home = home_folder(environ)
        kept[HOME] = environ[HOME] if os.path.isabs(environ[HOME]) else os.path.normpath(home)  # noqa: PTH117
    return kept


def is_read_only(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder is there, on a read-only file system: Claude Code can store nothing, and nobody can lock there."""
    try:
        return os.path.isdir(folder) and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)  # noqa: PTH112
    except OSError:
        return False


def require_config_dir(environ: Mapping[str, str]) -> None:
    """Raise `InternalError` that names the folder when Claude Code cannot work with it. Blocks for a moment.

    On a read-only file system it works and stores nothing (2.1.332): each prompt is live-only, and the user is told.
    """
    named = _named(environ)
    folder = _composed(named)
    if is_read_only(folder):
        return
    what = VARIABLE if environ.get(VARIABLE) else "The folder"
    if folder != named:
        what += ", whose Unicode Claude Code composes (NFC) to"
    require_usable(folder, what, f"make it writable, or set {VARIABLE} to another folder")
