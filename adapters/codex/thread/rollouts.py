"""The files of a thread, as a witness of what is stored: where they are, how they continue each other, which messages they hold.

Codex lists a thread from a database (`thread_history_1.sqlite`) that it fills from these files. If the database cannot be
written, is gone, or is older than the files, the lists are stale or short, without an error (0.163.0). Codex also reports a
prompt as complete that a full disk did not take.

    sessions/2026/11/30/rollout-<time>-<thread>.jsonl            the thread's first file, one JSON object a line
    sessions/2026/11/30/rollout-<time>-<thread>_<segment>.jsonl  after a revert: goes on from a byte of an older file
    archived_sessions/rollout-...                                the same, of archived threads
    ....jsonl.zst                                                compressed by Codex: not readable here

The first line names the file and the byte that a segment or a fork goes on from (`history_base`); what the older file holds
behind that byte was taken back. Everything here blocks. Where a file of the thread cannot be read, nothing is known of what no
other file holds: `Filed.unread`, or `Unreadable`. Only regular files are opened: a pipe would never end.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final

from adapters.acp.shapes import as_count, as_mapping, as_text
from adapters.driver.uuids import UUID

_FOLDERS: Final = ("sessions", "archived_sessions")
_DEPTH: Final = 4
"""Folders below `sessions`: year, month, day, and one more."""
_PLAIN: Final = ".jsonl"
_COMPRESSED: Final = ".jsonl.zst"
_NAME: Final = re.compile(rf"-({UUID})(?:_({UUID}))?\.jsonl$")

_BUFFER: Final = 1024 * 1024
_LONGEST_HEAD: Final = 16 * 1024 * 1024
"""Bytes of a first line; it holds the thread's instructions."""

_LONGEST_NUMBER: Final = 100
_KEY: Final = b"client_id"
_ESCAPED: Final = re.compile(rb"\\u00[2-7]")
"""Another spelling of what could be written plainly: Codex does not, but a line with it is read, not passed over."""
_SAID: Final = re.compile(
    rb'"payload":\{"type":"item_completed",[^{}]*"item":\{"type":"(?:User|Agent)Message","id":"([^"\\]+)"'
)


class Unreadable(Exception):  # noqa: N818 - a state, as `Gone`
    """A file of the thread cannot be read, so what it holds is not known. The text says which and why."""


class Where(Enum):
    """Where a message is in a thread's files."""

    NOWHERE = "nowhere"
    HELD = "held"
    """In the thread as it is."""
    UNDONE = "undone"
    """Only in what somebody has reverted."""
    ASTRAY = "astray"
    """In a newer file than the thread leads to, or in another copy of one: Codex has loaded an older state of it."""


@dataclass(frozen=True, slots=True)
class Filed:
    """The ids of user messages in a thread's files. Those that a fork inherits are not among them: they are another thread's."""

    held: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    astray: frozenset[str] = frozenset()
    unread: str = ""
    """Which of the files cannot be read, and why: of what is not held nothing is known then."""

    def where(self, message_id: str) -> Where:
        """Where a message is; held counts before astray, and astray before undone."""
        if message_id in self.held:
            return Where.HELD
        if message_id in self.astray:
            return Where.ASTRAY
        return Where.UNDONE if message_id in self.undone else Where.NOWHERE


@dataclass(frozen=True, slots=True)
class Part:
    """What a thread consists of, of one file: its bytes up to `end`."""

    path: Path
    end: int


def read(home: Path, thread_id: str, path: str) -> Filed:
    """What all files of a thread hold. `path`: the file that Codex has it loaded from. Raises nothing: see `Filed.unread`."""
    held: set[str] = set()
    undone: set[str] = set()
    astray: set[str] = set()
    own: list[Part] = []
    unread = ""
    try:
        known = _files(home)
        for part in _chain(Path(path), known, thread_id):
            if thread_id in part.path.name:
                own.append(part)
                for end, message_id in _messages(part.path):
                    (held if end <= part.end else undone).add(message_id)
        for file, older in _others(known, thread_id, own):
            (undone if older else astray).update(message_id for _, message_id in _messages(file))
    except Unreadable as unreadable:
        unread = str(unreadable)
    return Filed(frozenset(held), frozenset(undone), frozenset(astray), unread)


