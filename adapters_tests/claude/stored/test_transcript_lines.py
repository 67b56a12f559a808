"""The cheap look at a stored line never passes over one that holds a message (ADP-5)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.claude.stored import transcript
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


NEEDLES = [
    "tool_use_id",
    "toolUseResult",
    "tool_result",
    "user",
    "type",
    "queued_command",
    "mergedSendUuids",
    "assistant",
]
LOOKALIKES = [
    '{"type":"assistant"}',
    ',"type":"assistant"',
    '"tool_use_id":"t","toolUseResult":{}',
    '[{"tool_use_id":"t","type":"tool_result","content":"x"}]',
    '\\u0075ser", "\\\\',
]
TEXTS = st.sampled_from(NEEDLES + LOOKALIKES) | st.text(st.characters(exclude_categories=()), max_size=8)
IDS = TEXTS | st.sampled_from(["u1", "\u00e9", "\ud800", "a b", '"'])
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "tool_result", "tool_use_id": "t", "content": text}, TEXTS),
    st.builds(lambda text: {"tool_use_id": text, "type": "tool_result"}, TEXTS),
    TEXTS,
)
PROMPTS = st.fixed_dictionaries(
    {
        "type": st.just("user"),
        "uuid": IDS,
        "message": st.builds(
            lambda content: {"role": "user", "content": content}, TEXTS | st.lists(BLOCKS, max_size=4)
        ),
    },
    optional={
        "toolUseResult": BLOCKS,
        "mergedSendUuids": st.lists(IDS, max_size=2),
        "cwd": TEXTS,
        "isMeta": st.booleans(),
    },
)
FOLDED = st.builds(
    lambda uuid, text: {
        "type": "attachment",
        "attachment": {"type": "queued_command", "source_uuid": uuid, "prompt": text},
    },
    IDS,
    TEXTS,
)
UNAVAILABLE = st.builds(lambda uuid, text: {"type": "system", "submitUuid": uuid, "content": text}, IDS, TEXTS)
STORED = st.one_of(PROMPTS, FOLDED, UNAVAILABLE, ENTRIES)


def shuffled(draw: st.DrawFn, value: Any) -> Any:
    """The same value with the members of each object in another order."""
    if isinstance(value, dict):
        return {name: shuffled(draw, value[name]) for name in draw(st.permutations(sorted(value)))}
    return [shuffled(draw, item) for item in value] if isinstance(value, list) else value


@st.composite
def spelled(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """A stored entry and one of the lines that mean it: blanks, order, escapes and encoding are the writer's choice."""
    entry = draw(STORED)
    if draw(st.booleans()):
        entry = shuffled(draw, entry)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :  ")]))
    text = json.dumps(entry, separators=separators, ensure_ascii=draw(st.booleans()))
    escaped = draw(st.sampled_from(["", "u", "_", "tU", "aeiou", "y"]))
    # A letter behind an odd number of backslashes is part of an escape already.
    text = re.sub(
        r"(\\\\|\\u....|\\.)|([A-Za-z_])",
        lambda found: (
            found[1]
            or (f"\\u{ord(found[2]):04x}" if found[2] in escaped and _in_string(text, found.start()) else found[2])
        ),
        text,
    )
    line = text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"\n", b"\r\n", b""]))
    return entry, draw(st.sampled_from([b"", b" ", b"\xef\xbb\xbf"])) + line


def _in_string(text: str, at: int) -> bool:
    """Whether a place of a JSON text is inside a string: behind an odd number of bare quotes."""
    return re.sub(r"\\.", "", text[:at]).count('"') % 2 == 1


@given(spelled())
@settings(max_examples=500)
def test_no_spelling_and_no_text_hides_a_message(stored: tuple[dict[str, Any], bytes]) -> None:
    """What a user wrote, and how the line is spelled, decide at most whether the line is parsed."""
    entry, line = stored
    parsed = transcript.parse_line(line)
    assert parsed == entry
    assert transcript._may_hold_ids(line) or not transcript.message_ids_of(entry)


@pytest.mark.parametrize(
    "text", [["x", "tool_use_id", "toolUseResult"], ["tool_result", "tool_use_id", '"toolUseResult":1']]
)
def test_a_prompt_in_the_words_of_a_tools_result_is_a_prompt(text: list[str]) -> None:
    entry = {
        "type": "user",
        "uuid": "u",
        "message": {"role": "user", "content": [{"type": "text", "text": t} for t in text]},
    }
    assert transcript._may_hold_ids(compact(entry))


RESULTS = st.fixed_dictionaries(
    {"tool_use_id": TEXTS, "type": st.just("tool_result")},
    optional={"content": TEXTS | st.lists(VALUES, max_size=2) | VALUES, "is_error": st.booleans()},
)


@given(first=RESULTS, rest=st.lists(BLOCKS | VALUES, max_size=2), more=st.booleans())
@settings(max_examples=500)
def test_what_a_user_says_beside_a_tools_result_is_a_message(first: Any, rest: list[Any], more: bool) -> None:
    """As Claude Code orders the members of an entry."""
    message = {"role": "user", "content": [first, *rest]}
    entry = {"parentUuid": None, "isSidechain": False, "message": message, "type": "user", "uuid": "u"}
    if more:
        entry["toolUseResult"] = rest
    assert transcript._may_hold_ids(compact(entry)) or not transcript.message_ids_of(entry)


def test_nearly_all_recorded_results_of_tools_are_known_at_once() -> None:
    """They are most of what is not the assistant's: to parse them all would double the time of a look."""
    entries = [entry for name in NAMES for entry in json_lines(Scenario.load(name).stored)]
    results = [entry for entry in entries if entry["type"] == "user" and transcript.holds_tool_result(entry)]
    assert len(results) > 5
    parsed = [entry for entry in results if transcript._may_hold_ids(compact(entry))]
    assert len(parsed) <= len(results) // 20  # one has a list in `toolUseResult`


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
