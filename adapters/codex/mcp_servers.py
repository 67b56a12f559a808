"""The client's MCP servers in Codex: their keys and their fields.

Codex merges the servers of a request into those of its configuration, field by field. The client's server would get the headers,
tokens, variables and switches of an entry with the same key (0.163.0). So a server of the client gets a key that no configuration
has. The client sees its own name for the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from adapters.acp.errors import InvalidParams
from adapters.acp.shapes import as_list, as_mapping
from adapters.codex.server.process import AppServer
from adapters.core.port import SessionSetup
from adapters.core.server_keys import is_plain, spelled

_URL: Final = re.compile(r"(\w+://)(?:[^\s/?#]*@)?([^\s/?#()'\"]*)[^\s()'\"]*")
_SHORTEST_SECRET: Final = 4  # characters: shorter values are words of the text by chance

Keys = Mapping[str, Any]
"""Key in Codex -> the client's server."""

_OWN: Final = ("codex", "mcp")
"""How names begin that Codex has servers and tools of its own under, such as `codex_apps`."""


async def keyed(server: AppServer, setup: SessionSetup) -> Keys:
    """The servers of a setup under the keys that they get in this app-server, as the configuration is now.

    Raises `InvalidParams` for a server that no key is left for, and `RequestFailed`.
    """
    if not setup.mcp_servers:
        return {}
    known = await server.request("config/read", {"cwd": setup.cwd, "includeLayers": True})
    return choose_keys(setup.mcp_servers, known)


def choose_keys(servers: Sequence[Any], known: Mapping[str, Any]) -> Keys:
    """A key for each server that nothing else has. `known`: the answer of `config/read`, with layers.

    A plugin brings servers that no configuration names; where one is on, no server of the client keeps a plain name.
    """
    taken = {_squeezed(name) for name in _entries(known)}
    plugins = any(as_mapping(plugin).get("enabled") is not False for plugin in _tables(known, "plugins"))
    keys: dict[str, Any] = {}
    for server in servers:
        name, key = server.name, spelled(server.name)
        if is_plain(name) and not plugins and _squeezed(name) not in taken and not name.lower().startswith(_OWN):
            key = name
        elif _squeezed(key) in taken:
            text = f"The MCP server {name!r} would be {key!r} in Codex, which your configuration has: give it another name."
            raise InvalidParams(text, data={"name": name})
        keys[key] = server
    return keys


def _entries(known: Mapping[str, Any]) -> Iterator[str]:
    for table in _all(known, "mcp_servers"):
        yield from map(str, table)


def _tables(known: Mapping[str, Any], name: str) -> Iterator[Any]:
    for table in _all(known, name):
        yield from table.values()


def _all(value: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Every table of this name, in whatever layer or profile."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[Any, Any]", value).items():
            if key == name:
                yield as_mapping(part)
            yield from _all(part, name)
    for part in as_list(value):
        yield from _all(part, name)


def _squeezed(name: str) -> str:
    """Names that Codex could take for one another are the same."""
    return re.sub(r"[^a-z0-9]", "_", name.casefold())


def configuration(keys: Keys) -> dict[str, Any]:
    """The value of `mcp_servers`: all of them, and so none of before (0.163.0). Holds secrets, which Codex does not store."""
    return {key: _server(server) for key, server in keys.items()}


def _server(server: Any) -> dict[str, Any]:
    if server.type == "http":
        return {"url": server.url, "http_headers": {header.name: header.value for header in server.headers}}
    env = {variable.name: variable.value for variable in server.env}
    return {"command": server.command, "args": list(server.args), "env": env}


def without_secrets(text: str, server: Any) -> str:
    """What Codex says of a server, without what the client gave for it: arguments, values and all of a url but its host."""
    text = _URL.sub(r"\1\2", text)
    if server.type == "http":
        given = [server.url, *(header.value for header in server.headers)]
    else:
        given = [*server.args, *(variable.value for variable in server.env)]
    for value in sorted(filter(_is_telling, given), key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def _is_telling(value: str) -> bool:
    return len(value.strip()) >= _SHORTEST_SECRET
