"""The judge of a history: what clients sent and were answered, what the runtime stored, what the model was asked.

Pure: it takes the messages of connections and looks at stores, and gives sentences that say what is wrong. It starts nothing
and knows no runtime. Every attempt at a prompt ended in one of three ways:

    ok        answered with a message id          exactly one message of this text is stored, under that id, for ever
    failed    answered with an error              nothing is stored by it; the key is unused again
    unknown   its connection ended first, or the  nothing is stored by it, or one message
              error says `inserted: null`

    live      answered with an id, and told at    as ok, but it need not be stored: the model has it, and the key is known
              once that it could not be stored    until the session is closed

Messages are counted by their text as well as by their id, since an id that is derived from the key makes a second insertion
invisible to whatever looks at ids only. So every submission of a history needs a text of its own, or a name in it (`named`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from math import inf
from typing import Any, Literal

from adapters.client.record import Message, as_object

Outcome = Literal["ok", "live", "failed", "unknown", "open"]

_WITHDRAWALS = ("$/cancel_request", "session/cancel", "session/close")
"""What withdraws a prompt that is not inserted yet."""

_CANCELLED = -32800
"""The code that a withdrawn attempt is answered with."""

_UNKNOWN_SESSION = -32002
"""The code that says that there is no such session."""

_NOT_STORED = "This message could not be stored"
"""The title of the notice that follows the answer to a message which is live only."""

_TOLD_WITHIN = 1.0
"""Seconds between the answer and that notice; the agent puts both on the wire in one step."""

_NAME = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


def named(text: str) -> str:
    """The name that a text carries in double brackets: what tells an odd prompt apart however it is stored. Else the text."""
    found = _NAME.search(text)
    return found[1] if found else text


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to an attempt."""

    at: float
    message_id: str | None
    code: int | None = None
    inserted: bool | None = False
    """What an error says of the message: False is "not inserted", None "nobody knows"."""


@dataclass(slots=True)
class Attempt:
    """One `session/prompt` on the wire. Times are seconds on one clock, for all connections."""

    session: str
    key: str | None
    text: str
    connection: int
    sent: float
    replies: list[Reply] = field(default_factory=list[Reply])
    lost: bool = False
    """Its connection has ended, so that an answer that has not come will not come."""
    withdrawn: list[float] = field(default_factory=list[float])
    """When its client asked to withdraw it: by its id, or with everything else in the session."""
    heard: float = -inf
    """When the last message came on its connection."""
    unstored: bool = False
    """Its client was told that the message could not be stored."""

    @property
    def outcome(self) -> Outcome:
        if not self.replies:
            return "unknown" if self.lost else "open"
        if self.message_id is not None:
            return "live" if self.unstored else "ok"
        return "failed" if self.replies[0].inserted is False else "unknown"

    @property
    def message_id(self) -> str | None:
        return self.replies[0].message_id if self.replies else None

    @property
    def was_withdrawn(self) -> bool:
        return self.outcome == "failed" and self.replies[0].code == _CANCELLED

    @property
    def answered(self) -> float:
        """When it was answered; infinity while it was not."""
        return self.replies[0].at if self.replies else inf

    def __str__(self) -> str:
        return f"{self.text!r} on connection {self.connection}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A user message as the runtime's own store holds it."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a session's store held at a moment, in order; and what a replay showed just then, if one was asked for."""

    at: float
    session: str
    stored: tuple[Stored, ...]
    replayed: tuple[str, ...] | None = None
    told: int = 0
    """Of how many messages, the model's too, the replay said that they are missing in it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """An answer to `session/resume`: no code where the session was opened."""

    at: float
    session: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """An answer to `session/list`, of which nothing was left out."""

    at: float
    sessions: frozenset[str]


@dataclass(slots=True)
class History:
    """Everything that is judged together. The last look at a session is its end."""

    attempts: list[Attempt] = field(default_factory=list[Attempt])
    looks: list[Look] = field(default_factory=list[Look])
    own: Counter[str] = field(default_factory=Counter[str])
    """Texts that somebody else, who has no key, put into the sessions, and how often."""
    calls: Mapping[str, int] | None = None
    """For texts: how often the model was asked to answer them."""
    in_context: Mapping[str, int] | None = None
    """For texts: how often they stand in what the model was given last. A text that cannot be told there is left out."""
    torn: Counter[str] = field(default_factory=Counter[str])
    """For texts: how often a kill left them in the model's context without a message (Codex; not promised)."""
    openings: list[Opening] = field(default_factory=list[Opening])
    listings: list[Listing] = field(default_factory=list[Listing])
    kills: int = 0
    """Processes of the runtime that were killed: each may have cost the work of one message."""


