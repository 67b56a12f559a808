"""What the checks of `doctor` have in common: a program and its version, a folder, processes that nobody ends.

Knows no runtime. Each check is bounded and writes nothing that stays.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters import inquiry
from adapters.driver.executable import Found
from adapters.driver.version import numbers
from adapters.plugins import FAILED, NOT_INSTALLED, OK, UNSURE, Check

SHOWS_LATER: Final = " (the first prompt shows whether it is valid)"


@dataclass(frozen=True, slots=True)
class Known:
    """How a runtime's program is recognized."""

    title: str
    variable: str
    version: re.Pattern[str]
    """What `--version` prints: the number is the first group."""
    tested: str
    """The version that this agent is tested with."""


def check_program(
    found: Found | None, known: Known, missing: Callable[[Mapping[str, str]], str], environ: Mapping[str, str]
) -> list[Check]:
    """The program and its version, or that it is not installed."""
    if found is None:
        return [Check("program" if environ.get(known.variable) else NOT_INSTALLED, FAILED, missing(environ))]
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


def check_store(folder: Path, variable: str) -> Check:
    """The folder of the stored sessions."""
    reason = "only a stored prompt is recognized when it is sent again"
    return check_folder("session store", folder, f"make it writable, or set {variable} to another folder: {reason}")


def check_folder(name: str, folder: Path, remedy: str) -> Check:
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


def check_leftovers(consequence: str, left: str) -> list[Check]:
    """A warning where processes cannot be found by the mark of their agent, which takes /proc."""
    if sys.platform != "darwin":
        return []
    detail = f"macOS: processes left by a killed agent are not stopped; {consequence}"
    return [
        Check("crash safety", UNSURE, detail, f"after a crash of the agent, end the {left} that it left, then resume")
    ]


def _first_line(output: bytes) -> str:
    """The first line as printable text, cut to a line's length."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return "".join(character for character in lines[0] if character.isprintable())[:200] if lines else ""
