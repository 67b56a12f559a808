"""Keys of MCP servers: each is one name's, and a runtime's tool names can hold it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.core.server_keys import is_plain, name_of, named, spelled

NAMES = st.text() | st.lists(st.sampled_from(["a", "B", "_", "-", " ", ".", "-0x", "5f", "20", "é", "\n"])).map("".join)


def key(name: str) -> str:
    return name if is_plain(name) else spelled(name)


@given(NAMES, NAMES)
def test_no_two_names_have_one_key(one: str, other: str) -> None:
    assert (key(one) == key(other)) is (one == other)
    assert (spelled(one) == spelled(other)) is (one == other)
    assert not is_plain(one) or key(one) != spelled(other)


@given(NAMES)
def test_a_key_tells_the_name_that_the_client_gave(name: str) -> None:
    assert name_of(key(name)) == name_of(spelled(name)) == name


@given(st.text() | st.from_regex(r"[a-z-]{0,4}-0x([0-9a-f]{2}){0,4}", fullmatch=True))
def test_a_key_that_is_no_clients_is_its_own_name(other: str) -> None:
    name = name_of(other)
    assert name == other or spelled(name) == other


@given(NAMES)
def test_tool_names_hold_a_key(name: str) -> None:
    """A runtime squeezes other characters, and reads `mcp__SERVER__TOOL` up to the first two underscores."""
    assert re.fullmatch(r"[A-Za-z0-9_-]*", key(name))
    assert f"mcp__{key(name)}__x__y".split("__", 2) == ["mcp", key(name), "x__y"]


@pytest.mark.parametrize("name", ["docs", "my_server", "a-b", "a_b_c", "constructor", "7"])
def test_a_usual_name_is_its_own_key(name: str) -> None:
    assert key(name) == name


@pytest.mark.parametrize("name", ["my server", "my.server", "__proto__", "a__b", "_a", "a_", "", "é", "my-server-0x20"])
def test_a_name_that_a_runtime_would_squeeze_is_spelled(name: str) -> None:
    assert key(name) == spelled(name) != name


def test_a_text_of_the_runtime_shows_the_clients_name() -> None:
    assert (
        named("Allow the my-server-0x20 MCP server to run?", "my-server-0x20")
        == "Allow the my server MCP server to run?"
    )
    assert named("Allow the docs MCP server", "docs") == "Allow the docs MCP server"
    assert named("Nobody", "") == "Nobody"
