"""The list of stored Claude Code sessions, and the deletion of one (LIST-*, DEL-*).

Owns what a row shows and the order of pages. Reads only the head and the tail of each file. The folder of a session comes from
inside the file, because the name of a project folder does not tell it. A damaged or unreadable file is left out, never an error.
Calls block: run them in a worker thread.
"""

import base64
import binascii
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ResourceLinkBlock, TextBlock
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.stored import cli_texts
from adapters.claude.stored.content import from_content
from adapters.claude.stored.ownership import Ownership, names_another
from adapters.claude.stored.queue_notes import Queued
from adapters.claude.stored.session_files import ABSENT, Project, project_folders, valid_session_id
from adapters.claude.stored.transcript import holds_tool_result, is_side_entry, parse_line
from adapters.core import file_calls
from adapters.core.port import SessionPage, StoredSession
from adapters.driver import markup
from adapters.driver.tool_text import one_line
from adapters.driver.uuids import UUID

PAGE = 50
"""Sessions per page (LIST-3)."""

_UUID = re.compile(UUID, re.IGNORECASE)
"""Names of session files. Subagents' files (`agent-...`) are none."""

_ENDS = 64 * 1024
"""Bytes read of each end of a file."""

_FAR = 64 * 1024 * 1024
"""Bytes searched for the session's folder when the first prompt fills the head."""

_CWD = re.compile(rb'"cwd":\s*("(?:[^"\\]|\\.)*")(?:,\s*"sessionId":\s*"([^"]*)")?')
_SESSION = re.compile(rb'"sessionId":\s*"([^"]*)"')
_FIRST_TEXT = re.compile(rb'"content":\s*(?:\[\{"type":"text","text":)?("(?:[^"\\]|\\.){1,400})')
"""The beginning of a prompt whose line is longer than the head."""
_IS_USER = re.compile(rb'"type":\s*"user"')


def list_page(config_dir: Path, cwd: str | None, cursor: str | None, limit: int = PAGE) -> SessionPage:
    """One page of stored sessions, last written first.

    `cwd` keeps only sessions of exactly that folder (LIST-2). Raises `InvalidParams` for a cursor that this function did
    not give (LIST-3). A cursor holds no state here: sessions written meanwhile move to the front.
    """
    after = None if cursor is None else _read_cursor(cursor)
    wanted = None if cwd is None else {os.path.normpath(cwd), file_calls.real_path(cwd)}
    rows: list[StoredSession] = []
    last: _File | None = None
    for file in _files(config_dir):
        if after is not None and file.order >= after:
            continue
        row = _row(file, wanted)
        if row is None:
            continue
        if len(rows) == limit and last is not None:
            return SessionPage(rows, _write_cursor(last))
        rows.append(row)
        last = file
    return SessionPage(rows)


def delete(config_dir: Path, session_id: str) -> None:
    """Remove a stored session and its companion folder, wherever they are; a missing one is success (DEL-2).

    Raises `OSError` when a part of it cannot be removed, or nothing was found and a folder that could hold it cannot be seen.
    """
    if not valid_session_id(session_id):
        return
    failure: OSError | None = None
    unseen: OSError | None = None
    found = False
    for folder in project_folders(config_dir):
        for name, remove in ((f"{session_id}.jsonl", _remove_file), (session_id, _remove_folder)):
            path = os.path.join(folder, name)  # noqa: PTH118
            try:
                file_calls.stat(path, follow=False)
            except OSError as error:
                unseen = unseen if error.errno in ABSENT else error
                continue
            found = True
            try:
                remove(path)
            except OSError as error:
                failure = error
    if failure or (unseen and not found):
        raise failure or unseen or OSError


