"""Where a runtime's program is looked for, and in which order."""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from adapters.driver import executable
from adapters.driver.executable import Executable, Found
from adapters.installing import install_command

PROGRAM = Executable(
    runtime="Some Runtime",
    command="runtime",
    variable="RUNTIME_PATH",
    distribution="some-runtime",
    package="some_runtime",
    bundled="bin/runtime",
)


def program(folder: Path, name: str = "runtime") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed package, in a folder with a space."""
    package = tmp_path / "My Company - x" / "some_runtime"
    spec = ModuleSpec("some_runtime", None, is_package=True)
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(executable, "find_spec", lambda _name: spec)
    return program(package / "bin")


def test_the_chosen_one_comes_first(tmp_path: Path, bundled: Path) -> None:
    """By path or by name."""
    chosen = program(tmp_path / "a", "my runtime")
    assert PROGRAM.find({"RUNTIME_PATH": str(chosen), "PATH": ""}) == Found(chosen, "RUNTIME_PATH")
    environ = {"RUNTIME_PATH": "my runtime", "PATH": f"{bundled.parent}:{tmp_path / 'a'}"}
    assert PROGRAM.find(environ) == Found(chosen, "RUNTIME_PATH")


def test_a_chosen_one_that_cannot_run_is_not_replaced_by_another(tmp_path: Path, bundled: Path) -> None:
    """What the user chose is what runs, or nothing."""
    environ = {"RUNTIME_PATH": str(tmp_path / "nothing"), "PATH": str(bundled.parent)}
    assert PROGRAM.find(environ) is None
    assert PROGRAM.missing_text(environ).startswith("RUNTIME_PATH does not name a program that can be run")


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ("{here}/nothing", "'{here}/nothing' does not exist"),
        ("bin/nothing", "'bin/nothing' does not exist: it is relative to '{here}'"),
        ("{here}/link", "'{here}/link' is a link to 'nowhere', which does not exist"),
        ("{here}/folder", "'{here}/folder' is a folder"),
        ("./folder/", "'./folder/' is a folder"),
        ("{here}/text", "'{here}/text' is not executable"),
        ("{here}/text/below", "'{here}/text/below' cannot be checked: Not a directory"),
        ("{here}/pipe", "'{here}/pipe' is not a file"),
        ("~/bin/runtime", "'~/bin/runtime' begins with ~, which only a shell expands"),
        ("no-runtime", "'no-runtime' is not a program on PATH"),
        (" ", "' ' is not a program on PATH"),
        ("wörk\n", r"'w\xf6rk\n' is not a program on PATH"),
    ],
)
def test_why_a_chosen_one_cannot_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, reason: str
) -> None:
    """With its value, in one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").touch()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    environ = {"RUNTIME_PATH": chosen.format(here=tmp_path), "PATH": str(tmp_path)}
    assert PROGRAM.find(environ) is None
    said = f"RUNTIME_PATH does not name a program that can be run ({reason.format(here=tmp_path)}): correct it, or unset it."
    assert PROGRAM.missing_text(environ) == said


def test_the_package_comes_before_path(tmp_path: Path, bundled: Path) -> None:
    """The version that is tested with goes before one that happens to be installed."""
    program(tmp_path / "b")
    assert PROGRAM.find({"PATH": str(tmp_path / "b")}) == Found(bundled, "some-runtime")


def test_a_package_without_its_program_hides_nothing(tmp_path: Path, bundled: Path) -> None:
    bundled.unlink()
    own = program(tmp_path / "b")
    assert PROGRAM.find({"PATH": str(tmp_path / "b")}) == Found(own, "PATH")


def test_without_the_package_path_decides(tmp_path: Path) -> None:
    """Else the user's own; an error names the next step."""
    environ = {"PATH": str(tmp_path / "b")}
    assert PROGRAM.find(environ) is None
    assert install_command("some-runtime") in PROGRAM.missing_text(environ)
    own = program(tmp_path / "b")
    assert PROGRAM.find(environ) == Found(own, "PATH")
