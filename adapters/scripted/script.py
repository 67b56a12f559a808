"""The script of a scripted model: what it answers to which prompt. Owns the values and their limits.

Knows nothing of JSON files (`script_file.py`), of HTTP, or of a model API: one script serves every runtime.

A script holds rules. A model call is answered by the first rule that matches the newest prompt of the conversation; the
step of that rule is the number of answers the model has given since that prompt. Values are immutable, so a script can be shared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

LONGEST_WAIT = 3600.0
"""Seconds; the longest delay a script may ask for. A longer one is a typing error (milliseconds written as seconds)."""

MOST_DELTAS = 1_000_000
"""Deltas of one block; far beyond any real answer, low enough that a typing error does not fill memory."""


class ScriptError(ValueError):
    """A script cannot be used. The message is one sentence and names the place in the script."""


def _check(condition: bool, sentence: str) -> None:
    if not condition:
        raise ScriptError(sentence)


def pieces(text: str, count: int) -> list[str]:
    """`text` in `count` parts of nearly one length, fewer when it has fewer characters; none of an empty one."""
    count = min(count, len(text))
    if count == 0:
        return []
    return [text[start:end] for start, end in pairwise(len(text) * number // count for number in range(count + 1))]


def _check_seconds(name: str, value: float) -> None:
    _check(0 <= value <= LONGEST_WAIT, f"{name} must be from 0 to {LONGEST_WAIT:.0f} seconds")


@dataclass(frozen=True, slots=True)
class Spread:
    """How the text of a block is cut into deltas, and where it pauses. Sizes are in characters (code points).

    `repeat` writes the text that often; alone it makes one delta per repetition. `deltas` is the number of deltas,
    `delta_size` the length of each: give one of them or none. `gate` names a gate that is awaited after
    `gate_after` deltas.
    """

    repeat: int = 1
    deltas: int | None = None
    delta_size: int | None = None
    gate: str | None = None
    gate_after: int = 0

    def __post_init__(self) -> None:
        _check(1 <= self.repeat <= MOST_DELTAS, f"repeat must be from 1 to {MOST_DELTAS}")
        _check(self.deltas is None or self.delta_size is None, "give deltas or delta_size, not both")
        _check(self.deltas is None or 1 <= self.deltas <= MOST_DELTAS, f"deltas must be from 1 to {MOST_DELTAS}")
        _check(self.delta_size is None or self.delta_size >= 1, "delta_size must be at least 1")
        _check(self.gate_after >= 0, "gate_after must be at least 0")
        _check(self.gate is not None or self.gate_after == 0, "gate_after needs a gate")

    def cut(self, text: str) -> list[str]:
        """The deltas of `text`; together they are the text `repeat` times. An empty text gives no delta."""
        if self.deltas is None and self.delta_size is None:
            return [text] * self.repeat if text else []
        whole = text * self.repeat
        if self.delta_size is not None:
            return [whole[start : start + self.delta_size] for start in range(0, len(whole), self.delta_size)]
        return pieces(whole, self.deltas or 1)

    def check(self, text: str) -> None:
        """Raise `ScriptError` when `text` is too short to be cut so."""
        length = len(text) * self.repeat
        _check(
            self.deltas is None or self.deltas <= length, f"deltas must not exceed the {length} characters of the text"
        )


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the user."""

    text: str
    spread: Spread = field(default_factory=Spread)

    def __post_init__(self) -> None:
        self.spread.check(self.text)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Thinking (Claude Code) or a reasoning summary (Codex)."""

    thinking: str
    spread: Spread = field(default_factory=Spread)

    def __post_init__(self) -> None:
        self.spread.check(self.thinking)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of one of the runtime's tools. The names and inputs are the runtime's own ("Bash", "exec_command").

    `input` is an object, or a string for Codex's free-form tools. `namespace` is for Codex's MCP tools. A call without
    an `id` gets a fresh one, as from a real model.
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None
    namespace: str | None = None
    deltas: int = 1
    """Pieces in which the input is streamed; no more than it has characters."""
    gate: str | None = None

    def __post_init__(self) -> None:
        _check(bool(self.name), "name must not be empty")
        _check(self.id != "", "id must not be empty")
        _check(1 <= self.deltas <= MOST_DELTAS, f"deltas must be from 1 to {MOST_DELTAS}")


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell command through whatever shell tool the runtime has, so that one script serves every runtime."""

    command: str
    gate: str | None = None

    def __post_init__(self) -> None:
        _check(bool(self.command), "command must not be empty")


Block = Text | Thinking | ToolUse | Shell


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """The call is answered with an HTTP error. `times`: for the first calls of this step only; None is always.

    `type` None means the API's usual error type for the status. `retry_after` is sent as the header, in seconds.
    """

    status: int
    type: str | None = None
    message: str = "scripted failure"
    times: int | None = None
    retry_after: float | None = None

    def __post_init__(self) -> None:
        _check(400 <= self.status <= 599, "status must be from 400 to 599")  # noqa: PLR2004 - HTTP error statuses
        _check(self.times is None or self.times >= 1, "times must be at least 1")
        if self.retry_after is not None:
            _check_seconds("retry_after", self.retry_after)


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """A streamed answer ends in an error event after `after_events` events. Answers in one piece are not touched."""

    type: str = "api_error"
    message: str = "scripted failure"
    after_events: int = 1
    times: int | None = None

    def __post_init__(self) -> None:
        _check(self.after_events >= 0, "after_events must be at least 0")
        _check(self.times is None or self.times >= 1, "times must be at least 1")


