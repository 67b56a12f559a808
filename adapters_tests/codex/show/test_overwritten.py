"""What a change takes away is noted before it is made, and only then."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from adapters.codex.show.items import change_texts, file_changes
from adapters.codex.show.overwritten import LOST, Overwritten, carried

LATER = 60_000
"""Milliseconds after the files of a test were written."""


def started(*changes: dict[str, Any], began: int | None = None, item_id: str = "f") -> dict[str, Any]:
    at = int(time.time() * 1000) + LATER if began is None else began
    return {"item": {"type": "fileChange", "id": item_id, "changes": list(changes)}, "startedAtMs": at}


def add(path: Path | str, text: str = "new\n") -> dict[str, Any]:
    return {"path": str(path), "kind": {"type": "add"}, "diff": text}


def move(path: Path, target: Path) -> dict[str, Any]:
    return {"path": str(path), "kind": {"type": "update", "move_path": str(target)}, "diff": ""}


def lost(change: dict[str, Any], began: int | None = None) -> Any:
    params = Overwritten().noted("item/started", started(change, began=began))
    return params["item"]["changes"][0].get(LOST, "nothing")


def test_the_file_that_stands_there_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old\r\n")
    assert lost(add(tmp_path / "a")) == "old\r\n"
    assert lost(move(tmp_path / "b", tmp_path / "a")) == "old\r\n"
    assert lost(add(tmp_path / "none")) == "nothing"
    assert lost(move(tmp_path / "a", tmp_path / "a")) == "nothing"
    assert lost({"path": str(tmp_path / "a"), "kind": {"type": "delete"}, "diff": ""}) == "nothing"


def test_what_is_written_already_is_not_taken_for_what_was_there(tmp_path: Path) -> None:
    """Codex may be faster than we are."""
    (tmp_path / "a").write_text("new\n")
    assert lost(add(tmp_path / "a"), began=int((tmp_path / "a").stat().st_mtime * 1000) - 5) == "nothing"


@pytest.mark.parametrize("content", [b"\xff", b"x" * 1_000_001])
def test_what_cannot_be_shown_is_noted_as_such(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert lost(add(tmp_path / "a")) is None


def test_only_files_are_opened(tmp_path: Path) -> None:
    """A pipe without a writer would hold everything up."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", tmp_path / "folder", "relative", "", "/nul\0", "/dev/null"):
        assert lost(add(path)) == "nothing"


@pytest.mark.parametrize("item", [{}, {"type": "fileChange"}, {"type": "fileChange", "changes": [7, None, {}]}])
def test_anything_may_come(item: dict[str, Any]) -> None:
    """D11."""
    noted = Overwritten().noted("item/started", {"item": item})
    assert len(noted["item"].get("changes", [])) == len(item.get("changes", []))
    assert Overwritten().noted("turn/started", {"x": 1}) == {"x": 1}


def test_a_replay_in_the_same_process_shows_it_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    overwritten = Overwritten()
    change = add(tmp_path / "a")
    overwritten.noted("item/started", started(change))
    assert overwritten.known({"id": "f", "changes": [change]})["changes"] == [{**change, LOST: "old\n"}]
    other = {"id": "g", "changes": [change]}
    assert overwritten.known(other) == other


def test_what_is_kept_for_replays_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 900_000)
    overwritten = Overwritten()
    change = add(tmp_path / "a")
    for number in range(20):
        overwritten.noted("item/started", started(change, item_id=f"f{number}"))
    known = [LOST in overwritten.known({"id": f"f{number}", "changes": [change]})["changes"][0] for number in range(20)]
    assert known == [False] * 12 + [True] * 8


def test_what_was_noted_stays_with_its_change() -> None:
    noted = [{**add("/a"), LOST: "old"}, {**add("/b"), LOST: None}]
    assert carried([add("/a", "newer"), add("/c"), 7], noted) == [{**add("/a", "newer"), LOST: "old"}, add("/c"), {}]
    assert carried(None, noted) == []
    assert carried([add("/a")], None) == [add("/a")]


def test_the_same_text_is_a_change_without_a_patch() -> None:
    """DIFF-2: there is nothing that a patch could say."""
    [diff] = file_changes([{**add("/w/a", "same"), LOST: "same"}], "/w")
    assert diff.model_dump(exclude_none=True)["changes"] == [{"operation": "modify", "path": "/w/a"}]
    assert diff.patch is None


def test_a_question_says_what_is_lost() -> None:
    """Of a sub-agent's change, whose call nobody sees."""
    assert change_texts([{**add("/w/a"), LOST: "old\n"}], "/w") == [
        "Add a:\n```\nnew\n```",
        "Replaces a, which holds:\n```\nold\n```",
    ]
    assert change_texts([{**add("/w/a"), LOST: None}], "/w")[1] == "Replaces a, whose content cannot be shown as text."
