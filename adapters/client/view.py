"""What a client shows of one session: adds up `session/update` notifications.

Owns upsert, append and patch as tables. Works on wire values. Knows no agent, no connection and no models of the agent, so it is
an independent witness of what the wire says. Two views of one conversation, one built live and one from a replay, have equal
`SessionView.snapshot()`s.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Json = dict[str, Any]


class MalformedUpdateError(ValueError):
    """A known update variant with a missing or mistyped field (UPD-7, EXT-3). Names the field, never its value."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """One kind of thing in the timeline: its id field, what an upsert patches, and what a null resets to."""

    kind: str
    id_field: str
    lists: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])


_TOOL_DEFAULTS = {"kind": "other", "status": "pending"}  # TOOL-3

_UPSERTS: Mapping[str, _Shape] = {
    "user_message": _Shape("user", "messageId", lists=("content",)),
    "agent_message": _Shape("agent", "messageId", lists=("content",)),
    "agent_thought": _Shape("thought", "messageId", lists=("content",)),
    "tool_call_update": _Shape(
        "tool_call",
        "toolCallId",
        lists=("content", "locations"),
        values=("name", "title", "kind", "status", "rawInput", "rawOutput", "capabilities"),
        defaults=_TOOL_DEFAULTS,
    ),
    "terminal_update": _Shape(
        "terminal", "terminalId", values=("command", "cwd", "output", "exitStatus", "size", "capabilities")
    ),
    "compaction_update": _Shape("compaction", "compactionId", lists=("summary",), values=("status", "error")),
}

_APPENDS: Mapping[str, tuple[_Shape, str]] = {
    "user_message_chunk": (_UPSERTS["user_message"], "content"),
    "agent_message_chunk": (_UPSERTS["agent_message"], "content"),
    "agent_thought_chunk": (_UPSERTS["agent_thought"], "content"),
    "tool_call_content_chunk": (_UPSERTS["tool_call_update"], "content"),
    "compaction_summary_chunk": (_UPSERTS["compaction_update"], "summary"),
}

_PLAN = _Shape("plan", "planId")
_MESSAGES = ("user", "agent", "thought")


@dataclass(slots=True)
class Item:
    """One thing in the timeline: a message, tool call, terminal, plan or compaction; `meta` is its `_meta`."""

    kind: str
    item_id: str
    fields: Json = field(default_factory=dict[str, Any])
    meta: Json = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The text blocks of a message, joined."""
        blocks: list[Any] = self.fields.get("content") or []
        return "".join(block["text"] for block in blocks if block.get("type") == "text")


