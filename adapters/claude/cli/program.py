"""What a Claude Code process is started with: the binary, its arguments, its environment, its MCP servers.

Owns Claude Code's flags and variables. Imports nothing heavy: `claude_agent_sdk` is found without importing it (the import costs
0.75 s and 69 MB, see D12). Starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adapters.core.port import Features
from adapters.core.server_keys import is_plain, spelled
from adapters.driver.executable import Executable, Found

if TYPE_CHECKING:
    from adapters.core.port import SessionSetup

FEATURES: Final = Features(
    image=True, embedded_context=True, additional_directories=True, delete=True, mcp_stdio=True, mcp_http=True
)
"""What the sessions of Claude Code support."""

EXECUTABLE: Final = "CLAUDE_CODE_EXECUTABLE"
"""Names another `claude` than the one of claude-agent-sdk: a path, or a name on PATH."""

TESTED: Final = "2.1.332"
"""The version that this agent is tested with: the one in claude-agent-sdk 0.2.189."""

MARK: Final = "ACP_ADAPTERS_SESSION"
"""In the environment of each process that we start: the session it belongs to. Inherited by its children."""

AGENT: Final = "ACP_ADAPTERS_AGENT_PROCESS"
"""Beside it: which process started it, see `orphans.agent_mark`."""

_LEFT_BY_ANOTHER: Final = frozenset(
    {
        "CLAUDECODE", "CLAUDE_PID", "CLAUDE_EFFORT", "AI_AGENT", "CLAUDE_CODE_CHILD_NOTES_DIR", "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH", "CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED", "CLAUDE_CODE_SESSION_ID",
    }
)  # fmt: skip
"""Variables that Claude Code sets for its subprocesses (2.1.332). Left out, or our Claude Code would count as one of them."""

_NEVER_SET: Final = "ACP_ADAPTERS_NEVER_SET"
"""A variable that no process of ours has."""

_OF_THE_CLI: Final = frozenset(
    {
        "claude-artifacts", "claude-browser", "claude-code-remote", "claude-device", "claude-docs", "claude-in-chrome",
        "claude-pages", "claude-preview", "computer-use", "constructor", "hearthbot", "ide", "prototype", "remote-devices",
        "webagent", "workspace",
    }
)  # fmt: skip
"""Names of servers that the CLI keeps for itself: one of the client vanishes, or its tools do (2.1.332)."""

_ARGUMENTS: Final = (
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
    "--replay-user-messages",
    "--session-mirror",
    "--include-partial-messages",
)


_PROGRAM: Final = Executable(
    runtime="Claude Code",
    command="claude",
    variable=EXECUTABLE,
    distribution="claude-agent-sdk",
    package="claude_agent_sdk",
    bundled="_bundled/claude",
)


def find_claude(environ: Mapping[str, str]) -> Found | None:
    """The Claude Code to start, None when there is none."""
    return _PROGRAM.find(environ)


def missing_text(environ: Mapping[str, str]) -> str:
    """Why `find_claude` found none, and what to do."""
    return _PROGRAM.missing_text(environ)


def arguments(session_id: str, setup: SessionSetup, *, resume: bool, mcp_config: Path | None) -> list[str]:
    """The CLI's arguments. Holds no secret: anybody on the machine can read them."""
    chosen = [f"--resume={session_id}" if resume else f"--session-id={session_id}"]
    for folder in setup.additional_directories:
        chosen += ["--add-dir", folder]
    if mcp_config:
        chosen += ["--mcp-config", str(mcp_config)]
    return [*_ARGUMENTS, *chosen]


def child_environment(environ: Mapping[str, str], session_id: str, cwd: str) -> dict[str, str]:
    """The user's environment, whole, without what another Claude Code left in it, with our mark."""
    dropped = _LEFT_BY_ANOTHER if "CLAUDECODE" in environ else frozenset[str]()
    kept = {name: value for name, value in environ.items() if name not in dropped and name != _NEVER_SET}
    return {**kept, "PWD": cwd, MARK: session_id}


def mcp_configuration(servers: Sequence[Any]) -> dict[str, Any]:
    """The content of an `--mcp-config` file for `McpServerStdio` and `McpServerHttp` values. Holds secrets."""
    return {"mcpServers": {server_key(server.name): _server(server) for server in servers}}


def server_key(name: str) -> str:
    """The key of a client's server in Claude Code: its name, if nothing else there has that name.

    The CLI squeezes other names, so that servers replace one another, and a rule for one holds for the next (2.1.332).
    """
    return name if is_plain(name) and name.lower().replace("_", "-") not in _OF_THE_CLI else spelled(name)


def _server(server: Any) -> dict[str, Any]:
    """The CLI puts variables of its environment into command, arguments, values and url, and twice into headers (2.1.332)."""
    if server.type == "http":
        headers = {header.name: literal(literal(header.value)) for header in server.headers}
        return {"type": "http", "url": literal(server.url), "headers": headers}
    env = {variable.name: literal(variable.value) for variable in server.env}
    return {"type": "stdio", "command": literal(server.command), "args": list(map(literal, server.args)), "env": env}


def literal(value: str) -> str:
    """A spelling that becomes this value when Claude Code replaces each `${NAME}` and `${NAME:-default}` by a variable.

    Claude Code does not replace again in its replacements, so a dollar sign that comes from one stays.
    """
    return value.replace("${", f"${{{_NEVER_SET}:-$}}{{")
