"""What Claude Code puts into a Messages request: prompts, answers, compactions. Owns that knowledge, nothing else.

Measured with Claude Code 2.1.332; tests that run the real CLI pin the form of each kind of text. One `user` message can hold
several stored entries (a failed prompt and the next one; a tool result and prompts sent meanwhile): every entry but the last
then ends in one more line feed, which is how blocks of one prompt are told from blocks of two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from adapters.scripted.calls import Asked
from adapters.scripted.http import BadRequest

_NOT_PROMPTS = (
    "<system-reminder>",
    "<local-command-caveat>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<command-name>",  # the record of a command that Claude Code answered by itself
    "[Request interrupted by user",
    "[Image: source: ",
    "This session is being continued from a previous conversation",
)
"""How texts begin that stand in `user` messages but are Claude Code's."""

_FOLDED = "The user sent a new message while you were working:\n"
_AFTER_FOLDED = "\n\nThis is how Claude Code surfaces messages"
"""Around a prompt that was sent during a tool call; Claude Code joins several blocks with line feeds and trims the end."""

_COMPACTIONS = ("CRITICAL: Respond with TEXT ONLY", "Your task is to create a detailed summary of")

_COMMAND = re.compile(
    r"<command-message>.*?</command-message>\s*<command-name>(.*?)</command-name>(?:\s*<command-args>(.*?)</command-args>)?",
    re.DOTALL,
)
"""A slash command that became a prompt; the next entry is its expansion."""


def read_request(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    """Understand a request. Raises `BadRequest` when it holds no messages."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest(400, "messages: Field required")
    prompts: list[str] = []
    starts: list[int] = []
    mid_turn: list[bool] = []
    answers = 0
    fresh = 0
    compaction = False
    for role, blocks in _turns(cast("list[Any]", messages)):
        if role == "assistant":
            answers += 1
            fresh = 0
        elif role == "user":
            found = _prompts(blocks)
            compaction = bool(found) and found[-1][0].startswith(_COMPACTIONS)
            if compaction:
                found.pop()
            for prompt, folded in found:
                mid_turn.append(folded and bool(prompts))
                prompts.append(prompt)
                starts.append(answers)
            fresh += len(found)
    model = body.get("model")
    return Asked(
        session=headers.get("x-claude-code-session-id"),
        agent=headers.get("x-claude-code-agent-id"),
        prompts=tuple(prompts),
        fresh=fresh,
        steps=tuple(answers - start for start in starts),
        mid_turn=tuple(mid_turn),
        streaming=body.get("stream") is True,
        compaction=compaction,
        model=model if isinstance(model, str) else "scripted",
    )


def rough_tokens(body: Mapping[str, Any]) -> int:
    """A token count that grows with the conversation: one token for four characters of text."""
    messages = body.get("messages")
    turns = _turns(cast("list[Any]", messages)) if isinstance(messages, list) else ()
    return 1 + sum(len(str(block.get("text", ""))) for _, blocks in turns for block in blocks) // 4


def _prompts(blocks: list[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """The prompts in the blocks of one user message, each with whether it was folded into a running turn."""
    prompts: list[tuple[str, bool]] = []
    expansion = False
    for entry in _entries(blocks):
        if expansion:
            expansion = False
        elif (command := _COMMAND.match(entry)) is not None:
            name, arguments = command.groups(default="")
            prompts.append((f"{name} {arguments}".rstrip(), False))
            expansion = True
        elif entry.startswith(_FOLDED):
            text = entry.removeprefix(_FOLDED)
            end = text.rfind(_AFTER_FOLDED)
            prompts.append((text if end < 0 else text[:end], True))
        elif not entry.startswith(_NOT_PROMPTS):
            prompts.append((entry, False))
    return prompts


def _entries(blocks: list[Mapping[str, Any]]) -> Iterator[str]:
    """The texts of the stored entries in one user message; an image alone is an entry without text."""
    lines: list[str] | None = None
    for index, block in enumerate(blocks):
        kind, text = block.get("type"), block.get("text")
        if kind == "text" and isinstance(text, str):
            last = index == len(blocks) - 1
            if lines is not None and text.startswith((*_NOT_PROMPTS, _FOLDED)):
                yield "\n".join(lines)
                lines = None
            ends = not last and text.endswith("\n")
            lines = [*(lines or ()), text[:-1] if ends else text]
            if ends:
                yield "\n".join(lines)
                lines = None
        elif kind in ("image", "document"):
            lines = lines or []
        elif lines is not None:
            yield "\n".join(lines)
            lines = None
    if lines is not None:
        yield "\n".join(lines)


def _turns(messages: list[Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Role and content blocks of every message; a plain string is one text block. Malformed entries are passed over."""
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        entry = cast("Mapping[str, Any]", message)
        content = entry.get("content")
        if isinstance(content, str):
            blocks: list[Mapping[str, Any]] = [{"type": "text", "text": content}]
        elif isinstance(content, list):
            blocks = [
                cast("Mapping[str, Any]", block) for block in cast("list[Any]", content) if isinstance(block, Mapping)
            ]
        else:
            continue
        yield str(entry.get("role")), blocks
