"""Folders that the user has not decided on: a session in one is no decision to trust it.

Codex asks about trust in its terminal, but not over its pipe. There it writes `trust_level = "trusted"` into the user's
configuration for each folder that a thread is started in, and takes the folder's own `.codex/config.toml` at once: servers,
approval policy, sandbox (measured, 0.163.0). So a folder without a decision is called untrusted, for this thread only.

Owns what counts as a decision, and what an undecided folder is given. Reads the user's configuration, writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from adapters.core.shapes import as_mapping, as_text

_SYSTEM: Final = Path("/etc/codex")
_FILES: Final = ("config.toml", "managed_config.toml")
_POLICIES: Final = ("approval_policy",)
_SANDBOXES: Final = ("sandbox_mode", "sandbox_workspace_write", "default_permissions", "permissions")
"""What a configuration says of sandboxes; one of them is enough to be the user's choice."""


def overrides(home: Path, cwd: str) -> dict[str, Any]:
    """Params of `thread/start` and `thread/resume` that keep a folder without a decision from being trusted.

    Empty for a folder that the user has decided on, either way. What the user has configured stays; where that says nothing of
    approvals or sandbox, they are what Codex gives to an undecided folder (else the untrusted one would get others).
    """
    configured = list(_configurations(home))
    places = sorted(_places(cwd))
    if any(place in as_mapping(known.get("projects")) for known in configured for place in places):
        return {}
    params: dict[str, Any] = {"config": {"projects": {place: {"trust_level": "untrusted"} for place in places}}}
    if not any(name in known for known in configured for name in _POLICIES):
        params["approvalPolicy"] = "on-request"
    if not any(name in known for known in configured for name in _SANDBOXES):
        params["sandbox"] = "read-only"
    return params


def _places(cwd: str) -> set[str]:
    """The paths under which a decision on the folder may stand: its own, and the root of its repository."""
    places = {cwd, os.path.realpath(cwd)}
    for folder in (Path(os.path.realpath(cwd)), *Path(os.path.realpath(cwd)).parents):
        if (folder / ".git").exists():
            return places | {str(folder)}
    return places


def _configurations(home: Path) -> Iterator[Mapping[str, Any]]:
    """The configurations that apply, and the chosen profile of each. What cannot be read says nothing: Codex will say why."""
    import tomllib  # noqa: PLC0415 - not before a session is wanted (D10)

    for path in (folder / name for folder in (home, _SYSTEM) for name in _FILES):
        try:
            known = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        yield known
        yield as_mapping(as_mapping(known.get("profiles")).get(as_text(known.get("profile"))))