def _remove_file(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _remove_folder(path: str) -> None:
    if os.path.islink(path):  # noqa: PTH114
        _remove_file(path)
    elif os.path.isdir(path):  # noqa: PTH112
        shutil.rmtree(path)


# --- files and cursors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    session_id: str
    path: str
    written: int
    """Modification time, nanoseconds."""

    @property
    def order(self) -> tuple[int, str]:
        return (self.written, self.session_id)


def _files(config_dir: Path) -> list[_File]:
    """All sessions, last written first, each with the file that Claude Code works with when it is resumed in its own folder."""
    found: dict[str, list[_File]] = {}
    for folder in _entries(str(config_dir / "projects")):
        for entry in _entries(folder.path):
            stem, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - thousands of files
            if suffix != ".jsonl" or not _UUID.fullmatch(stem):
                continue
            try:
                there = file_calls.stat(entry.path)
            except OSError:
                continue
            if there.st_size and stat.S_ISREG(there.st_mode):
                found.setdefault(stem, []).append(_File(stem, entry.path, there.st_mtime_ns))
    return sorted(map(_used, found.values()), key=lambda file: file.order, reverse=True)


def _used(copies: list[_File]) -> _File:
    """Of several the one in the project folder of its own working folder, else the newest."""
    copies.sort(key=lambda file: file.order, reverse=True)
    if len(copies) > 1:
        for file in copies:
            with suppress(OSError), file_calls.open_file(file.path, _ENDS) as opened:
                cwd = _cwd_of(opened, opened.read(_ENDS), file.session_id)
                if cwd and Project(cwd).is_at(os.path.dirname(file.path)):  # noqa: PTH120
                    return file
    return copies[0]


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        return file_calls.scan(folder)
    except OSError:
        return []


def _write_cursor(file: _File) -> str:
    return base64.urlsafe_b64encode(json.dumps([1, *file.order]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        value = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        value = None
    match value:
        case [1, int(written), str(session_id)]:
            return written, session_id
        case _:
            raise InvalidParams("cursor is not one that this agent gave: list from the start.")


# --- rows ------------------------------------------------------------------------------------------------------------


def _row(file: _File, wanted: set[str] | None) -> StoredSession | None:
    """The row of a file; None if it is not a session, not in a wanted folder, or cannot be read."""
    try:
        with file_calls.open_file(file.path, _ENDS) as opened:
            head = opened.read(_ENDS)
            whole = len(head) < _ENDS
            cwd = _cwd_of(opened, head, file.session_id)
            if not cwd or (wanted is not None and os.path.normpath(cwd) not in wanted):
                return None
            entries = list(_lines(head, whole=whole))
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(len(head), size - _ENDS))
            entries += _lines(opened.read(_ENDS), whole=True)
            ownership = Ownership(file.session_id, entries.copy)
            entries = [entry for entry in entries if ownership.holds(entry)]
            if _is_sidechain(entries):
                return None
            title = _title(entries)
            if not title and (text := _cut_text(head)) and _cut_line_is_own(opened, file.session_id):
                title = one_line(markup.spoken(text))
    except OSError:
        return None
    return StoredSession(file.session_id, cwd, title or None, _updated_at(entries, file.written))


def _lines(block: bytes, *, whole: bool) -> Iterator[Mapping[str, Any]]:
    """The entries of a block of a file, parsed as they are asked for. Lines cut at its ends do not parse."""
    lines = block.split(b"\n")
    if not whole:
        lines.pop()
    return (entry for line in lines if (entry := parse_line(line)) is not None)


def _cwd_of(file: BinaryIO, head: bytes, session_id: str) -> str:
    """The session's folder, empty where no entry tells. Only where no entry of its own tells, that of another one counts."""
    anybodys = ""
    for entry in _lines(head, whole=len(head) < _ENDS):
        cwd = _absolute(entry)
        if cwd and not names_another(entry, session_id):
            return cwd
        anybodys = anybodys or cwd
    return (_far_cwd(file, session_id) if len(head) == _ENDS else "") or anybodys


def _absolute(entry: Mapping[str, Any] | None) -> str:
    cwd = as_text((entry or {}).get("cwd"))
    return cwd if os.path.isabs(cwd) else ""  # noqa: PTH117


def _far_cwd(file: BinaryIO, session_id: str) -> str:
    """The folder behind a first line that is longer than the head. Claude Code writes it right before the session's id."""
    file.seek(0)
    rest, read, anybodys = b"", 0, ""
    while read < _FAR and (block := file.read(1024 * 1024)):
        read += len(block)
        for found in _CWD.finditer(rest + block):
            cwd = _absolute(parse_line(b'{"cwd":' + found[1] + b"}"))
            if found[2] == session_id.encode():
                return cwd
            anybodys = anybodys or cwd
        rest = block[-_ENDS:]
    return anybodys


def _cut_line_is_own(file: BinaryIO, session_id: str) -> bool:
    """Whether the line that goes on behind the head is of this session, by what stands at its end."""
    file.seek(_ENDS)
    rest, read = b"", 0
    while read < _FAR and (block := file.read(1024 * 1024)):
        read += len(block)
        line, ended, _ = (rest + block).partition(b"\n")
        rest = line[-_ENDS:]
        if ended:
            break
    named = _SESSION.findall(rest)
    return not named or named[-1] == session_id.encode()


def _is_sidechain(entries: list[Mapping[str, Any]]) -> bool:
    """Whether the file is a subagent's: its first message says so."""
    messages = (entry for entry in entries if entry.get("type") in ("user", "assistant"))
    return bool(next(messages, as_mapping(None)).get("isSidechain"))


def _title(entries: list[Mapping[str, Any]]) -> str:
    """The title a user gave, else one the runtime made, else the first prompt."""
    ids = {entry.get("uuid") for entry in entries if isinstance(entry.get("uuid"), str)}
    for kind, name in (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary")):
        titles = [
            one_line(as_text(entry.get(name))) for entry in entries if entry.get("type") == kind and _is_of(entry, ids)
        ]
        if any(titles):
            return next(title for title in reversed(titles) if title)
    command, queued = "", Queued()
    for entry in entries:
        if entry.get("type") == "queue-operation":
            queued.feed(entry)
        text = _prompt_text(entry, queued)
        if text and not text.startswith("/"):
            return text
        command = command or text
    return command


def _is_of(title: Mapping[str, Any], ids: set[Any]) -> bool:
    """Whether a title belongs to the session: a summary names the last entry of its conversation, perhaps in another file."""
    leaf = as_text(title.get("leafUuid"))
    return not leaf or leaf in ids


def _prompt_text(entry: Mapping[str, Any], queued: Queued) -> str:
    """The words of a prompt on one line, as they were typed; empty for entries that are none."""
    if entry.get("type") != "user" or is_side_entry(entry) or holds_tool_result(entry):
        return ""
    content = as_mapping(entry.get("message")).get("content")
    if not entry.get("promptSource") and (
        cli_texts.is_hidden(content) or cli_texts.command_output(content) is not None
    ):
        return ""
    content = queued.as_typed(content)
    blocks = from_content(content if isinstance(content, str) else as_list(content)[:8])
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    names = [block.name for block in blocks if isinstance(block, ResourceLinkBlock)]
    return one_line(" ".join(texts)) or one_line(" ".join(names))


def _cut_text(head: bytes) -> str:
    """The beginning of a prompt that goes on behind the head."""
    line = head[head.rfind(b"\n") + 1 :]
    found = _FIRST_TEXT.search(line) if len(head) == _ENDS and _IS_USER.search(line) else None
    if found is None:
        return ""
    for cut in range(7):  # the last character may be half an escape
        entry = parse_line(b'{"text":' + found[1][: len(found[1]) - cut] + b'"}')
        if entry is not None:
            return as_text(entry.get("text")).rstrip("\ufffd")
    return ""


def _updated_at(entries: list[Mapping[str, Any]], written: int) -> str:
    """RFC 3339, UTC: of the last entry that tells, else of the file."""
    for entry in reversed(entries):
        try:
            moment = datetime.fromisoformat(as_text(entry.get("timestamp")))
        except ValueError:
            continue
        if moment.tzinfo is not None:
            return _rfc3339(moment)
    return _rfc3339(datetime.fromtimestamp(written / 1e9, UTC))


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
