"""User messages as a runtime has stored them. Written from the runtimes' file formats, not from the product's readers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INTERRUPTED = "[Request interrupted by user"
"""How Claude Code's own marker of a stopped turn begins."""

COPIES = "copies-"
"""How the names of project folders begin in which a test has put copies of session files."""

_NO_PROMPT = ("<environment_context", "<turn_aborted", "<user_instructions", "# AGENTS.md", "<skills", "<permissions")
"""How what Codex itself says to the model under the user's name begins."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One user message. `form` says where its id stands."""

    message_id: str
    text: str
    form: str


def claude_messages(root: Path, session_id: str) -> list[StoredMessage]:
    """The user messages in Claude Code's transcript of the session, in file order, every line looked at.

    A message is a `user` entry that is no tool result and not marked as synthetic (its `uuid` and its `mergedSendUuids`), or
    a `queued_command` attachment (its `source_uuid`).
    """
    return [message for entry in claude_entries(root, session_id) for message in _messages(entry)]


def claude_queued(root: Path, session_id: str) -> bool:
    """Whether a prompt waits in Claude Code's own queue: it notes what it puts there, takes out and drops."""
    notes = [entry["operation"] for entry in claude_entries(root, session_id) if entry.get("type") == "queue-operation"]
    return 2 * notes.count("enqueue") > len(notes)


def claude_entries(root: Path, session_id: str) -> list[dict[str, Any]]:
    """The entries of a transcript that parse; a torn line is passed over. Empty when there is no transcript."""
    return [entry for path in claude_transcripts(root, session_id) for entry in _json_lines(path)]


def claude_transcripts(root: Path, session_id: str) -> list[Path]:
    """The files of the session under the isolated home; copies that a test has put beside them are no store."""
    found = (root / "claude" / "projects").glob(f"*/{session_id}.jsonl")
    return sorted(path for path in found if not path.parent.name.startswith(COPIES))


def codex_messages(root: Path, session_id: str) -> list[StoredMessage]:
    """The user messages in Codex's rollout of the thread, in file order, every line looked at.

    A message is a completed `UserMessage` item (paginated history) or a `user_message` event (legacy history), under its
    `client_id`, or under Codex's own id where no host gave one.
    """
    messages: list[StoredMessage] = []
    for entry in codex_entries(root, session_id):
        payload = entry.get("payload")
        if entry.get("type") != "event_msg" or not isinstance(payload, dict):
            continue
        item = payload.get("item") or {}
        if payload.get("type") == "item_completed" and item.get("type") == "UserMessage":
            messages.append(StoredMessage(item.get("client_id") or item["id"], _text(item.get("content")), "item"))
        elif payload.get("type") == "user_message":
            messages.append(StoredMessage(payload.get("client_id") or "", payload.get("message", ""), "legacy"))
    return messages


def codex_torn(root: Path) -> Counter[str]:
    """Texts that Codex has written for the model and died before it wrote the message that they are of, in any thread.

    It writes the model's text first, without an id, and the message with its id some milliseconds later.
    """
    texts: Counter[str] = Counter()
    for path in (root / "codex" / "sessions").rglob("rollout-*.jsonl"):
        for entry in _json_lines(path):
            payload = entry.get("payload")
            if not isinstance(payload, dict):
                continue
            item = payload.get("item") or {}
            if entry.get("type") == "response_item" and (payload.get("type"), payload.get("role")) == (
                "message",
                "user",
            ):
                texts[_text(payload.get("content"))] += 1
            elif payload.get("type") == "item_completed" and item.get("type") == "UserMessage":
                texts[_text(item.get("content"))] -= 1
    return Counter({text: count for text, count in texts.items() if count > 0 and not text.startswith(_NO_PROMPT)})


def codex_entries(root: Path, session_id: str) -> list[dict[str, Any]]:
    """The lines of a thread's rollouts that parse; a torn line is passed over. Empty when there is no rollout."""
    return [entry for path in codex_rollouts(root, session_id) for entry in _json_lines(path)]


def codex_rollouts(root: Path, session_id: str) -> list[Path]:
    """The files of the thread under the isolated home, oldest first."""
    return sorted((root / "codex" / "sessions").rglob(f"rollout-*-{session_id}*.jsonl"))


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _messages(entry: dict[str, Any]) -> Iterator[StoredMessage]:
    if entry.get("type") == "attachment" and entry["attachment"].get("type") == "queued_command":
        source = entry["attachment"].get("source_uuid")
        if source:
            yield StoredMessage(source, _text(entry["attachment"].get("prompt")), "queued_command")
        return
    if entry.get("type") != "user" or any(entry.get(mark) for mark in ("isMeta", "isSidechain", "isCompactSummary")):
        return
    if (entry.get("origin") or {}).get("kind") == "task-notification":
        return
    content = entry["message"]["content"]
    if isinstance(content, list) and any(block.get("type") == "tool_result" for block in content):
        return
    for merged in entry.get("mergedSendUuids") or ():
        yield StoredMessage(merged, _text(content), "merged")
    if not _text(content).startswith(_INTERRUPTED):
        yield StoredMessage(entry["uuid"], _text(content), "user")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or () if isinstance(block, dict))
