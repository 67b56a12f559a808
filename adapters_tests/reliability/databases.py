"""Codex's databases: locked by somebody else, not writable, gone, or older than its files.

Owns what is done to them from outside. Codex keeps a thread in a rollout file, and beside it what it knows of threads
(`state_*`) and of their items (`thread_history_*`) in sqlite.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

NAMES = ("state", "thread_history")

_TAKEN_WITHIN = 2.0
"""Seconds in which a lock must be had: Codex writes for milliseconds."""


def files(home: Path, name: str) -> list[Path]:
    """The files of a database: itself, its log and the index of that."""
    return sorted(path for path in home.rglob(f"{name}_*.sqlite*") if path.is_file())


@contextmanager
def locked(home: Path, name: str) -> Iterator[None]:
    """Somebody else writes to the database, and takes his time."""
    [path] = [path for path in files(home, name) if path.suffix == ".sqlite"]
    connection = sqlite3.connect(path, timeout=_TAKEN_WITHIN, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


@contextmanager
def immutable(home: Path, name: str) -> Iterator[None]:
    """Nobody can write to the database, not even the root user."""
    changed = files(home, name)
    try:
        _set("+i", changed)
        yield
    finally:
        _set("-i", changed)


def can_be_immutable(folder: Path) -> bool:
    """Whether this user can make files in this folder immutable."""
    probe = folder / "probe of chattr"
    probe.touch()
    try:
        _set("+i", [probe])
        _set("-i", [probe])
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        probe.unlink()
    return True


def _set(flag: str, paths: list[Path]) -> None:
    subprocess.run(["chattr", flag, *(str(path) for path in paths)], check=True, capture_output=True)


def remove(home: Path, name: str) -> None:
    """As if the files had been moved to another machine without it. Only while no Codex runs."""
    for path in files(home, name):
        path.unlink()


def keep(home: Path, name: str, folder: Path) -> None:
    """Copy the database as it is now. Only while no Codex runs."""
    folder.mkdir()
    for path in files(home, name):
        shutil.copy2(path, folder / path.name)


def put_back(home: Path, name: str, folder: Path) -> None:
    """The copy replaces what is there, as a backup does. Only while no Codex runs."""
    here = files(home, name)[0].parent if files(home, name) else home
    remove(home, name)
    for path in folder.iterdir():
        shutil.copy2(path, here / path.name)


async def locked_for(home: Path, name: str, seconds: float, released: anyio.Event) -> None:
    """Hold the lock so long, then set the event."""
    try:
        with locked(home, name):
            await anyio.sleep(seconds)
    finally:
        released.set()
