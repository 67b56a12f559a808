"""Which slash commands are offered, answered here, or written so that the CLI sees them (CMD-*, D8)."""

from typing import Any

import pytest

from adapters.acp.schema import ContentBlock, ResourceLinkBlock, TextBlock
from adapters.claude.commands import arrange, available_commands
from adapters.claude.stored.content import to_content
from adapters.driver.slash import command_of, moving_text


def prompt(*texts: str) -> list[ContentBlock]:
    return [TextBlock(text=text) for text in texts]


LINK = ResourceLinkBlock(name="a", uri="file:///a")


def test_only_commands_that_work_here_are_offered_each_once() -> None:
    """CMD-1."""
    initialized = {
        "commands": [
            {"name": "compact", "description": "Make room", "argumentHint": "[what to keep]"},
            {"name": "clear", "description": "x"},
            {"name": "help", "description": "x"},
            {"name": "__remote-workflow", "description": "x"},
            {"name": "two words", "description": "x"},
            {"name": "compact", "description": "again"},
            {"name": "mcp__srv__do", "description": "From a server"},
            {"description": "nameless"},
            7,
        ]
    }
    compact, server = available_commands(initialized)
    assert (compact.name, compact.description) == ("compact", "Make room")
    assert compact.input is not None
    assert (server.name, server.input) == ("mcp__srv__do", None)


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ({"name": "box:greet (MCP)"}, "mcp__box__greet"),
        ({"name": "box:a.b (MCP)"}, "mcp__box__a.b"),
        ({"name": "a:b:greet (MCP)"}, "mcp__a_b__greet"),
        ({"name": "my.srv x:greet (MCP)"}, "mcp__my_srv_x__greet"),
        ({"name": "my.srv x:sum:it (MCP)", "aliases": [7, "other", "mcp__my_srv_x__sum:it"]}, "mcp__my_srv_x__sum:it"),
        ({"name": "box:two words (MCP)"}, None),
        ({"name": "box:a/b (MCP)"}, None),
        ({"name": "greet (MCP)"}, None),
    ],
)
def test_prompts_of_servers_are_offered_under_a_name_that_works(listed: dict[str, Any], name: str | None) -> None:
    """CMD-1: no white space. Claude Code 2.1.332 takes these names (measured); it lists no arguments."""
    commands = available_commands({"commands": [listed]})
    assert [command.name for command in commands] == ([name] if name else [])
    assert all(command.input and command.input.hint == "arguments" for command in commands)
    assert all(command.description.startswith("A prompt of the MCP server ") for command in commands)


def test_a_server_of_the_client_is_called_by_the_name_that_it_gave() -> None:
    (command,) = available_commands({"commands": [{"name": "my-server-0x20:greet (MCP)"}]})
    assert command.name == "mcp__my-server-0x20__greet"
    assert command.description == "A prompt of the MCP server my server."


@pytest.mark.parametrize("answer", [{}, {"commands": None}, {"commands": "x"}])
def test_no_commands_is_an_empty_list(answer: dict[str, Any]) -> None:
    assert available_commands(answer) == ()


@pytest.mark.parametrize("text", ["/clear", "/new", "/reset", "/clear my head", "/new\nsession"])
def test_commands_that_leave_the_session_are_answered_here(text: str) -> None:
    """D8, CMD-4."""
    answer = moving_text(prompt(text))
    assert answer is not None
    assert "new session" in answer
    assert moving_text([LINK, *prompt(text)]) is not None


@pytest.mark.parametrize(
    "text", [" /clear", "/clearly", "/compact", "clear", "/", "//clear", "/clear/x", "what does /clear do?"]
)
def test_other_prompts_are_not(text: str) -> None:
    assert moving_text(prompt(text)) is None


def test_the_last_block_must_not_become_a_command_by_accident() -> None:
    """The CLI looks at the last text block: `/clear` there would leave the session."""
    blocks = prompt("look at", "/clear")
    content, literal = arrange(blocks, to_content(blocks))
    assert [block["text"] for block in content] == ["look at", "/clear"]
    assert literal


def test_a_path_is_not_a_command() -> None:
    blocks = prompt("/etc/hosts is odd")
    assert command_of(blocks) is None
    assert arrange(blocks, to_content(blocks))[1]


def test_a_command_with_company_is_written_last() -> None:
    """CMD-3: other blocks may accompany it."""
    blocks = [*prompt("/review please"), LINK]
    content, literal = arrange(blocks, to_content(blocks))
    assert content[-1] == {"type": "text", "text": "/review please"}
    assert len(content) == 2
    assert not literal


def test_an_ordinary_prompt_stays_as_it_is() -> None:
    blocks = [*prompt("see"), LINK, *prompt("and do")]
    assert arrange(blocks, to_content(blocks)) == (to_content(blocks), False)
