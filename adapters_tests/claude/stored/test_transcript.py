"""Stored user message ids: the rule, the incremental read, and every way in which a file can be odd."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.claude.stored.session_files import Files, find_files
from adapters.claude.stored.transcript import Transcript, message_ids_of, parse_line

SESSION = "0f1e2d3c-4b5a-4968-8776-655443322110"

PROMPT = {"type": "user", "uuid": "p1", "message": {"role": "user", "content": "hello"}}
MERGED = {"type": "user", "uuid": "p3", "mergedSendUuids": ["p2"], "message": {"role": "user", "content": "a\nb"}}
FOLDED = {
    "type": "attachment",
    "uuid": "x",
    "attachment": {"type": "queued_command", "source_uuid": "p4", "prompt": "c"},
}
LOCAL = {"type": "system", "subtype": "local_command", "uuid": "y", "submitUuid": "p5", "content": "no such"}
TOOL_RESULT = {
    "type": "user",
    "uuid": "r1",
    "toolUseResult": {"stdout": "out"},
    "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
}


def line(entry: Any) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def transcript_of(path: Path) -> Transcript:
    return Transcript(lambda: Files(path if path.exists() else None))


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "ids"),
    [
        (PROMPT, {"p1"}),
        (MERGED, {"p2", "p3"}),
        (FOLDED, {"p4"}),
        (LOCAL, {"p5"}),
        (TOOL_RESULT, set()),
        ({**TOOL_RESULT, "mergedSendUuids": ["p2"]}, {"p2"}),
        ({**PROMPT, "isMeta": True}, set()),
        ({**PROMPT, "isSidechain": True}, set()),
        ({**PROMPT, "isCompactSummary": True}, set()),
        ({**PROMPT, "origin": {"kind": "task-notification"}}, set()),
        ({**PROMPT, "origin": {"kind": "human"}}, {"p1"}),
        ({**PROMPT, "uuid": 7}, set()),
        ({**PROMPT, "uuid": ""}, set()),
        ({**PROMPT, "mergedSendUuids": "p2"}, {"p1"}),
        ({**PROMPT, "mergedSendUuids": [None, 3, "p2"]}, {"p1", "p2"}),
        ({**PROMPT, "message": "odd"}, {"p1"}),
        ({"type": "attachment", "attachment": {"type": "queued_command", "source_uuid": None}}, set()),
        ({"type": "attachment", "attachment": {"type": "file", "source_uuid": "p"}}, set()),
        ({"type": "queue-operation", "operation": "remove", "commandUuid": "p1"}, set()),
        ({"type": "assistant", "uuid": "a", "parentUuid": "p1"}, set()),
        ({"type": ["user"], "uuid": "p1"}, set()),
        ({}, set()),
    ],
)
def test_ids_of_an_entry(entry: dict[str, Any], ids: set[str]) -> None:
    """ADP-1, ADP-5: folded and merged prompts count, the runtime's own user entries and withdrawn ids do not."""
    assert message_ids_of(entry) == ids


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from([PROMPT, MERGED, FOLDED, LOCAL, TOOL_RESULT]), st.data())
def test_any_shape_costs_at_most_its_entry(entry: dict[str, Any], data: st.DataObject) -> None:
    """D11: a wrong type anywhere in an entry raises nothing."""
    broken = dict(entry)
    broken[data.draw(st.sampled_from(sorted(entry)))] = data.draw(JSON)
    assert all(isinstance(found, str) for found in message_ids_of(broken))


@given(st.lists(st.sampled_from([PROMPT, MERGED, FOLDED, LOCAL, TOOL_RESULT]), max_size=6), JSON)
@settings(max_examples=60)
def test_cheap_filter_agrees_with_the_rule(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any], odd: Any
) -> None:
    """D4: looking at bytes first never loses an id; JSON with blanks in it is as good."""
    path = tmp_path_factory.mktemp("t") / "s.jsonl"
    entries = [*entries, {**MERGED, "extra": odd}, odd]
    for write in (line, lambda entry: json.dumps(entry, indent=None, ensure_ascii=True).encode() + b"\n"):
        path.write_bytes(b"".join(write(entry) for entry in entries))
        transcript = transcript_of(path)
        transcript.refresh()
        expected = set[str]().union(*(message_ids_of(entry) for entry in entries if isinstance(entry, dict)))
        assert set(transcript.user_message_ids) == expected


