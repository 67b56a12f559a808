"""Which files a session has, and which of them Claude Code works with: its own rule, measured in `test_real`."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from adapters.claude.stored.session_files import AmbiguousError, Files, Project, find_files
from adapters.core import file_calls

S = "0f1e2d3c-4b5a-4968-8776-655443322110"
CWD = "/w/my project"
OWN = "-w-my-project"


def stored(config: Path, folder: str, *, written: int = 1, content: str = "{}") -> Path:
    path = config / "projects" / folder / f"{S}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (written, written))
    return path


def test_nothing_is_stored(tmp_path: Path) -> None:
    assert find_files(tmp_path, S, CWD) == Files()
    stored(tmp_path, OWN)
    assert find_files(tmp_path, S[:-1] + "1", CWD) == Files()


def test_the_only_file_is_the_one_in_use_whatever_its_folder(tmp_path: Path) -> None:
    path = stored(tmp_path, "-elsewhere")
    (tmp_path / "projects" / "a file").write_text("x")
    assert find_files(tmp_path, S, CWD) == Files(path)


def test_its_own_folder_wins_whatever_the_times(tmp_path: Path) -> None:
    copy, own = stored(tmp_path, "-copy", written=20), stored(tmp_path, OWN, written=10)
    assert find_files(tmp_path, S, CWD) == Files(own, (copy,))


def test_several_files_and_none_in_its_own_folder_are_no_session_that_could_be_resumed(tmp_path: Path) -> None:
    copies = [stored(tmp_path, name, written=at) for at, name in enumerate(("-a", "-b"))]
    with pytest.raises(AmbiguousError) as refused:
        find_files(tmp_path, S, CWD)
    assert all(str(path) in str(refused.value) for path in copies)


def test_a_link_to_the_file_is_no_second_one(tmp_path: Path) -> None:
    path = stored(tmp_path, "-a")
    (tmp_path / "projects" / "-b").symlink_to("-a")
    found = find_files(tmp_path, S, CWD)
    assert found.used is not None
    assert found.used.samefile(path)


def test_a_link_to_nowhere_is_none_and_an_empty_file_says_nothing(tmp_path: Path) -> None:
    """ADP-6: it was emptied, or nothing ever came into it; nobody can say which."""
    stored(tmp_path, "-b").unlink()
    (tmp_path / "projects" / "-b" / f"{S}.jsonl").symlink_to("nowhere")
    assert find_files(tmp_path, S, CWD) == Files()
    stored(tmp_path, OWN, content="")
    with pytest.raises(OSError, match="empty"):
        find_files(tmp_path, S, CWD)
    assert find_files(tmp_path, S, CWD, made_here=True) == Files()
    path = stored(tmp_path, "-c")
    assert find_files(tmp_path, S, CWD) == Files(path)


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/w/a-b.c_d", "-w-a-b-c-d"),
        ("/w/w\u00f6rk", "-w-w-rk"),
        ("/w/wo\u0308rk", "-w-w-rk"),
        ("/w/\U0001f600", "-w---"),
        ("/" + "x" * 300, "-" + "x" * 199 + "-c3shov"),
    ],
)
def test_the_name_of_a_project_folder(cwd: str, folder: str) -> None:
    assert Project(cwd).is_at(f"/config/projects/{folder}")
    assert not Project(cwd).is_at(f"/config/projects/{folder[:100]}-")


def test_the_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/w/my project")
    assert Project(str(tmp_path / "link")).is_at(OWN)


@pytest.mark.parametrize(
    "session_id",
    ["", ".", "..", "../x", "a/b", "a\\b", "*", "?", "[a]", "a.b", "\0", "-x", "\u00e4", "\udcb2", "x" * 300, " x"],
)
def test_no_path_is_taken_for_an_id(tmp_path: Path, session_id: str) -> None:
    """An id that could leave the folder or match others finds nothing."""
    stored(tmp_path, "p")
    (tmp_path / "projects" / "x.jsonl").write_text("{}")
    assert find_files(tmp_path, session_id, CWD) == Files()


def test_projects_that_cannot_be_listed_are_an_error(tmp_path: Path) -> None:
    """ADP-6: not "no session"."""
    (tmp_path / "projects").write_text("not a folder")
    with pytest.raises(NotADirectoryError):
        find_files(tmp_path, S, CWD)


# --- what cannot be seen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_has_its_name_and_is_no_file_costs_itself_only(tmp_path: Path, kind: str) -> None:
    """A pipe would keep whoever opens it. Alone, it says that nobody can know; beside the file it says nothing."""
    odd(stored(tmp_path, "-odd"), kind)
    for made_here in (False, True):
        with pytest.raises(OSError, match="not a regular file"):
            find_files(tmp_path, S, CWD, made_here=made_here)
    path = stored(tmp_path, "-b")
    assert find_files(tmp_path, S, CWD) == Files(path)


def test_what_is_no_file_in_its_own_folder_is_an_error_whatever_else_there_is(tmp_path: Path) -> None:
    """Claude Code fails there, too."""
    odd(stored(tmp_path, OWN), "folder")
    stored(tmp_path, "-b")
    with pytest.raises(OSError, match="not a regular file"):
        find_files(tmp_path, S, CWD)


def test_a_loop_of_links_holds_no_session(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "loop").symlink_to("loop")
    assert find_files(tmp_path, S, CWD) == Files()
    path = stored(tmp_path, "-b")
    assert find_files(tmp_path, S, CWD) == Files(path)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_folder_that_cannot_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Another user's, or one on a mount whose server is gone: it matters only where it may hold the only file."""
    stored(tmp_path, "-closed")
    close(monkeypatch, tmp_path / "projects" / "-closed", error)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the number is what counts
        find_files(tmp_path, S, CWD)
    assert refused.value.errno == error
    assert find_files(tmp_path, S, CWD, made_here=True) == Files()
    path = stored(tmp_path, "-b")
    assert find_files(tmp_path, S, CWD) == Files(path)


def test_its_own_folder_must_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code would work with the file in it, if there is one."""
    stored(tmp_path, OWN)
    stored(tmp_path, "-b")
    close(monkeypatch, tmp_path / "projects" / OWN, errno.EACCES)
    for made_here in (False, True):
        with pytest.raises(PermissionError):
            find_files(tmp_path, S, CWD, made_here=made_here)


def odd(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, stat.S_IFSOCK)


def close(monkeypatch: pytest.MonkeyPatch, folder: Path, error: int) -> None:
    """Modes keep nobody out where tests run as root."""
    real = file_calls.stat

    def refused(path: str | Path, **named: bool) -> os.stat_result:
        if Path(path).is_relative_to(folder):
            raise OSError(error, os.strerror(error), str(path))
        return real(path, **named)

    monkeypatch.setattr(file_calls, "stat", refused)
