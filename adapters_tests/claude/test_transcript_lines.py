"""The cheap look at a stored line never passes over one that holds a message (ADP-5)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.claude import transcript
from adapters_tests.claude.recorded import NAMES, Scenario, json_lines

TYPES = st.sampled_from(["user", "assistant", "attachment", "system", "queued_command", "text", 'x","type":"assistant'])
SCALARS = st.none() | st.booleans() | st.integers() | TYPES | st.text(max_size=5)
NAMES_OF_MEMBERS = st.sampled_from(
    [
        *("type", "uuid", "mergedSendUuids", "submitUuid", "source_uuid", "attachment", "message", "content", "role"),
        *("tool_use_id", "toolUseResult", "isMeta", 'odd","type'),
    ]
)


def members(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES_OF_MEMBERS, inner, max_size=5) | st.lists(inner, max_size=3)


VALUES = st.recursive(SCALARS, members, max_leaves=8)
ENTRIES = st.fixed_dictionaries({"type": TYPES}).flatmap(
    lambda typed: st.tuples(
        st.dictionaries(NAMES_OF_MEMBERS, VALUES, max_size=4), st.dictionaries(NAMES_OF_MEMBERS, VALUES, max_size=4)
    ).map(lambda around: {**around[0], **typed, **around[1]})
)


def compact(entry: Any) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


@given(entry=ENTRIES, cut=st.integers(0, 40))
def test_what_is_passed_over_holds_no_message(entry: dict[str, Any], cut: int) -> None:
    """Whatever the members are, in whatever order, whole or torn."""
    line = compact(entry)
    for seen in (line, line[: len(line) - cut], line.replace(b":", b" : ")):
        parsed = transcript.parse_line(seen)
        assert transcript._may_hold_ids(seen) or not transcript.message_ids_of(parsed or {})


@given(entry=ENTRIES)
def test_only_the_assistants_own_entries_are_known_by_their_end(entry: dict[str, Any]) -> None:
    """An inner object of that type, or a text that looks like it, is not taken for the entry."""
    if transcript._is_of_the_assistant(compact(entry)):
        assert entry["type"] == "assistant"


def test_the_recorded_entries_of_the_assistant_are_known_by_their_end() -> None:
    """So it is worth it: with Claude Code 2.1.332 nearly all of them."""
    entries = [entry for name in NAMES for entry in json_lines(Scenario.load(name).stored)]
    known = [entry["type"] for entry in entries if transcript._is_of_the_assistant(compact(entry))]
    assert set(known) == {"assistant"}
    assert len(known) > 0.9 * sum(entry["type"] == "assistant" for entry in entries)
