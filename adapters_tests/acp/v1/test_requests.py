"""Requests of v1 in the words of v2, and results back."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.acp import schema
from adapters.acp.errors import InvalidParams, MethodNotFound
from adapters.acp.v1.requests import read
from adapters.acp.v1.results import result

PROGRAMS = {"npx": "/usr/bin/npx"}


def as_read(method: str, **params: Any) -> tuple[str, dict[str, Any]]:
    return read(method, params, PROGRAMS.get)


def test_load_is_a_resume_with_replay_and_resume_one_without() -> None:
    """V1-SES-3, V1-SES-4: a word of v2 in a request of v1 means nothing."""
    roots = {"sessionId": "s", "cwd": "/", "mcpServers": []}
    assert as_read("session/load", **roots) == ("session/resume", {**roots, "replayFrom": {"type": "start"}})
    assert as_read("session/resume", **roots, replayFrom={"type": "start"}) == ("session/resume", roots)


def test_a_server_without_a_type_is_a_command() -> None:
    """V1-SES-1, V1-SES-2: all that editors send is read by the models of v2."""
    servers: list[Any] = [
        {"name": "a", "command": "/bin/a", "args": ["x"], "env": [{"name": "A", "value": "1"}]},
        {"name": "b", "command": "npx", "args": [], "env": []},
        {"type": "http", "name": "c", "url": "http://c", "headers": []},
    ]
    method, params = as_read("session/new", cwd="/", mcpServers=servers)
    new = schema.parse_params(method, params)
    assert [(server.type, getattr(server, "command", None)) for server in new.mcp_servers] == [
        ("stdio", "/bin/a"),
        ("stdio", "/usr/bin/npx"),
        ("http", None),
    ]
    assert schema.parse_params(*as_read("session/new", cwd="/", mcpServers=None)).mcp_servers == []


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"type": "sse", "name": "a", "url": "u"}, r"mcpServers\[0\]: servers of type sse are not supported"),
        ({"type": "acp", "name": "a"}, r"mcpServers\[0\]: servers of type acp are not supported"),
        ({"type": 7}, r"mcpServers\[0\]: servers of type this type are not supported"),
        ({"name": "a", "command": "no-such-program"}, r"mcpServers\[0\]\.command must be an absolute path"),
        ({"name": "a"}, r"mcpServers\[0\]\.command is required"),
        ("text", r"mcpServers\[0\]"),
    ],
)
def test_a_server_that_cannot_be_had_is_named_by_its_place(server: Any, said: str) -> None:
    """SETUP-3: never left out silently."""
    with pytest.raises(InvalidParams, match=said):
        schema.parse_params(*as_read("session/new", cwd="/", mcpServers=[server]))


def test_a_prompt_has_no_key() -> None:
    """KEY-9, V1-PR-8: not even a malformed one."""
    blocks = [{"type": "text", "text": "x"}]
    method, params = as_read("session/prompt", sessionId="s", prompt=blocks, idempotencyKey="")
    assert (method, params) == ("session/prompt", {"sessionId": "s", "prompt": blocks})


@pytest.mark.parametrize("method", ["authenticate", "logout", "session/set_mode", "session/fork", "auth/login", "x"])
def test_a_method_that_is_not_advertised_is_unknown(method: str) -> None:
    with pytest.raises(MethodNotFound):
        as_read(method)


def test_an_option_without_a_type_is_set_by_its_id() -> None:
    """V1-CFG-1."""
    for given, kind in (({"value": "x"}, "id"), ({"value": True, "type": "boolean"}, "boolean")):
        params = schema.parse_params(*as_read("session/set_config_option", sessionId="s", configId="c", **given))
        assert getattr(params, "type") == kind  # noqa: B009 - one of many models


OPTIONS: list[Any] = [
    {
        "type": "select",
        "configId": "model",
        "name": "Model",
        "category": "model",
        "currentValue": "a",
        "options": [{"groupId": "g", "name": "G", "options": [{"value": "a", "name": "A", "description": "d"}]}],
    },
    {"type": "boolean", "configId": "fast", "name": "Fast", "category": "_mine", "currentValue": False},
    {"type": "_later", "configId": "x", "name": "X"},
]


def test_options_have_the_names_of_v1() -> None:
    """V1-CFG-1, V1-CFG-2, V1-SES-7: and no commands."""
    opened = {"sessionId": "s", "configOptions": OPTIONS, "availableCommands": [{"type": "command", "name": "x"}]}
    model = {
        "type": "select",
        "id": "model",
        "name": "Model",
        "category": "model",
        "currentValue": "a",
        "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A", "description": "d"}]}],
    }
    fast = {"type": "boolean", "id": "fast", "name": "Fast", "currentValue": False}
    assert result("session/new", opened, booleans=False) == {"sessionId": "s", "configOptions": [model]}
    assert result("session/load", opened, booleans=True) == {"configOptions": [model, fast]}
    assert result("session/set_config_option", opened, booleans=True) == {"configOptions": [model, fast]}
    assert result("session/close", {"later": 1}, booleans=True) == {}


def test_rows_of_a_list_have_their_fields_and_no_others() -> None:
    """V1-SES-5."""
    row = {"sessionId": "s", "cwd": "/", "title": "t", "updatedAt": "2026-01-01T00:00:00Z"}
    page = {"sessions": [{**row, "later": 1}], "nextCursor": "c", "more": 2}
    assert result("session/list", page, booleans=False) == {"sessions": [row], "nextCursor": "c"}
