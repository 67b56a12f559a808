"""Patches: what git itself makes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from adapters.acp import git_patch

PATHS = ["/w/plain.txt", "/w/My Project - x/a.txt", '/w/quo"te\\.txt', "/w/\u00e9\n.txt", "/w/tab\t.txt"]


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/w/a.txt", "/w/a.txt"),
        ("/w/a b", '"/w/a b"'),
        ("/w/b-c.py", "/w/b-c.py"),
        ('/w/\t"\\', '"/w/\\t\\"\\\\"'),
        ('/w/"\\', '"/w/\\"\\\\"'),
        ("/w/\u00e9\n", '"/w/\\303\\251\\n"'),
        ("/w/\udcff", '"/w/\\355\\263\\277"'),
    ],
)
def test_odd_paths_are_quoted(path: str, written: str) -> None:
    """DIFF-3: as git quotes, also what is no UTF-8."""
    assert git_patch.quoted(path) == written


def apply(root: Path, patch: str) -> None:
    """Apply a patch with git, the folder /w being `root`."""
    inside = patch.replace("/w/", "")
    subprocess.run(["git", "apply", "--unidiff-zero", "-p0"], input=inside.encode(), cwd=root, check=True)


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@needs_git
@pytest.mark.parametrize("content", ["one\ntwo\n", "no newline", "", "\n", "a\r\n\u2028b\x0cc\n"])
def test_git_applies_additions_and_deletions(tmp_path: Path, content: str) -> None:
    """DIFF-2, DIFF-3: the patch says the same as the change."""
    apply(tmp_path, git_patch.added("/w/My File.txt", content))
    file = tmp_path / "My File.txt"
    assert file.read_bytes() == content.encode()
    apply(tmp_path, git_patch.deleted("/w/My File.txt", content))
    assert not file.exists()


@needs_git
def test_git_applies_changes_and_moves(tmp_path: Path) -> None:
    """DIFF-3: rename lines without prefixes."""
    (tmp_path / "old.txt").write_text("a\nb\n")
    apply(tmp_path, git_patch.changed("/w/old.txt", "@@ -1 +1 @@\n-a\n+A\n"))
    assert (tmp_path / "old.txt").read_text() == "A\nb\n"
    apply(tmp_path, git_patch.changed("/w/new name.txt", "@@ -1 +1 @@\n-A\n+z\n", old_path="/w/old.txt"))
    assert (tmp_path / "new name.txt").read_text() == "z\nb\n"
    apply(tmp_path, git_patch.changed("/w/moved.txt", "", old_path="/w/new name.txt"))
    assert (tmp_path / "moved.txt").read_text() == "z\nb\n"
    assert not (tmp_path / "new name.txt").exists()


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_absolute(path: str) -> None:
    """DIFF-3: no a/ and b/."""
    name = git_patch.quoted(path)
    for patch in (git_patch.added(path, "x\n"), git_patch.deleted(path, "x\n"), git_patch.changed(path, "@@ -1 +1 @@")):
        assert patch.startswith(f"diff --git {name} {name}\n")
        assert patch.endswith("\n")


TEXTS = ["", "one\n", "one", "one\ntwo\n", "one\r\n", "\n"]


@needs_git
@pytest.mark.parametrize("before", TEXTS)
@pytest.mark.parametrize("after", TEXTS)
def test_git_applies_what_is_written_anew(tmp_path: Path, before: str, after: str) -> None:
    """DIFF-2: what is lost is in the patch."""
    file = tmp_path / "a.txt"
    file.write_bytes(before.encode())
    patch = git_patch.replaced("/w/a.txt", before, after)
    assert bool(patch) == (before != after)
    if patch:
        apply(tmp_path, patch)
    assert file.read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("hunks", "line"),
    [
        ("@@ -1 +1 @@\n-x\n+y\n", 1),
        ("@@ -10,3 +20,3 @@ def f():\n a\n b\n-c\n+d\n", 22),
        ("@@ -1,2 +1 @@\n a\n-b\n", 1),
        ("@@ -1 +0,0 @@\n-x\n", 1),
        ("@@ -0,0 +1,2 @@\n+x\n+y\n", 1),
        ("", None),
        ("@@ nonsense", None),
    ],
)
def test_the_line_of_the_first_change(hunks: str, line: int | None) -> None:
    """TOOL-7: in the new file, and never behind its end."""
    assert git_patch.first_line(hunks) == line
