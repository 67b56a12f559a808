"""Prompts that may be sent again: the part of a client that makes a lost answer harmless.

Owns the duties of a client that uses `idempotencyKey`: the key is made when the user submits and stored with the
prompt before anything is sent; every attempt has a new request id and the same key; an attempt whose answer is lost is
sent again after `session/resume`, until it is answered. Knows one method, `session/prompt`, and no transport.

    outbox = Outbox(path)
    entry = outbox.submit(session_id, "Fix the tests")         # stored now
    message_id = await outbox.deliver(client, entry)           # ConnectionLostError: reconnect, resume, deliver again
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adapters.acp.errors import AcpError
from adapters.client.client import Blocks, Client, as_blocks


@dataclass(slots=True)
class Entry:
    """One submission of the user. It leaves the outbox when it is inserted or discarded."""

    key: str
    session_id: str
    prompt: list[dict[str, Any]]
    submitted_at: float
    """Seconds since the epoch. A client shows very old input instead of sending it again."""
    attempts: int = 0
    """Attempts that went out. 0 means that the agent cannot know the key."""
    refused: dict[str, Any] | None = None
    """The agent's latest error: not inserted, key unused; the entry may be delivered again as it is (KEY-14)."""
    message_id: str | None = None
    """The message it became."""


class Outbox:
    """Submissions without a message yet, in order. With a path, they survive this process: JSON lines, mode 0600."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                entry = Entry(**json.loads(line))
                self._entries[entry.key] = entry

    def submit(self, session_id: str, prompt: Blocks) -> Entry:
        """Take in what the user submitted: a new key, also for equal text. Stored when this returns."""
        entry = Entry(str(uuid.uuid4()), session_id, as_blocks(prompt), time.time())
        self._entries[entry.key] = entry
        self._store()
        return entry

    async def deliver(self, client: Client, entry: Entry, within: float = 30.0) -> str:
        """Send the entry on a connection where its session is active, and wait: gives the id of its one message.

        May be called again for the same entry, on any connection, after anything.

        Raises:
            AcpError: not inserted, as every error on `session/prompt` says; the entry stays, marked `refused`.
            ConnectionLostError, TimeoutError: unknown; the entry stays. Deliver again after `session/resume`.
        """
        entry.attempts += 1
        entry.refused = None
        self._store()
        call = await client.prompt(entry.session_id, entry.prompt, key=entry.key)
        try:
            entry.message_id = await call.message_id(within)
        except AcpError as error:
            entry.refused = error.to_wire()
            self._store()
            raise
        self.discard(entry)
        return entry.message_id

    async def resend(self, client: Client, session_id: str, younger_than: float = 3600.0) -> dict[str, str | AcpError]:
        """Deliver, in order, what was sent and never answered; call it right after resuming. Gives the outcomes by key.

        Refused entries and ones older than so many seconds are left for the user to decide about.
        """
        outcomes: dict[str, str | AcpError] = {}
        for entry in [*self.entries(session_id)]:
            if entry.attempts and entry.refused is None and time.time() - entry.submitted_at < younger_than:
                try:
                    outcomes[entry.key] = await self.deliver(client, entry)
                except AcpError as error:
                    outcomes[entry.key] = error
        return outcomes

    def entries(self, session_id: str | None = None) -> Iterator[Entry]:
        """The submissions that have no message yet, in order."""
        for entry in self._entries.values():
            if session_id in (None, entry.session_id):
                yield entry

    def discard(self, entry: Entry) -> None:
        """Forget an entry."""
        self._entries.pop(entry.key, None)
        self._store()

    def _store(self) -> None:
        if self._path is not None:
            lines = [json.dumps(asdict(entry)) + "\n" for entry in self._entries.values()]
            _write_private(self._path, "".join(lines).encode())


def _write_private(path: Path, data: bytes) -> None:
    """Replace the file in one step: a reader, or a crash, finds the old content or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the mode of an old leftover
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
