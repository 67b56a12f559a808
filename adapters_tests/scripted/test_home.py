"""Isolated homes: a runtime inherits nothing that points to an account of the user's."""

import os
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from adapters.scripted import isolated_claude_home, isolated_codex_home, scrubbed
from adapters.scripted.home import work_folder

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


def test_a_codex_home_lies_inside_its_root_and_inherits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*FOREIGN, "XDG_RUNTIME_DIR", "HTTPS_PROXY", "SECRET"):
        monkeypatch.setenv(name, "inherited")
    root = tmp_path / "a" / "home"
    environ = isolated_codex_home(root, "http://127.0.0.1:1")
    assert "inherited" not in environ.values()
    assert [name for name in environ if name.startswith(("ANTHROPIC", "CLAUDE", "OPENAI", "CODEX"))] == ["CODEX_HOME"]
    for name in ("HOME", "CODEX_HOME", "TMPDIR"):
        folder = Path(environ[name])
        assert folder.is_relative_to(root)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not Path(environ["CODEX_HOME"]).is_relative_to(environ["TMPDIR"])  # Codex would complain


def codex_config(environ: dict[str, str]) -> dict[str, Any]:
    file = Path(environ["CODEX_HOME"]) / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return tomllib.loads(file.read_text(encoding="utf-8"))


def test_codex_is_told_to_meet_the_scripted_model_only(tmp_path: Path) -> None:
    environ = isolated_codex_home(tmp_path, "http://127.0.0.1:1")
    config = codex_config(environ)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == "http://127.0.0.1:1/v1"
    assert environ[provider["env_key"]]
    assert config["features"] == {"plugins": False}
    assert config["analytics"] == {"enabled": False}
    assert config["check_for_update_on_startup"] is False
    assert "projects" not in config


def test_a_codex_home_is_used_again_with_a_new_configuration(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted"\\ folder \u2028\x7f\U0001f600'
    first = isolated_codex_home(tmp_path, "http://127.0.0.1:1")
    kept = Path(first["CODEX_HOME"]) / "kept"
    kept.touch()
    (Path(first["CODEX_HOME"]) / "config.toml").chmod(0o644)
    assert isolated_codex_home(tmp_path, "http://127.0.0.1:2", [odd]) == first
    config = codex_config(first)
    assert config["model_providers"]["scripted"]["base_url"] == "http://127.0.0.1:2/v1"
    assert config["projects"] == {str(odd): {"trust_level": "trusted"}}
    assert kept.exists()


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


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("around", ["nothing", "repository", "empty .git"])
def test_a_work_folder_is_a_repository_of_its_own(tmp_path: Path, around: str) -> None:
    if around != "nothing":
        work_folder(tmp_path) if around == "repository" else (tmp_path / ".git").mkdir()
    folder = work_folder(tmp_path / "deep" / "work")
    assert work_folder(folder) == folder
    (folder / "a").write_text("a")
    git = ["git", "-C", str(folder)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def ran(*arguments: str) -> str:
        return subprocess.run(
            [*git, *arguments], capture_output=True, text=True, env=environ, check=True
        ).stdout.strip()

    assert Path(ran("rev-parse", "--show-toplevel")) == folder.resolve()
    assert ran("status", "--porcelain") == "?? a"