@dataclass(frozen=True, slots=True)
class Drop:
    """A streamed answer's connection is cut after so many events or bytes of the event stream.

    A client forgets what it has not read when the connection breaks: `gate` names a gate that is awaited before the cut;
    without one the client gets a tenth of a second to read.
    """

    after_events: int | None = None
    after_bytes: int | None = None
    times: int | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        one = (self.after_events is None) != (self.after_bytes is None)
        _check(one, "a drop needs either after_events or after_bytes")
        _check((self.after_events or 0) >= 0, "after_events must be at least 0")
        _check((self.after_bytes or 0) >= 0, "after_bytes must be at least 0")
        _check(self.times is None or self.times >= 1, "times must be at least 1")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. A large `input_tokens` makes a runtime compact the conversation."""

    input_tokens: int = 10
    output_tokens: int = 5
    cached_input_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "cached_input_tokens"):
            _check(getattr(self, name) >= 0, f"{name} must be at least 0")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model: one call.

    It waits for `gate`, then `delay` seconds, then fails or streams its blocks, `delta_delay` seconds between
    deltas.
    `stop_reason` None means "tool_use" when a tool is called, else "end_turn".
    """

    blocks: tuple[Block, ...] = ()
    delay: float = 0.0
    delta_delay: float = 0.0
    gate: str | None = None
    failure: HttpFailure | None = None
    stream_failure: StreamFailure | None = None
    drop: Drop | None = None
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        _check_seconds("delay", self.delay)
        _check_seconds("delta_delay", self.delta_delay)

    @property
    def final_stop_reason(self) -> str:
        """The stop reason in the words of the Messages API."""
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(isinstance(block, ToolUse | Shell) for block in self.blocks) else "end_turn"


def say(text: str) -> Answer:
    """An answer of one text block."""
    return Answer((Text(text),))


@dataclass(frozen=True, slots=True)
class Rule:
    """Answers to the prompts it matches.

    Exactly one of `exact` (white space at the ends does not count), `contains` and `regex` (searched); all are case-sensitive.
    `steps[n]` is the answer after n others: a tool's result asks for the next. With `joins`, a prompt that comes into a running
    turn starts no steps of its own: those of the prompt before go on.
    """

    steps: tuple[Answer, ...]
    exact: str | None = None
    contains: str | None = None
    regex: str | None = None
    joins: bool = False

    def __post_init__(self) -> None:
        given = [value for value in (self.exact, self.contains, self.regex) if value is not None]
        _check(len(given) == 1, "a rule needs exactly one of exact, contains and regex")
        _check(bool(self.steps), "steps must not be empty")
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise ScriptError(f"regex is not a regular expression ({error})") from None

    def matches(self, prompt: str) -> bool:
        """Whether the prompt is one of this rule."""
        if self.exact is not None:
            return prompt.strip() == self.exact.strip()
        if self.contains is not None:
            return self.contains in prompt
        return re.search(self.regex or "", prompt) is not None


@dataclass(frozen=True, slots=True)
class GateOpening:
    """What opens a gate without a test: a file that exists, or the seconds since the answer reached the gate."""

    file: str | None = None
    """An absolute path."""
    seconds: float | None = None

    def __post_init__(self) -> None:
        _check((self.file is None) != (self.seconds is None), "a gate needs either file or seconds")
        if self.seconds is not None:
            _check_seconds("seconds", self.seconds)


DEFAULT_TEXT = "This is a scripted answer; no model was asked."
"""The answer to prompts without a rule. It repeats nothing of the prompt."""

_DEFAULT = say(DEFAULT_TEXT)
_DONE = say("Done.")
_SUMMARY = say("<analysis>Nothing to weigh.</analysis>\n<summary>The conversation so far was scripted.</summary>")


@dataclass(frozen=True, slots=True)
class Script:
    """Everything a scripted model answers.

    `default` are the steps for prompts that no rule matches, `after_steps` answers calls beyond a rule's last step, and
    `compaction` the request for a summary of the conversation.
    """

    rules: tuple[Rule, ...] = ()
    default: tuple[Answer, ...] = (_DEFAULT,)
    after_steps: Answer = _DONE
    compaction: Answer = _SUMMARY
    gates: Mapping[str, GateOpening] = field(default_factory=dict[str, GateOpening])

    def __post_init__(self) -> None:
        _check(bool(self.default), "default must not be empty")

    def rule(self, prompt: str) -> Rule | None:
        """The first rule that matches the prompt; None means the default."""
        return next((rule for rule in self.rules if rule.matches(prompt)), None)

    def answer(self, prompt: str | None, step: int) -> Answer:
        """The answer to the prompt (None: a call without any prompt) after `step` others."""
        rule = None if prompt is None else self.rule(prompt)
        steps = self.default if rule is None else rule.steps
        return steps[step] if step < len(steps) else self.after_steps
