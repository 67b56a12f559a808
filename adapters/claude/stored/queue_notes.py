"""What Claude Code's notes about its queue say of a stored prompt: the words in which a command was typed.

Owns the reading of `queue-operation` entries. A note has the text of a prompt that was sent as a string. The prompt's own entry
has a command under its first name, with the white space around its arguments stripped.
"""

from collections.abc import Mapping
from typing import Any

from adapters.acp.shapes import as_list, as_mapping
from adapters.claude.stored import edges
from adapters.claude.stored.cli_texts import stored_command


class Queued:
    """The last note in one stored session, fed in file order."""

    def __init__(self) -> None:
        self._sent: str | None = None
        """The text that was put into the queue last."""

    def feed(self, note: Mapping[str, Any]) -> None:
        """Take in a `queue-operation` entry."""
        text = note.get("content")
        if note.get("operation") == "enqueue":
            self._sent = text if isinstance(text, str) else None

    def as_typed(self, content: Any) -> Any:
        """Stored content as it was typed: a command under the name that was used, with its white space.

        The note must be of the same arguments; else the content is left as it is.
        """
        sent, self._sent = self._sent, None
        stored = _only_text(content)
        if sent is None or stored is None:
            return content
        if not sent.startswith("/"):
            return content
        command = stored_command(stored)
        if command is None and not stored.startswith("/"):
            return content
        arguments = command[1] if command else _arguments(stored)
        return sent if arguments == _arguments(sent).removeprefix("(MCP)").strip() else content


def _only_text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    blocks = as_list(content)
    text = as_mapping(blocks[0]).get("text") if len(blocks) == 1 else None
    return text if isinstance(text, str) else None


def _arguments(command: str) -> str:
    words = command.split(maxsplit=1)
    return edges.strip(words[1]) if len(words) > 1 else ""
