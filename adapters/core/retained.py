"""What happened since the last stored point, folded, for clients that synchronize while work runs (REPLAY-8, REPLAY-12).

Owns the fold of live updates into whole entities. A replay from the store and this fold together are the complete view. Both are
upserts, so an overlap changes nothing. Knows updates only as wire objects.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, cast

Wire = dict[str, Any]

_CHUNKS = {
    "user_message_chunk": ("user_message", "content"),
    "agent_message_chunk": ("agent_message", "content"),
    "agent_thought_chunk": ("agent_thought", "content"),
    "tool_call_content_chunk": ("tool_call_update", "content"),
    "compaction_summary_chunk": ("compaction_update", "summary"),
}
"""Chunk -> the entity it belongs to, and the list of that entity it appends to."""
_IDENTITY = {
    "user_message": "messageId",
    "agent_message": "messageId",
    "agent_thought": "messageId",
    "tool_call_update": "toolCallId",
    "compaction_update": "compactionId",
    "terminal_update": "terminalId",
}
_LISTS = ("content", "summary")
_LIVE_EVENTS = {"notice", "state_update"}


class Tail:
    """The updates of the running work as one upsert per entity, in order of first appearance."""

    def __init__(self) -> None:
        self._entities: dict[tuple[str, str], Wire] = {}

    def clear(self) -> None:
        """Forget everything: the store holds it now."""
        self._entities.clear()

    def add(self, update: Wire) -> None:
        """Fold one update, as sent on the wire, into its entity."""
        kind = cast(str, update["sessionUpdate"])
        if kind in _LIVE_EVENTS:
            return
        if kind in _CHUNKS:
            entity, name = _CHUNKS[kind]
            self._append(self._entity(entity, update), name, update["content"])
        elif kind == "terminal_output_chunk":
            terminal = self._entity("terminal_update", update)
            if not isinstance(terminal.get("output"), _Bytes):
                terminal["output"] = _Bytes(cast(Wire, terminal.get("output") or {}).get("data", ""))
            terminal["output"].parts.append(update["data"])
        elif kind in _IDENTITY:
            entity = self._entity(kind, update)
            entity.update(update)
            for name in _LISTS:
                if isinstance(entity.get(name), list):
                    entity[name] = [*entity[name]]
        else:
            plan = cast(Wire, update.get("plan") or {})
            self._entities[kind, str(plan.get("planId", ""))] = dict(update)

    def updates(self) -> Iterator[Wire]:
        """The folded entities, each as one whole update."""
        for entity in list(self._entities.values()):
            whole = dict(entity)
            for name in _LISTS:
                if isinstance(whole.get(name), list):
                    whole[name] = [_plain(block) for block in whole[name]]
            if isinstance(whole.get("output"), _Bytes):
                whole["output"] = {"data": whole["output"].joined()}
            yield whole

    def _entity(self, kind: str, update: Wire) -> Wire:
        identity = _IDENTITY[kind]
        name = cast(str, update[identity])
        fresh: Wire = {"sessionUpdate": kind, identity: name}
        if kind == "compaction_update":
            fresh["status"] = "in_progress"  # a chunk may be the first that is heard of it; the status is always there
        return self._entities.setdefault((kind, name), fresh)

    @staticmethod
    def _append(entity: Wire, name: str, block: Wire) -> None:
        if not isinstance(entity.get(name), list):
            entity[name] = []
        content = cast(list[Any], entity[name])
        if set(block) != {"type", "text"}:
            content.append(block)
        elif content and isinstance(content[-1], _Text):
            content[-1].parts.append(block["text"])
        else:
            content.append(_Text(block["text"]))


class _Text:
    """Plain text that arrives in pieces; joined only when somebody asks, so that a long stream stays linear."""

    __slots__ = ("parts",)

    def __init__(self, first: str) -> None:
        self.parts = [first]


class _Bytes:
    """Base64 pieces of a terminal's output, each complete in itself (TERM-3); joined only when somebody asks."""

    __slots__ = ("parts",)

    def __init__(self, first: str) -> None:
        self.parts = [first]

    def joined(self) -> str:
        return base64.b64encode(b"".join(map(base64.b64decode, self.parts))).decode()


def _plain(block: Any) -> Any:
    return {"type": "text", "text": "".join(block.parts)} if isinstance(block, _Text) else block
