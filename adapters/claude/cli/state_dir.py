"""The few files that the agent keeps for active sessions. Owns their places and modes, not their contents.

They are in `claude/` below `$ACP_ADAPTERS_STATE_DIR`, else `$XDG_STATE_HOME/acp-adapters`, else `~/.local/state/acp-adapters`,
readable by their owner only. What agents with another state folder must also see is in Claude Code's own folder. No file is a
record of a session: all may be removed while no agent runs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from adapters.acp.errors import InternalError
from adapters.claude.cli.config_dir import is_read_only
from adapters.driver.env_folders import home_folder, named_folder
from adapters.private_files import replacement, write_all

_OWNER_ONLY = 0o700


def state_folder(environ: Mapping[str, str]) -> Path:
    """The folder, made if needed. Raises `InternalError` when it cannot be made or written, or is somebody else's.

    Whoever owns it could put other servers into the place of the ones that a client asked for.
    """
    folder = state_place(environ)
    try:
        for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
            missing.mkdir(mode=_OWNER_ONLY, exist_ok=True)  # `parents=True` would leave them to the umask
        found = folder.stat()
        if found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        if found.st_mode & 0o077:
            folder.chmod(_OWNER_ONLY)
    except OSError as error:
        raise _unusable(folder, error) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, PermissionError())
    return folder


def lock_folder(config_dir: Path) -> Path | None:
    """The folder for the locks of sessions, made if needed; None on a read-only file system.

    There Claude Code itself can store nothing, so nothing can be stored twice.

    Raises `InternalError` when it cannot be used.
    """
    if is_read_only(config_dir):
        return None
    folder = config_dir / "acp-adapters"
    try:
        folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    except OSError as error:
        text = f"The lock folder {folder} cannot be used ({error.strerror}): make it writable."
        raise InternalError(text) from None
    return folder


def state_place(environ: Mapping[str, str]) -> Path:
    """Where `state_folder` is or will be. Raises `InternalError` when a variable names no folder."""
    if chosen := named_folder(environ, "ACP_ADAPTERS_STATE_DIR"):
        return Path(chosen, "claude")
    if (base := environ.get("XDG_STATE_HOME", "")) and Path(base).is_absolute():
        return Path(base, "acp-adapters", "claude")
    return Path(home_folder(environ), ".local", "state", "acp-adapters", "claude")


def _unusable(folder: Path, error: OSError) -> InternalError:
    reason = error.strerror or "no permission to write there"
    return InternalError(
        f"The state folder {folder} cannot be used ({reason}): set ACP_ADAPTERS_STATE_DIR to another folder."
    )


def private_file(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, whole or not at all. Raises `OSError`.

    It is not synced to the disk: what is kept here speaks of processes, and none outlives a crash of the machine.
    """
    with replacement(path) as descriptor:
        write_all(descriptor, content)