def attempts_of(messages: Iterable[Message], connection: int, *, ended: bool) -> Iterator[Attempt]:
    """The prompt attempts of one connection's record."""
    attempts: dict[Any, Attempt] = {}
    heard = -inf
    live: set[tuple[str, str | None]] = set()
    """Sessions and ids of messages that are live only, as long as their session is active here (KEY-43)."""
    for message in messages:
        if not message.sent and message.method == "session/update":
            live |= _live(message, attempts.values())
        value = as_object(message.value)
        heard = heard if message.sent else message.at
        if message.sent and message.method == "session/close":
            live = {(session, message_id) for session, message_id in live if session != message.params.get("sessionId")}
        if message.sent and message.method in _WITHDRAWALS:
            for number, attempt in attempts.items():
                meant = message.params.get("requestId", number), message.params.get("sessionId", attempt.session)
                if meant == (number, attempt.session):
                    attempt.withdrawn.append(message.at)
        if message.sent and message.method == "session/prompt":
            params = message.params
            text = named("".join(as_object(block).get("text", "") for block in params["prompt"]))
            attempts[value["id"]] = Attempt(
                params["sessionId"], params.get("idempotencyKey"), text, connection, message.at, lost=ended
            )
        elif not message.sent and message.method is None and value.get("id") in attempts:
            attempt = attempts[value["id"]]
            attempt.replies.append(_reply(message.at, value))
            attempt.unstored = (attempt.session, attempt.message_id) in live
    for attempt in attempts.values():
        attempt.heard = heard
        yield attempt


def _live(message: Message, attempts: Iterable[Attempt]) -> set[tuple[str, str | None]]:
    """What it tells to be live only: the last message of its session that was answered with an id. Marks its attempts."""
    if as_object(message.params.get("update")).get("title") != _NOT_STORED:
        return set()
    session = message.params.get("sessionId")
    answered = [attempt for attempt in attempts if attempt.session == session and attempt.message_id is not None]
    last = max((attempt.answered for attempt in answered), default=-inf)
    if message.at - last > _TOLD_WITHIN:
        return set()
    found = {(attempt.session, attempt.message_id) for attempt in answered if attempt.answered == last}
    for attempt in answered:  # all that waited together
        attempt.unstored = attempt.unstored or (attempt.session, attempt.message_id) in found
    return found


def _reply(at: float, value: dict[str, Any]) -> Reply:
    message_id = as_object(value.get("result")).get("messageId")
    if isinstance(message_id, str):
        return Reply(at, message_id)
    error = as_object(value.get("error"))
    return Reply(at, None, error.get("code"), as_object(error.get("data")).get("inserted", False))


def faults_of(history: History, *, so_far: bool = False) -> list[str]:
    """What is wrong, one sentence each; empty when everything that was promised was kept.

    `so_far`: the history goes on. An answer may still come then, and what the model was asked is not judged.
    """
    if so_far:
        unknown = [replace(attempt, lost=True) for attempt in history.attempts]
        history = replace(history, attempts=unknown, calls=None, in_context=None)
    return [
        *_answers(history),
        *_ids(history),
        *_stores(history),
        *_sessions(history),
        *_replays(history),
        *_order(history),
        *_overlaps(history),
        *_joined(history),
        *_work(history),
    ]


def _submissions(attempts: Iterable[Attempt]) -> dict[tuple[str, str], list[Attempt]]:
    """The attempts by what they submit: a key in a session, or one attempt alone where there is no key."""
    found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for number, attempt in enumerate(sorted(attempts, key=lambda attempt: attempt.sent)):
        found[attempt.session, attempt.key if attempt.key is not None else f"\0{number}"].append(attempt)
    return found


def _answers(history: History) -> Iterator[str]:
    """Each request is answered exactly once while its connection lives (KEY-17)."""
    for attempt in history.attempts:
        if len(attempt.replies) > 1:
            yield f"{attempt} was answered {len(attempt.replies)} times"
        elif not attempt.replies and not attempt.lost:
            yield f"{attempt} was never answered"
        for reply in attempt.replies:
            if reply.message_id is None and reply.code is None:
                yield f"{attempt} was answered with neither a message id nor an error"


