r"""What an edit changes, byte for byte: Claude Code reports `\n` for every line end (2.1.332)."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.claude.show import edits
from adapters.claude.show.edited_files import Found, change_of

HUNK = {"oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 3, "lines": [" a", "-b", "+B", " c"]}
EDIT: dict[str, Any] = {"filePath": "/w/a", "oldString": "b", "newString": "B", "structuredPatch": [HUNK]}
WRITE: dict[str, Any] = {"filePath": "/w/a", "type": "update", "content": "a\nB\nc\n", "structuredPatch": [HUNK]}
CRLF, CRLF_AFTER = "a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"


def hunks(change: Any) -> str | None:
    assert change is None or (change.path, change.operation) == ("/w/a", "modify")
    return change and change.hunks


def test_lines_end_as_they_do_in_the_file() -> None:
    change = edits.changed(EDIT, "/w/a", CRLF, CRLF_AFTER)
    assert hunks(change) == "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r"


def test_a_file_that_is_written_anew_loses_its_line_ends() -> None:
    change = edits.changed(WRITE, "/w/a", CRLF, "a\nB\nc\n")
    assert hunks(change) == "@@ -1,3 +1,3 @@\n-a\r\n-b\r\n-c\r\n+a\n+B\n+c"


@pytest.mark.parametrize("after", [None, "something else\n", "a\r\nB\r\nc\r\nmore\r\n"])
@pytest.mark.parametrize(("result", "same_as"), [(EDIT, CRLF_AFTER), (WRITE, "a\nB\nc\n")])
def test_what_somebody_else_wrote_is_not_the_edit_s(result: dict[str, Any], same_as: str, after: str | None) -> None:
    assert edits.changed(result, "/w/a", CRLF, after) == edits.changed(result, "/w/a", CRLF, same_as)


@pytest.mark.parametrize("before", ["", "a\r\n", "a\r\nX\r\nc\r\n", CRLF_AFTER])
def test_another_text_is_not_what_was_edited(before: str) -> None:
    """A look that came too late, for one."""
    assert edits.changed(EDIT, "/w/a", before, CRLF_AFTER) is None


@pytest.mark.parametrize("now", [CRLF_AFTER])
def test_the_file_now_tells_what_an_edit_of_earlier_did(now: str) -> None:
    assert edits.derived(EDIT, "/w/a", now) == edits.changed(EDIT, "/w/a", CRLF, CRLF_AFTER)


@pytest.mark.parametrize("now", [CRLF, "a\nB\nc\n", "a\r\nB\r\nc\n", "a\r\nB\r\nX\r\n", "", "a\r\n"])
def test_a_file_that_was_changed_since_tells_nothing(now: str) -> None:
    """Nor one whose lines end in several ways."""
    assert edits.derived(EDIT, "/w/a", now) is None


def test_nobody_knows_what_was_written_over() -> None:
    assert edits.derived(WRITE, "/w/a", CRLF_AFTER) is None
    created = {"filePath": "/w/a", "type": "create", "content": "x\r\n", "structuredPatch": [], "originalFile": None}
    assert edits.derived(created, "/w/a", "x\r\n") is None


def test_back_and_forth_agree_on_a_missing_newline() -> None:
    lines = ["-b", "\\ No newline at end of file", "+b", "+c"]
    edit = {**EDIT, "structuredPatch": [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": lines}]}
    there = edits.changed(edit, "/w/a", "b", "b\r\nc\r\n")
    assert hunks(there) == "@@ -1,1 +1,2 @@\n-b\n\\ No newline at end of file\n+b\r\n+c\r"
    assert edits.derived(edit, "/w/a", "b\r\nc\r\n") == there


NOTEBOOK = {"notebook_path": "/w/a", "new_source": "B", "original_file": "a\nb\nc\n", "updated_file": "a\nB\nc\n"}


def test_a_notebook_has_no_hunks_and_gets_them() -> None:
    exact = "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r"
    assert hunks(edits.changed(NOTEBOOK, "/w/a", CRLF, CRLF_AFTER)) == exact
    assert hunks(edits.derived(NOTEBOOK, "/w/a", CRLF_AFTER)) == exact
    assert hunks(edits.reported_notebook(NOTEBOOK, "/w/a")) == exact.replace("\r", "")
    assert edits.changed(NOTEBOOK, "/w/a", "other\r\n", CRLF_AFTER) is None
    assert edits.reported_notebook({}, "/w/a") is None


def test_a_plain_file_stays_as_it_is_reported() -> None:
    assert edits.says_enough(EDIT, "a\nb\nc\n")
    assert not edits.says_enough(EDIT, CRLF)
    assert not edits.says_enough(
        {**EDIT, "structuredPatch": [{**HUNK, "lines": [" a", "-b", "+B\r", " c"]}]}, "a\nb\nc\n"
    )
    assert change_of(Found(there=True, text="a\nb\nc\n"), EDIT, "/w/a") is None
    assert change_of(Found(there=False), {**EDIT, "oldString": "", "originalFile": ""}, "/w/a") is None


@pytest.mark.parametrize("odd", [[{}], [5], [{**HUNK, "lines": ["-a"]}], [{**HUNK, "oldStart": "x"}], "odd", None])
def test_anything_may_be_reported(odd: Any) -> None:
    """D11."""
    result = {**EDIT, "structuredPatch": odd}
    changes = [edits.changed(result, "/w/a", "x\r\n", "x\r\n"), edits.derived(result, "/w/a", "x\r\n")]
    assert changes == [None, None]


def call(**given: Any) -> dict[str, Any]:
    return {"file_path": "/w/a", "old_string": "b", "new_string": "B", **given}


@pytest.mark.parametrize(
    ("name", "given", "before", "after"),
    [
        ("Edit", call(), CRLF, CRLF_AFTER),
        ("Edit", call(), "a\nb\nc\n", "a\nB\nc\n"),
        ("Edit", call(), "a\r\nb\nc\n", "a\nB\nc\n"),
        ("Edit", call(), "a\r\nb\nc\r\n", "a\r\nB\r\nc\r\n"),
        ("Edit", call(), "a\r\nb\n", "a\nB\n"),
        ("Edit", call(new_string=""), CRLF, "a\r\nc\r\n"),
        ("Edit", call(new_string=""), "abc\n", "ac\n"),
        ("Edit", call(replace_all=True), "b\nb\n", "B\nB\n"),
        ("Edit", call(old_string=""), None, "B"),
        ("Edit", call(old_string=""), "", "B"),
        ("Write", {"content": "x\n"}, CRLF, "x\n"),
        ("Write", {"content": "x\n"}, "\ufeffa\r\n", "\ufeffx\n"),
        ("Write", {"content": "x\n"}, None, "x\n"),
        ("Edit", call(), "b\nb\n", None),
        ("Edit", call(), "x\n", None),
        ("Edit", call(), None, None),
        ("Edit", call(), "", None),
        ("Edit", call(old_string=""), "x", None),
        ("Edit", call(old_string="a\r\nb"), CRLF, None),
        ("Edit", call(new_string="b"), CRLF, None),
        ("Edit", call(new_string=5), CRLF, None),
        ("Edit", call(replace_all="true"), "b\nb\n", None),
        ("Write", {"content": CRLF}, CRLF, None),
        ("Write", {}, CRLF, None),
        ("NotebookEdit", {"new_source": "x"}, CRLF, None),
    ],
)
def test_what_a_call_will_do(name: str, given: dict[str, Any], before: str | None, after: str | None) -> None:
    """PERM-1: what is shown before is what happens, or nothing is foretold (as measured with 2.1.332)."""
    change = edits.predicted(name, given, "/w/a", before)
    if after is None:
        assert change is None
    elif before is None:
        assert change is not None
        assert (change.operation, change.new) == ("add", after)
    else:
        assert change is not None
        [piece] = change.pieces
        assert (piece.old, piece.new) == (before, after)