# --- reading ---------------------------------------------------------------------------------------------------------


def test_reads_only_what_was_appended(tmp_path: Path) -> None:
    """D4: a later look reads the new bytes only, and reports the new entries once."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(PROMPT) + line(TOOL_RESULT))
    transcript = transcript_of(path)
    assert transcript.refresh().new_entry_uuids == frozenset()
    assert transcript.holds("p1")
    with path.open("ab") as file:
        file.write(line(FOLDED) + line({"type": "assistant", "uuid": "a1"}))
    assert transcript.refresh().new_entry_uuids == {"x", "a1"}
    assert transcript.holds("p4")
    assert transcript.refresh().new_entry_uuids == frozenset()


def test_never_stored_is_empty_and_then_found(tmp_path: Path) -> None:
    """A session without a file holds nothing; the file that appears later is read from its start, all of it new."""
    path = tmp_path / "s.jsonl"
    transcript = transcript_of(path)
    transcript.mark()
    assert transcript.refresh().new_entry_uuids == frozenset()
    assert not transcript.user_message_ids
    path.write_bytes(line(PROMPT))
    assert transcript.refresh().new_entry_uuids == {"p1"}
    assert transcript.holds("p1")


def test_mark_separates_known_from_foreign(tmp_path: Path) -> None:
    """D6: what was stored before the runtime started is known to it; what came later is reported."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(PROMPT))
    transcript = transcript_of(path)
    transcript.mark()
    with path.open("ab") as file:
        file.write(line(MERGED))
    assert transcript.refresh().new_entry_uuids == {"p3"}
    assert set(transcript.user_message_ids) == {"p1", "p2", "p3"}
    with path.open("ab") as file:
        file.write(line(FOLDED))
    transcript.mark()
    with path.open("ab") as file:
        file.write(line(LOCAL))
    assert transcript.refresh().new_entry_uuids == {"y"}
    assert transcript.holds("p4")


def test_torn_line_counts_when_it_is_completed(tmp_path: Path) -> None:
    """A half-written last line is read again; completed, it counts and is reported once."""
    path = tmp_path / "s.jsonl"
    whole = line(MERGED)
    path.write_bytes(line(PROMPT) + whole[:30])
    transcript = transcript_of(path)
    transcript.refresh()
    assert set(transcript.user_message_ids) == {"p1"}
    with path.open("ab") as file:
        file.write(whole[30:])
    assert transcript.refresh().new_entry_uuids == {"p3"}
    assert transcript.holds("p2")


def test_whole_line_without_newline_counts(tmp_path: Path) -> None:
    """A kill between a line and its newline leaves a stored message, reported once; the next line parses."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(PROMPT))
    transcript = transcript_of(path)
    transcript.refresh()
    with path.open("ab") as file:
        file.write(line(MERGED)[:-1])
    assert transcript.refresh().new_entry_uuids == {"p3"}
    assert transcript.holds("p2")
    assert transcript.refresh().new_entry_uuids == frozenset()
    with path.open("ab") as file:
        file.write(b"\n" + line(FOLDED))
    assert transcript.refresh().new_entry_uuids == {"x"}


def test_torn_line_of_a_dead_process_is_not_news(tmp_path: Path) -> None:
    """The newline with which the next process starts does not turn an old torn line into a foreign entry."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(MERGED)[:-1])
    transcript = transcript_of(path)
    transcript.mark()
    with path.open("ab") as file:
        file.write(b"\n" + line(PROMPT))
    assert transcript.refresh().new_entry_uuids == {"p1"}


def _replace(path: Path, data: bytes) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(data)
    other.replace(path)


