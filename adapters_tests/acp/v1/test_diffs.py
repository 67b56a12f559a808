"""Patches as pieces of text before and after."""

from __future__ import annotations

import difflib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.acp import git_patch
from adapters.acp.v1.diffs import content
from adapters_tests.v1_schema import sdk


def shown(patch: str | None, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    more = {} if patch is None else {"patch": {"format": "git_patch", "text": patch}}
    items = content({"type": "diff", "changes": list(changes), **more})
    for item in items:
        model = sdk.FileEditToolCallContent if item["type"] == "diff" else sdk.ContentToolCallContent
        model.model_validate(item)
    return items


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def said(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def test_a_block_for_each_hunk_with_its_whole_context() -> None:
    hunks = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n@@ -10,2 +10,3 @@ def f():\n ten\n+ten and a half\n eleven"
    assert shown(git_patch.changed("/w/a", hunks), {"operation": "modify", "path": "/w/a"}) == [
        diff("/w/a", "one\ntwo\nthree\n", "one\n2\nthree\n"),
        diff("/w/a", "ten\neleven\n", "ten\nten and a half\neleven\n"),
    ]


def test_a_new_file_has_no_old_text_even_where_it_is_empty() -> None:
    add = {"operation": "add", "path": "/w/n"}
    assert shown(git_patch.added("/w/n", "a\n"), add) == [diff("/w/n", None, "a\n")]
    assert shown(git_patch.added("/w/n", ""), add) == [diff("/w/n", None, "")]


def test_a_file_that_is_gone_is_said_to_be() -> None:
    delete = {"operation": "delete", "path": "/w/d"}
    assert shown(git_patch.deleted("/w/d", "a\nb"), delete) == [said("Deleted `/w/d`."), diff("/w/d", "a\nb", "")]
    assert shown(git_patch.deleted("/w/d", ""), delete) == [said("Deleted `/w/d`.")]


def test_a_move_is_said_with_and_without_a_change_of_the_text() -> None:
    move = {"operation": "move", "path": "/w/new", "oldPath": "/w/old"}
    told = said("Moved `/w/old` to `/w/new`.")
    assert shown(git_patch.changed("/w/new", "", old_path="/w/old"), move) == [told]
    changed = git_patch.changed("/w/new", "@@ -1 +1 @@\n-a\n+b", old_path="/w/old")
    assert shown(changed, move) == [told, diff("/w/new", "a\n", "b\n")]


def test_what_nobody_has_the_text_of_is_said_in_words() -> None:
    assert shown(
        None,
        {"operation": "modify", "path": "/w/a"},
        {"operation": "add", "path": "/w/b"},
        {"operation": "copy", "path": "/w/d", "oldPath": "/w/c"},
        {"operation": "_later", "path": "/w/e"},
    ) == [said("Changed `/w/a`."), said("New file `/w/b`."), said("Copied `/w/c` to `/w/d`."), said("Changed `/w/e`.")]


def test_lines_that_look_like_the_patch_itself_are_text() -> None:
    old, new = "--- a\n+++ b\n@@ -1 +1 @@\ndiff --git x y\n", "-- a\n\\ No newline\n"
    assert shown(git_patch.replaced("/w/a", old, new), {"operation": "modify", "path": "/w/a"}) == [
        diff("/w/a", old, new)
    ]


PATHS = st.text(min_size=1, max_size=12).map(lambda name: "/w/" + name)
TEXTS = st.lists(
    st.sampled_from(["one", "two", "", " ", "-x", "+y", "\\z", "@@ -1 +1 @@", "é", "tab\t", "cr\r"])
).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])]))


@given(PATHS, TEXTS, TEXTS)
def test_every_replaced_file_reads_back(path: str, old: str, new: str) -> None:
    """Any path that git has to quote, any line, with and without a newline at the end."""
    patch = git_patch.replaced(path, old, new)
    expected = [diff(path, old, new)] if patch else [said(f"Changed `{path}`.")]
    assert (
        content(
            {
                "type": "diff",
                "changes": [{"operation": "modify", "path": path}],
                "patch": {"format": "git_patch", "text": patch},
            }
        )
        == expected
    )


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_hunks_hold_whole_lines_of_both_texts(old: list[str], new: list[str]) -> None:
    hunks = "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=2))[2:])
    patch = git_patch.changed("/w/a", hunks)
    items = content({"type": "diff", "changes": [], "patch": {"format": "git_patch", "text": patch}})
    for item in items:
        assert item["oldText"] in "\n".join([*old, ""])
        assert item["newText"] in "\n".join([*new, ""])
    assert bool(items) == (old != new)