def _ids(history: History) -> Iterator[str]:
    """All answers of a key carry one id, and no two submissions share one (KEY-12, KEY-40)."""
    owners: dict[str, str] = {}
    for attempts in _submissions(history.attempts).values():
        ids = {attempt.message_id for attempt in attempts if attempt.message_id is not None}
        if len(ids) > 1:
            yield f"{attempts[0]} has {len(ids)} ids"
        for message_id in ids:
            other = owners.setdefault(message_id, attempts[0].text)
            if other != attempts[0].text:
                yield f"{attempts[0].text!r} and {other!r} have one id"


def _stores(history: History) -> Iterator[str]:
    """At every look: acknowledged is stored once, failed is not stored, nothing is stored twice (PROMPT-9, ERR-5, KEY-15)."""
    by_session: dict[str, list[list[Attempt]]] = defaultdict(list)
    for (session, _), attempts in _submissions(history.attempts).items():
        by_session[session].append(attempts)
    for look in history.looks:
        ids, texts = Counter(m.message_id for m in look.stored), Counter(m.text for m in look.stored)
        for message_id, count in ids.items():
            if count > 1:
                yield f"the id of {_text_of(look, message_id)!r} is stored {count} times"
        known: set[str] = set()
        for attempts in by_session[look.session]:
            text = attempts[0].text
            known.add(text)
            yield from _one_stored(look, attempts, texts[text])
        for text, count in texts.items():
            if text not in known and count > history.own[text]:
                yield f"{text!r} is stored {count} times and was sent {history.own[text]} times"


def _one_stored(look: Look, attempts: Sequence[Attempt], count: int) -> Iterator[str]:
    text = attempts[0].text
    if count > 1:
        yield f"{text!r} is stored {count} times"
    before = [attempt for attempt in attempts if attempt.sent < look.at]
    acknowledged = {attempt.message_id for attempt in before if _acknowledged(attempt, look.at)}
    ids = {attempt.message_id for attempt in before if attempt.answered < look.at and attempt.message_id}
    for message_id in ids:
        found = [message.text for message in look.stored if message.message_id == message_id]
        if not found and message_id in acknowledged:
            yield f"{text!r} was acknowledged and is not stored"
        elif found and text not in found:
            yield f"the id that {text!r} was answered with is stored with another text"
    settled = all(attempt.answered < look.at and attempt.outcome == "failed" for attempt in before)
    if count and settled:
        yield f"{text!r} has only errors that say that it was not inserted, and is stored"


def _acknowledged(attempt: Attempt, by: float) -> bool:
    """Whether it was answered with an id by then, and its client not told that the message could not be stored."""
    return attempt.outcome == "ok" and attempt.answered < by


def _sessions(history: History) -> Iterator[str]:
    """A session with an acknowledged message is stored: it is never said to be unknown, and stands in each whole list."""
    for opening in history.openings:
        if opening.code == _UNKNOWN_SESSION and _holds_something(history, opening.session, opening.at):
            yield f"session {opening.session} holds acknowledged messages and was said to be unknown"
    for listing in history.listings:
        for session in {attempt.session for attempt in history.attempts} - listing.sessions:
            if _holds_something(history, session, listing.at):
                yield f"session {session} holds acknowledged messages and is not listed"


def _holds_something(history: History, session: str, by: float) -> bool:
    return any(attempt.session == session and _acknowledged(attempt, by) for attempt in history.attempts)


def _text_of(look: Look, message_id: str) -> str:
    return next(message.text for message in look.stored if message.message_id == message_id)


def _replays(history: History) -> Iterator[str]:
    """A replay shows what is stored, under the same ids, in the same order (KEY-42). What is live only it may show, too.

    Messages that a runtime does not list any more may be missing in it when it says so.
    """
    for look in history.looks:
        if look.replayed is None:
            continue
        stored = tuple(dict.fromkeys(message.message_id for message in look.stored))
        live = {attempt.message_id for attempt in history.attempts if attempt.outcome == "live"} - set(stored)
        replayed = tuple(message_id for message_id in look.replayed if message_id not in live)
        missing = [_text_of(look, message_id) for message_id in stored if message_id not in replayed]
        kept = tuple(message_id for message_id in stored if message_id in replayed)
        if replayed != kept or len(missing) > look.told:
            more = len([message_id for message_id in replayed if message_id not in stored])
            yield (
                f"a replay lacks {missing} and tells of {look.told}, shows {more} unknown ids, "
                "or has another order than the store"
            )


