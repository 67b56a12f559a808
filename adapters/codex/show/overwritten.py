"""What a file change removes without saying so: a new file, or a moved file's new name, may replace an existing file.

Codex's item holds only what is written (0.163.0) and does not say that a file was there. So the file is read when the item
begins: Codex announces a change before it makes it. Owns how such a file is read. `items` shows it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.codex.server.signals import item_of

LOST: Final = "lost"
"""Member of a change: the text of the file that was there, None when it is no text that can be shown. No member of Codex's."""

_MOST: Final = 1_000_000
"""Bytes of a file that is shown."""
_MOST_KEPT: Final = 8_000_000
_ENTRY: Final = 1000
"""Characters that are kept for replays, and what a change counts beside its texts."""

Fields = Mapping[str, Any]


class Overwritten:
    """The files noted in this process, for a replay: Codex stores nothing of them."""

    def __init__(self) -> None:
        self._items: dict[str, list[Fields]] = {}
        """Item id -> its changes that replace a file, the latest last."""

    def noted(self, method: str, params: Fields) -> Fields:
        """The notification, with what the files held that its change replaces; others as they are. Reads those files."""
        item: Fields = item_of(params) if method == "item/started" else {}
        if item.get("type") != "fileChange":
            return params
        began = as_count(params.get("startedAtMs"))
        changes = [_noted(change, began) for change in _changes(item.get("changes"))]
        if replacing := [change for change in changes if LOST in change]:
            self._items[as_text(item.get("id"))] = replacing
            while sum(_size(kept) for kept in self._items.values()) > _MOST_KEPT:
                del self._items[next(iter(self._items))]
        return {**params, "item": {**item, "changes": changes}}

    def known(self, item: Fields) -> Fields:
        """A stored item, with what was noted of it."""
        noted = self._items.get(as_text(item.get("id")))
        return {**item, "changes": carried(item.get("changes"), noted)} if noted else item


def _size(changes: Sequence[Fields]) -> int:
    return sum(_ENTRY + len(as_text(change[LOST])) + len(as_text(change.get("diff"))) for change in changes)


def carried(changes: Any, before: Any) -> list[Fields]:
    """The changes, with what was noted of the same ones before."""
    known = {(change.get("path"), _target(change)): change[LOST] for change in _changes(before) if LOST in change}
    keyed = [((change.get("path"), _target(change)), change) for change in _changes(changes)]
    return [{**change, LOST: known[key]} if key in known else change for key, change in keyed]


def _changes(changes: Any) -> list[Fields]:
    return [as_mapping(change) for change in as_list(changes)]


def _target(change: Fields) -> str:
    """The path of the file that the change makes; empty when it makes none."""
    kind = as_mapping(change.get("kind"))
    path, moved = as_text(change.get("path")), as_text(kind.get("move_path"))
    return path if kind.get("type") == "add" else moved if moved != path else ""


def _noted(change: Fields, began: int) -> Fields:
    path = _target(change)
    if not os.path.isabs(path):  # noqa: PTH117 - a path of a model: any text
        return change
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return change
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mtime_ns >= began * 1_000_000:
            return change  # what stands there is written already
        text = os.read(file, _MOST).decode() if found.st_size < _MOST else None
    except (OSError, UnicodeDecodeError):
        text = None
    finally:
        os.close(file)
    return {**change, LOST: text}
