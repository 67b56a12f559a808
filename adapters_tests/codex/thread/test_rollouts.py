"""The files of a thread as a witness: what counts, what does not, and what cannot be told."""

from __future__ import annotations

import json
import os
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.codex.thread import rollouts
from adapters.codex.thread.rollouts import Filed, Tail, Where, may_name_a_message

T = "01a22e8d-4fd5-7a52-8d29-35a6453865c5"
FIRST, SECOND = "01a22e8d-50f9-7963-99c5-53820847432b", "01a22e8d-5210-7e02-a3b0-c9e2bcc9ce02"
FORK = "01a22e8d-50a1-78f0-86f8-1e43e8e8ad42"


def name(segment: str = "", thread: str = T) -> str:
    return f"rollout-2026-11-30T22-22-22-{thread}{'_' if segment else ''}{segment}.jsonl"


def line(payload: dict[str, Any], kind: str = "event_msg") -> bytes:
    return json.dumps({"timestamp": "now", "type": kind, "payload": payload}, separators=(",", ":")).encode() + b"\n"


def head(base: str = "", end: int = 0, **fields: Any) -> bytes:
    points = {"history_base": {"thread_id": base, "end_ordinal_exclusive": 1, "end_byte_offset": end}} if base else {}
    return line({"id": T, **fields, **points}, "session_meta")


def message(message_id: str) -> bytes:
    item = {"type": "UserMessage", "id": f"item-{message_id}", "client_id": message_id, "content": []}
    return line({"type": "item_completed", "thread_id": T, "turn_id": "N", "item": item})


def put(home: Path, file: str, *lines: bytes, folder: str = "sessions/2026/11/30") -> Path:
    path = home / folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def read(home: Path, path: Path) -> Filed:
    return rollouts.read(home, T, str(path))


def wheres(filed: Filed, ids: str) -> list[Where]:
    return [filed.where(message_id) for message_id in ids]


# --- which files ---------------------------------------------------------------------------------------------------------


def test_a_thread_in_one_file(tmp_path: Path) -> None:
    """Both forms of a stored message count; a text that looks like one does not, nor does another thread's."""
    legacy = line({"type": "user_message", "client_id": "b", "message": "hi"})
    quoted = line({"type": "agent_message", "message": message("c").decode()})
    other = line({"type": "mcp", "result": {"client_id": "d"}})
    path = put(tmp_path, name(), head(), message("a"), legacy, quoted, other)
    put(tmp_path, name(thread=FORK), head(), message("e"))
    assert read(tmp_path, path) == Filed(held=frozenset("ab"))


def test_what_was_reverted(tmp_path: Path) -> None:
    """A segment goes on from a byte of an older file; what follows there was taken back, and so was a segment left aside."""
    kept = head() + message("a")
    put(tmp_path, name(), kept, message("b"))
    put(tmp_path, name(FIRST), head(T, len(kept + message("b"))), message("c"))
    path = put(tmp_path, name(SECOND), head(T, len(kept)), message("d"))
    assert wheres(read(tmp_path, path), "abcdx") == [
        Where.HELD,
        Where.UNDONE,
        Where.UNDONE,
        Where.HELD,
        Where.NOWHERE,
    ]


def test_a_thread_that_was_loaded_at_an_older_state(tmp_path: Path) -> None:
    """A newer segment than the loaded one, or a copy that holds more, is not taken for a revert."""
    path = put(tmp_path, name(), head(), message("a"))
    put(tmp_path, name(FIRST), head(T, path.stat().st_size), message("b"))
    put(tmp_path, name(), head(), message("a"), message("c"), folder="archived_sessions")
    assert wheres(read(tmp_path, path), "abc") == [Where.HELD, Where.ASTRAY, Where.ASTRAY]


