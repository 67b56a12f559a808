"""The client's MCP servers as Claude Code reports them: whether it waits for one, and a notice for each that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from adapters.acp.schema import Notice
from adapters.core.runtime import Output
from adapters.core.server_keys import name_of
from adapters.core.shapes import as_list, as_mapping, as_text
from adapters.core.tool_text import one_line


class Servers:
    """The servers of one session. `ours` gives the keys of those that the client brought."""

    def __init__(self, ours: Callable[[], Iterable[str]], deliver: Callable[[Output], None]) -> None:
        self._ours = ours
        self._deliver = deliver
        self._told: set[tuple[str, str]] = set()

    def tell(self, states: Sequence[tuple[str, str]]) -> None:
        """What the CLI says of its servers, key and status each."""
        ours = set(self._ours())
        for name, status in states:
            if name in ours and status not in ("connected", "disabled") and (name, status) not in self._told:
                self._told.add((name, status))
                state = "does not answer yet" if status == "pending" else f"is not connected ({status})"
                title = one_line(f"The MCP server {name_of(name)} {state}: its tools are missing.")
                self._deliver(Output(Notice(severity="warning", title=title)))

    def still_connecting(self, answer: Mapping[str, Any]) -> bool:
        """Whether the CLI still waits for a server, by its answer to `mcp_status`. Tells of them."""
        servers = [as_mapping(server) for server in as_list(answer.get("mcpServers"))]
        states = [(as_text(server.get("name")), as_text(server.get("status"))) for server in servers]
        self.tell(states)
        return any(status == "pending" for _, status in states)
