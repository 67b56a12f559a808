"""What the assistant says, block by block, in live frames and in stored entries: each text once (UPD-2, UPD-5).

Owns how streamed deltas and the whole blocks after them become one text. Claude Code sends a block's deltas, then the whole block
in an `assistant` frame, then `content_block_stop`. All blocks of one answer share the API's message id. A block that never comes
whole was discarded (a cut connection, a retry) and is not stored either. Knows no tools, no results and no files.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adapters.acp.schema import (
    AgentMessage,
    AgentMessageChunk,
    AgentThought,
    AgentThoughtChunk,
    SessionUpdate,
    TextBlock,
)
from adapters.acp.shapes import as_mapping, as_text

Space = Literal["agent", "thought"]

_SHOWN: tuple[Space, ...] = ("thought", "agent")

_REMEMBERED = 32
"""Messages of which a further block may still come. More than one only when answers interleave."""

_SPACES: Mapping[str, tuple[Space, str]] = {"text": ("agent", "text"), "thinking": ("thought", "thinking")}
"""Block type -> where it is shown, and the member with its text."""

_DELTAS: Mapping[str, tuple[Space, str]] = {"text_delta": ("agent", "text"), "thinking_delta": ("thought", "thinking")}


@dataclass(slots=True, eq=False)
class _Block:
    space: Space
    parts: list[str] = field(default_factory=list[str])
    whole: bool = False
    """The whole block has come; until then it may still turn out to be discarded."""
    uuid: str = ""
    """Of the frame or entry that brought it whole."""

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class _Message:
    message_id: str
    blocks: list[_Block] = field(default_factory=list[_Block])
    streaming: dict[int, _Block] = field(default_factory=dict[int, _Block])
    ended: bool = False
    """The stream told its stop reason: nothing of it was discarded."""
    seen: set[str] = field(default_factory=set[str])
    """Uuids of the frames or entries taken in: one that comes twice counts once."""

    def upsert(self, space: Space) -> SessionUpdate:
        content = [TextBlock(text=block.text) for block in self.blocks if block.space == space]
        make = AgentMessage if space == "agent" else AgentThought
        return make(message_id=self.message_id, content=[*content])

    def shows(self, space: Space) -> bool:
        return any(block.space == space for block in self.blocks)


def text_of(block: Mapping[str, Any]) -> tuple[Space, str] | None:
    """Where a whole content block is shown and its text; None for blocks without text to show."""
    shown = _SPACES.get(as_text(block.get("type")))
    if shown is None:
        return None
    text = as_text(block.get(shown[1]))
    return (shown[0], text) if text else None


class Messages:
    """The recent agent messages and thoughts of one conversation."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, _Message] = OrderedDict()
        self._current: _Message | None = None

    def _message(self, message_id: str) -> _Message:
        message = self._messages.get(message_id)
        if message is None:
            message = self._messages[message_id] = _Message(message_id)
            if len(self._messages) > _REMEMBERED:
                self._messages.popitem(last=False)
        return message

    # --- the stream --------------------------------------------------------------------------------------------------

    def begin(self, message_id: str) -> Iterator[SessionUpdate]:
        """`message_start`. Without an id (empty) nothing can be streamed: the whole blocks bring the text."""
        yield from self.discard()
        if message_id:
            self._current = self._message(message_id)
            self._current.ended = False
            self._current.streaming.clear()

    def open_block(self, index: int, block: Mapping[str, Any]) -> Iterator[SessionUpdate]:
        """`content_block_start`; its text is usually still empty."""
        shown = _SPACES.get(as_text(block.get("type")))
        if self._current is not None:
            self._current.streaming.pop(index, None)
            if shown is not None:
                yield from self._append(index, shown[0], as_text(block.get(shown[1])))

    def delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[SessionUpdate]:
        """`content_block_delta`."""
        shown = _DELTAS.get(as_text(delta.get("type")))
        if shown is not None:
            yield from self._append(index, shown[0], as_text(delta.get(shown[1])))

    def _append(self, index: int, space: Space, text: str) -> Iterator[SessionUpdate]:
        message = self._current
        if message is None or not text:
            return
        block = message.streaming.get(index)
        if block is None or block.space != space:
            block = message.streaming[index] = _Block(space)
            message.blocks.append(block)
        block.parts.append(text)
        make = AgentMessageChunk if space == "agent" else AgentThoughtChunk
        yield make(message_id=message.message_id, content=TextBlock(text=text))

    def ended(self) -> None:
        """The stop reason came: what was streamed is the answer, whatever follows."""
        if self._current is not None:
            self._current.ended = True

    def discard(self, copies: Collection[tuple[Space, str]] = ()) -> Iterator[SessionUpdate]:
        """Another answer begins. What was streamed of the one before and never came whole is taken back.

        An answer that ended properly stays, except for blocks that the new one repeats (`copies`) under its own id.
        """
        message, self._current = self._current, None
        if message is None:
            return
        lost = [b for b in message.blocks if not b.whole and (not message.ended or (b.space, b.text) in copies)]
        message.blocks = [block for block in message.blocks if block not in lost]
        for space in _SHOWN:
            if any(block.space == space for block in lost):
                yield message.upsert(space)

    def retract(self, uuids: Collection[Any]) -> Iterator[SessionUpdate]:
        """The runtime removed what these frames said."""
        for message in self._messages.values():
            lost = [block for block in message.blocks if block.uuid and block.uuid in uuids]
            message.blocks = [block for block in message.blocks if block not in lost]
            for space in _SHOWN:
                if any(block.space == space for block in lost):
                    yield message.upsert(space)

    def settle(self) -> None:
        """The turn is over: what was shown stays."""
        self._current = None

    # --- whole blocks ------------------------------------------------------------------------------------------------

    def whole(
        self, message_id: str, uuid: str, blocks: list[tuple[Space, str]], *, live: bool
    ) -> Iterator[SessionUpdate]:
        """Whole text blocks of one `assistant` frame or entry, in order.

        Live, a block that was streamed as it is brings nothing, another one brings the message anew. In replay every
        block brings the message anew, so that replaying twice changes nothing (REPLAY-4).
        """
        message = self._message(message_id)
        if self._current is not None and self._current is not message:
            yield from self.discard(blocks)
        if uuid:
            if uuid in message.seen:
                return
            message.seen.add(uuid)
        for space, text in blocks:
            streamed = next((block for block in message.blocks if block.space == space and not block.whole), None)
            if streamed is not None:
                streamed.whole, streamed.uuid = True, uuid
                if streamed.text != text:
                    streamed.parts = [text]
                    yield message.upsert(space)
                continue
            known = message.shows(space)
            message.blocks.append(_Block(space, [text], whole=True, uuid=uuid))
            if live and known:
                make = AgentMessageChunk if space == "agent" else AgentThoughtChunk
                yield make(message_id=message_id, content=TextBlock(text=text))
            else:
                yield message.upsert(space)


def block_index(event: Mapping[str, Any]) -> int:
    """The index of a stream event's block, -1 for one that has none."""
    index = event.get("index")
    return index if isinstance(index, int) else -1


def stream_id(frame: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    """The API's message id that a stream frame belongs to, empty when it names none."""
    return as_text(as_mapping(event.get("message")).get("id")) or as_text(frame.get("api_message_id"))
