"""What live frames and stored entries of one conversation share: an assistant's blocks, tool results, summaries.

Owns the rules that must be the same in both, so that a replay shows what was shown live. Knows only the messages inside frames
and entries.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from adapters.acp.schema import AgentMessage, CompactionUpdate, SessionUpdate, TextBlock
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show.messages import Messages, text_of
from adapters.claude.show.tool_calls import Changed, ToolCalls
from adapters.claude.stored import cli_texts


class Conversation:
    """Recent messages and open tool calls of one session's main thread."""

    def __init__(self, cwd: str, changed: Changed, *, live: bool) -> None:
        self.messages = Messages()
        self.calls = ToolCalls(cwd, changed)
        self._live = live

    def assistant(self, message: Mapping[str, Any], uuid: str) -> Iterator[SessionUpdate]:
        """One `assistant` frame or entry: its texts and thoughts, then its tool calls.

        The id is the API's, which replay finds again; the entry's where there is none, or the runtime made the message up.
        """
        api_id = "" if cli_texts.is_synthetic(message) else as_text(message.get("id"))
        blocks = [as_mapping(block) for block in as_list(message.get("content"))]
        texts = [
            shown for block in blocks if (shown := text_of(block)) and not cli_texts.is_empty_answer(message, shown[1])
        ]
        yield from self.messages.whole(api_id or uuid or str(uuid4()), uuid, texts, live=self._live)
        for block in blocks:
            kind = as_text(block.get("type"))
            if kind.endswith("tool_use"):
                yield from self.calls.started(as_text(block.get("id")), as_text(block.get("name")), block.get("input"))
            elif kind.endswith("tool_result"):  # of a tool that the API itself ran
                yield from self.calls.ended(block, None)

    def results(self, message: Mapping[str, Any], structured: Any) -> Iterator[SessionUpdate]:
        """The tool results in a `user` frame or entry; `structured` is the runtime's own form of the only one."""
        blocks = [as_mapping(block) for block in as_list(message.get("content"))]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            yield from self.calls.ended(block, structured if len(results) == 1 else None)


def printed(uuid: str, output: str) -> Iterator[SessionUpdate]:
    """The output of a local command as an agent's message; nothing for no output."""
    if output:
        yield AgentMessage(message_id=uuid or str(uuid4()), content=[TextBlock(text=output)])


def compacted(compaction_id: str, summary: str = "") -> SessionUpdate:
    """A compaction that is done; the summary may follow in a second update (COMP-2)."""
    if summary:
        return CompactionUpdate(compaction_id=compaction_id, status="completed", summary=[TextBlock(text=summary)])
    return CompactionUpdate(compaction_id=compaction_id, status="completed")