def chain(home: Path, thread_id: str, path: str) -> Sequence[Part]:
    """What a thread consists of now, newest file first, with what it inherits."""
    newest = Path(path)
    return list(_chain(newest, _files(home) if _base(newest) else (), thread_id))


def missing(home: Path, thread_id: str, parts: Sequence[Part], shown: AbstractSet[str]) -> set[str]:
    """Codex's ids of the messages of user and agent that are not shown, in what a thread consists of, or did at a newer time."""
    own = [part for part in parts if thread_id in part.path.name]
    astray = [Part(file, _size(file)) for file, older in _others(_files(home), thread_id, own) if not older]
    if not astray:
        return said(parts) - shown
    undone = said([Part(part.path, _size(part.path)) for part in own])
    return (said(parts) | (said(astray) - undone)) - shown


def said(parts: Sequence[Part]) -> set[str]:
    """Codex's ids of the messages of user and agent in these parts. Leaves out what it does not recognise at once."""
    found: set[str] = set()
    for part in parts:
        with _opened(part.path) as file:
            at = 0
            for line in file:
                at += len(line)
                if at > part.end:
                    break
                if match := _SAID.search(line):
                    found.add(match[1].decode())
    return found


class Tail:
    """The end of a thread's file, from a mark on."""

    def __init__(self) -> None:
        self._file: tuple[int, int] | None = None
        self._size = 0

    def mark(self, path: str) -> None:
        """What comes from now on."""
        try:
            found = os.stat(path)  # noqa: PTH116 - on the way of each prompt
        except OSError:
            self._file, self._size = None, 0
        else:
            self._file, self._size = (found.st_dev, found.st_ino), found.st_size

    def holds(self, path: str, message_id: str, at_most: int | None = None) -> bool | None:
        """Whether a whole line behind the mark holds the message; None where more than `at_most` bytes would have to be read.

        Looks at the file that bears the name now: what goes into one that was replaced is not stored. Raises nothing: what
        cannot be read proves nothing.
        """
        try:
            with _opened(Path(path)) as file:
                found = os.fstat(file.fileno())
                same = (found.st_dev, found.st_ino) == self._file and found.st_size >= self._size
                start = self._size if same else 0
                if at_most is not None and found.st_size - start > at_most:
                    return None
                file.seek(start)
                wanted = message_id.encode()
                return any(wanted in line and line.endswith(b"\n") and _message_of(line) == message_id for line in file)
        except Unreadable:
            return False


# --- the files -----------------------------------------------------------------------------------------------------------


def _files(home: Path) -> Sequence[str]:
    """The files of all threads: there may be ten thousands of them."""
    return [file for folder in _FOLDERS for file in _walk(home / folder, _DEPTH)]


