"""Codex's home folder: its configuration and threads. Pure. The one answer for every part of this agent.

Codex (0.163.0) resolves CODEX_HOME, links included, from the folder in which it starts; the folder must exist. An empty value
counts as unset. `~` is not expanded, and a value that is not UTF-8 counts as unset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from adapters.driver.env_folders import HOME, home_folder, named_folder, require_usable, unusable

VARIABLE: Final = "CODEX_HOME"


def codex_home(environ: Mapping[str, str]) -> Path:
    """The folder in which Codex keeps configuration and stored sessions. Raises `InternalError` that names the variable."""
    chosen = named_folder(environ, VARIABLE)
    return Path(os.path.realpath(chosen)) if chosen else Path(home_folder(environ), ".codex")


def settled(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with which a Codex uses `codex_home`, wherever it is started; otherwise the same. Raises as that."""
    kept = {name: value for name, value in environ.items() if name != VARIABLE or value}
    if environ.get(VARIABLE):
        kept[VARIABLE] = str(codex_home(environ))
    if environ.get(HOME):
        kept[HOME] = home_folder(environ)
    return kept


def require_codex_home(environ: Mapping[str, str]) -> None:
    """Raise `InternalError` that names the folder when Codex cannot keep threads there. Blocks for a moment."""
    folder = codex_home(environ)
    if environ.get(VARIABLE) and not os.path.lexists(folder):
        raise unusable(f"{VARIABLE} {folder}", "it does not exist", "make that folder, or unset the variable")
    what = VARIABLE if environ.get(VARIABLE) else "The folder"
    require_usable(folder, what, f"make it writable, or set {VARIABLE} to another folder")
