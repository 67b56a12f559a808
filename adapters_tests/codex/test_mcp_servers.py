"""Under which keys the client's MCP servers are in Codex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from adapters.acp.errors import InvalidParams
from adapters.acp.schema import EnvVariable, HttpHeader, McpServerHttp, McpServerStdio
from adapters.codex.mcp_servers import choose_keys, configuration, without_secrets

ENTRY = {"command": "/bin/cat", "env": {"TOKEN": "the user's"}}


def keys(known: Mapping[str, Any], *names: str) -> list[str]:
    return list(choose_keys([McpServerStdio(name=name, command="/bin/true") for name in names], known))


@pytest.mark.parametrize(
    "known",
    [
        {"config": {"mcp_servers": {"docs": ENTRY}}},
        {"config": {"mcp_servers": {"docs": {"enabled": False}}}},
        {"config": {"mcp_servers": {"Docs": ENTRY}}},
        {"config": {"mcp_servers": {}}, "layers": [{"config": {"mcp_servers": {"docs": ENTRY}}}]},
        {"config": {"profiles": {"p": {"mcp_servers": {"docs": ENTRY}}}}},
        {"config": {"plugins": {"any@market": {}}}},
        {"config": {"plugins": {"any@market": {"enabled": True}}}},
    ],
)
def test_a_name_that_the_configuration_has_gets_a_key_of_its_own(known: Mapping[str, Any]) -> None:
    assert keys(known, "docs") == ["docs-0x"]


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"config": {"mcp_servers": None}},
        {"config": {"mcp_servers": {"doc": ENTRY}, "plugins": {"x": {"enabled": False}}}},
    ],
)
def test_a_free_name_is_kept(known: Mapping[str, Any]) -> None:
    assert keys(known, "docs") == ["docs"]


def test_names_that_codex_keeps_for_itself_are_spelled() -> None:
    assert keys({}, "codex_apps", "Codex", "mcp") == ["codex-apps-0x5f", "Codex-0x", "mcp-0x"]


def test_names_that_differ_in_case_are_different_servers() -> None:
    assert keys({}, "docs", "Docs", "DOCS") == ["docs", "Docs", "DOCS"]


@pytest.mark.parametrize("other", ["docs-0x", "Docs_0x"])
def test_a_server_that_no_key_is_left_for_is_refused_by_name(other: str) -> None:
    with pytest.raises(InvalidParams, match="'docs'"):
        keys({"config": {"mcp_servers": {"docs": ENTRY, other: ENTRY}}}, "docs")


def test_a_server_has_the_fields_that_the_client_gave() -> None:
    http = McpServerHttp(name="h", url="http://x", headers=[])
    servers = [McpServerStdio(name="docs", command="/bin/true", args=["a"]), http]
    known = {"config": {"mcp_servers": {"docs": ENTRY}}}
    assert configuration(choose_keys(servers, known)) == {
        "docs-0x": {"command": "/bin/true", "args": ["a"], "env": {}},
        "h": {"url": "http://x", "http_headers": {}},
    }


def test_what_is_said_of_a_server_holds_nothing_that_the_client_gave_for_it() -> None:
    stdio = McpServerStdio(
        name="s", command="/bin/x", args=["--key=k123", "x"], env=[EnvVariable(name="TOKEN", value="t123")]
    )
    text = "handshake failed: x exited, said 't123', was given --key=k123"
    assert without_secrets(text, stdio) == "handshake failed: x exited, said '…', was given …"
    http = McpServerHttp(
        name="h", url="https://u:p@host:1/a/s123?k=v", headers=[HttpHeader(name="A", value="Bearer h123")]
    )
    text = "error for url (https://u:p@host:1/a/s123?k=v): 401 for Bearer h123, see https://host/other"
    assert without_secrets(text, http) == "error for url (https://host:1): 401 for …, see https://host"
