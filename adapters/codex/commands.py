"""Slash commands: which ones exist over this channel, and the answers of those that never reach Codex (CMD-*, D8).

Owns their names and texts. Pure. Codex's app-server knows no slash commands, so a command that is not listed here is text for the
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import AvailableCommand, ContentBlock, TextBlock
from adapters.acp.shapes import as_count, as_list, as_mapping, as_text
from adapters.core.server_keys import name_of
from adapters.driver.slash import command_of, moving_text

COMMANDS: Final[Sequence[AvailableCommand]] = (
    AvailableCommand(name="compact", description="Replace the conversation so far by a summary of it, for the model"),
    AvailableCommand(name="status", description="Show model, permissions, servers and tokens of this session"),
)


@dataclass
class Status:
    """The facts about a session for `/status`."""

    session_id: str
    version: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The answer of `thread/start` or `thread/resume`, with the fields of `thread/settings/updated` over it."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`tokenUsage` of the last model call in this process."""
    servers: dict[str, str] = field(default_factory=dict[str, str])
    """MCP server, by its key in Codex -> state."""
    warnings: Sequence[str] = ()
    """Codex's warnings about its configuration."""

    def update(self, settings: Mapping[str, Any]) -> None:
        """Take over settings that changed."""
        self.settings = {**self.settings, **settings}


def is_compact(prompt: Sequence[ContentBlock]) -> bool:
    """Whether a prompt is `/compact`. Raises `InvalidParams` when it asks for more than Codex can do."""
    if command_of(prompt) != "compact":
        return False
    if len(prompt) != 1 or not isinstance(prompt[0], TextBlock) or prompt[0].text.strip() != "/compact":
        raise InvalidParams("/compact takes no text or other content with Codex: send it alone.")
    return True


def local_text(prompt: Sequence[ContentBlock], status: Status) -> str | None:
    """Our own answer to a command that never reaches Codex, None for every other prompt."""
    return _status_text(status) if command_of(prompt) == "status" else moving_text(prompt)


# --- /status -----------------------------------------------------------------------------------------------------------


def _status_text(status: Status) -> str:
    settings = status.settings
    effort = as_text(settings.get("reasoningEffort")) or as_text(settings.get("effort"))
    model = as_text(settings.get("model"))
    rows = [
        ("Codex", status.version),
        ("Session", status.session_id),
        ("Model", f"{model} (reasoning {effort})" if model and effort else model),
        ("Provider", as_text(settings.get("modelProvider"))),
        ("Folder", as_text(settings.get("cwd"))),
        ("Other folders", ", ".join(_others(settings))),
        ("Sandbox", _sandbox(as_mapping(settings.get("sandboxPolicy") or settings.get("sandbox")))),
        ("Asks for approval", _approval(settings.get("approvalPolicy"))),
        ("Context", _context(status.usage)),
        ("Tokens of this session", _total(status.usage)),
        ("MCP servers", ", ".join(f"{name_of(key)} ({state})" for key, state in sorted(status.servers.items()))),
    ]
    lines = [f"- {name}: {_plain(value)}" for name, value in rows if value]
    lines += [f"- Warning: {_plain(warning)}" for warning in status.warnings]
    return "\n".join(lines)


def _others(settings: Mapping[str, Any]) -> Sequence[str]:
    roots = [as_text(root) for root in as_list(settings.get("runtimeWorkspaceRoots"))]
    return [root for root in roots if root and root != settings.get("cwd")]


def _sandbox(policy: Mapping[str, Any]) -> str:
    kind = as_text(policy.get("type"))
    named = {
        "dangerFullAccess": "none: full access",
        "readOnly": "read only",
        "workspaceWrite": "may write in the session's folders",
        "externalSandbox": "by the system around Codex",
    }.get(kind, kind)
    return f"{named}, with network" if policy.get("networkAccess") in (True, "enabled") and named else named


def _approval(policy: Any) -> str:
    if not isinstance(policy, str):
        return "by rules" if policy else ""
    known = {
        "never": "never",
        "on-request": "when the model wants more than the sandbox allows",
        "untrusted": "for every command that is not known to be harmless",
    }
    return known.get(policy, policy)


def _context(usage: Mapping[str, Any]) -> str:
    used = as_count(as_mapping(usage.get("last")).get("totalTokens"))
    size = as_count(usage.get("modelContextWindow"))
    return f"{used:,} of {size:,} tokens" if size else ""


def _total(usage: Mapping[str, Any]) -> str:
    total = as_mapping(usage.get("total"))
    if not as_count(total.get("totalTokens")):
        return ""
    cached = as_count(total.get("cachedInputTokens"))
    given = f"{as_count(total.get('inputTokens')):,} in ({cached:,} cached)"
    return f"{given}, {as_count(total.get('outputTokens')):,} out"


def _plain(text: str) -> str:
    return " ".join(text.split())