class SessionView:
    """The picture of one session. `apply` takes updates in the order of sending and passes over unknown variants."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Item] = {}  # insertion order is the order of first sight: the timeline
        self.state = "idle"  # SETUP-12
        self.state_update: Json = {}
        """The latest `state_update` as it came; empty before the first."""
        self.stop_reason: str | None = None
        self.error: Json | None = None
        self.background: list[Json] | None = None
        self.usage: Json = {}
        self.commands: list[Json] = []
        self.config_options: list[Json] = []
        self.info: Json = {}
        self.info_meta: Json = {}
        self.notices: list[Json] = []

    @classmethod
    def of(cls, updates: Iterable[Mapping[str, Any]]) -> SessionView:
        """A view of these updates, in their order."""
        view = cls()
        for update in updates:
            view.apply(update)
        return view

    # --- reading ---------------------------------------------------------------------------------------------------

    def items(self, kind: str | None = None) -> list[Item]:
        """The timeline in order, or of one kind: user, agent, thought, tool_call, terminal, plan, compaction."""
        return [item for item in self._items.values() if kind is None or item.kind == kind]

    def item(self, kind: str, item_id: str) -> Item | None:
        """One thing by its kind and id; None when it was never reported."""
        return self._items.get((kind, item_id))

    def user_message_ids(self) -> list[str]:
        """Ids of the user messages that show content, in order; one retracted by `content: []` shows none."""
        return [item.item_id for item in self.items("user") if item.fields.get("content")]

    def snapshot(self) -> list[Json]:
        """What the conversation looks like, as plain values to compare.

        Adjacent text blocks are joined, messages without content and cleared fields are left out. State, usage,
        commands and notices are not part of the conversation and have their own attributes.
        """
        shown: list[Json] = []
        for item in self._items.values():
            fields = {name: _plain(value) for name, value in item.fields.items() if value not in (None, [], b"")}
            if item.kind in _MESSAGES and "content" not in fields:
                continue
            entry: Json = {"is": item.kind, "id": item.item_id, **fields}
            if item.meta:
                entry["_meta"] = dict(item.meta)
            shown.append(entry)
        return shown

    # --- folding ---------------------------------------------------------------------------------------------------

    def apply(self, update: Mapping[str, Any]) -> None:
        """Fold the `update` member of a `session/update`. Raises `MalformedUpdateError` and then changes nothing."""
        variant = update.get("sessionUpdate")
        if not isinstance(variant, str):
            raise MalformedUpdateError("sessionUpdate must be a string")
        if shape := _UPSERTS.get(variant):
            self._upsert(shape, update)
        elif append := _APPENDS.get(variant):
            self._append(*append, update)
        else:
            self._apply_whole(variant, update)

    def apply_permission(self, params: Mapping[str, Any]) -> None:
        """Fold the tool call of a permission request, which counts as a `tool_call_update` (PERM-1)."""
        subject: Any = params.get("subject")
        if isinstance(subject, dict) and cast("Json", subject).get("type") == "tool_call":
            call = _need(cast("Json", subject), "toolCall", dict)
            self._upsert(_UPSERTS["tool_call_update"], call)

    def _upsert(self, shape: _Shape, update: Mapping[str, Any]) -> None:
        item_id = _need(update, shape.id_field, str)
        patch: Json = {}
        for name in shape.lists:
            if name in update:
                patch[name] = [] if update[name] is None else list(_need(update, name, list))
        for name in shape.values:
            if name in update:
                value = update[name]
                patch[name] = shape.defaults.get(name) if value is None else _stored(name, update)
        item = self._touch(shape, item_id)
        item.fields.update(patch)
        if "_meta" in update:
            patch_meta(item.meta, update["_meta"])

    def _append(self, shape: _Shape, name: str, update: Mapping[str, Any]) -> None:
        item_id, block = _need(update, shape.id_field, str), _need(update, "content", dict)
        item = self._touch(shape, item_id)
        if shape.kind == "compaction":
            item.fields.setdefault("status", "in_progress")
        item.fields.setdefault(name, []).append(block)

    def _touch(self, shape: _Shape, item_id: str) -> Item:
        key = (shape.kind, item_id)
        if key not in self._items:
            self._items[key] = Item(shape.kind, item_id, dict(shape.defaults))
        return self._items[key]

    def _apply_whole(self, variant: str, update: Mapping[str, Any]) -> None:
        match variant:
            case "state_update":
                self.state, self.background = _need(update, "state", str), update.get("background")
                self.state_update = dict(update)
                self.stop_reason = update.get("stopReason") if self.state == "idle" else None
                self.error = update.get("error") if self.stop_reason == "error" else None  # STOP-3
            case "terminal_output_chunk":
                item_id, data = _need(update, "terminalId", str), _bytes(_need(update, "data", str))
                fields = self._touch(_UPSERTS["terminal_update"], item_id).fields
                fields["output"] = (fields.get("output") or b"") + data
            case "plan_update":
                plan = _need(update, "plan", dict)
                self._touch(_PLAN, _need(plan, "planId", str)).fields = {"plan": plan}
            case "available_commands_update":
                self.commands = list(_need(update, "availableCommands", list))
            case "config_option_update":
                self.config_options = list(_need(update, "configOptions", list))
            case "session_info_update":
                self.info.update({name: update[name] for name in ("title", "updatedAt") if name in update})
                if "_meta" in update:
                    patch_meta(self.info_meta, update["_meta"])
            case "usage_update":
                self.usage |= {name: _need(update, name, int) for name in ("used", "size")}
                if "cost" in update:
                    self.usage["cost"] = update["cost"]
            case "notice":
                _need(update, "title", str)
                self.notices.append(dict(update))
            case _:  # custom, unstable or newer than this client: passed over (EXT-2)
                return


def patch_meta(meta: Json, patch: Any) -> None:
    """Apply an upsert's `_meta` in place (EXT-6): null clears; null keys are removed, others replaced whole."""
    if patch is None:
        meta.clear()
    elif isinstance(patch, dict):
        for name, value in cast("Json", patch).items():
            if value is None:
                meta.pop(name, None)
            else:
                meta[name] = value


def join_text(blocks: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Content with adjacent plain text blocks joined. Blocks with annotations or `_meta` stay by themselves."""
    joined: list[Json] = []
    for block in blocks:
        if joined and _is_plain_text(block) and _is_plain_text(joined[-1]):
            joined[-1] = {"type": "text", "text": joined[-1]["text"] + block["text"]}
        else:
            joined.append(dict(block))
    return [block for block in joined if block != {"type": "text", "text": ""}]


def _is_plain_text(block: Mapping[str, Any]) -> bool:
    return set(block) == {"type", "text"} and block["type"] == "text"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return join_text(cast("list[Json]", value))
    return value


def _stored(name: str, update: Mapping[str, Any]) -> Any:
    return _bytes(_need(_need(update, "output", dict), "data", str)) if name == "output" else update[name]


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise MalformedUpdateError("data must be base64") from None


def _need(holder: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = holder.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise MalformedUpdateError(f"{name} must be {kind.__name__}")
    return value
