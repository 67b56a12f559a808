"""What a folder in an environment variable means."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.errors import InternalError
from adapters.driver.env_folders import home_folder, named_folder, require_usable

VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@given(VALUES, st.sampled_from(["/h", "h", "/h/../i", ""]))
def test_a_value_is_one_absolute_path_or_is_refused_by_the_name_of_its_variable(value: str, home: str) -> None:
    """And that path means itself."""
    environ = {"PLACE": value, "HOME": home}
    if value.startswith("~") and value != "~" and not value.startswith("~/"):
        with pytest.raises(InternalError, match=r"^PLACE=[ -~]*$"):
            named_folder(environ, "PLACE")
        return
    path = named_folder(environ, "PLACE")
    if path is None:
        assert not value
    else:
        assert path.startswith("/")
        assert named_folder({**environ, "PLACE": path}, "PLACE") == path


def test_what_values_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    meant = {
        "/a/b": "/a/b",
        "cfg": f"{tmp_path}/cfg",
        "./~": f"{tmp_path}/./~",
        "~": "/h",
        "~/cfg": "/h/cfg",
        "/a/../b": "/a/../b",
    }
    for value, path in meant.items():
        assert named_folder({"PLACE": value, "HOME": "/h"}, "PLACE") == path
    assert named_folder({"HOME": "/h"}, "PLACE") is None
    assert named_folder({"PLACE": "", "HOME": "~"}, "PLACE") is None


@pytest.mark.parametrize("value", ["~root/cfg", "~nobody-here", os.fsdecode(b"/w\xf6rk")])
def test_what_no_program_could_read_is_refused(value: str) -> None:
    with pytest.raises(InternalError, match=r"^PLACE=.* cannot be used .*: set it to the whole path of a folder"):
        named_folder({"PLACE": value, "HOME": "/h"}, "PLACE")


def test_the_home_is_the_variable_else_what_the_system_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = pwd.getpwuid(os.getuid()).pw_dir
    assert home_folder({"HOME": "/h"}) == "/h"
    assert home_folder({"HOME": "h"}) == f"{tmp_path}/h"
    assert home_folder({"HOME": ""}) == known
    assert home_folder({}) == known
    for value in ("~", "~/h", "~root"):
        with pytest.raises(InternalError, match=r"^HOME="):
            home_folder({"HOME": value})


def test_a_user_whom_the_system_does_not_know_must_name_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(InternalError, match=r"^HOME cannot be used"):
        home_folder({})
    assert named_folder({"PLACE": "/p"}, "PLACE") == "/p"


def test_a_relative_folder_in_a_folder_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InternalError, match=r"^PLACE='cfg' cannot be used .it is relative"):
        named_folder({"PLACE": "cfg"}, "PLACE")
    assert named_folder({"PLACE": "/p"}, "PLACE") == "/p"


def test_a_folder_is_usable_when_it_can_be_written_or_made(tmp_path: Path) -> None:
    require_usable(tmp_path, "X", "y")
    require_usable(tmp_path / "a" / "b", "X", "y")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_or_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nothing").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("file", "file/below", "nothing", "round", "round/below", "x" * 300):
        if name.startswith("x"):
            monkeypatch.setattr(os, "access", lambda *_: False)  # as for a user without the right to write
        with pytest.raises(InternalError) as caught:
            require_usable(tmp_path / name, "X", "do y")
        assert caught.value.message.startswith(f"X {tmp_path}/{name} cannot be used (")
        assert caught.value.message.endswith("): do y.")
