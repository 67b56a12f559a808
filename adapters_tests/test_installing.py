"""The command that adds a package works in the environment in which it is read."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from adapters import installing
from adapters.installing import install_command


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own, with pip and without uv."""
    folder = tmp_path / "my tool"
    folder.mkdir()
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    having(monkeypatch, "pip", "ensurepip")
    return folder


def having(monkeypatch: pytest.MonkeyPatch, *things: str) -> None:
    monkeypatch.setattr(installing, "find_spec", lambda name: name if name in things else None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in things else None)


def test_this_interpreter_has_a_command() -> None:
    assert " install " in install_command("a-package") or " inject " in install_command("a-package")


def test_an_environment_with_pip_is_added_to_by_its_own_pip(prefix: Path) -> None:
    assert install_command("a-package") == f"'{prefix}/bin/python' -m pip install a-package"


def test_pipx_adds_to_what_it_has_installed(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").touch()
    assert install_command("a-package") == "pipx inject 'my tool' a-package"


def test_uv_adds_to_what_it_has_installed(prefix: Path) -> None:
    (prefix / "uv-receipt.toml").touch()
    assert install_command("a-package") == f"uv pip install --python '{prefix}/bin/python' a-package"


@pytest.mark.parametrize("things", [("uv", "ensurepip"), ("uv",), ()])
def test_an_environment_without_pip_is_added_to_by_uv(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, things: tuple[str, ...]
) -> None:
    having(monkeypatch, *things)
    assert install_command("a-package") == f"uv pip install --python '{prefix}/bin/python' a-package"


def test_an_environment_without_pip_and_uv_gets_its_pip(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "ensurepip")
    python = f"'{prefix}/bin/python'"
    assert install_command("a-package") == f"{python} -m ensurepip && {python} -m pip install a-package"


def test_in_a_systems_own_python_pip_is_told_to_go_on(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEP 668: without the option pip refuses."""
    (prefix / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(prefix))
    assert "--break-system-packages" not in install_command("a-package")
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    assert install_command("a-package").endswith(" -m pip install --break-system-packages a-package")
