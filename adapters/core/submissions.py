"""The key record of one session: which submission a prompt attempt belongs to, and what every attempt is answered.

Pure logic: no I/O, no clock, no runtime, no protocol objects. Everything that decides "one insertion per key" lives here; any
Python agent can use it as its own record. The caller performs what the methods return.

Terms. An *attempt* is one request (any hashable value of the caller). A *submission* is one logical user message with the
attempts that wait for it. A key is *unused*, *pending* (a submission waits) or *recorded* (a message was inserted with it).

Life of a submission (KEY-10, KEY-11; "free" = settled with an error, the key is unused again, KEY-14, KEY-21):

    state      attempt, same key   cancel              looked_up(held)  looked_up(free)    submitted   inserted   failed
    LOOKING    joins               doomed              recorded         HELD | free if d.  -           -          free
    HELD       joins               free                recorded         -                  SUBMITTED   -          free
    SUBMITTED  joins               doomed              -                -                  -           recorded   free
    doomed     waits (E8)          the waiting join    recorded         free               -           recorded   free

Attempts that wait behind a doomed submission are no part of its withdrawal: if the message turns out inserted they are
answered with its id, otherwise they become a submission of their own, the successor (KEY-18, E7, E8).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

import uuid_utils

__all__ = [
    "NAMESPACE",
    "Joined",
    "Known",
    "Opened",
    "Settlement",
    "State",
    "Submission",
    "Submissions",
    "derived_id",
    "random_id",
]

NAMESPACE = uuid_utils.UUID("d824e030-439d-4219-831f-ac1028988c9f")
"""Namespace for session ids that are no canonical UUIDs. Frozen: stored sessions depend on it (ADP-12)."""

A = TypeVar("A", bound=Hashable)
P = TypeVar("P")


def derived_id(session_id: str, key: str) -> str:
    """The message id that belongs to `key` in this session: UUIDv5, lower-case text (ADP-1, ADP-9..12).

    The session's own UUID is the namespace when its text is canonical; any other spelling is a name in `NAMESPACE`, so that two
    different session ids never share one. Raises `UnicodeEncodeError` for a key with lone surrogates: replacing them would
    merge different keys (E16).
    """
    key.encode()
    return str(uuid_utils.uuid5(_namespace(session_id), key))


def random_id() -> str:
    """A message id for a submission without a key, or one that is never stored."""
    return str(uuid_utils.uuid4())


def _namespace(session_id: str) -> uuid_utils.UUID:
    try:
        parsed = uuid_utils.UUID(session_id)
    except ValueError:
        return uuid_utils.uuid5(NAMESPACE, session_id)
    return parsed if str(parsed) == session_id else uuid_utils.uuid5(NAMESPACE, session_id)


class State(Enum):
    """Where a submission stands; the table is in the module's docstring."""

    LOOKING = "looking"
    HELD = "held"
    SUBMITTED = "submitted"
    SETTLED = "settled"


@dataclass(eq=False, slots=True)
class Submission(Generic[A, P]):
    """One logical user message on its way in."""

    message_id: str
    payload: P
    key: str | None
    state: State
    attempts: list[A] = field(default_factory=list[A])
    doomed: bool = False
    """A withdrawal was asked for and is not settled yet."""
    waiting: list[tuple[A, P, bool]] = field(default_factory=list[tuple[A, P, bool]])
    """Attempts behind a withdrawal, each with its own payload and whether that is live-only."""
    live_only: bool = False
    """Never stored, its id is random (D8, E30)."""