def _order(history: History) -> Iterator[str]:
    """Prompts keep their order: sent after the other was acknowledged, or after it on the same connection (PROMPT-16).

    An attempt that failed has no place in the order: a message that stands where only such an attempt can have put it was
    inserted by it.
    """
    places = {
        (look.session, message.text): place for look in history.looks for place, message in enumerate(look.stored)
    }
    by_session: dict[str, list[list[Attempt]]] = defaultdict(list)
    for (session, _), attempts in _submissions(history.attempts).items():
        if (session, attempts[0].text) in places:
            by_session[session].append(attempts)
    for session, submissions in by_session.items():
        place = {id(attempts): places[session, attempts[0].text] for attempts in submissions}
        for above, below in permutations(submissions, 2):
            if place[id(above)] > place[id(below)]:
                continue
            sent = min((a.sent for a in above if a.outcome != "failed"), default=-inf)
            first, second = below[0], above[0]
            if min((a.answered for a in below if a.outcome == "ok"), default=inf) < sent:
                yield f"{second.text!r} was sent after {first.text!r} was acknowledged and stands before it"
            elif _in_turn(first, second) and first.outcome == second.outcome == "ok":
                yield f"{second.text!r} was sent after {first.text!r} and stands before it"


def _in_turn(first: Attempt, second: Attempt) -> bool:
    """Whether they were sent one behind the other."""
    return first.connection == second.connection and first.sent < second.sent


def _overlaps(history: History) -> Iterator[str]:
    """An error says: not inserted, and the key is free. So nothing asked before or at that time may be inserted (KEY-17, ERR-5).

    The other way round is allowed: an attempt that waits behind a withdrawal becomes a submission of its own.
    """
    for attempts in _submissions(history.attempts).values():
        for done in attempts:
            if done.outcome != "ok":
                continue
            for failed in attempts:
                if failed.outcome == "failed" and done.sent < failed.sent and done.connection == failed.connection:
                    if failed.sent < done.answered:
                        yield f"{failed} was sent twice: the second attempt failed although the first was inserted"
                    else:
                        yield f"{failed} was refused as not inserted after it had been acknowledged"
                elif failed.outcome == "failed" and done.answered < failed.sent:
                    yield f"{failed} was refused as not inserted after it had been acknowledged elsewhere"


def _joined(history: History) -> Iterator[str]:
    """Attempts that wait together are answered together; if one is withdrawn, all are (KEY-17, KEY-18)."""
    for attempts in _submissions(history.attempts).values():
        withdrawals = [at for attempt in attempts for at in attempt.withdrawn]
        answered = max((attempt.answered for attempt in attempts if attempt.replies), default=inf)
        for first, second in combinations(attempts, 2):
            if first.connection != second.connection:
                continue
            if second.outcome == "ok" and second.answered < first.answered:
                yield f"{second} was sent twice: the second attempt was answered, the first was left waiting"
            if any(first.sent < at < second.sent for at in withdrawals):
                continue  # that parts them: the second is a submission of its own then (E8)
            for one, other in ((first, second), (second, first)):
                if one.was_withdrawn and any(second.sent < at < one.answered for at in withdrawals):
                    if other.outcome == "ok":
                        yield f"{one} was sent twice: one attempt was withdrawn, the other was inserted"
                    elif not other.replies and answered < other.heard:
                        yield f"{one} was sent twice: one attempt was withdrawn, the other was left waiting"


def _work(history: History) -> Iterator[str]:
    """The model works once on a message, and sees it once (KEY-13)."""
    for attempts in _submissions(history.attempts).values():
        text = attempts[0].text
        stored = any(attempt.outcome == "ok" for attempt in attempts)
        # What was not stored when its runtime died may have been begun: each such attempt may cost one more call.
        spared = sum(attempt.outcome in ("failed", "unknown", "live") for attempt in attempts) + history.kills
        if history.calls is not None and (count := history.calls.get(text, 0)) > 1 + spared:
            yield f"the model was asked {count} times for {text!r}"
        count = 1 if history.in_context is None else history.in_context.get(text, 1)
        # Whatever kept a live message from being stored may have kept only its id: its text may be in the model's context.
        again = sum(attempt.outcome == "live" for attempt in attempts)
        if stored and not 1 <= count <= 1 + history.torn[text] + again:
            yield f"the model sees {text!r} {count} times"
