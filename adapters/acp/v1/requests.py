"""Requests of ACP v1 in the words of v2 (V1-SES-*, V1-PR-8, V1-CFG-1). Owns which methods a v1 client has.

What is malformed is found behind it, by the models of v2, which name the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from adapters.acp.errors import InvalidParams, MethodNotFound

Wire = dict[str, Any]
Which = Callable[[str], str | None]
"""The path of a program that is named without one, None where there is none: `shutil.which`."""


def read(method: str, params: Mapping[str, Any], which: Which) -> tuple[str, Wire]:
    """The method and params of v2 that mean the same. Raises `MethodNotFound`, or `InvalidParams` for what only v1 has."""
    reader = _READERS.get(method)
    if reader is None:
        raise MethodNotFound(method)
    return reader(method, params, which)


def _same(method: str, params: Mapping[str, Any], _which: Which) -> tuple[str, Wire]:
    return method, dict(params)


def _new(method: str, params: Mapping[str, Any], which: Which) -> tuple[str, Wire]:
    return method, _roots(params, which)


def _load(_method: str, params: Mapping[str, Any], which: Which) -> tuple[str, Wire]:
    return "session/resume", {**_roots(params, which), "replayFrom": {"type": "start"}}


def _resume(method: str, params: Mapping[str, Any], which: Which) -> tuple[str, Wire]:
    return method, _roots(params, which)


def _prompt(method: str, params: Mapping[str, Any], _which: Which) -> tuple[str, Wire]:
    """An idempotency key is a field that v1 does not have (KEY-9, V1-PR-8)."""
    return method, {name: value for name, value in params.items() if name != "idempotencyKey"}


def _set_config_option(method: str, params: Mapping[str, Any], _which: Which) -> tuple[str, Wire]:
    return method, {"type": "id", **params}


_READERS: Final[Mapping[str, Callable[[str, Mapping[str, Any], Which], tuple[str, Wire]]]] = {
    "session/new": _new,
    "session/load": _load,
    "session/resume": _resume,
    "session/list": _same,
    "session/close": _same,
    "session/delete": _same,
    "session/prompt": _prompt,
    "session/cancel": _same,
    "session/set_config_option": _set_config_option,
}
"""Every method of v1 that is answered. `authenticate`, `logout` and `session/set_mode` are not: nothing of them is advertised."""


def _roots(params: Mapping[str, Any], which: Which) -> Wire:
    """`replayFrom` is a word of v2."""
    roots = {name: value for name, value in params.items() if name != "replayFrom"}
    servers = params.get("mcpServers")
    if isinstance(servers, list):
        roots["mcpServers"] = [_server(server, place, which) for place, server in enumerate(cast("list[Any]", servers))]
    return roots


def _server(server: Any, place: int, which: Which) -> Any:
    """No `type` means stdio (V1-SES-2). Editors pass on commands as users write them: a bare name is looked for on the PATH."""
    if not isinstance(server, dict):
        return server
    fields = cast(Wire, server)
    kind = fields.get("type")
    if kind not in (None, "stdio"):
        if kind != "http":
            shown = kind if isinstance(kind, str) and kind in ("sse", "acp") else "this type"
            raise InvalidParams(
                f"mcpServers[{place}]: servers of type {shown} are not supported: configure it as http or as a command."
            )
        return fields
    command = fields.get("command")
    found = which(command) if isinstance(command, str) and command and "/" not in command else None
    return {**fields, "type": "stdio", **({} if found is None else {"command": found})}
