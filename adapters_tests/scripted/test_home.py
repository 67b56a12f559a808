"""Isolated homes: a runtime inherits nothing that points to an account of the user's."""

import os
import stat
from pathlib import Path

import pytest

from adapters.scripted import isolated_claude_home, scrubbed

FOREIGN = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "CLAUDECODE",
    "CLAUDE_CONFIG_DIR",
    "OPENAI_API_KEY",
    "CODEX_HOME",
    "anthropic_x",
)


def test_scrubbed_drops_every_variable_of_a_runtime() -> None:
    assert scrubbed({**dict.fromkeys(FOREIGN, "x"), "PATH": "p", "MY_CLAUDE": "kept"}) == {
        "PATH": "p",
        "MY_CLAUDE": "kept",
    }


def test_a_claude_home_lies_inside_its_root_and_inherits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*FOREIGN, "XDG_RUNTIME_DIR", "HTTPS_PROXY", "SECRET"):
        monkeypatch.setenv(name, "inherited")
    root = tmp_path / "a" / "home"
    environ = isolated_claude_home(root, "http://127.0.0.1:1")
    assert "inherited" not in environ.values()
    assert environ["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert environ["PATH"] == os.environ["PATH"]
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "TMPDIR", "CLAUDE_CODE_TMPDIR"):
        folder = Path(environ[name])
        assert folder.is_relative_to(root)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert ("IS_SANDBOX" in environ) == (os.geteuid() == 0)


def test_a_home_is_used_again(tmp_path: Path) -> None:
    first = isolated_claude_home(tmp_path, "http://127.0.0.1:1")
    kept = Path(first["CLAUDE_CONFIG_DIR"]) / "kept"
    kept.touch()
    second = isolated_claude_home(tmp_path, "http://127.0.0.1:2")
    assert {name for name in first if first[name] != second[name]} == {"ANTHROPIC_BASE_URL"}
    assert kept.exists()


def test_a_missing_path_gets_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    monkeypatch.delenv("LANG", raising=False)
    environ = isolated_claude_home(tmp_path, "http://127.0.0.1:1")
    assert environ["PATH"]
    assert environ["LANG"] == "C.UTF-8"
