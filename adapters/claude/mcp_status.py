"""The client's MCP servers as Claude Code reports them: is one still starting, and a notice for each that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from adapters.acp.schema import Notice
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.core.port import Output
from adapters.core.server_keys import name_of
from adapters.driver.tool_text import one_line

_LEFT_OUT: Final = "left out"
"""Our status of a server that the CLI does not name."""

_STATES: Final = {
    "pending": "does not answer yet",
    "needs-auth": "wants a login: run `claude` in a terminal and use /mcp there",
    _LEFT_OUT: "was left out by Claude Code, because settings do not allow it or its name is taken",
}
"""A status -> what is said of it; others are passed on."""

_SILENT: Final = ("connected", "disabled")


class Servers:
    """The servers of one session. `ours` gives those that the client brought, by their keys."""

    def __init__(self, ours: Callable[[], Mapping[str, Any]], deliver: Callable[[Output], None]) -> None:
        self._ours = ours
        self._deliver = deliver
        self._told: dict[tuple[str, str], Any] = {}
        """Key and status -> the server that it was told of: another one of that name is another matter."""

    def tell(self, states: Sequence[tuple[str, str]]) -> None:
        """Claude Code's report on its servers: key and status of each."""
        ours = self._ours()
        for key, status in states:
            if key in ours and status not in _SILENT and self._told.get((key, status)) != ours[key]:
                self._told[key, status] = ours[key]
                state = _STATES.get(status, f"is not connected ({status})")
                title = one_line(f"The MCP server {name_of(key)} {state}: its tools are missing.")
                self._deliver(Output(Notice(severity="warning", title=title)))

    def still_connecting(self, answer: Mapping[str, Any]) -> bool:
        """Whether the CLI still waits for a server, by its answer to `mcp_status`. Tells of them."""
        states = _states(answer)
        self.tell(states)
        return any(status == "pending" for _, status in states)

    def settled(self, answer: Mapping[str, Any], *, sure: bool) -> bool:
        """Whether each server of the client has started or failed. Reports those that failed.

        A server that the CLI does not name is none that it connects, once that is `sure`: it has had the time to name them.
        """
        known = dict(_states(answer))
        states = [(key, known.get(key, _LEFT_OUT if sure else "pending")) for key in self._ours()]
        self.tell([state for state in states if state[1] != "pending"])
        return all(status != "pending" for _, status in states)


def _states(answer: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    servers = [as_mapping(server) for server in as_list(answer.get("mcpServers"))]
    return [(as_text(server.get("name")), as_text(server.get("status"))) for server in servers]
