"""What happened since the last durable point, folded, for clients that synchronize while work goes on (REPLAY-8, REPLAY-12).

Owns the fold of live updates into whole entities. A replay from the store plus this fold is the complete view; both are
upserts, so an overlap changes nothing. Knows updates only as wire objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

Wire = dict[str, Any]

_CHUNKS = {
    "user_message_chunk": "user_message",
    "agent_message_chunk": "agent_message",
    "agent_thought_chunk": "agent_thought",
}
_IDENTITY = {
    "user_message": "messageId",
    "agent_message": "messageId",
    "agent_thought": "messageId",
    "tool_call_update": "toolCallId",
    "compaction_update": "compactionId",
}
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
            self._append(self._entity(_CHUNKS[kind], "messageId", update), update["content"])
        elif kind == "tool_call_content_chunk":
            self._append(self._entity("tool_call_update", "toolCallId", update), update["content"])
        elif kind in _IDENTITY:
            entity = self._entity(kind, _IDENTITY[kind], update)
            entity.update(update)
            if isinstance(entity.get("content"), list):
                entity["content"] = [*entity["content"]]
        else:
            plan = cast(Wire, update.get("plan") or {})
            self._entities[kind, str(plan.get("planId", ""))] = dict(update)

    def updates(self) -> Iterator[Wire]:
        """The folded entities, each as one whole update."""
        for entity in list(self._entities.values()):
            whole = dict(entity)
            if isinstance(whole.get("content"), list):
                whole["content"] = [_plain(block) for block in whole["content"]]
            yield whole

    def _entity(self, kind: str, identity: str, update: Wire) -> Wire:
        name = cast(str, update[identity])
        return self._entities.setdefault((kind, name), {"sessionUpdate": kind, identity: name})

    @staticmethod
    def _append(entity: Wire, block: Wire) -> None:
        if not isinstance(entity.get("content"), list):
            entity["content"] = []
        content = cast(list[Any], entity["content"])
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


def _plain(block: Any) -> Any:
    return {"type": "text", "text": "".join(block.parts)} if isinstance(block, _Text) else block
