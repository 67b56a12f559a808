"""What Codex puts into a Responses request: prompts, answers, compactions. Owns that knowledge, nothing else.

Measured with Codex 0.163.0; tests that run the real app-server pin the form of each kind of text. Every prompt is a `user`
message of its own, with an id that it keeps through steps, restarts and compactions. An answer is a run of the model's items
(messages, reasoning, tool calls); an aborted one leaves only its complete items.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from adapters.scripted.calls import Asked
from adapters.scripted.http import BadRequest

_NOT_PROMPTS = (
    "<environment_context>\n",
    "<turn_aborted>\n",
    "<subagent_notification>\n",
    "<user_shell_command>\n",
    "<user_instructions>\n",
    "<skill>\n",
    "# AGENTS.md instructions",
)
"""How `user` messages begin that are Codex's."""

_SUMMARY = "Another language model started to solve this problem and produced a summary of its thinking process."
"""How the summary begins. It stands after the prompts that a compaction has kept, in the place of all their answers."""

_COMPACTION = "You are performing a CONTEXT CHECKPOINT COMPACTION."
"""How the request for a summary begins, the last `user` message; the metadata says the same."""

_IMAGE_TAGS = ("<image name=[Image #", "</image>")
"""How texts begin that stand before and after an image from a file."""


@dataclass(slots=True)
class _Prompt:
    text: str
    id: str | None
    answers: int = 0
    """How many answers stand before it."""


@dataclass(slots=True)
class _Conversation:
    prompts: list[_Prompt] = field(default_factory=list[_Prompt])
    answers: int = 0
    fresh: int = 0
    """Prompts since the last answer."""
    compaction: bool = False
    """Whether it ends with the request for a summary."""


def read_request(body: Mapping[str, Any], headers: Mapping[str, str]) -> Asked:
    """Understand a request. Raises `BadRequest` when it holds no input."""
    del headers  # the body says all of it
    items = body.get("input")
    if not isinstance(items, list):
        raise BadRequest(400, "Missing required parameter: 'input'.")
    found = _read(_items(items))
    metadata = _mapping(body.get("client_metadata"))
    thread, session = _text(metadata.get("thread_id")), _text(metadata.get("session_id"))
    turn = _text(metadata.get("turn_id"))
    return Asked(
        session=session or thread,
        agent=thread if session and thread != session else None,
        prompts=tuple(prompt.text for prompt in found.prompts),
        fresh=found.fresh,
        steps=tuple(found.answers - prompt.answers for prompt in found.prompts),
        mid_turn=tuple(_mid_turn(found.prompts, turn)),
        streaming=body.get("stream") is True,
        compaction=found.compaction or _request_kind(metadata) == "compaction",
        model=_text(body.get("model")) or "scripted",
        ids=tuple(prompt.id or str(place) for place, prompt in enumerate(found.prompts)),
    )


def _read(items: Iterable[Mapping[str, Any]]) -> _Conversation:
    found = _Conversation()
    answering = False
    for item in items:
        found.compaction = False
        kind = _kind(item)
        text = _prompt(item.get("content")) if kind == "user" else ""
        if kind == "answer" or text.startswith(_SUMMARY):
            found.answers += not answering
            found.fresh = 0
        elif kind == "user" and text.startswith(_COMPACTION):
            found.compaction = True
        elif kind == "user" and not text.startswith(_NOT_PROMPTS):
            found.prompts.append(_Prompt(text, _text(item.get("id")), found.answers))
            found.fresh += 1
        answering = kind == "answer"
    return found


def _mid_turn(prompts: list[_Prompt], turn: str | None) -> Iterator[bool]:
    """Whether each prompt came into a running turn; known for those of the turn that asks.

    The ids of turns and of messages are UUIDs of version 7, in the order of time: a prompt of this turn has a later one than
    the turn, and the first such prompt has begun it.
    """
    begun = False
    for prompt in prompts:
        here = turn is not None and prompt.id is not None and prompt.id.removeprefix("msg_") > turn
        yield here and begun
        begun = begun or here


def _kind(item: Mapping[str, Any]) -> Literal["answer", "user", "other"]:
    kind, role = str(item.get("type", "message")), item.get("role")
    if kind != "message":
        return "other" if kind.endswith("_output") else "answer"
    if role in ("user", "assistant"):
        return "user" if role == "user" else "answer"
    return "other"


def _prompt(content: Any) -> str:
    """The texts of a user message, one line each; an image has none."""
    if isinstance(content, str):
        return content
    parts = [_text(part.get("text")) for part in _items(content) if part.get("type") == "input_text"]
    return "\n".join(text for text in parts if text is not None and not text.startswith(_IMAGE_TAGS))


def _request_kind(metadata: Mapping[str, Any]) -> Any:
    try:
        return _mapping(json.loads(_text(metadata.get("x-codex-turn-metadata")) or "null")).get("request_kind")
    except (ValueError, RecursionError):
        return None


def _items(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list; anything else is passed over."""
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