def test_what_a_replay_lacks(tmp_path: Path) -> None:
    """REPLAY-2: what the thread consists of, and what a newer state of it held; what was reverted is not missing."""
    kept = head() + message("a")
    first = put(tmp_path, name(), kept, message("b"))
    second = put(tmp_path, name(FIRST), head(T, len(kept)), message("c"))

    def lacks(path: Path, shown: str) -> set[str]:
        parts = rollouts.chain(tmp_path, T, str(path))
        return rollouts.missing(tmp_path, T, parts, {f"item-{message_id}" for message_id in shown})

    assert lacks(second, "ac") == set()
    assert lacks(second, "c") == {"item-a"}
    assert lacks(first, "ab") == {"item-c"}
    put(tmp_path, name(), kept, message("b"), message("d"), folder="archived_sessions")
    assert lacks(second, "ac") == {"item-d"}


def test_what_a_fork_inherits_is_not_its_own(tmp_path: Path) -> None:
    """Ids are derived from the session too; whether the other thread's files are there does not matter for a key."""
    other = put(tmp_path, name(thread=FORK), head(), message("a"))
    path = put(tmp_path, name(), head(FORK, other.stat().st_size, forked_from_id=FORK), message("b"))
    assert read(tmp_path, path) == Filed(held=frozenset("b"))
    assert rollouts.said(rollouts.chain(tmp_path, T, str(path))) == {"item-a", "item-b"}
    other.unlink()
    assert read(tmp_path, path) == Filed(held=frozenset("b"))


@pytest.mark.parametrize("how", ["missing", "compressed", "pipe", "folder"])
def test_a_file_that_cannot_be_read(tmp_path: Path, how: str) -> None:
    """ADP-6: then nothing is known of a message that no other file holds; and nobody waits for a pipe."""
    old = put(tmp_path, name(), head(), message("a"))
    path = put(tmp_path, name(FIRST), head(T, old.stat().st_size), message("b"))
    old.unlink()
    if how == "compressed":
        put(tmp_path, f"{name()}.zst", b"...")
    elif how == "pipe":
        os.mkfifo(old)
    elif how == "folder":
        old.mkdir()
    filed = read(tmp_path, path)
    assert filed.held == frozenset("b")
    assert T in filed.unread


def test_a_file_that_is_being_unpacked(tmp_path: Path) -> None:
    """Codex takes the compressed one away when the plain one is whole."""
    path = put(tmp_path, name(), head(), message("a"))
    put(tmp_path, f"{name()}.zst", b"...")
    assert read(tmp_path, path) == Filed(held=frozenset("a"))
    path.unlink()
    assert read(tmp_path, path).unread


def test_files_that_go_on_from_each_other(tmp_path: Path) -> None:
    """No end: not read for ever."""
    put(tmp_path, name(FIRST), head(SECOND, 1))
    assert read(tmp_path, put(tmp_path, name(SECOND), head(FIRST, 1))).unread


def test_folders_of_others_cost_nothing(tmp_path: Path) -> None:
    """A loop of links and a thousand files beside ours."""
    path = put(tmp_path, name(), head(), message("a"))
    (tmp_path / "sessions" / "loop").symlink_to(tmp_path / "sessions")
    (tmp_path / "sessions" / "2026" / "itself").symlink_to("itself")
    put(tmp_path, "notes.jsonl", message("b"))
    assert read(tmp_path, path) == Filed(held=frozenset("a"))


# --- lines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b"", b"\n", b"\n" + message("z")])
def test_a_torn_line_is_no_message(tmp_path: Path, rest: bytes) -> None:
    """Codex passes it over too, and goes on in a new line."""
    for cut in range(1, len(message("b")) - 1):
        path = put(tmp_path, name(), head(), message("a"), message("b")[:cut] + rest)
        assert read(tmp_path, path).where("b") is Where.NOWHERE
    whole = put(tmp_path, name(), head(), message("a"), message("b")[:-1])
    assert read(tmp_path, whole).where("b") is Where.HELD