def _rewrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize("change", [_replace, _rewrite])
def test_replaced_or_rewritten_file_is_read_again(tmp_path: Path, change: Callable[[Path, bytes], None]) -> None:
    """D4: another file under the name, a shorter one, or other bytes in the same one: the old ids are gone."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(PROMPT) * 3)
    transcript = transcript_of(path)
    transcript.refresh()
    change(path, line(MERGED))
    refresh = transcript.refresh()
    assert refresh.replaced
    assert refresh.new_entry_uuids == {"p3"}
    assert set(transcript.user_message_ids) == {"p2", "p3"}
    change(path, line(FOLDED) * 40)  # longer than before
    assert transcript.refresh().replaced
    assert set(transcript.user_message_ids) == {"p4"}
    assert not transcript.refresh().replaced


def test_file_that_moved_is_followed(tmp_path: Path) -> None:
    """A project folder renamed under us is no loss: the file is found again, and read on where we were."""
    old, new = tmp_path / "projects" / "a", tmp_path / "projects" / "b"
    old.mkdir(parents=True)
    (old / f"{SESSION}.jsonl").write_bytes(line(PROMPT))
    transcript = Transcript(lambda: find_files(tmp_path, SESSION, "/elsewhere"))
    transcript.refresh()
    old.rename(new)
    with (new / f"{SESSION}.jsonl").open("ab") as file:
        file.write(line(MERGED))
    refresh = transcript.refresh()
    assert (refresh.new_entry_uuids, refresh.replaced) == ({"p3"}, False)


def test_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """ADP-6: a store that was there and is not any more is never "unused"."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(PROMPT))
    transcript = transcript_of(path)
    transcript.refresh()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        transcript.refresh()
    path.write_bytes(line(MERGED))
    assert transcript.refresh().replaced


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """ADP-6: what cannot be read raises, every time, and works again once it can be read."""
    path = tmp_path / "s.jsonl"
    path.mkdir()
    transcript = Transcript(lambda: Files(path))
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            transcript.refresh()
    path.rmdir()
    path.write_bytes(line(PROMPT))
    transcript.refresh()
    assert transcript.holds("p1")


def test_odd_bytes_cost_only_their_line(tmp_path: Path) -> None:
    """D11: garbage, bad UTF-8, U+2028, lone surrogates, deep nesting, NUL, CRLF: every good line counts."""
    separators = json.dumps({**MERGED, "message": {"content": "a\u2028b\u0085c\x1cd"}}, ensure_ascii=False).encode()
    lone = b'{"type":"user","uuid":"p6","message":{"role":"user","content":"\\udcb2"}}'
    bad_utf8 = b'{"type":"user","uuid":"p7","message":{"role":"user","content":"\xff\xfe"}}'
    lines = [
        b"Welcome back to user",
        b"",
        b"[1,2]",
        b"null",
        b'"user"',
        b"[" * 200_000 + b'"user"',
        b"\x00" * 500 + b'"user"',
        separators,
        lone,
        bad_utf8,
        b"\xef\xbb\xbf" + line(PROMPT)[:-1] + b"\r",
        line(FOLDED)[:-1],
        line(FOLDED)[:-1],
        b'{"type":"user","uuid":"never',
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(lines))
    transcript = transcript_of(path)
    transcript.refresh()
    assert set(transcript.user_message_ids) == {"p1", "p2", "p3", "p4", "p6", "p7"}


def test_huge_line_is_read_and_memory_stays_flat(tmp_path: Path) -> None:
    """D11: a 40 MiB line is normal; looking at many megabytes keeps only the longest line in memory."""
    path = tmp_path / "s.jsonl"
    big = {"type": "user", "uuid": "big", "message": {"role": "user", "content": "x" * (40 * 1024 * 1024)}}
    path.write_bytes(line(big) + line(PROMPT))
    transcript = transcript_of(path)
    transcript.refresh()
    assert set(transcript.user_message_ids) == {"big", "p1"}
    filler = line({"type": "assistant", "uuid": "a", "message": {"content": "y" * 100_000}})
    path.write_bytes(filler * 300 + line(PROMPT))
    transcript = transcript_of(path)
    tracemalloc.start()
    try:
        transcript.refresh()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcript.holds("p1")
    assert peak < 4 * 1024 * 1024


@given(st.lists(st.sampled_from([PROMPT, MERGED, FOLDED, TOOL_RESULT]), max_size=5), st.data())
@settings(max_examples=60)
def test_any_cut_into_appends_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any], data: st.DataObject
) -> None:
    """Whatever the moments of looking, ids and news are those of the whole file, each entry reported once."""
    path = tmp_path_factory.mktemp("t") / "s.jsonl"
    content = b"".join(line({**entry, "n": n, "uuid": f"{entry['uuid']}-{n}"}) for n, entry in enumerate(entries))
    transcript = transcript_of(path)
    transcript.mark()
    seen: list[str] = []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[start:end])
        seen.extend(transcript.refresh().new_entry_uuids)
    assert sorted(seen) == sorted(f"{entry['uuid']}-{n}" for n, entry in enumerate(entries))
    whole = transcript_of(path)
    whole.refresh()
    assert set(transcript.user_message_ids) == set(whole.user_message_ids)


