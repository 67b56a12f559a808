"""Where the program of a runtime is: the chosen program, the one in its package, or the one on PATH.

Owns the order. Imports nothing heavy: a package is found without importing it (D10). Starts nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = [
    "Executable",
    "Found",
]


@dataclass(frozen=True, slots=True)
class Found:
    """A program that can be run."""

    path: Path
    source: str
    """Where the program was found: the variable that names it, the distribution that contains it, or PATH."""


@dataclass(frozen=True, slots=True)
class Executable:
    """The program of one runtime, and the names it is looked for by."""

    runtime: str
    """Its name in messages."""
    command: str
    """Its name on PATH."""
    variable: str
    """The environment variable with which the user chooses another one: a path, or a name on PATH."""
    distribution: str
    """The distribution that contains it, by its name for pip."""
    package: str
    """The import package of that distribution."""
    bundled: str
    """Its path inside that package."""

    def find(self, environ: Mapping[str, str]) -> Found | None:
        """The program to start.

        None when there is none, and when the chosen one cannot be run (nothing is started in its place).
        """
        search = environ.get("PATH", os.defpath)
        if chosen := environ.get(self.variable):
            path = shutil.which(chosen, path=search)
            return Found(Path(path).absolute(), self.variable) if path else None
        spec = find_spec(self.package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            bundled = Path(folder) / self.bundled
            if os.access(bundled, os.X_OK):
                return Found(bundled, self.distribution)
        path = shutil.which(self.command, path=search)
        return Found(Path(path).absolute(), "PATH") if path else None

    def missing_text(self, environ: Mapping[str, str]) -> str:
        """Why `find` found none, and what to do."""
        if chosen := environ.get(self.variable):
            reason = _reason(chosen)
            return f"{self.variable} does not name a program that can be run ({chosen!a} {reason}): correct it, or unset it."
        from adapters.installing import install_command  # noqa: PLC0415 - only where something is missing

        install = install_command(self.distribution)
        return f"{self.runtime} is not installed: run  {install}  or set {self.variable} to it."


def _reason(chosen: str) -> str:
    """Why the chosen program cannot be run, as the rest of a sentence about it."""
    if chosen.startswith("~"):
        return "begins with ~, which only a shell expands"
    if "/" not in chosen:
        return "is not a program on PATH"
    path = Path(chosen)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            return f"is a link to {os.fspath(path.readlink())!a}, which does not exist"
        return "does not exist" if path.is_absolute() else f"does not exist: it is relative to {_own_folder()}"
    except OSError as error:
        return f"cannot be checked: {error.strerror}"
    if stat.S_ISDIR(mode):
        return "is a folder"
    return "is not a file" if not stat.S_ISREG(mode) else "is not executable"


def _own_folder() -> str:
    try:
        return ascii(os.getcwd())  # noqa: PTH109
    except OSError:
        return "a folder that is gone"
