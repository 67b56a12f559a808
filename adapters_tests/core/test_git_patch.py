"""Patches: what git itself makes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from adapters.core import git_patch

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
