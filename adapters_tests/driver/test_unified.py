"""Hunks: what git makes of them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp import git_patch
from adapters.driver.unified import blocks_between, hunks_of, lines_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

texts = st.lists(
    st.sampled_from(["a\n", "b\n", "a\r\n", "\n", "\r\n", "-x\n", "\\ y\n", "\u2028\x0c\r\n"]), max_size=30
).flatmap(lambda lines: st.sampled_from(["".join(lines), "".join([*lines, "end"])]))


def bare(lines: list[str]) -> list[str]:
    return [line.rstrip("\r\n") for line in lines]


@needs_git
@given(texts, texts.filter(bool))
@settings(max_examples=60, deadline=None)
def test_git_applies_them(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    """Also where the blocks were found in lines without their ends."""
    folder = tmp_path_factory.mktemp("w")
    before, after = lines_of(old), lines_of(new)
    for blocks in (blocks_between(before, after), blocks_between(bare(before), bare(after))):
        hunks = hunks_of(before, after, blocks)
        (folder / "a").write_bytes(old.encode())
        assert bool(hunks) == (old != new)
        if hunks:
            command = ["git", "apply", "-p0", "--whitespace=nowarn", "-"]
            patch = git_patch.changed("a", hunks).encode()
            environment = {"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/", "HOME": str(folder)}
            done = subprocess.run(command, input=patch, cwd=folder, env=environment, capture_output=True, check=False)
            assert done.returncode == 0, (done.stderr, patch)
        assert (folder / "a").read_bytes() == new.encode()


def test_only_what_differs_is_shown() -> None:
    old = [f"{number}\n" for number in range(30)]
    new = [*old[:3], "x\n", *old[4:20], *old[21:], "end"]
    assert hunks_of(old, new, blocks_between(old, new)).split("\n") == [
        *("@@ -1,7 +1,7 @@", " 0", " 1", " 2", "-3", "+x", " 4", " 5", " 6"),
        *("@@ -18,7 +18,6 @@", " 17", " 18", " 19", "-20", " 21", " 22", " 23"),
        *("@@ -28,3 +27,4 @@", " 27", " 28", " 29", "+end", "\\ No newline at end of file"),
    ]


def test_an_empty_side_is_counted_from_the_line_before_it() -> None:
    assert hunks_of([], ["a\n"], [(0, 0, 0, 1)]) == "@@ -0,0 +1,1 @@\n+a"
    assert hunks_of(["a\n"], [], [(0, 1, 0, 0)]) == "@@ -1,1 +0,0 @@\n-a"


def test_long_stretches_are_not_compared() -> None:
    """That would take minutes."""
    old, new = ([f"{side} {number % 7}\n" for number in range(100_000)] for side in "ab")
    assert blocks_between(["same\n", *old], ["same\n", *new]) == [(1, 100_001, 1, 100_001)]
