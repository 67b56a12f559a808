"""The calls that a scripted model got: one record each, and the counts. Owns counting. Knows no dialect.

The counts are evidence for "at most once", so they are taken from the requests alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Outcome = Literal["open", "answered", "failed", "left"]
"""`failed`: an error or a cut that the script asked for. `left`: the peer closed the connection before the end."""

_KEPT_BODIES = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a dialect reads it."""

    session: str | None
    """The runtime's own session id, when the request tells it."""
    agent: str | None
    """The id of the subagent that asks; None is the main conversation."""
    prompts: tuple[str, ...]
    """The user's prompts in the whole conversation, in order."""
    fresh: int
    """How many of them, at the end, stand after the last answer of the model."""
    steps: tuple[int, ...]
    """For each prompt: the model's answers between it and the end of the conversation."""
    mid_turn: tuple[bool, ...]
    """For each prompt: whether it came into a running turn. The first never did."""
    streaming: bool = True
    compaction: bool = False
    model: str = "scripted"
    ids: tuple[str, ...] = ()
    """For each prompt what tells it from all others, where the runtime says it: then its place may change (a compaction)."""


@dataclass(slots=True)
class Call:
    """One call of the model."""

    number: int
    """From 1, in the order of arrival."""
    asked: Asked
    prompt: str | None
    """The prompt that the script answers: the newest, or the one it joins. None when there is none."""
    step: int
    """The model's answers since that prompt."""
    taken_up: tuple[str, ...]
    """Prompts that this call is the first to carry, or carries anew: what `calls` counts."""
    attempt: int
    """From 1: tries of this step of this prompt since it last succeeded. Faults with `times` go by it."""
    retry: bool
    """Whether the runtime repeats the call, at the same position of the conversation, because the one before failed."""
    outcome: Outcome = "open"
    body: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The request; emptied when newer calls have come, because a conversation can be 60 MB."""

    @property
    def fallback(self) -> bool:
        """Whether it repeats a failed streamed call without streaming."""
        return self.retry and not self.asked.streaming

    def summary(self) -> dict[str, Any]:
        """The record as JSON values, without the conversation."""
        return {
            "number": self.number,
            "session": self.asked.session,
            "agent": self.asked.agent,
            "prompt": self.prompt,
            "step": self.step,
            "takenUp": list(self.taken_up),
            "attempt": self.attempt,
            "retry": self.retry,
            "streaming": self.asked.streaming,
            "fallback": self.fallback,
            "compaction": self.asked.compaction,
            "outcome": self.outcome,
        }


def holds(prompt: str, text: str) -> bool:
    """Whether `prompt` is `text`, or holds it as whole lines: Claude Code joins waiting prompts with line feeds.

    White space at the ends does not count, because Claude Code trims some prompts.
    """
    sought, whole = text.strip(), prompt.strip()
    return sought == whole or (sought != "" and f"\n{sought}\n" in f"\n{whole}\n")


class CallLog:
    """All calls of one scripted model."""

    def __init__(self) -> None:
        self.records: list[Call] = []
        self._texts: dict[str, str] = {}  # every call repeats the conversation: each prompt is kept once
        self._asked: set[tuple[str | None, str | None, int | str, str]] = set()
        self._failures: Counter[tuple[object, ...]] = Counter()
        self._failed: set[tuple[object, ...]] = set()
        self._compacted: set[tuple[object, ...]] = set()

    def add(self, asked: Asked, prompt: str | None, step: int, body: Mapping[str, Any]) -> Call:
        """Record a call that has arrived."""
        asked = replace(asked, prompts=tuple(self._texts.setdefault(prompt, prompt) for prompt in asked.prompts))
        place = _place(asked, prompt, step)
        retry = _position(asked) in self._failed or place in self._compacted
        taken_up = self._taken_up(asked, retry=retry)
        attempt = self._failures[place] + 1
        call = Call(len(self.records) + 1, asked, prompt, step, taken_up, attempt, retry, body=body)
        self.records.append(call)
        if len(self.records) > _KEPT_BODIES:
            self.records[-_KEPT_BODIES - 1].body = {}
        return call

    def end(self, call: Call, outcome: Outcome) -> None:
        """Record how a call ended; only the first word on it counts."""
        if call.outcome != "open":
            return
        call.outcome = outcome
        position, place = _position(call.asked), _place(call.asked, call.prompt, call.step)
        if outcome == "failed":
            self._failures[place] += 1
            self._failed.add(position)
            return
        self._failures.pop(place, None)
        self._failed.discard(position)
        self._compacted.discard(place)
        if call.asked.compaction:  # a call that failed before comes again at another position
            self._compacted.update(failed for failed in self._failures if failed[:2] == place[:2])

    def _taken_up(self, asked: Asked, *, retry: bool) -> tuple[str, ...]:
        """The fresh prompts that were never asked before, and the last one whenever no failure explains the call."""
        if asked.compaction or retry:
            return ()
        first = len(asked.prompts) - asked.fresh
        taken: list[str] = []
        for index in range(first, len(asked.prompts)):
            place = (asked.session, asked.agent, asked.ids[index] if asked.ids else index, asked.prompts[index])
            if place not in self._asked or index == len(asked.prompts) - 1:
                taken.append(asked.prompts[index])
            self._asked.add(place)
        return tuple(taken)

    def prompts_seen(self) -> list[str]:
        """The prompts in the order in which the model took them up; one asked twice stands there twice."""
        return [prompt for call in self.records for prompt in call.taken_up]

    def calls(self, text: str) -> int:
        """How often the model was asked to answer the prompt `text`; retries, later steps, compactions do not count."""
        return sum(holds(prompt, text) for prompt in self.prompts_seen())

    def in_conversation(self, text: str) -> int:
        """How often `text` stands as a prompt in the main conversation, as the latest call that was no compaction carried it."""
        for call in reversed(self.records):
            if not call.asked.compaction and call.asked.agent is None:
                return sum(holds(prompt, text) for prompt in call.asked.prompts)
        return 0

    def summary(self) -> dict[str, Any]:
        """Everything as JSON values."""
        prompts = list(dict.fromkeys(self.prompts_seen()))
        return {
            "total": len(self.records),
            "prompts": {prompt: self.calls(prompt) for prompt in prompts},
            "calls": [call.summary() for call in self.records],
        }


def _position(asked: Asked) -> tuple[object, ...]:
    """The identity of a call: the position in the conversation, not the bytes, which may differ."""
    return asked.session, asked.agent, asked.compaction, asked.prompts, asked.steps


def _place(asked: Asked, prompt: str | None, step: int) -> tuple[object, ...]:
    """The place in the script, for one conversation."""
    return asked.session, asked.agent, asked.compaction, prompt, step
