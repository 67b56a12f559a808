"""What the app-server's notifications mean for turns and prompts: typed signals, read once at the border.

Owns the wire names of notifications. Knows no state. Unknown notifications give no signal (D11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.acp.shapes import as_list, as_mapping, as_text

USER_MESSAGE: Final = "userMessage"
REASONING: Final = "reasoning"
MODEL_OUTPUT: Final = frozenset({"agentMessage", "plan", REASONING})
"""Items that a model call streams: while one is open, every tool that was begun before runs in the background."""
SPOKEN: Final = frozenset({"agentMessage", "plan"})
"""Items that a steer would cut short, with the text that was shown (D3). A cut reasoning is begun anew anyway."""
COMMAND: Final = "commandExecution"
COMPACTION: Final = "contextCompaction"
TOOLS: Final = frozenset(
    {
        COMMAND, COMPACTION, "collabAgentToolCall", "dynamicToolCall", "fileChange", "imageGeneration", "imageView",
        "mcpToolCall", "sleep", "webSearch",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """An item as far as turns care. `client_id`: of a user message, the host's id for it."""

    item_id: str
    kind: str
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn runs."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over. `status`: completed, interrupted or failed; `error` belongs to the latter two."""

    turn_id: str
    status: str
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ItemOpened:
    """An item began. For a user message: taken, not proof of storage."""

    turn_id: str
    item: Item


@dataclass(frozen=True, slots=True)
class ItemClosed:
    """An item is complete. For a user message: the report of its insertion, which needs the file as a witness (D2)."""

    turn_id: str
    item: Item
    stored: bool = False
    """The thread's file was seen to hold it."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A model call failed; what it had begun is thrown away and it is made again."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A model call is through: what had come in before was asked."""

    turn_id: str


Signal = TurnStarted | TurnEnded | ItemOpened | ItemClosed | Retrying | Answered


def signal_of(method: str, params: Mapping[str, Any]) -> Signal | None:
    """The signal of a notification, None for those that change no turn and no prompt."""
    read = _READERS.get(method)
    return read(params) if read else None


def thread_of(params: Mapping[str, Any]) -> str:
    """The thread a notification or request is about; empty when it is about none."""
    return as_text(params.get("threadId")) or as_text(as_mapping(params.get("thread")).get("id"))


def item_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item a notification carries."""
    return as_mapping(params.get("item"))


def children_of(item: Mapping[str, Any]) -> Sequence[str]:
    """The threads of sub-agents that an item names."""
    threads = [*as_list(item.get("receiverThreadIds")), item.get("agentThreadId")]
    return [thread for thread in map(as_text, threads) if thread]


def client_id_of(item: Mapping[str, Any]) -> str | None:
    """The host's id of a stored user message; None for other items and for messages of hosts that gave none."""
    return as_text(item.get("clientId")) or None if item.get("type") == USER_MESSAGE else None


def _item(params: Mapping[str, Any]) -> Item:
    item = item_of(params)
    return Item(as_text(item.get("id")), as_text(item.get("type")), client_id_of(item))


def _turn_id(params: Mapping[str, Any]) -> str:
    return as_text(params.get("turnId"))


def _started(params: Mapping[str, Any]) -> Signal | None:
    turn_id = as_text(as_mapping(params.get("turn")).get("id"))
    return TurnStarted(turn_id) if turn_id else None


def _ended(params: Mapping[str, Any]) -> Signal | None:
    turn = as_mapping(params.get("turn"))
    error = turn.get("error")
    turn_id = as_text(turn.get("id"))
    return TurnEnded(turn_id, as_text(turn.get("status")), as_mapping(error) if error else None) if turn_id else None


def _error(params: Mapping[str, Any]) -> Signal | None:
    return Retrying(_turn_id(params)) if params.get("willRetry") is True else None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Signal | None]]] = {
    "turn/started": _started,
    "turn/completed": _ended,
    "item/started": lambda params: ItemOpened(_turn_id(params), _item(params)),
    "item/completed": lambda params: ItemClosed(_turn_id(params), _item(params)),
    "error": _error,
    "thread/tokenUsage/updated": lambda params: Answered(_turn_id(params)),
}