def _walk(folder: Path, depth: int) -> Iterator[str]:
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("rollout-") and entry.name.endswith((_PLAIN, _COMPRESSED)):
                    yield entry.path
                elif depth and _is_folder(entry):
                    folders.append(Path(entry.path))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if depth == _DEPTH or folder.name.isdigit():  # Codex's own: others cost only themselves
            raise Unreadable(f"{folder}: {error.strerror}") from None
    for inner in folders:
        yield from _walk(inner, depth - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed
        return False


def _others(known: Sequence[str], thread_id: str, own: Sequence[Part]) -> Iterator[tuple[Path, bool]]:
    """The thread's files that it does not lead to, each with whether it is older than the newest of those that it leads to.

    An older one was left aside by a revert. Another copy of a file is not older: one of the two may hold more.
    """
    files = [Path(file) for file in known if thread_id in file.rpartition(os.sep)[2]]
    leads_to = {_segment(part.path) for part in own}
    newest = _segment(own[0].path) if own else None
    for file in files:
        if any(_same(file, part.path) for part in own):
            continue
        if file.name.endswith(_COMPRESSED):
            if file.with_name(file.name.removesuffix(".zst")) not in files:
                raise Unreadable(f"{file} is compressed")
            continue  # being compressed or unpacked: the plain one is whole
        segment = _segment(file)
        yield file, segment is not None and newest is not None and segment < newest and segment not in leads_to


def _segment(file: Path) -> str | None:
    """What of a thread a file is: empty for its first one, else an id; later ones are greater. None for names of nobody's."""
    name = _NAME.search(file.name)
    return (name[2] or "") if name else None


def _same(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def _chain(newest: Path, known: Sequence[str], thread_id: str) -> Iterator[Part]:
    part = Part(newest, _size(newest))
    seen: set[Path] = set()
    while True:
        yield part
        seen.add(part.path)
        base = _base(part.path)
        if base is None:
            return
        name, end, forked = base
        endings = (f"-{name}{_PLAIN}", f"_{name}{_PLAIN}")
        found = sorted((file for file in known if file.endswith(endings)), key=lambda file: _FOLDERS[1] in file)
        if not found and forked and not any(name in file and thread_id in file for file in known):
            return  # of the thread that it was forked from: no message of its own is there
        if not found or Path(found[0]) in seen:
            raise Unreadable(f"{part.path} goes on from a file of {name}, which is missing or compressed")
        part = Part(Path(found[0]), end)


def _base(file: Path) -> tuple[str, int, bool] | None:
    """What a file goes on from: whose file, up to which byte, and whether that may be another thread's (a fork)."""
    with _opened(file) as opened:
        meta = as_mapping(_parsed(opened.readline(_LONGEST_HEAD)).get("payload"))
    base = as_mapping(meta.get("history_base"))
    name = as_text(base.get("thread_id"))
    return (name, as_count(base.get("end_byte_offset")), bool(meta.get("forked_from_id"))) if name else None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None


@contextmanager
def _opened(file: Path) -> Generator[BinaryIO]:
    try:
        number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)  # nobody else would: `open` refuses a folder
            raise Unreadable(f"{file} is not a regular file")
        with open(number, "rb", buffering=_BUFFER) as opened:  # noqa: PTH123 - a descriptor
            yield opened
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None


# --- the lines -----------------------------------------------------------------------------------------------------------


def _messages(path: Path) -> Iterator[tuple[int, str]]:
    """The ids of user messages in a file, each with the byte behind its line."""
    with _opened(path) as file:
        at = 0
        for line in file:
            at += len(line)
            if may_name_a_message(line) and (message_id := _message_of(line)):
                yield at, message_id


def may_name_a_message(line: bytes) -> bool:
    """False only where no spelling of JSON in this line says `client_id`."""
    return _KEY in line or _ESCAPED.search(line) is not None


def _message_of(line: bytes) -> str | None:
    """The id of the user message that a line stores; paginated and legacy threads have a form each."""
    payload = as_mapping(_parsed(line).get("payload"))
    if payload.get("type") == "user_message":
        return as_text(payload.get("client_id")) or None
    item = as_mapping(payload.get("item"))
    if payload.get("type") == "item_completed" and item.get("type") == "UserMessage":
        return as_text(item.get("client_id")) or None
    return None


def _parsed(line: bytes) -> Mapping[str, Any]:
    """A line as an object; empty for a torn one, which Codex passes over too. Reads whatever Codex can read."""
    try:
        return as_mapping(json.loads(line.decode(errors="replace"), parse_int=_number))
    except (ValueError, RecursionError):
        return {}


def _number(digits: str) -> int:
    return int(digits) if len(digits) < _LONGEST_NUMBER else 0  # Python refuses thousands of digits
