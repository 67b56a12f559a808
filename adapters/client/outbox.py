"""Prompts that may be sent again: the part of a client that makes a lost answer harmless.

Owns the duties of a client that uses `idempotencyKey`: the key is made when the user submits and stored with the
prompt before anything is sent; every attempt has a new request id and the same key; an attempt whose answer is lost is
sent again after `session/resume`, until it is answered. Knows one method, `session/prompt`, and no transport.

    with Outbox(path) as outbox:
        entry = outbox.submit(session_id, "Fix the tests", cwd=cwd)  # stored now
        message_id = await outbox.deliver(client, entry)             # ConnectionLostError: reconnect, resume, `resend`

What `resend` does with an entry:

| the entry | what is known | `resend` |
|---|---|---|
| was never sent | the agent cannot know the key | sends it |
| was sent, the answer was lost | nothing | sends it |
| was refused with `inserted: null` | nothing | sends it |
| was refused with -32002 (session not active) or -32603 (internal error) | it is not inserted | sends it, `TRIES` times at most |
| was refused with another error | it is not inserted | leaves it: the user decides |
| is older than `younger_than` | whatever the above says | leaves it: the user decides |
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, cast

from adapters.acp.errors import AcpError, InternalError, ResourceNotFound
from adapters.client.client import Blocks, Client, as_blocks
from adapters.client.record import ConnectionLostError, as_object
from adapters.private_files import replacement, write_all

TRIES: Final = 5
"""Attempts of one entry that `resend` makes in all while the agent refuses it for a reason that may pass."""

_PASSING: Final = {ResourceNotFound.default_code, InternalError.default_code}
"""Codes of errors that the same prompt may meet once and not again (docs/idempotent-prompts.md, "After a failure")."""

_LONGEST_KEY: Final = 255
"""Characters of an idempotency key (KEY-3)."""


class OutboxInUseError(Exception):
    """Another process, or another `Outbox` of this one, has the file open: two owners would overwrite each other."""


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
    """The agent's latest error, as on the wire; the entry may be delivered again as it is (KEY-14)."""
    message_id: str | None = None
    """The message it became."""
    cwd: str | None = None
    """The session's working folder: what `session/resume` needs after a restart of the client."""
    additional_directories: list[str] = field(default_factory=list[str])
    """The session's further roots, likewise."""

    @property
    def fate_unknown(self) -> bool:
        """Whether the agent said that it does not know if a message with this key is stored (`inserted: null`)."""
        data = as_object((self.refused or {}).get("data"))
        return "inserted" in data and data["inserted"] is None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `Outbox.resend` did with one entry: exactly one of `message_id`, `error` and `left` is set."""

    entry: Entry
    message_id: str | None = None
    """Delivered: the id of its one message. The entry has left the outbox."""
    error: AcpError | ConnectionLostError | TimeoutError | None = None
    """Sent and not inserted (`AcpError`), or of unknown fate. The entry is still in the outbox."""
    left: str | None = None
    """Not sent, and why, in words for a person. The entry is still in the outbox."""


class Outbox:
    """Submissions without a message yet, in order.

    With a path, they survive this process: JSON lines, readable by the owner only, replaced in one step. The file has one owner
    at a time; use the outbox as a context manager, or `close` it. Opening raises `OutboxInUseError` while somebody else has it,
    `ValueError` for a file that is no outbox, `OSError` for one that cannot be used.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._held: _Held | None = None
        if path is not None:
            self._held = _own(path)
            for number, line in enumerate(path.read_bytes().splitlines(), 1):
                entry = _entry_of(line, f"{path}, line {number}")
                self._entries[entry.key] = entry

    def __enter__(self) -> Self:
        """Nothing to do: the file is owned since it was opened."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the file back."""
        self.close()

    def close(self) -> None:
        """Give the file back; what is in it stays. The outbox takes nothing in after that."""
        if self._held:
            self._held.close()

    def submit(
        self,
        session_id: str,
        prompt: Blocks,
        *,
        key: str | None = None,
        cwd: str | None = None,
        additional_directories: Sequence[str] = (),
    ) -> Entry:
        """Take in what the user submitted. Stored when this returns.

        `key`: the caller's own, for one that was made with the input; a new random one otherwise, also for equal text. `cwd` and
        `additional_directories` are the session's: they are kept for the resume after a restart of the client. Raises
        `ValueError` for a key that the protocol does not allow (KEY-3) or that an entry of this outbox has already.
        """
        if key is None:
            key = str(uuid.uuid4())
        elif not 1 <= len(key) <= _LONGEST_KEY or not _is_text(key):
            raise ValueError(f"A key has 1 to {_LONGEST_KEY} characters and no lone surrogate.")
        elif key in self._entries:
            raise ValueError("An entry of this outbox has this key: a new submission needs a new one.")
        roots = list(additional_directories)
        entry = Entry(key, session_id, as_blocks(prompt), time.time(), cwd=cwd, additional_directories=roots)
        self._entries[entry.key] = entry
        try:
            self._store()
        except BaseException:
            del self._entries[entry.key]  # not stored, so not submitted
            raise
        return entry

    async def deliver(self, client: Client, entry: Entry, within: float = 30.0) -> str:
        """Send the entry on a connection where its session is active, and wait: gives the id of its one message.

        May be called again for the same entry, on any connection, after anything. `within`: seconds. A prompt that the agent
        holds back while other work runs is answered when it is inserted, so a long wait is no fault.

        Raises:
            AcpError: not inserted (or not known: `Entry.fate_unknown`); the entry stays, with the error in `refused`.
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

    async def resend(
        self, client: Client, session_id: str, *, younger_than: float = 3600.0, within: float = 30.0
    ) -> list[Outcome]:
        """Deliver what may be in this session or not, in order; call it right after resuming. Gives one outcome per entry.

        See the table at the head of this module. `younger_than` and `within` are seconds, the latter for each entry. Nothing is
        raised for an entry that cannot be delivered: its outcome says so. When the connection is lost the rest is left.
        """
        outcomes: list[Outcome] = []
        lost = False
        for entry in [*self.entries(session_id)]:
            why = "The connection is lost." if lost else _why_left(entry, younger_than)
            if why:
                outcomes.append(Outcome(entry, left=why))
                continue
            try:
                outcomes.append(Outcome(entry, message_id=await self.deliver(client, entry, within)))
            except (AcpError, TimeoutError) as error:
                outcomes.append(Outcome(entry, error=error))
            except ConnectionLostError as error:
                lost = True
                outcomes.append(Outcome(entry, error=error))
        return outcomes

    def move(self, entry: Entry, session_id: str) -> None:
        """Put an entry into another session: for one whose session was never stored (`session/resume` says -32002).

        In the other session its key is an unrelated one (KEY-40), so move only what is in no conversation.
        """
        entry.session_id, entry.attempts, entry.refused = session_id, 0, None
        self._store()

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
        """Write what there is, before anything else happens. Raises `OSError`, or `ValueError` once the outbox is closed."""
        if self._path is None or self._held is None:
            return
        if self._held.closed:
            raise ValueError("This outbox is closed.")
        lines = [json.dumps(asdict(entry)) + "\n" for entry in self._entries.values()]
        before, self._held = self._held, _replace(self._path, "".join(lines).encode())
        before.close()


def _why_left(entry: Entry, younger_than: float) -> str | None:
    """Why `resend` does not send an entry by itself; None when it does."""
    if time.time() - entry.submitted_at >= younger_than:
        return "It is old: ask the user whether to send it."
    if entry.refused is None or entry.fate_unknown:
        return None
    message = str(entry.refused.get("message", ""))
    if entry.refused.get("code") not in _PASSING:
        return f"The agent refused it, and it is not inserted: {message}"
    if entry.attempts >= TRIES:
        return f"The agent refused it {entry.attempts} times, and it is not inserted: {message}"
    return None


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry_of(line: bytes, where: str) -> Entry:
    """An entry of the file. Fields of a later version are ignored."""
    try:
        value: Any = json.loads(line)
        known = {name.name for name in fields(Entry)}
        return Entry(**{name: member for name, member in cast("dict[str, Any]", value).items() if name in known})
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{where}: this is not an entry of an outbox.") from None


# --- the file --------------------------------------------------------------------------------------------------------


class _Held:
    """An open and locked file; let go when it is closed or forgotten. The kernel lets go whatever ends the process."""

    def __init__(self, descriptor: int) -> None:
        self._finalizer = weakref.finalize(self, os.close, descriptor)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        self._finalizer()


def _own(path: Path) -> _Held:
    """Open and lock the file, made if needed. A file that was replaced meanwhile is opened again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held = _Held(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there, ours = os.stat(path), os.fstat(descriptor)  # noqa: PTH116 - beside fstat
        except BlockingIOError:
            held.close()
            raise OutboxInUseError(f"{path} is in use: one client at a time sends from an outbox.") from None
        except FileNotFoundError:
            held.close()
            continue
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return held
        held.close()


def _replace(path: Path, data: bytes) -> _Held:
    """Replace the file in one step and own the new one: a reader, or a crash, finds the old content or the new one."""
    with ExitStack() as on_failure:
        with replacement(path) as descriptor:
            held = _Held(os.dup(descriptor))  # copies of a descriptor share its lock
            on_failure.callback(held.close)
            os.fchmod(descriptor, 0o600)  # the mode of an old leftover
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_all(descriptor, data)
            os.fsync(descriptor)
        on_failure.pop_all()
    return held
