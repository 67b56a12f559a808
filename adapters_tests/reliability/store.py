"""What a store holds besides messages. Written from the runtimes' file formats, not from the product's readers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from adapters_tests.e2e.stored import codex_entries


def torn_texts(runtime: str, root: Path, session_id: str) -> Counter[str]:
    """Texts that a kill left in the model's context without a message and its id: Codex writes the two one after the other.

    Claude Code writes one line per message, so it has none.
    """
    torn: Counter[str] = Counter()
    if runtime != "codex":
        return torn
    for entry in codex_entries(root, session_id):
        payload = entry.get("payload")
        if not isinstance(payload, dict):
            continue
        if entry.get("type") == "response_item" and payload.get("role") == "user":
            torn[_text(payload.get("content"))] += 1
        item: Any = payload.get("item") or {}
        if payload.get("type") == "item_completed" and item.get("type") == "UserMessage":
            torn[_text(item.get("content"))] -= 1
    return +torn


def _text(content: Any) -> str:
    return "".join(block.get("text", "") for block in content or () if isinstance(block, dict))
