"""Which entries of a file belong to its own session. A copy or a tool can put entries of another session there (measured).

Owns the rule. An entry names its session; an entry that names none belongs to the file's session. Claude Code 2.1.332 follows the
chain of entries: it skips foreign entries that no own entry descends from, and keeps those that the session has continued. So a
foreign entry counts if one of the file's own entries descends from it. If no entry is the file's own, as after a renaming of the
file, all count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adapters.acp.shapes import as_text

_Entry = Mapping[str, Any]


def names_another(entry: _Entry, session_id: str) -> bool:
    """Whether the entry says that it is of another session."""
    return as_text(entry.get("sessionId")) not in ("", session_id)


class Ownership:
    """What belongs to a session. `everything` gives all entries of its file; they are asked for only where one names another."""

    def __init__(self, session_id: str, everything: Callable[[], Iterable[_Entry]]) -> None:
        self._session_id = session_id
        self._everything = everything
        self._others: frozenset[str] | None = None
        self._all_belong = False

    def holds(self, entry: _Entry) -> bool:
        """Whether the entry belongs to the session."""
        if not names_another(entry, self._session_id):
            return True
        if self._others is None:
            self._others = self._continued()
        return self._all_belong or as_text(entry.get("uuid")) in self._others

    def _continued(self) -> frozenset[str]:
        """The ids of entries of others that entries of our own descend from."""
        parents: dict[str, tuple[str, ...]] = {}
        ours: list[tuple[str, ...]] = []
        for entry in self._everything():
            before = tuple(filter(None, (as_text(entry.get(name)) for name in ("parentUuid", "logicalParentUuid"))))
            if names_another(entry, self._session_id):
                parents[as_text(entry.get("uuid"))] = before
            elif entry.get("sessionId") or entry.get("uuid"):
                ours.append(before)
        self._all_belong = not ours
        found: set[str] = set()
        waiting = [uuid for before in ours for uuid in before]
        while waiting:
            uuid = waiting.pop()
            if uuid in parents and uuid not in found:
                found.add(uuid)
                waiting += parents[uuid]
        return frozenset(found)
