"""Which user messages a stored Claude Code session holds: the evidence of insertion (D2, D4, ADP-4, ADP-5).

Owns the rule for message ids in stored entries, and the reading of a session's files from the end of the last read.
`session_files` says which files these are. Knows no ACP updates and never writes. Calls block: run them in a worker thread.

A file has one JSON object per line. Any number of processes append to it without a lock. A line may be torn (a process was
killed), of any size, and of any shape.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from adapters.acp.shapes import as_list, as_mapping
from adapters.claude.stored.session_files import Files
from adapters.core.file_calls import open_file, stat

_USER_ENTRY = re.compile(rb'"type"\s*:\s*"user"')

_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
"""A letter, or `_`, that is spelled as its number. Claude Code writes control characters so, nothing else of ASCII."""

_TOOLS_RESULT = re.compile(
    rb"""\{(?:"\w+":(?:"[^"\\]*"|null|true|false|\d+),)*+"message":\{"role":"user","content":\[\{"""
    rb"""(?:"tool_use_id":"[^"\\]*",)?"type":"tool_result"[,}]"""
)
"""How a tool's result begins in a line of Claude Code 2.1.332: from the entry's start on, so that nobody's text looks like it."""

_NEXT_IN_LIST = re.compile(rb',\s*\{\s*"')
"""An object that stands behind something else in a list: without one in the line, nothing stands beside a tool's result."""

_TAIL = 1024
"""Bytes at the end of a line in which Claude Code 2.1.332 writes an entry's type, id and place, after its message."""

_FINGERPRINT = 256
"""Bytes before the read position that must be unchanged for the rest of the file to count as appended."""


def message_ids_of(entry: Mapping[str, Any]) -> set[str]:
    """The ids of the user messages that a stored (or mirrored) entry holds; empty for every other entry.

    A prompt's own entry, prompts merged into it, a prompt taken in while a turn ran (`queued_command`), and a local
    command that was not available (`submitUuid`). Ids elsewhere (`commandUuid`, `parentUuid`, ...) prove nothing: a
    withdrawn prompt leaves its id there, too.
    """
    kind = entry.get("type")
    if kind == "user":
        ids = _strings(entry.get("mergedSendUuids"))
        if not is_side_entry(entry) and (not holds_tool_result(entry) or beside_tool_results(entry)):
            ids |= _strings([entry.get("uuid")])
        return ids
    if kind == "attachment":
        attachment = as_mapping(entry.get("attachment"))
        if attachment.get("type") == "queued_command" and not is_task_notification(attachment):
            return _strings([attachment.get("source_uuid")])
        return set()
    if kind == "system":
        return _strings([entry.get("submitUuid")])
    return set()


def is_side_entry(entry: Mapping[str, Any]) -> bool:
    """Whether a user entry was made by the runtime itself: hidden text, a subagent's, a summary, a task's report."""
    if any(entry.get(mark) for mark in ("isMeta", "isSidechain", "isCompactSummary")):
        return True
    return is_task_notification(entry)


def is_task_notification(entry: Mapping[str, Any]) -> bool:
    """Whether a background task's end caused this entry or frame."""
    return as_mapping(entry.get("origin")).get("kind") == "task-notification"


def holds_tool_result(entry: Mapping[str, Any]) -> bool:
    """Whether a user entry carries tool results rather than what a user said."""
    content = as_list(as_mapping(entry.get("message")).get("content"))
    return any(as_mapping(block).get("type") == "tool_result" for block in content)


def beside_tool_results(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The blocks of a user entry that are no tool results."""
    blocks = map(as_mapping, as_list(as_mapping(entry.get("message")).get("content")))
    return [block for block in blocks if block and block.get("type") != "tool_result"]


def _strings(values: Any) -> set[str]:
    return {item for item in as_list(values) if isinstance(item, str) and item}


def parse_line(line: bytes) -> Mapping[str, Any] | None:
    """The entry on a line, None when there is none. Lone surrogates pass; bytes that are no UTF-8 are replaced."""
    try:
        text = line.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
    try:
        entry = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", entry) if isinstance(entry, dict) else None


def _may_hold_ids(line: bytes) -> bool:
    """Cheap look at the bytes of a line: False only when `message_ids_of` of its entry is empty for certain.

    A quote inside a JSON string is escaped, so a name in quotes is a whole string of the line; but it may be anybody's: a
    member, a value, or all that a user wrote. Its presence proves nothing. Its absence does, where no letter is escaped.
    """
    if _is_of_the_assistant(line):
        return False
    if b"\\" in line and b"\\u00" in line and _ESCAPED_LETTER.search(line):
        return True
    if b'"user"' in line and _USER_ENTRY.search(line):
        if b'"mergedSendUuids"' in line or _TOOLS_RESULT.match(line) is None:
            return True
        return _NEXT_IN_LIST.search(line) is not None  # perhaps what the user says beside the result
    return b'"queued_command"' in line or b'"submitUuid"' in line


def _is_of_the_assistant(line: bytes) -> bool:
    """Whether the entry's own type is "assistant" for certain, from the end of its line: most of a long session is these.

    Between this member and the end stand no inner object and no second type, so it is a member of the entry itself.
    """
    at = line.rfind(b',"type":"assistant"', -_TAIL)
    if at < 0:
        return False
    rest = line[at:]
    return rest.count(b"}") == 1 and rest.count(b'"type"') == 1 and b"{" not in rest and b"\\" not in rest


@dataclass(frozen=True, slots=True)
class Refresh:
    """The result of one read of the file."""

    new_entry_uuids: frozenset[str] = frozenset()
    """`uuid`s of all entries that came after `Transcript.mark` (else the first look) and were not reported before."""
    replaced: bool = False
    """The file is another one than at the last look, or was rewritten: everything was read again."""


@dataclass(slots=True)
class _Position:
    """How far a file was read, and what makes sure that it is still that file."""

    path: Path
    device: int
    inode: int
    offset: int = 0
    before: bytes = b""
    """The bytes just before `offset`."""

    def still_holds(self, file: BinaryIO) -> bool:
        there = os.fstat(file.fileno())
        if (there.st_dev, there.st_ino) != (self.device, self.inode) or there.st_size < self.offset:
            return False
        return os.pread(file.fileno(), len(self.before), self.offset - len(self.before)) == self.before


class Transcript:
    """The user messages that one stored session holds, kept current by reading only what was appended.

    Reads the file that the runtime works with: by the rule of `session_files`, until the runtime names it (`name_file`). What
    copies of it hold counts, too: they are read at the first look and at each `mark`, for no process of ours writes there.
    `find` gives the files. Not thread-safe: one call at a time.
    """

    def __init__(self, find: Callable[[], Files]) -> None:
        self._find = find
        self._position: _Position | None = None
        self._ids: set[str] = set()
        self._copies: dict[Path, Transcript] = {}
        self._named: Path | None = None
        """A file that the runtime has named, not compared yet with the one that is read."""
        self._mark: int | None = None
        self._reported: set[str] = set()

    @property
    def user_message_ids(self) -> AbstractSet[str]:
        """Every user message id seen at the last `refresh`."""
        return self._ids.union(*(copy.user_message_ids for copy in self._copies.values()))

    def holds(self, message_id: str) -> bool:
        """Whether the session held this user message at the last `refresh`."""
        return message_id in self._ids or any(copy.holds(message_id) for copy in self._copies.values())

    def name_file(self, path: str) -> None:
        """The runtime has said that it writes to this file: from the next look on it is the one that is read, if it is there."""
        self._named = Path(path)

    def path(self) -> Path | None:
        """The file that the runtime works with, None while there is none. Raises `OSError`."""
        self._follow()
        return self._position.path if self._position else self._find().used

    def mark(self) -> bool:
        """Note the present end of the file: a runtime process started after this call knows everything before it.

        Entries that end after the mark are reported by `refresh`, once. Without any mark that is everything after the
        first look. Whether there is a file. Raises `OSError`.
        """
        self._named = None  # the next process chooses anew
        used = self._look_around()
        if self._position and used and used != self._position.path:
            self._leave()
        self._mark = stat(used).st_size if used else 0
        return used is not None

    def refresh(self) -> Refresh:
        """Read what was appended since the last call (everything at first).

        Returns once everything that was in the file at the time of the call is taken in. A file that was replaced,
        truncated or rewritten is read from its start, and what only the old one held is forgotten. Raises `OSError`
        when the file cannot be read, or is gone although it was there before: then nothing is known (ADP-6).
        """
        self._follow()
        path = self._position.path if self._position else self._look_around()
        if path is None:
            return Refresh()  # the session was never stored
        try:
            file = open_file(path)
        except FileNotFoundError:
            path = self._look_around()
            if path is None:
                raise FileNotFoundError(errno.ENOENT, "the stored session is gone", str(self._path_text())) from None
            file = open_file(path)
        with file:
            replaced = self._position is not None and not self._position.still_holds(file)
            if self._position is None or replaced:
                there = os.fstat(file.fileno())
                self._position = _Position(path, there.st_dev, there.st_ino)
                if replaced:
                    self._ids = set()
                    self._reported = set()
                    self._mark = 0
            self._position.path = path
            return Refresh(self._read(file, self._position), replaced=replaced)

    def _look_around(self) -> Path | None:
        """Find the files anew and read the copies; the one in use."""
        files = self._find()
        known, self._copies = self._copies, {}
        for path in files.copies:
            copy = self._copies[path] = known.get(path) or Transcript(partial(Files, path))
            copy.refresh()
        return files.used

    def _follow(self) -> None:
        """Go over to the file that the runtime has named, if it is another one: what is in it now is known to the runtime."""
        if self._named is None or self._position is None:
            return  # to be compared once a file is read
        named, self._named = self._named, None
        if named == self._position.path:
            return
        try:
            there = stat(named)
        except OSError:
            return  # it is named as the runtime sees it, perhaps from elsewhere
        if (there.st_dev, there.st_ino) != (self._position.device, self._position.inode):
            left = Transcript(partial(Files, self._position.path))
            left.refresh()
            self._copies[self._position.path] = left
            self._leave()
            self._mark = None
            self._position = _Position(named, there.st_dev, there.st_ino)

    def _leave(self) -> None:
        """The file that was read is not the one in use."""
        self._position, self._ids, self._reported = None, set(), set()

    def _path_text(self) -> str:
        return str(self._position.path) if self._position else "?"

    def _read(self, file: BinaryIO, position: _Position) -> frozenset[str]:
        mark = sys.maxsize if self._mark is None else self._mark
        news: set[str] = set()
        torn: set[str] = set()
        end = position.offset
        file.seek(end)
        for line in file:
            end = position.offset + len(line)
            is_new = end > mark + 1  # the one byte is the newline with which a new process ends a torn line
            entry = parse_line(line) if is_new or _may_hold_ids(line) else None
            if entry is not None:
                self._ids |= message_ids_of(entry)
                if is_new:
                    news |= _strings([entry.get("uuid")]) - self._reported
            if not line.endswith(b"\n"):
                # The last line is still being written, or was torn by a kill. It counts when it is whole, and is read
                # again next time.
                torn = self._reported | news
                break
            position.offset = end
            position.before = (position.before + line[-_FINGERPRINT:])[-_FINGERPRINT:]
        self._reported = torn
        if self._mark is None:
            self._mark = end
        return frozenset(news)
