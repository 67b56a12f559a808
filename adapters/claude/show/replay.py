"""A stored Claude Code session as updates that rebuild the client's view (REPLAY-2 to REPLAY-7).

Owns the reading of entries in file order: everything that is stored, parts before compactions and abandoned branches included.
Every update is a whole upsert, so a second replay changes nothing. Memory stays flat: one line at a time, and small facts about
what is open. Entries may have any shape: a wrong type costs at most its entry (D11).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.acp.schema import SessionUpdate, UserMessage
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show.conversation import Conversation, compacted, printed
from adapters.claude.show.edited_files import FilesNow
from adapters.claude.show.tool_calls import Changed
from adapters.claude.stored import cli_texts
from adapters.claude.stored.content import from_content, split_merged
from adapters.claude.stored.ownership import Ownership
from adapters.claude.stored.queue_notes import Queued
from adapters.claude.stored.transcript import (
    beside_tool_results,
    holds_tool_result,
    is_side_entry,
    is_task_notification,
    parse_line,
)
from adapters.core.file_calls import open_file
from adapters.core.file_change import FileChange

_SHOWS_NOTHING = re.compile(
    rb'\{"type":"(?!(?:user|assistant|attachment|system|queue-operation)")[a-z-]+"'
    rb'|\{"type":"queue-operation","operation":"(?:dequeue|remove)"'
    rb'|\{"parentUuid":(?:null|"[0-9a-f-]+"),"isSidechain":false,"attachment":\{"type":"(?!queued_command")[a-z_]+"'
)
"""How lines begin, in Claude Code's own spelling, that show nothing for certain. Every other line is read as JSON."""

_Entry = Mapping[str, Any]
_Updates = Iterator[SessionUpdate]


def replay(
    path: Path, cwd: str, running: Collection[str] = (), known: Callable[[str], FileChange | None] = lambda _: None
) -> Iterator[SessionUpdate]:
    """All stored history of the session in this file, oldest first. Blocking: run it in a worker thread.

    `cwd` is the session's folder, for relative paths. `running` are tool calls that go on: the others without a result
    are dead and end as "failed" (REPLAY-7). `known` gives what this process knows of a call's change, which is not stored.
    Reads up to where the file ends when it gets there; a torn last line is left out. Raises `OSError`.
    """
    now = FilesNow(cwd)
    changed: Changed = lambda tool_use_id, result: known(tool_use_id) or now.change(result)  # noqa: E731
    entries = _Replay(Conversation(cwd, changed, live=False))
    ownership = Ownership(path.stem, lambda: _entries(path))
    for entry in _entries(path):
        if ownership.holds(entry):
            yield from entries.feed(entry)
    yield from entries.finish(running)


def _entries(path: Path) -> Iterator[_Entry]:
    with open_file(path) as file:
        for line in file:
            if not _SHOWS_NOTHING.match(line) and (entry := parse_line(line)) is not None:
                yield entry


@dataclass(slots=True)
class _Compaction:
    """A compaction that waits for its summary, and for the command that caused it, to take its place after that."""

    compaction_id: str
    manual: bool


@dataclass(slots=True)
class _Replay:
    conversation: Conversation
    compaction: _Compaction | None = None
    summary: str = ""
    queued: Queued = field(default_factory=Queued)

    def feed(self, entry: _Entry) -> _Updates:
        if entry.get("isSidechain"):
            return
        kind = entry.get("type")
        if kind == "assistant":
            yield from self._release()
            yield from self.conversation.assistant(as_mapping(entry.get("message")), as_text(entry.get("uuid")))
        elif kind == "user":
            yield from self._user(entry)
        elif kind == "attachment":
            yield from self._attachment(entry)
        elif kind == "system":
            yield from self._system(entry)
        elif kind == "queue-operation":
            self.queued.feed(entry)

    def finish(self, running: Collection[str]) -> _Updates:
        yield from self._release()
        yield from self.conversation.calls.finish("failed", running)

    # --- one method per entry type -----------------------------------------------------------------------------------

    def _user(self, entry: _Entry) -> _Updates:
        message = as_mapping(entry.get("message"))
        content = message.get("content")
        if entry.get("isCompactSummary"):
            self.summary = cli_texts.summary_text(content)
            if self.compaction and not self.compaction.manual:
                yield from self._release()
        elif holds_tool_result(entry):
            yield from self._release()
            yield from self.conversation.results(message, entry.get("toolUseResult"))
            words = [block for block in beside_tool_results(entry) if not cli_texts.is_hidden([block])]
            if words and not is_side_entry(entry):
                yield from _user_message(as_text(entry.get("uuid")), words)
        elif not is_side_entry(entry) and entry.get("promptSource") != "system":
            yield from self._said_by_user(entry, content)

    def _said_by_user(self, entry: _Entry, content: Any) -> _Updates:
        uuid = as_text(entry.get("uuid"))
        if not entry.get("promptSource"):  # else it is what a user sent, word for word
            output = cli_texts.command_output(content)
            if output is not None:
                yield from self._release()
                if not cli_texts.is_host_echo(output):
                    yield from printed(uuid, output)
                return
            if cli_texts.is_hidden(content) or _is_host_command(entry, content):
                return
            typed = cli_texts.bash_input(content)
            content = content if typed is None else typed
        content = self.queued.as_typed(content)
        yield from self._prompts(entry, uuid, content)
        yield from self._release()

    def _prompts(self, entry: _Entry, uuid: str, content: Any) -> _Updates:
        merged = [item for item in as_list(entry.get("mergedSendUuids")) if isinstance(item, str) and item]
        parts = split_merged(content, len(merged)) if merged else None
        if parts is None:
            yield from _user_message(uuid, content)
            return
        for message_id, part in zip([*merged, uuid], parts, strict=True):
            yield from _user_message(message_id, part)

    def _attachment(self, entry: _Entry) -> _Updates:
        attachment = as_mapping(entry.get("attachment"))
        if attachment.get("type") != "queued_command" or is_task_notification(attachment):
            return
        if as_text(attachment.get("commandMode") or "prompt") == "prompt" and not attachment.get("isMeta"):
            yield from self._release()
            message_id = as_text(attachment.get("source_uuid")) or as_text(entry.get("uuid"))
            yield from _user_message(message_id, attachment.get("prompt"))

    def _system(self, entry: _Entry) -> _Updates:
        uuid = as_text(entry.get("uuid"))
        if entry.get("subtype") == "compact_boundary":
            yield from self._release()
            trigger = as_mapping(entry.get("compactMetadata")).get("trigger")
            if uuid:
                self.compaction = _Compaction(uuid, trigger == "manual")
                self.summary = ""
        elif entry.get("subtype") == "local_command":
            yield from self._release()
            content = entry.get("content")
            submitted = as_text(entry.get("submitUuid"))
            if submitted:
                yield from _user_message(submitted, self.queued.as_typed(content))
            else:
                yield from printed(uuid, cli_texts.command_output(content) or "")

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _release(self) -> _Updates:
        compaction, self.compaction = self.compaction, None
        if compaction is not None:
            yield compacted(compaction.compaction_id, self.summary)


def _user_message(message_id: str, content: Any) -> _Updates:
    blocks = from_content(content)
    if message_id and blocks:
        yield UserMessage(message_id=message_id, content=blocks)


def _is_host_command(entry: _Entry, content: Any) -> bool:
    """Whether a stored command came from a host's control request (set_model ...) and not from a user."""
    return (
        as_text(entry.get("entrypoint")).startswith("sdk")
        and not entry.get("turnAttributionKey")
        and as_text(content).startswith("<command-name>")
    )
