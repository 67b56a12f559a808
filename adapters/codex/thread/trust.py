"""Folders that the user has not decided on: opening a session in a folder is no decision to trust it.

Codex asks about trust in its terminal, but not over its pipe. Over the pipe it writes `trust_level = "trusted"` into the user's
configuration for each folder in which a thread is started, and applies the folder's own `.codex/config.toml` at once: servers,
approval policy, sandbox (measured, 0.163.0). So the agent passes a folder without a decision as untrusted, for this thread only.

Owns what counts as a decision, and the settings of an undecided folder. Reads the user's configuration and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from adapters.acp.shapes import as_mapping, as_text
from adapters.core.file_calls import read_file

_SYSTEM: Final = Path("/etc/codex")
_FILES: Final = ("config.toml", "managed_config.toml")
_POLICIES: Final = ("approval_policy",)
_SANDBOXES: Final = ("sandbox_mode", "sandbox_workspace_write", "default_permissions", "permissions")
"""What a configuration says of sandboxes; one of them is enough to be the user's choice."""
_TRUSTED: Final = "trusted"
_UNTRUSTED: Final = "untrusted"
_LONGEST_LINE: Final = 8192  # bytes of a file that names one path


def overrides(home: Path, cwd: str, named: str = "") -> dict[str, Any]:
    """Params of `thread/start` and `thread/resume` that keep a folder without a decision from being trusted.

    `named`: another name of the folder, under which the decision may stand too.

    Empty for a folder that the user trusts. A decision against it is repeated: Codex sees one on the repository only where git
    would call that a repository, and trusts the folder where it sees none. What the user has configured stays; where that says
    nothing of approvals or sandbox, they are what Codex gives to an undecided folder (else the untrusted one would get others).
    """
    configured = list(_configurations(home))
    places = _places(cwd)
    decision = _decision(configured, list(dict.fromkeys((named or cwd, *places))))
    if decision == _TRUSTED:
        # Codex, which is not told the other name, would find no decision and write one.
        unseen = _decision(configured, places) is None
        return {"config": {"projects": {cwd: {"trust_level": _TRUSTED}}}} if unseen else {}
    params: dict[str, Any] = {"config": {"projects": {place: {"trust_level": _UNTRUSTED} for place in places}}}
    if decision == _UNTRUSTED:
        return params
    if not any(name in known for known in configured for name in _POLICIES):
        params["approvalPolicy"] = "on-request"
    if not any(name in known for known in configured for name in _SANDBOXES):
        params["sandbox"] = "read-only"
    return params


def _decision(configured: Sequence[Mapping[str, Any]], places: Sequence[str]) -> str | None:
    """The user's decision, None where there is none. The nearest place counts, and no before yes."""
    for place in places:
        levels = [as_mapping(as_mapping(known.get("projects")).get(place)).get("trust_level") for known in configured]
        for level in (_UNTRUSTED, _TRUSTED):
            if level in levels:
                return level
    return None


def _places(cwd: str) -> Sequence[str]:
    """The paths under which a decision on the folder may stand, nearest first.

    Its own, the root of its repository, and where that is a worktree, the root of the repository that it belongs to.
    """
    real = os.path.realpath(cwd)
    places = [cwd, real]
    for folder in (Path(real), *Path(real).parents):
        if (folder / ".git").exists():
            places += [str(folder), *_main_repository(folder / ".git")]
            break
    return list(dict.fromkeys(places))


def _main_repository(file: Path) -> Iterator[str]:
    """The root of the repository of a worktree: only of one that knows this worktree, for anybody can write such a file."""
    try:
        if not file.is_file():
            return
        kept = Path(os.path.realpath(file.parent / _line(file).removeprefix("gitdir:").strip()))
        knows_it = os.path.realpath(kept / _line(kept / "gitdir")) == os.path.realpath(file)
    except (OSError, ValueError):
        return
    if knows_it and (kept.parent.name, kept.parent.parent.name) == ("worktrees", ".git"):
        yield str(kept.parents[2])


def _line(path: Path) -> str:
    return read_file(path, _LONGEST_LINE).decode(errors="replace").strip()


def _configurations(home: Path) -> Iterator[Mapping[str, Any]]:
    """The configurations that apply, and the chosen profile of each. What cannot be read says nothing: Codex will say why."""
    import tomllib  # noqa: PLC0415 - not before a session is wanted (D10)

    for path in (folder / name for folder in (home, _SYSTEM) for name in _FILES):
        try:
            known = tomllib.loads(read_file(path).decode())
        except (OSError, ValueError):
            continue
        yield known
        yield as_mapping(as_mapping(known.get("profiles")).get(as_text(known.get("profile"))))
