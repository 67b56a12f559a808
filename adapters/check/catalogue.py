"""All rules in the order in which they are checked: first what other rules need, last the rules about the whole run."""

from __future__ import annotations

from collections.abc import Iterator

from adapters.check.rules import (
    envelopes,
    everything,
    handshake,
    key_field,
    permissions,
    prompts,
    replay,
    sessions,
    traces,
    transport,
)
from adapters.check.verdict import Need, Rule, Section


def _needing_prompts(rules: tuple[Rule, ...], *, wanted: bool) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if (rule.needs >= Need.PROMPT) is wanted)


CATALOGUE: tuple[Section, ...] = (
    Section("Initialize", handshake.RULES),
    Section("Sessions", (*sessions.OPENING, *sessions.RULES)),
    Section("JSON-RPC", envelopes.RULES),
    Section("Transport", _needing_prompts(transport.RULES, wanted=False)),
    Section("Prompts", (*prompts.OPENING, *prompts.RULES)),
    Section("Cancelling", prompts.CANCELLING),
    Section("Permissions", permissions.RULES),
    Section("Sessions with prompts", sessions.PROMPTED),
    Section("Replay", replay.RULES),
    Section("Transport while work runs", _needing_prompts(transport.RULES, wanted=True)),
    Section("Idempotency keys: the field", key_field.RULES),
    Section("Idempotency keys: the seven traces and their edges", traces.RULES),
    Section("Everything that was sent", everything.RULES),
)


def rules() -> Iterator[Rule]:
    """Every rule."""
    for section in CATALOGUE:
        yield from section.rules
