"""Which Codex is started, with what."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from adapters.codex import environment
from adapters.codex.environment import child_environment, codex_home, find_codex, missing_text


def program(folder: Path, name: str = "codex") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed openai-codex-cli-bin, in a folder with a space."""
    package = tmp_path / "My Company - x" / "codex_cli_bin"
    spec = ModuleSpec("codex_cli_bin", None, is_package=True)
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(environment, "find_spec", lambda _name: spec)
    return program(package / "bin")


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _name: None)


def test_the_chosen_one_first(tmp_path: Path, bundled: Path) -> None:
    """CODEX_PATH: a path, or a name on PATH; nothing is started in its place."""
    chosen = program(tmp_path / "a", "my-codex")
    found = find_codex({"CODEX_PATH": str(chosen), "PATH": ""})
    assert found is not None
    assert (found.path, found.source) == (chosen, "CODEX_PATH")
    found = find_codex({"CODEX_PATH": "my-codex", "PATH": str(tmp_path / "a")})
    assert found is not None
    assert found.path == chosen
    environ = {"CODEX_PATH": str(tmp_path / "nothing"), "PATH": str(bundled.parent)}
    assert find_codex(environ) is None
    assert "CODEX_PATH" in missing_text(environ)


def test_the_package_before_path(tmp_path: Path, bundled: Path) -> None:
    """The version that is tested with goes before one that happens to be installed."""
    program(tmp_path / "b")
    found = find_codex({"PATH": str(tmp_path / "b")})
    assert found is not None
    assert (found.path, found.source) == (bundled, "openai-codex-cli-bin")


@pytest.mark.usefixtures("no_package")
def test_path_last(tmp_path: Path) -> None:
    """Else the user's own."""
    own = program(tmp_path / "b")
    found = find_codex({"PATH": str(tmp_path / "b")})
    assert found is not None
    assert (found.path, found.source) == (own, "PATH")


@pytest.mark.usefixtures("no_package")
def test_missing_says_what_to_do(tmp_path: Path) -> None:
    """An error names the next step."""
    environ = {"PATH": str(tmp_path)}
    assert find_codex(environ) is None
    assert "pip install 'acp-adapters[codex]'" in missing_text(environ)


def test_the_users_home() -> None:
    """CODEX_HOME and the configuration in it are the user's."""
    assert codex_home({"CODEX_HOME": "/c", "HOME": "/h"}) == Path("/c")
    assert codex_home({"HOME": "/h"}) == Path("/h/.codex")


def test_the_environment_is_the_users_without_what_another_codex_left() -> None:
    """Where a Codex runs around us, ours must not be taken for its child."""
    environ = {"A": "1", "CODEX_HOME": "/c", "CODEX_CI": "1", "OPENAI_API_KEY": "k"}
    assert child_environment(environ) == environ
    inside = {**environ, "CODEX_THREAD_ID": "t", "CODEX_SANDBOX": "seatbelt"}
    assert child_environment(inside) == {"A": "1", "CODEX_HOME": "/c", "OPENAI_API_KEY": "k"}


def test_the_real_package_is_found() -> None:
    """What pip installs is what is started."""
    pytest.importorskip("codex_cli_bin")
    found = find_codex({"PATH": ""})
    assert found is not None
    assert found.source == "openai-codex-cli-bin"
    assert found.path.is_file()
