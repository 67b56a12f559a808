"""Threads that a move into or out of Codex's archive left half-way: finds them, and puts them where Codex finds them.

Codex archives a thread in two steps: it moves the files from `sessions/<day>` to `archived_sessions`, and records that in its
database. If it is killed or held up in between, it never finds the thread again in either place (0.163.0). This agent, up to
version 0.1.0, had threads archived for a moment when a session was closed, so such threads exist.

Codex's database is only read. Files are moved, but never over another file, and only for a thread that a client asked for by its
id and that Codex does not find. Everything here blocks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.driver.uuids import UUID
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_DATABASE: Final = "state_5.sqlite"
_PATIENCE: Final = 0.5
"""Seconds to wait for a lock; nobody keeps readers out for long."""
_ARCHIVE: Final = "archived_sessions"
_SESSIONS: Final = "sessions"
_FILE: Final = re.compile(rf"rollout-(\d{{4}})-(\d{{2}})-(\d{{2}})T[\d-]*-({UUID})(?:_[0-9a-f-]+)?\.jsonl(?:\.zst)?")


@dataclass(frozen=True, slots=True)
class Lost:
    """Threads that Codex does not list. What the user has archived is in the archive, and noted as archived."""

    moved: frozenset[str]
    """Their files are in the archive, and they are not noted."""
    noted: frozenset[str]
    """They are noted, and their files are not in the archive."""


def lost(home: Path) -> Lost | None:
    """The threads that were left half-way; None where there are none, and where it cannot be told."""
    database = home / _DATABASE
    moved = {found[4] for found, _ in _files(home / _ARCHIVE, "*")}
    if not database.is_file():
        return None
    import sqlite3  # noqa: PLC0415 - not for the start

    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)) as opened:
            known = dict(opened.execute("SELECT id, archived FROM threads").fetchall())
    except sqlite3.Error as error:
        _log.warning(LogEvent("Codex's database cannot be asked for archived threads", error=type(error).__name__))
        return None
    noted = {thread for thread, archived in known.items() if archived}
    found = Lost(frozenset(moved & known.keys() - noted), frozenset(noted - moved))
    return found if found.moved or found.noted else None


def is_in(home: Path, thread_id: str) -> bool:
    """Whether the archive holds files of this thread."""
    return any(_files(home / _ARCHIVE, f"*{thread_id}*"))


def take_out(home: Path, thread_id: str) -> None:
    """Move its files to where Codex would have unarchived them. Raises `OSError`."""
    for found, file in list(_files(home / _ARCHIVE, f"*{thread_id}*")):
        _move(file, home / _SESSIONS / found[1] / found[2] / found[3])


def put_in(home: Path, thread_id: str) -> None:
    """Move its files into the archive, where Codex's database has them. Raises `OSError`."""
    for _, file in list(_files(home / _SESSIONS, f"*/*/*/*{thread_id}*")):
        _move(file, home / _ARCHIVE)


def _files(folder: Path, pattern: str) -> Iterator[tuple[re.Match[str], Path]]:
    for file in folder.glob(pattern):
        if found := _FILE.fullmatch(file.name):
            yield found, file


def _move(file: Path, folder: Path) -> None:
    target = folder / file.name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.rename(target)
