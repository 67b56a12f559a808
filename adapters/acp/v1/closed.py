"""What v1 has of content, kinds and states, and what becomes of everything else of v2. Owns the tables: v1's lists are closed.

A field or value that is in no table is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

Wire = dict[str, Any]

TOOL_KINDS: Final = frozenset(
    ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
)
OTHER_KIND: Final = "other"

TOOL_STATUSES: Final[Mapping[str, str]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "paused": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}
"""Status of v2 -> status of v1; an unknown one leaves the status as it is."""

PLAN_STATUSES: Final[Mapping[str, str]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}
"""A cancelled step is left out: to call it completed or pending would be wrong."""
PLAN_PRIORITIES: Final = ("high", "medium", "low")

STOP_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")

OPTION_KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")

COMPACTION_STATUSES: Final = ("in_progress", "completed", "failed", "cancelled")

SEVERITIES: Final[Mapping[str, str]] = {"info": "Note", "warning": "Warning", "error": "Error"}
"""Severity of a notice -> the word before it where it is shown as text."""

CATEGORIES: Final = ("mode", "model", "model_config", "thought_level")

_BLOCKS: Final[Mapping[str, Sequence[str]]] = {
    "text": ("text",),
    "image": ("data", "mimeType", "uri"),
    "audio": ("data", "mimeType"),
    "resource_link": ("name", "uri", "title", "description", "mimeType", "size"),
    "resource": ("resource",),
}
"""Type of a content block -> its fields in v1, beside `annotations` and `_meta`."""
_RESOURCE: Final = ("text", "blob", "uri", "mimeType")


def only(source: Mapping[str, Any], *names: str) -> Wire:
    """The fields of these names that are there, and `_meta`."""
    return {name: source[name] for name in (*names, "_meta") if source.get(name) is not None}


def block(source: Any) -> Wire | None:
    """A content block; None for one that v1 does not have."""
    if not isinstance(source, dict):
        return None
    fields = cast(Wire, source)
    kind = fields.get("type")
    names = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if names is None:
        return None
    shown = only(fields, "type", *names)
    if "resource" in shown:
        shown["resource"] = only(shown["resource"], *_RESOURCE)
    if isinstance(annotations := fields.get("annotations"), dict):
        shown["annotations"] = _annotations(cast(Wire, annotations))
    return shown


def _annotations(source: Wire) -> Wire:
    shown = only(source, "audience", "lastModified", "priority")
    if isinstance(shown.get("audience"), list):
        shown["audience"] = [role for role in shown["audience"] if role in ("user", "assistant")]
    return shown


def command(source: Mapping[str, Any]) -> Wire | None:
    """A slash command; None for an entry of another type. `input` is a hint without a type (V1-UPD-5)."""
    if source.get("type", "command") != "command":
        return None
    shown = only(source, "name", "description")
    given: Any = source.get("input")
    if isinstance(given, dict) and isinstance(hint := cast(Wire, given).get("hint"), str):
        shown["input"] = {"hint": hint}
    return shown


def config_options(source: Any, *, booleans: bool) -> list[Wire]:
    """Config options (V1-CFG-1); those that are on or off only for a client that has such (V1-CFG-2)."""
    entries = cast("list[Any]", source) if isinstance(source, list) else []
    return [shown for entry in entries if (shown := _config_option(entry, booleans=booleans)) is not None]


def _config_option(source: Any, *, booleans: bool) -> Wire | None:
    fields = cast(Wire, source) if isinstance(source, dict) else {}
    kind = fields.get("type")
    if kind != "select" and not (kind == "boolean" and booleans):
        return None
    shown = {"id": fields.get("configId"), **only(fields, "type", "name", "description", "currentValue")}
    if fields.get("category") in CATEGORIES:
        shown["category"] = fields["category"]
    if kind == "select":
        shown["options"] = [_choice(entry) for entry in fields.get("options") or ()]
    return shown


def _choice(source: Wire) -> Wire:
    """A value, or values under a heading."""
    if "groupId" not in source:
        return only(source, "value", "name", "description")
    return {"group": source["groupId"], **only(source, "name"), "options": [_choice(o) for o in source["options"]]}
