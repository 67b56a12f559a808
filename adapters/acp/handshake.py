"""`initialize`, parsed by hand, so that it is answered before pydantic is imported (D10). Owns INIT-2..7, INIT-9 and INIT-12.

Knows no connection: the agent decides whether an `initialize` is allowed now (INIT-1, INIT-8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from adapters.acp.errors import InvalidParams, UnsupportedVersion

SUPPORTED: Sequence[int] = (2,)
"""Protocol versions of this package's models."""

_LARGEST_VERSION = 65535  # uint16
_STRICT = 2  # the version whose own params are read strictly (INIT-5)


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client's description of itself."""

    protocol_version: int
    """The version chosen for the connection (INIT-2); to be sent back as it is (INIT-10)."""
    requested: int
    """The version the client asked for: at least `protocol_version`."""
    name: str
    version: str
    auth_terminal: bool = False
    elicitation_form: bool = False
    elicitation_url: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`_meta` of the request; empty where absent or malformed."""
    terminal_output: bool = False
    """v1: it draws terminals of the agent's own, which travel in `_meta`."""
    notices: bool = False
    compaction: bool = False
    plans: bool = False
    boolean_options: bool = False


def parse_initialize(params: Any, supported: Sequence[int] = SUPPORTED) -> ClientInfo:
    """Read the params of `initialize` and choose the highest supported version at or below the requested one.

    Version 2 exactly is strict about `info`; a later one is read leniently (INIT-5, INIT-6). Malformed capabilities count as not
    advertised (INIT-7); a marker is an object, nothing else (INIT-9). A chosen version 1 is read by its own names
    (`clientInfo`, `clientCapabilities`), leniently.

    Raises:
        InvalidParams: `protocolVersion` or `info` is missing or malformed.
        UnsupportedVersion: no version in `supported` is at or below the requested one.
    """
    if not isinstance(params, dict):
        raise InvalidParams("Invalid params: params must be an object.")
    members = cast("dict[str, Any]", params)
    requested = _version(members.get("protocolVersion"))
    chosen = max((version for version in supported if version <= requested), default=None)
    if chosen is None:
        raise UnsupportedVersion(requested, supported)
    name, version = _info(members, chosen, strict=chosen == requested == _STRICT)
    if chosen < _STRICT:
        return ClientInfo(chosen, requested, name, version, **_v1_abilities(members), meta=_object(members, "_meta"))
    capabilities = _object(members, "capabilities")
    elicitation = _object(capabilities, "elicitation")
    return ClientInfo(
        protocol_version=chosen,
        requested=requested,
        name=name,
        version=version,
        auth_terminal=_marked(_object(capabilities, "auth"), "terminal"),
        elicitation_form=_marked(elicitation, "form"),
        elicitation_url=_marked(elicitation, "url"),
        meta=_object(members, "_meta"),
    )


def _v1_abilities(members: Mapping[str, Any]) -> dict[str, bool]:
    """What a client of v1 says that it can: some markers are booleans there, others objects (V1-INIT-3)."""
    capabilities = _object(members, "clientCapabilities")
    session, elicitation = _object(capabilities, "session"), _object(capabilities, "elicitation")
    custom = _object(capabilities, "_meta")
    return {
        "auth_terminal": _object(capabilities, "auth").get("terminal") is True or custom.get("terminal-auth") is True,
        "elicitation_form": _marked(elicitation, "form"),
        "elicitation_url": _marked(elicitation, "url"),
        "terminal_output": custom.get("terminal_output") is True,
        "notices": _marked(session, "notices"),
        "compaction": _marked(session, "compaction"),
        "plans": _marked(capabilities, "plan"),
        "boolean_options": _marked(_object(session, "configOptions"), "boolean"),
    }


def _version(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value <= _LARGEST_VERSION:
        return value
    raise InvalidParams(f"Invalid params: protocolVersion must be an integer from 0 to {_LARGEST_VERSION}.")


def _info(params: Mapping[str, Any], chosen: int, *, strict: bool) -> tuple[str, str]:
    info = _object(params, "info" if chosen >= _STRICT else "clientInfo")
    name, version = info.get("name"), info.get("version")
    if isinstance(name, str) and isinstance(version, str):
        return name, version
    if not strict:
        return "unknown", "unknown"
    if not isinstance(params.get("info"), dict):
        raise InvalidParams("Invalid params: info must be an object.")
    raise InvalidParams(f"Invalid params: info.{'version' if isinstance(name, str) else 'name'} must be a string.")


def _object(members: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = members.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _marked(members: Mapping[str, Any], name: str) -> bool:
    return isinstance(members.get(name), dict)
