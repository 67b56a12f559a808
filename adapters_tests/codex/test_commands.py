"""Slash commands: what is answered here, what goes to Codex, what is text."""

from __future__ import annotations

import re

import pytest

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import ImageBlock, TextBlock
from adapters.codex.commands import COMMANDS, Status, is_compact, local_text
from adapters.driver.slash import command_of


def prompt(text: str) -> list[TextBlock]:
    return [TextBlock(text=text)]


def test_advertised_commands_are_well_formed() -> None:
    """CMD-1."""
    names = [command.name for command in COMMANDS]
    assert sorted(set(names)) == sorted(names) == ["compact", "status"]
    assert all(re.fullmatch(r"[^\s/]+", name) for name in names)


@pytest.mark.parametrize(
    ("text", "name"),
    [("/status", "status"), ("/status now", "status"), ("/compact\n", "compact"), (" /status", None), ("/a/b", None)],
)
def test_a_command_is_how_the_text_begins(text: str, name: str | None) -> None:
    """CMD-3."""
    assert command_of(prompt(text)) == name


@pytest.mark.parametrize("text", ["/clear", "/new", "/new please", "/reset"])
def test_commands_that_would_leave_the_session(text: str) -> None:
    """D8."""
    said = local_text(prompt(text), Status("s"))
    assert said is not None
    assert "new session" in said


def test_unknown_commands_are_text() -> None:
    """CMD-3: Codex's app-server knows none."""
    assert local_text(prompt("/review this"), Status("s")) is None
    assert not is_compact(prompt("/compacter"))


def test_compact_stands_alone() -> None:
    """Codex's compaction takes no instructions: asking for what cannot be done is an error, not silence."""
    assert is_compact(prompt(" /compact".strip()))
    image = ImageBlock(data="", mime_type="image/png")
    for refused in (prompt("/compact keep all"), [*prompt("/compact"), image]):
        with pytest.raises(InvalidParams):
            is_compact(refused)


def test_status_says_what_is_known_and_nothing_else() -> None:
    """CMD-4: honest: what Codex did not say is left out."""
    status = Status("the-session")
    assert local_text(prompt("/status"), status) == "- Session: the-session"
    status.version = "0.163.0"
    status.update(
        {
            "model": "m",
            "modelProvider": "p",
            "reasoningEffort": "high",
            "cwd": "/w",
            "runtimeWorkspaceRoots": ["/w", "/x"],
            "sandbox": {"type": "workspaceWrite", "networkAccess": False},
            "approvalPolicy": "on-request",
        }
    )
    status.usage = {
        "last": {"totalTokens": 1200},
        "total": {"totalTokens": 5000, "inputTokens": 4000, "cachedInputTokens": 1000, "outputTokens": 1000},
        "modelContextWindow": 258400,
    }
    status.servers = {"s": "ready"}
    status.warnings = ("careful\nnow",)
    text = local_text(prompt("/status"), status)
    assert text is not None
    for part in (
        "- Codex: 0.163.0",
        "- Model: m (reasoning high)",
        "- Other folders: /x",
        "- Sandbox: may write in the session's folders",
        "- Context: 1,200 of 258,400 tokens",
        "4,000 in (1,000 cached), 1,000 out",
        "- MCP servers: s (ready)",
        "- Warning: careful now",
    ):
        assert part in text


def test_settings_that_change_are_told() -> None:
    """`thread/settings/updated` spells the sandbox another way, and goes before what the start said."""
    status = Status("s")
    status.update({"sandbox": {"type": "readOnly"}, "approvalPolicy": "never"})
    status.update({"sandboxPolicy": {"type": "dangerFullAccess"}, "approvalPolicy": {"granular": {}}})
    text = local_text(prompt("/status"), status)
    assert text is not None
    assert "none: full access" in text
    assert "by rules" in text
