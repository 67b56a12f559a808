"""Claude Code's live frames as session updates.

Owns the translation of the main thread's stdout frames while a session runs. A replay of the stored entries (`replay`)
gives the same picture: same ids, texts, calls and final statuses. Prompts are not echoed here: the core reports them as
they were sent. Frames may have any shape: a wrong type costs at most that frame (D11).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from adapters.acp.schema import (
    AgentMessage,
    AgentMessageChunk,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCallUpdate,
    UsageUpdate,
)
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show.conversation import Conversation, compacted, printed
from adapters.claude.show.messages import block_index, stream_id
from adapters.claude.show.notices import notice_of
from adapters.claude.show.replay import replay
from adapters.claude.show.tool_titles import tool_call
from adapters.claude.show.usage import Usage
from adapters.claude.stored import cli_texts
from adapters.core.file_change import FileChange
from adapters.driver.tool_text import one_line

__all__ = ["Translator", "replay"]

_Frame = Mapping[str, Any]
_Updates = Iterator[SessionUpdate]


class Translator:
    """Turns the frames of one runtime session, in their order, into updates.

    `cwd` resolves relative paths of tools. `known` gives what a call has changed, where that is more than it reports.
    """

    def __init__(self, cwd: str, known: Callable[[str], FileChange | None] = lambda _: None) -> None:
        self._cwd = cwd
        self._conversation = Conversation(cwd, lambda tool_use_id, _: known(tool_use_id), live=True)
        self._messages = self._conversation.messages
        self._calls = self._conversation.calls
        self._usage = Usage()
        self._announced: list[str] = []
        """Calls of the streaming answer of which the whole block has not come."""
        self._answered = False
        """The assistant has said something since the last tool result."""
        self._compaction: str | None = None
        """The compaction whose summary comes next."""

    def feed(self, frame: _Frame) -> list[SessionUpdate]:
        """The updates that a frame brings, in order. Never raises; frames that show nothing bring none."""
        if frame.get("parent_tool_use_id"):
            return []  # what a subagent says is not the conversation's; its progress comes in `system` frames
        match as_text(frame.get("type")):
            case "stream_event":
                return list(self._stream(frame))
            case "assistant":
                return list(self._assistant(frame))
            case "user":
                return list(self._user(frame))
            case "result":
                updates = list(self._result(frame))
            case "system":
                updates = list(self._system(frame))
            case "tombstone":
                updates = list(self._messages.retract([as_mapping(frame.get("message")).get("uuid")]))
            case _:
                updates = list[SessionUpdate]()
        notice = notice_of(frame)
        return [*updates, notice] if notice else updates

    def finish(self, status: str) -> list[SessionUpdate]:
        """Give the calls that are still open a final status ("failed" or "cancelled"): nothing runs any more."""
        self._messages.settle()
        self._announced.clear()
        self._answered = False
        self._compaction = None
        return list(self._calls.finish(status))

    def tool_call_of(
        self, tool_name: str, tool_use_id: str, tool_input: Any, change: FileChange | None = None
    ) -> ToolCallUpdate:
        """The call that a permission request is about, waiting; `change` is what it will do to a file, where that is known."""
        return tool_call(tool_name, tool_use_id, tool_input, self._cwd, "pending", change=change)

    def running(self, tool_use_id: str) -> list[SessionUpdate]:
        """The update after a permission was given: the call runs (TOOL-10). Nothing for a call that has ended."""
        return list(self._calls.running(tool_use_id))

    @property
    def open_calls(self) -> Collection[str]:
        """Ids of the calls without a result, for a `replay` while they run."""
        return self._calls.open

    @property
    def waits_for_agent(self) -> bool:
        """Whether the conversation waits for a subagent."""
        return self._calls.waits_for_agent

    @property
    def usage(self) -> UsageUpdate | None:
        """The latest usage, None while the context's size is unknown (USAGE-1)."""
        return self._usage.latest

    # --- one method per frame type -----------------------------------------------------------------------------------

    def _stream(self, frame: _Frame) -> _Updates:
        event = as_mapping(frame.get("event"))
        match as_text(event.get("type")):
            case "message_start":
                yield from self._discard()
                yield from self._messages.begin(stream_id(frame, event))
                self._usage.call_began(as_mapping(event.get("message")))
            case "content_block_start":
                block = as_mapping(event.get("content_block"))
                yield from self._said(self._messages.open_block(block_index(event), block))
                if as_text(block.get("type")).endswith("tool_use"):
                    self._announced.append(as_text(block.get("id")))
                    yield from self._calls.announced(as_text(block.get("id")), as_text(block.get("name")))
            case "content_block_delta":
                yield from self._said(self._messages.delta(block_index(event), as_mapping(event.get("delta"))))
            case "message_delta":
                if as_mapping(event.get("delta")).get("stop_reason"):
                    self._messages.ended()
                self._usage.call_went_on(as_mapping(event.get("usage")))
                yield from self._usage.news()
            case _:
                return

    def _assistant(self, frame: _Frame) -> _Updates:
        uuid = as_text(frame.get("uuid"))
        output = cli_texts.command_output(frame.get("local_command_source"))
        if output is not None:
            yield from self._said(printed(uuid, output))
            return
        message = as_mapping(frame.get("message"))
        for block in as_list(message.get("content")):
            call_id = as_text(as_mapping(block).get("id"))
            if call_id in self._announced:
                self._announced.remove(call_id)
        if not cli_texts.is_synthetic(message):
            self._usage.whole_message(message)
        yield from self._said(self._conversation.assistant(message, uuid))

    def _user(self, frame: _Frame) -> _Updates:
        message = as_mapping(frame.get("message"))
        content = message.get("content")
        results = list(self._conversation.results(message, frame.get("tool_use_result")))
        if results:
            self._answered = False
            yield from results
        elif self._compaction and frame.get("isSynthetic"):
            compaction, self._compaction = self._compaction, None
            yield compacted(compaction, cli_texts.summary_text(content))
        elif (output := cli_texts.command_output(content)) and not cli_texts.is_host_echo(output):
            yield from self._said(printed(as_text(frame.get("uuid")), output))

    def _result(self, frame: _Frame) -> _Updates:
        yield from self._discard_calls()
        text = as_text(frame.get("result"))
        if text and not self._answered and not frame.get("is_error"):
            # An answer without frames of its own: short or cached ones come like that.
            yield from printed(as_text(frame.get("uuid")), text)
        self._answered = False
        self._messages.settle()
        self._usage.turn_ended(frame)
        yield from self._usage.news()

    def _system(self, frame: _Frame) -> _Updates:
        match as_text(frame.get("subtype")):
            case "compact_boundary":
                self._compaction = as_text(frame.get("uuid")) or None
                if self._compaction:
                    yield compacted(self._compaction)
                self._usage.compacted(as_mapping(frame.get("compact_metadata")).get("post_tokens"))
                yield from self._usage.news()
            case "task_progress":
                yield from self._calls.progress(as_text(frame.get("tool_use_id")), as_text(frame.get("description")))
            case "local_command_output":
                yield from self._said(printed(as_text(frame.get("uuid")), as_text(frame.get("content")).strip()))
            case "session_title_changed":
                if title := one_line(as_text(frame.get("title"))):
                    yield SessionInfoUpdate(title=title)
            case "model_refusal_fallback":
                yield from self._messages.retract(as_list(frame.get("retracted_message_uuids")))
            case _:
                return

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _said(self, updates: Iterable[SessionUpdate]) -> _Updates:
        for update in updates:
            if isinstance(update, AgentMessage | AgentMessageChunk):
                self._answered = True
            yield update

    def _discard(self) -> _Updates:
        """A new answer begins: what the last one began and never completed was thrown away by the runtime."""
        yield from self._messages.discard()
        yield from self._discard_calls()

    def _discard_calls(self) -> _Updates:
        for call_id in self._announced:
            yield from self._calls.abandon(call_id)
        self._announced.clear()
