"""What Codex puts into a Responses request: prompts, answers, compactions. Owns that knowledge, nothing else.

Measured with Codex 0.163.0; tests that run the real app-server pin the form of each kind of text. Every prompt is a `user`
message of its own. An answer is a run of the model's items (messages, reasoning, tool calls).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from adapters.scripted.calls import Asked
from adapters.scripted.http import BadRequest

_NOT_PROMPTS = (
    "<environment_context",
    "<turn_aborted",
    "<user_instructions",
    "# AGENTS.md",
    "<skills",
    "<permissions",
)
"""How texts begin that stand in `user` messages but are Codex's."""

_COMPACTION = "You are performing a CONTEXT CHECKPOINT COMPACTION"


def read_request(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    """Understand a request. Raises `BadRequest` when it holds no input."""
    items = body.get("input")
    if not isinstance(items, list):
        raise BadRequest(400, "Missing required parameter: 'input'.")
    prompts: list[str] = []
    starts: list[int] = []
    mid_turn: list[bool] = []
    answers = 0
    fresh = 0
    compaction = False
    answering = after_tool = False
    for kind, text in _entries(cast("list[Any]", items)):
        compaction = False
        if kind == "answer":
            answers += not answering
            answering, after_tool, fresh = True, False, 0
            continue
        answering = False
        if kind == "output":
            after_tool = True
        elif text.startswith(_COMPACTION):
            compaction = True
        elif not text.startswith(_NOT_PROMPTS):
            mid_turn.append(after_tool and bool(prompts))
            prompts.append(text)
            starts.append(answers)
            fresh += 1
    model = body.get("model")
    session = body.get("prompt_cache_key")
    return Asked(
        session=session if isinstance(session, str) else None,
        agent=headers.get("x-openai-subagent"),
        prompts=tuple(prompts),
        fresh=fresh,
        steps=tuple(answers - start for start in starts),
        mid_turn=tuple(mid_turn),
        streaming=body.get("stream") is True,
        compaction=compaction,
        model=model if isinstance(model, str) else "scripted",
    )


def _entries(items: list[Any]) -> Iterator[tuple[str, str]]:
    """Each item as "answer", "output" or "user" with its text. Items of others and malformed ones are passed over."""
    for entry in items:
        if not isinstance(entry, Mapping):
            continue
        item = cast("Mapping[str, Any]", entry)
        kind = str(item.get("type", "message"))
        if kind.endswith("_output"):
            yield "output", ""
        elif kind != "message" or item.get("role") == "assistant":
            yield "answer", ""
        elif item.get("role") == "user":
            yield "user", _text(item.get("content"))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [
        str(cast("Mapping[str, Any]", part).get("text", ""))
        for part in cast("list[Any]", content if isinstance(content, list) else [])
        if isinstance(part, Mapping) and cast("Mapping[str, Any]", part).get("type") == "input_text"
    ]
    return "\n".join(texts)
