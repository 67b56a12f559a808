"""Results of requests, as v1 has them, by method (V1-SES-1..5, V1-CFG-1). Owns their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.acp.v1.closed import Wire, config_options, only

_ROW = ("sessionId", "cwd", "additionalDirectories", "title", "updatedAt")


def result(method: str, source: Mapping[str, Any], *, booleans: bool) -> Wire:
    """The result of a method, as v1 names it. `booleans`: the client shows options that are on or off."""
    match method:
        case "session/new":
            return {**only(source, "sessionId"), **_options(source, booleans=booleans)}
        case "session/load" | "session/resume":
            return _options(source, booleans=booleans)
        case "session/list":
            rows = [only(row, *_ROW) for row in source.get("sessions") or ()]
            return {"sessions": rows, **only(source, "nextCursor")}
        case "session/set_config_option":
            return {"configOptions": config_options(source.get("configOptions"), booleans=booleans)}
        case _:
            return {}


def _options(source: Mapping[str, Any], *, booleans: bool) -> Wire:
    """Commands come in an update of their own, after the answer (V1-SES-7)."""
    shown = config_options(source.get("configOptions"), booleans=booleans)
    return {"configOptions": shown} if shown else {}
