"""Requests about threads: start, resume, list, delete. Owns their fields and error texts.

Codex answers nearly every failure with -32600, so only its words tell failures apart (0.163.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from adapters.acp.errors import AcpError, InternalError, InvalidParams
from adapters.acp.shapes import as_integer, as_list, as_mapping, as_text
from adapters.codex import mcp_servers
from adapters.codex.server.process import AppServer, Refused, RequestFailed
from adapters.codex.thread import archive, trust
from adapters.codex.thread.lock_holder import Holder, holder_of
from adapters.core.port import SessionPage, SessionSetup, StoredSession
from adapters.driver import markup
from adapters.driver.tool_text import one_line
from adapters.driver.uuids import is_uuid

RESUME_BOUND: Final = 120.0
"""Seconds to load a thread (measured: 4 s for 61 MB without its projection)."""

_SOURCES: Final = ("cli", "vscode", "exec", "appServer", "unknown")
"""Who made a thread: everybody but sub-agents."""

_PAGE: Final = 50
_MOST: Final = 100
"""Rows of one page; Codex gives no more."""


def is_thread_id(session_id: str) -> bool:
    """Whether it is an id as Codex writes it. It would take other spellings of a UUID too: one thread, many sessions."""
    return is_uuid(session_id)


# --- starting ----------------------------------------------------------------------------------------------------------


def start_params(setup: SessionSetup, home: Path | None = None, keys: mcp_servers.Keys | None = None) -> dict[str, Any]:
    """The params of `thread/start`; also the overrides of `thread/resume`.

    The servers of `keys` come on top of those in the user's configuration. With the user's `CODEX_HOME`, a folder that the
    user has not decided on is not trusted. Blocks: reads small files.
    """
    params: dict[str, Any] = {"cwd": setup.cwd, "runtimeWorkspaceRoots": [setup.cwd, *setup.additional_directories]}
    if home is not None:
        params |= trust.overrides(home, setup.cwd, setup.named)
    params["config"] = {**params.get("config", {}), "mcp_servers": mcp_servers.configuration(keys or {})}
    return params


# --- failures ----------------------------------------------------------------------------------------------------------


def is_missing(refused: Refused) -> bool:
    """There is no such thread."""
    return "no rollout found" in refused.message or "not found" in refused.message


def is_held(refused: Refused) -> bool:
    """Another process has the thread loaded."""
    return "active writer" in refused.message


def is_closing(refused: Refused) -> bool:
    """The thread is being unloaded, and can be loaded again in a moment."""
    return "is closing" in refused.message


def is_archived(refused: Refused) -> bool:
    """The thread must be unarchived first."""
    return "is archived" in refused.message


def held_error(holder: Holder | None) -> AcpError:
    """Another holder (D6), named where the system tells who it is."""
    who = "Another Codex"
    if holder:
        who = f"Another Codex (process {holder.pid}, started by process {holder.parent})"
    text = f"{who} has this session open: an editor, or `codex` in a terminal. Close it there, then try again."
    return InternalError(text, {"category": "held", **({"pid": holder.pid} if holder else {})})


def prompt_error(refused: Refused) -> AcpError:
    """Why a prompt was refused; `InvalidParams` when its content was the reason."""
    data = as_mapping(refused.data)
    if refused.code == InvalidParams.default_code or "input_error_code" in data:
        return InvalidParams(f"Codex refused the prompt: {one_line(refused.message)}")
    return InternalError(f"Codex refused the prompt: {one_line(refused.message)}", {"category": "refused"})


def failed_error(what: str, failed: RequestFailed) -> AcpError:
    """A request that failed for good, for a person: ``what`` is what could not be done. `InvalidParams` for its content."""
    if isinstance(failed, Refused) and failed.code == InvalidParams.default_code:
        return InvalidParams(f"{what}: {one_line(failed.message)}.")
    return InternalError(f"{what}: {one_line(str(failed))}.")


# --- listing -----------------------------------------------------------------------------------------------------------


async def list_page(server: AppServer, cwd: str | None, cursor: str | None) -> SessionPage:
    """Stored threads, newest first; Codex applies the filter before it pages (LIST-2) and follows links in it.

    Raises `InvalidParams` for a cursor that is not Codex's, `AcpError` when threads cannot be listed.
    """
    try:
        # By the last prompt; "updated_at" is the time of the file, which closing touches.
        page = await _listed(server, cwd, cursor, limit=_PAGE, sortKey="recency_at")
    except Refused as refused:
        if cursor is not None and "cursor" in refused.message:
            raise InvalidParams("cursor is not one that this agent gave: list from the start.") from None
        raise failed_error("Stored sessions cannot be listed", refused) from None
    except RequestFailed as failed:
        raise failed_error("Stored sessions cannot be listed", failed) from None
    return SessionPage(_rows(page), as_text(page.get("nextCursor")) or None)


async def list_lost(server: AppServer, cwd: str | None, lost: archive.Lost) -> Sequence[StoredSession]:
    """The rows of threads that were left half-way in the archive. Raises `RequestFailed`."""
    found: list[StoredSession] = []
    for ids, archived in ((lost.moved, True), (lost.noted, False)):
        cursor: str | None = None
        while ids:
            # Sorted so, Codex looks at the files, too.
            page = await _listed(server, cwd, cursor, limit=_MOST, sortKey="created_at", archived=archived)
            found += [row for row in _rows(page) if row.session_id in ids]
            cursor = as_text(page.get("nextCursor")) or None
            if cursor is None:
                break
    return found


async def _listed(server: AppServer, cwd: str | None, cursor: str | None, **more: Any) -> Mapping[str, Any]:
    params: dict[str, Any] = {"modelProviders": [], "sourceKinds": list(_SOURCES), **more}
    if cwd is not None:
        params["cwd"] = cwd
    if cursor is not None:
        params["cursor"] = cursor
    return await server.request("thread/list", params)


def _rows(page: Mapping[str, Any]) -> list[StoredSession]:
    """A reverted thread may be listed once for each of its files."""
    rows = [row for row in map(_row, map(as_mapping, as_list(page.get("data")))) if row]
    return list({row.session_id: row for row in reversed(rows)}.values())[::-1]


def _row(thread: Mapping[str, Any]) -> StoredSession | None:
    session_id, cwd = as_text(thread.get("id")), as_text(thread.get("cwd"))
    if not session_id or not cwd or thread.get("ephemeral") is True:
        return None
    # The preview is the first prompt, its parts joined; the name was given by a user.
    title = one_line(as_text(thread.get("name")) or markup.spoken(as_text(thread.get("preview"))))
    recency = as_integer(thread.get("recencyAt"))
    seconds = as_integer(thread.get("updatedAt")) if recency is None else recency
    updated = None
    if seconds is not None:
        try:
            updated = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError, OSError):
            updated = None
    return StoredSession(session_id, cwd, title or None, updated)


async def delete(server: AppServer, session_id: str, home: Path) -> None:
    """Remove a stored thread for good; a missing one is success. Raises `AcpError` that says who has it, or why not."""
    try:
        await server.request("thread/delete", {"threadId": session_id})
    except Refused as refused:
        if is_held(refused):
            raise held_error(holder_of(home, session_id)) from None
        if not is_missing(refused):
            raise failed_error("The session cannot be deleted", refused) from None
    except RequestFailed as failed:
        raise failed_error("The session cannot be deleted", failed) from None
