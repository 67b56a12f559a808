"""Slash commands: which ones work over this channel, and how a prompt with a command is written (CMD-*, D8).

Owns the lists, measured with Claude Code 2.1.332. Pure. Claude Code treats a prompt as a command if its *last* text block starts
with a slash; ACP if its first block does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from adapters.acp.schema import AvailableCommand, CommandInput, ContentBlock
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.core.server_keys import name_of
from adapters.driver.slash import MOVING, command_of

_NOT_OFFERED: Final = MOVING | {
    "add-dir", "branch", "bug", "exit", "export", "feedback", "fork", "help", "hooks", "login", "logout", "memory",
    "permissions", "quit", "release-notes", "resume", "rewind", "status", "tasks", "vim",
}  # fmt: skip
"""The CLI answers them with "isn't available in this environment", whatever it lists."""

_LISTED: Final = re.compile(r"[^\s/_][^\s/]*")

_PROMPT: Final = re.compile(r"(?P<server>.+):(?P<prompt>[^:]+) \(MCP\)")
"""How the CLI lists a prompt of an MCP server. It takes it back so, too, but a name with white space is none (CMD-1)."""

_SQUEEZED: Final = re.compile(r"[^A-Za-z0-9_-]")


def available_commands(listed: Mapping[str, Any]) -> tuple[AvailableCommand, ...]:
    """The commands that work here, each name once (CMD-1), of what `initialize` or `commands_changed` lists."""
    found: dict[str, AvailableCommand] = {}
    for command in map(as_mapping, as_list(listed.get("commands"))):
        name = as_text(command.get("name")).removeprefix("/")
        hint, description = as_text(command.get("argumentHint")), as_text(command.get("description"))
        if prompt := _PROMPT.fullmatch(name):
            name = _name_of_prompt(prompt, as_list(command.get("aliases")))
            hint = hint or "arguments"  # the CLI does not list them
            description = description or f"A prompt of the MCP server {name_of(prompt['server'])}."
        if name in found or name in _NOT_OFFERED or not _LISTED.fullmatch(name):
            continue
        described: dict[str, Any] = {"name": name, "description": description}
        if hint:
            described["input"] = CommandInput(hint=hint)
        found[name] = AvailableCommand(**described)
    return tuple(found.values())


def _name_of_prompt(prompt: re.Match[str], aliases: Sequence[Any]) -> str:
    """The name without white space under which the CLI takes a prompt of an MCP server; it says so for an odd one."""
    for alias in map(as_text, aliases):
        if alias.startswith("mcp__"):
            return alias
    return f"mcp__{_SQUEEZED.sub('_', prompt['server'])}__{prompt['prompt']}"


def arrange(
    prompt: Sequence[ContentBlock], content: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], bool]:
    """The content of a prompt in the order in which the CLI sees a command in it exactly when there is one.

    Second: whether the frame must say that nothing in it is a command.
    """
    texts = [index for index, block in enumerate(content) if block.get("type") == "text"]
    at = next((index for index in texts if as_text(content[index].get("text")).startswith("/")), None)
    if at is not None and command_of(prompt) is not None:
        return [*content[:at], *content[at + 1 :], content[at]], False
    return list(content), bool(texts) and as_text(content[texts[-1]].get("text")).startswith("/")