def _spelled(draw: Any, value: Any) -> str:
    """JSON of a value, with characters escaped and blanks put in by chance."""
    blank = draw(st.sampled_from(["", " ", "\t"]))
    if isinstance(value, dict):
        members = (
            f"{blank}{_spelled(draw, key)}{blank}:{blank}{_spelled(draw, inner)}" for key, inner in value.items()
        )
        return "{" + f"{blank},".join(members) + "}"
    if isinstance(value, str):
        escaped = draw(st.sets(st.integers(0, max(0, len(value) - 1))))
        upper = draw(st.booleans())
        return "".join(
            ['"']
            + [
                f"\\u{ord(c):04X}" if place in escaped and upper else f"\\u{ord(c):04x}" if place in escaped else c
                for place, c in enumerate(value)
            ]
            + ['"']
        )
    return json.dumps(value)


@st.composite
def _lines(draw: st.DrawFn) -> tuple[bytes, str]:
    message_id = draw(st.text(string.hexdigits + "-", min_size=1, max_size=36))
    more = draw(st.dictionaries(st.text(string.ascii_letters, max_size=4), st.text(string.ascii_letters), max_size=2))
    item = {**more, "type": "UserMessage", "client_id": message_id}
    forms = [{"type": "item_completed", "item": item}, {**more, "type": "user_message", "client_id": message_id}]
    return _spelled(draw, {"payload": draw(st.sampled_from(forms))}).encode() + b"\n", message_id


@given(_lines())
def test_no_spelling_of_a_message_is_passed_over(stored: tuple[bytes, str]) -> None:
    """KEY-3, ADP-5: the filter before the parser may only be wrong towards reading more."""
    written, message_id = stored
    assert json.loads(written)["payload"].get("client_id", message_id) == message_id
    assert may_name_a_message(written)


def test_numbers_of_any_length_are_read(tmp_path: Path) -> None:
    """Python refuses integers of thousands of digits; the line is there all the same."""
    stored = message("a").replace(b'"timestamp":"now"', b'"timestamp":' + b"9" * 5000)
    assert read(tmp_path, put(tmp_path, name(), head(), stored)).where("a") is Where.HELD


# --- the end of a file ---------------------------------------------------------------------------------------------------


def test_what_came_after_the_mark(tmp_path: Path) -> None:
    """Only a whole line behind the mark, in the file that bears the name."""
    path = put(tmp_path, name(), head(), message("a"))
    tail = Tail()
    tail.mark(str(path))
    assert tail.holds(str(path), "a") is False
    with path.open("ab") as file:
        file.write(message("b")[:-1])
        file.flush()
        assert tail.holds(str(path), "b") is False
        file.write(b"\n")
        file.flush()
        assert tail.holds(str(path), "b") is True
        assert tail.holds(str(path), "b", at_most=10) is None
        copy = path.with_suffix(".copy")
        shutil.copy2(path, copy)
        copy.rename(path)
        file.write(message("c"))
    assert tail.holds(str(path), "c") is False
    assert tail.holds(str(path), "b") is True


@pytest.mark.parametrize("how", ["missing", "pipe", "below a file"])
def test_an_end_that_cannot_be_read_holds_nothing(tmp_path: Path, how: str) -> None:
    """A report of Codex is no proof then."""
    path = tmp_path / name()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "below a file":
        path.touch()
        path /= "rollout"
    tail = Tail()
    tail.mark(str(path))
    assert tail.holds(str(path), "a") is False


def test_a_quoted_message_is_not_stored(tmp_path: Path) -> None:
    """Text of a prompt or a tool that spells a stored message."""
    path = put(tmp_path, name(), head())
    tail = Tail()
    tail.mark(str(path))
    with path.open("ab") as file:
        file.write(line({"type": "agent_message", "message": message("a").decode()}))
        file.write(line({"type": "item_completed", "item": {"type": "McpToolCall", "client_id": "a"}}))
    assert tail.holds(str(path), "a") is False


def test_a_folder_in_place_of_a_file_costs_no_descriptor(tmp_path: Path) -> None:
    """It is looked at again with every prompt."""
    folder = tmp_path / "rollout.jsonl"
    folder.mkdir()
    assert not Tail().holds(str(folder), "m")  # whatever is opened once is open now
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        assert not Tail().holds(str(folder), "m")
    assert sorted(Path("/proc/self/fd").iterdir()) == before
