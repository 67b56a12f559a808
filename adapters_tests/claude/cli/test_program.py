"""What Claude Code is started with; where our own files lie."""

import re
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.errors import InternalError
from adapters.acp.schema import ResumeSession, parse_params
from adapters.claude.cli.program import (
    MARK,
    arguments,
    child_environment,
    find_claude,
    literal,
    mcp_configuration,
    server_key,
)
from adapters.claude.cli.state_dir import private_file, state_folder
from adapters.core.port import SessionSetup
from adapters.core.server_keys import spelled

S = "0b6d6b4e-8f39-4c57-9d2c-111111111111"


def test_the_bundled_binary_is_found_without_importing_its_package() -> None:
    """D10."""
    assert "claude_agent_sdk" not in sys.modules
    found = find_claude({"PATH": ""})
    assert found is not None
    assert found.source == "claude-agent-sdk"
    assert found.path.name == "claude"
    assert "claude_agent_sdk" not in sys.modules


def test_the_users_environment_is_passed_whole_with_our_mark() -> None:
    environ = {"ANTHROPIC_BASE_URL": "http://x", "CLAUDE_EFFORT": "high", "PWD": "/old"}
    assert child_environment(environ, S, "/w") == {**environ, "PWD": "/w", MARK: S}


def test_what_a_claude_code_around_us_says_to_its_children_is_dropped() -> None:
    environ = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "CLAUDE_CODE_SESSION_ID": "x",
        MARK: "outer",
        "A": "b",
    }
    assert child_environment(environ, S, "/w") == {"A": "b", "PWD": "/w", MARK: S}


def test_arguments_say_which_session_and_hold_no_secret(tmp_path: Path) -> None:
    setup = SessionSetup(str(tmp_path), ("/more", "/and more"))
    new = arguments(S, setup, resume=False, mcp_config=None)
    assert f"--session-id={S}" in new
    assert "--resume" not in " ".join(new)
    assert new[-4:] == ["--add-dir", "/more", "--add-dir", "/and more"]
    resumed = arguments(S, setup, resume=True, mcp_config=tmp_path / "m.json")
    assert f"--resume={S}" in resumed
    assert resumed[-2:] == ["--mcp-config", str(tmp_path / "m.json")]


def test_mcp_servers_are_written_as_the_cli_reads_them() -> None:
    """SETUP-4, SETUP-5: the last of two equal names wins."""
    params = {
        "sessionId": S,
        "cwd": "/w",
        "mcpServers": [
            {
                "type": "stdio",
                "name": "a",
                "command": "/bin/a",
                "args": ["x"],
                "env": [{"name": "K", "value": "1"}, {"name": "K", "value": "2"}],
            },
            {"type": "stdio", "name": "bare", "command": "/bin/b"},
            {
                "type": "http",
                "name": "h",
                "url": "http://127.0.0.1",
                "headers": [{"name": "Authorization", "value": "s"}],
            },
        ],
    }
    parsed = parse_params("session/resume", params)
    assert isinstance(parsed, ResumeSession)
    assert mcp_configuration(parsed.mcp_servers) == {
        "mcpServers": {
            "a": {"type": "stdio", "command": "/bin/a", "args": ["x"], "env": {"K": "2"}},
            "bare": {"type": "stdio", "command": "/bin/b", "args": [], "env": {}},
            "h": {"type": "http", "url": "http://127.0.0.1", "headers": {"Authorization": "s"}},
        }
    }


@pytest.mark.parametrize("name", ["ide", "claude-in-chrome", "Claude_Preview", "__proto__", "my server"])
def test_a_name_that_the_cli_keeps_or_squeezes_is_spelled(name: str) -> None:
    assert server_key(name) == spelled(name)


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""What Claude Code 2.1.332 puts variables in the place of; one that is not set and has no default stays as it is."""


def _expanded(value: str) -> str:
    environ = child_environment({"A": "a variable", "B": "${A}", "ACP_ADAPTERS_NEVER_SET": "set by somebody"}, S, "/w")
    return _VARIABLE.sub(lambda found: environ.get(found[1], found[0] if found[2] is None else found[2]), value)


@given(st.lists(st.sampled_from(["${", "$", "{", "}", ":-", "A", "B", "C", "ACP_ADAPTERS_NEVER_SET", " ", "\n", "é"])))
def test_a_value_of_a_server_is_what_the_cli_makes_of_it(parts: list[str]) -> None:
    """No variable is put into what a client gives, however the client spells it; headers are looked at twice."""
    value = "".join(parts)
    assert _expanded(literal(value)) == value
    assert _expanded(_expanded(literal(literal(value)))) == value


@pytest.mark.parametrize("variable", ["ACP_ADAPTERS_STATE_DIR", "XDG_STATE_HOME", "HOME"])
def test_the_state_folder_is_the_owners_alone(tmp_path: Path, variable: str) -> None:
    folder = state_folder(
        {variable: str(tmp_path / "My Company - x"), **({} if variable == "HOME" else {"HOME": "/nonexistent"})}
    )
    assert folder.is_relative_to(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert state_folder({"ACP_ADAPTERS_STATE_DIR": str(folder.parent)}) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_state_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InternalError, match="ACP_ADAPTERS_STATE_DIR"):
        state_folder({"ACP_ADAPTERS_STATE_DIR": str(tmp_path / "file")})


def test_private_files_are_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    private_file(path, b"one")
    private_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