# --- copies ----------------------------------------------------------------------------------------------------------


def test_ids_in_copies_count_and_their_entries_are_no_news(tmp_path: Path) -> None:
    """What a copy holds was stored once; nobody is told of its entries, for the runtime does not work with it."""
    used, copy = tmp_path / "a", tmp_path / "b"
    used.write_bytes(line(PROMPT))
    copy.write_bytes(line(MERGED))
    transcript = Transcript(lambda: Files(used, tuple(path for path in (copy,) if path.exists())))
    assert transcript.mark()
    assert transcript.refresh().new_entry_uuids == frozenset()
    assert set(transcript.user_message_ids) == {"p1", "p2", "p3"}
    with copy.open("ab") as file:
        file.write(line(FOLDED))
    transcript.mark()
    assert transcript.holds("p4")
    copy.unlink()
    transcript.mark()
    assert set(transcript.user_message_ids) == {"p1"}


def test_a_copy_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """ADP-6: it may hold what the other file lacks."""
    used, copy = tmp_path / "a", tmp_path / "b"
    used.write_bytes(line(PROMPT))
    copy.mkdir()
    with pytest.raises(IsADirectoryError):
        Transcript(lambda: Files(used, (copy,))).refresh()


def test_the_file_that_the_runtime_names_is_the_one_that_is_read(tmp_path: Path) -> None:
    """Whatever the rule says; ids of the other one still count, and what the named one holds already is no news."""
    read, named = tmp_path / "a", tmp_path / "b"
    read.write_bytes(line(PROMPT))
    named.write_bytes(line(MERGED))
    transcript = Transcript(lambda: Files(read))
    transcript.mark()
    transcript.refresh()
    transcript.name_file(str(named))
    assert transcript.path() == named
    assert transcript.refresh().new_entry_uuids == frozenset()
    assert set(transcript.user_message_ids) == {"p1", "p2", "p3"}
    with named.open("ab") as file:
        file.write(line(FOLDED))
    assert transcript.refresh().new_entry_uuids == {"x"}


def test_a_file_that_is_named_before_any_was_read_is_not_forgotten(tmp_path: Path) -> None:
    read, named = tmp_path / "a", tmp_path / "b"
    transcript = Transcript(lambda: Files(read if read.exists() else None))
    transcript.refresh()
    transcript.name_file(str(named))
    read.write_bytes(line(PROMPT))
    named.write_bytes(line(MERGED))
    transcript.refresh()
    assert transcript.path() == named
    transcript.refresh()
    assert set(transcript.user_message_ids) == {"p1", "p2", "p3"}


@pytest.mark.parametrize("how", ["missing", "a link"])
def test_another_name_of_the_same_file_changes_nothing(tmp_path: Path, how: str) -> None:
    read = tmp_path / "a"
    read.write_bytes(line(PROMPT))
    transcript = Transcript(lambda: Files(read))
    transcript.mark()
    transcript.refresh()
    if how == "a link":
        (tmp_path / "b").symlink_to(read)
    transcript.name_file(str(tmp_path / "b"))
    with read.open("ab") as file:
        file.write(line(FOLDED))
    assert transcript.refresh().new_entry_uuids == {"x"}
    assert transcript.path() == read


@given(st.binary(max_size=80))
def test_parse_line_never_raises(data: bytes) -> None:
    """D11."""
    entry = parse_line(data)
    assert entry is None or isinstance(entry, dict)


@pytest.mark.parametrize("what", ["pipe", "folder", "link to a pipe"])
def test_a_file_that_became_something_else_is_not_waited_for(tmp_path: Path, what: str) -> None:
    """A pipe that nobody writes to would be opened for ever."""
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(line(PROMPT))
    transcript = transcript_of(path)
    transcript.refresh()
    path.unlink()
    if what == "folder":
        path.mkdir()
    else:
        os.mkfifo(pipe := path if what == "pipe" else tmp_path / "pipe")
        if pipe != path:
            path.symlink_to(pipe)
    with pytest.raises(OSError, match=r"it is not a file|Is a directory"):
        transcript.refresh()
    path.rmdir() if what == "folder" else path.unlink()
    path.write_bytes(line(PROMPT) + line(MERGED))
    transcript.refresh()
    assert transcript.holds("p3")