@dataclass(frozen=True, slots=True)
class Known:
    """The key is recorded: answer this attempt with the message id, do nothing else (KEY-12)."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Joined(Generic[A, P]):
    """The attempt shares the fate of a pending submission: no queue place, no answer yet."""

    submission: Submission[A, P]


@dataclass(frozen=True, slots=True)
class Opened(Generic[A, P]):
    """A new submission: give it a place in the queue. In state LOOKING, look its `message_id` up first."""

    submission: Submission[A, P]


@dataclass(frozen=True, slots=True)
class Settlement(Generic[A, P]):
    """The end of a submission: every attempt gets `message_id`, or an error where that is None (KEY-17).

    `successor`, if any, is a new submission that takes a new place in the queue.
    """

    submission: Submission[A, P]
    attempts: tuple[A, ...]
    message_id: str | None
    successor: Submission[A, P] | None = None


class Submissions(Generic[A, P]):
    """All keys of one session. Every method is one atomic step: it neither waits nor calls back (KEY-10)."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._pending: dict[str, Submission[A, P]] = {}
        self._open: set[Submission[A, P]] = set()
        self._recorded: set[str] = set()
        self._live_only: dict[str, str] = {}

    @property
    def open(self) -> frozenset[Submission[A, P]]:
        """Submissions that are not settled."""
        return frozenset(self._open)

    def begin(
        self, attempt: A, payload: P, key: str | None, *, live_only: bool = False
    ) -> Known | Joined[A, P] | Opened[A, P]:
        """Take an attempt in: the decision table of the key, in one step.

        `live_only` marks a prompt that is never stored. Raises `UnicodeEncodeError` as `derived_id` does.
        """
        if key is None:
            return Opened(self._new(attempt, payload, None, State.HELD, live_only=live_only))
        derived = derived_id(self._session_id, key)
        if derived in self._recorded:
            return Known(derived)
        if key in self._live_only:
            return Known(self._live_only[key])
        pending = self._pending.get(key)
        if pending is None:
            return Opened(self._new(attempt, payload, key, State.LOOKING, live_only=live_only))
        if pending.doomed:
            pending.waiting.append((attempt, payload, live_only))
        else:
            pending.attempts.append(attempt)
        return Joined(pending)

    def lookup_id(self, submission: Submission[A, P]) -> str | None:
        """The id to look for in the stored session, None for a submission without a key."""
        return None if submission.key is None else derived_id(self._session_id, submission.key)

    def looked_up(self, submission: Submission[A, P], *, recorded: bool) -> Settlement[A, P] | None:
        """The answer of the stored session. None: the submission is HELD and may be submitted when its turn comes."""
        if submission.state in (State.SETTLED, State.SUBMITTED):
            return None
        if recorded:
            found = self.lookup_id(submission)
            assert found is not None  # noqa: S101 - only keyed submissions are looked up
            self._recorded.add(found)
            return self._settle(submission, found)
        if submission.doomed:
            return self._settle(submission, None)
        submission.state = State.HELD
        return None

    def submitted(self, submission: Submission[A, P]) -> None:
        """The prompt is handed to the runtime: from here on only evidence settles it."""
        assert submission.state is State.HELD  # noqa: S101 - the queue hands over held prompts only
        submission.state = State.SUBMITTED

    def inserted(self, submission: Submission[A, P]) -> Settlement[A, P] | None:
        """Evidence of insertion. The key is recorded in the same step (KEY-11), whatever was asked meanwhile (KEY-19)."""
        if submission.state is State.SETTLED:
            return None
        if submission.key is not None:
            if submission.live_only:
                self._live_only[submission.key] = submission.message_id
            else:
                self._recorded.add(submission.message_id)
        return self._settle(submission, submission.message_id)

    def failed(self, submission: Submission[A, P]) -> Settlement[A, P] | None:
        """Not inserted, and it will not be: the key is unused again (KEY-14, KEY-21)."""
        return None if submission.state is State.SETTLED else self._settle(submission, None)

    def cancel(self, submission: Submission[A, P]) -> Settlement[A, P] | None:
        """Withdraw for all attempts known now (KEY-18, KEY-20). None: not known yet, the outcome will tell (E7)."""
        if submission.state is State.SETTLED:
            return None
        submission.attempts.extend(attempt for attempt, _, _ in submission.waiting)
        submission.waiting.clear()
        if submission.state is State.HELD:
            return self._settle(submission, None)
        submission.doomed = True
        return None

    def find(self, attempt: A) -> Submission[A, P] | None:
        """The unsettled submission that this attempt waits for."""
        for submission in self._open:
            if attempt in submission.attempts or any(attempt == waiting for waiting, _, _ in submission.waiting):
                return submission
        return None

    def _new(self, attempt: A, payload: P, key: str | None, state: State, *, live_only: bool) -> Submission[A, P]:
        message_id = random_id() if key is None or live_only else derived_id(self._session_id, key)
        submission = Submission(message_id, payload, key, state, [attempt], live_only=live_only)
        self._open.add(submission)
        if key is not None:
            self._pending[key] = submission
        return submission

    def _settle(self, submission: Submission[A, P], message_id: str | None) -> Settlement[A, P]:
        submission.state = State.SETTLED
        self._open.discard(submission)
        if submission.key is not None:
            self._pending.pop(submission.key, None)
        late = list(submission.waiting)
        submission.waiting.clear()
        attempts = list(submission.attempts)
        submission.attempts.clear()
        if message_id is not None:
            return Settlement(submission, (*attempts, *(attempt for attempt, _, _ in late)), message_id)
        successor: Submission[A, P] | None = None
        if late:
            (first, payload, live_only), *rest = late
            successor = self._new(first, payload, submission.key, State.LOOKING, live_only=live_only)
            successor.attempts.extend(attempt for attempt, _, _ in rest)
        return Settlement(submission, tuple(attempts), None, successor)
