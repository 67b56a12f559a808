r"""The files that Claude Code edits, looked at before and after: what it reports of them has lost how their lines end.

Owns when a file is looked at: when its call is told, before a question about it is asked, when its result is there. A look is
bounded, in a thread; one that fails or comes too late costs no more than the true line ends. What an edit changes is in `edits`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio

from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show import edits
from adapters.core.file_calls import StuckError, in_thread, open_file
from adapters.core.file_change import FileChange
from adapters.driver.tool_text import absolute
from adapters.log import LogEvent

_log: Final = logging.getLogger(__name__)

_PATHS: Final = {"Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_MOST: Final = 4_000_000
"""Bytes of a file that is looked at."""
_BOUND: Final = 1.0
"""Seconds for a look. What Claude Code says next waits for it."""
_MOST_KEPT: Final = 8_000_000
"""Characters that are kept for replays."""
_ENTRY: Final = 1000
"""What a change counts beside its text."""

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at a path. `text` is None for no file, and for a file that is no UTF-8."""

    there: bool
    text: str | None = None


def look_at(path: str) -> Found | None:
    """What stands there now; None when that cannot be said. Blocks."""
    try:
        with open_file(path) as file:
            data = file.read(_MOST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Found(there=False)
    except (OSError, ValueError):
        return None
    if len(data) > _MOST:
        return None
    try:
        return Found(there=True, text=data.decode())
    except UnicodeDecodeError:
        return Found(there=True)


class KnownChanges:
    """Changes of which more is known than is stored, for replays in this process. Bounded; the oldest are forgotten."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], FileChange] = {}
        self._size = 0

    def add(self, session_id: str, tool_use_id: str, change: FileChange) -> None:
        """Keep what a call of a session has changed."""
        if before := self._changes.pop((session_id, tool_use_id), None):
            self._size -= _size(before)
        self._changes[session_id, tool_use_id] = change
        self._size += _size(change)
        while self._size > _MOST_KEPT:
            self._size -= _size(self._changes.pop(next(iter(self._changes))))

    def find(self, session_id: str, tool_use_id: str) -> FileChange | None:
        """What was kept."""
        return self._changes.get((session_id, tool_use_id))


def _size(change: FileChange) -> int:
    return _ENTRY + len(change.hunks or "")


@dataclass(slots=True)
class _Call:
    name: str
    path: str
    before: Found | None = None
    change: FileChange | None = None


class EditedFiles:
    """The edits of one session that run. `keep` takes what a call has changed, where that is more than it reports."""

    def __init__(self, cwd: str, keep: Callable[[str, FileChange], None]) -> None:
        self._cwd = cwd
        self._keep = keep
        self._calls: dict[str, _Call] = {}

    def wants(self, frame: Fields) -> bool:
        """Whether `look` has something to do before this frame is shown."""
        match frame.get("type"):
            case "assistant":
                return not frame.get("parent_tool_use_id") and any(self._edits(frame))
            case "control_request":
                return bool(self._calls) and self._asked(frame) in self._calls
            case "user":
                return bool(self._calls) and any(call_id in self._calls for call_id in _answered(frame))
            case _:
                return False

    async def look(self, frame: Fields) -> None:
        """Look at the files of a frame. Never raises; returns within `_BOUND` seconds."""
        match frame.get("type"):
            case "assistant":
                calls = self._edits(frame)
                self._calls.update(calls)
                await self._do(lambda: [_looked(call) for call in calls.values()])
            case "control_request":
                request = as_mapping(frame.get("request"))
                await self._do(partial(_asked_about, self._calls[self._asked(frame)], as_mapping(request.get("input"))))
            case _:
                for call_id in _answered(frame):
                    if call := self._calls.pop(call_id, None):
                        await self._ended(call_id, call, as_mapping(frame.get("tool_use_result")))

    async def _ended(self, call_id: str, call: _Call, result: Fields) -> None:
        call.change = None
        others = [other for other in self._calls.values() if other.path == call.path]

        def work() -> None:
            if edits.path_in(result, self._cwd) == call.path:
                call.change = change_of(call.before, result, call.path)
            for other in others:
                _looked(other)

        await self._do(work)
        if call.change:
            self._keep(call_id, call.change)

    def predicted(self, tool_use_id: str) -> FileChange | None:
        """What a call that is asked about will change; None when that is not known."""
        call = self._calls.get(tool_use_id)
        return call.change if call else None

    def clear(self) -> None:
        """Nothing runs any more."""
        self._calls.clear()

    async def _do(self, work: Callable[[], object]) -> None:
        try:
            with anyio.move_on_after(_BOUND):
                await in_thread(work)
        except StuckError:
            pass  # a disk that does not answer: Claude Code itself will say so
        except Exception as error:  # noqa: BLE001 - results may have any shape: it costs the line ends, not the frame (D11)
            _log.warning(LogEvent("an edit could not be handled", error=type(error).__name__))

    def _edits(self, frame: Fields) -> dict[str, _Call]:
        blocks = map(as_mapping, as_list(as_mapping(frame.get("message")).get("content")))
        found: dict[str, _Call] = {}
        for block in blocks:
            name, call_id = as_text(block.get("name")), as_text(block.get("id"))
            if block.get("type") == "tool_use" and name in _PATHS and call_id:
                path = absolute(as_mapping(block.get("input")).get(_PATHS[name]), self._cwd)
                if path:
                    found[call_id] = _Call(name, path)
        return found

    @staticmethod
    def _asked(frame: Fields) -> str:
        request = as_mapping(frame.get("request"))
        return as_text(request.get("tool_use_id")) if request.get("subtype") == "can_use_tool" else ""


def _answered(frame: Fields) -> list[str]:
    blocks = map(as_mapping, as_list(as_mapping(frame.get("message")).get("content")))
    return [as_text(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]


def _looked(call: _Call) -> None:
    call.before = None
    call.before = look_at(call.path)


def _asked_about(call: _Call, tool_input: Fields) -> None:
    _looked(call)
    call.change = None
    if (found := call.before) and (found.text is not None or not found.there):
        call.change = edits.predicted(call.name, tool_input, call.path, found.text)


def change_of(before: Found | None, result: Fields, path: str) -> FileChange | None:
    """What an edit has changed, where that is more, or less, than its result says. Looks at the file as it is now."""
    if before is None:
        now = look_at(path)
        return derived_change(result, path, now)
    if not before.there:
        return None
    if before.text is None:
        return FileChange(path, "modify")
    if edits.says_enough(result, before.text):
        return None
    now = look_at(path)
    change = edits.changed(result, path, before.text, now.text if now else None)
    return change or derived_change(result, path, now)


def derived_change(result: Fields, path: str, now: Found | None) -> FileChange | None:
    """The same for a file of which nothing is known but what stands there now."""
    change = edits.derived(result, path, now.text) if now and now.text is not None else None
    return change or edits.reported_notebook(result, path)


class FilesNow:
    """The files of a replay's edits as they are now: of an edit in an earlier process nothing else is known. Blocks."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._last: tuple[str, Found | None] = ("", None)
        self._plain: set[str] = set()
        """Files without any `\r\n`: there is nothing to find out."""

    def change(self, result: Fields) -> FileChange | None:
        """What an edit has changed, as far as the file still tells; None where what is reported is all that can be said."""
        path = edits.path_in(result, self._cwd)
        if not path or edits.is_made_anew(result):
            return None
        return derived_change(result, path, self._found(path))

    def _found(self, path: str) -> Found | None:
        if path in self._plain:
            return None
        if self._last[0] != path:
            found = look_at(path)
            if not (found and found.text and "\r\n" in found.text):
                self._plain.add(path)
                return None
            self._last = path, found
        return self._last[1]
