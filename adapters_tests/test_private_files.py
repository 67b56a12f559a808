"""private_files.py: whole or not at all, and for the owner alone."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from adapters.private_files import replacement, write_all


def fill_disk(path: Path) -> None:
    with replacement(path) as descriptor:
        write_all(descriptor, b"ne")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_replaced_in_one_step_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with replacement(path) as descriptor:
        write_all(descriptor, b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"):
        fill_disk(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
