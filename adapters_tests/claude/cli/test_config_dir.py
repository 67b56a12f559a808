"""Which folder is Claude Code's, and that a Claude Code which is started elsewhere is told the same one."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from adapters.acp.errors import InternalError
from adapters.claude.cli.config_dir import config_dir, require_config_dir, settled

COMPOSED = "hömé"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)


@pytest.mark.parametrize(
    ("environ", "folder", "told"),
    [
        ({"HOME": "/h"}, "/h/.claude", {"HOME": "/h"}),
        ({"HOME": "/h", "CLAUDE_CONFIG_DIR": ""}, "/h/.claude", {"HOME": "/h"}),
        ({"HOME": "h"}, "{here}/h/.claude", {"HOME": "{here}/h"}),
        ({"HOME": "/h/"}, "/h/.claude", {"HOME": "/h/"}),
        ({"HOME": "/h/../i"}, "/i/.claude", {"HOME": "/h/../i"}),
        ({"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}, "/c", {"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}),
        ({"CLAUDE_CONFIG_DIR": "/c//"}, "/c", {"CLAUDE_CONFIG_DIR": "/c"}),
        ({"CLAUDE_CONFIG_DIR": "c"}, "{here}/c", {"CLAUDE_CONFIG_DIR": "{here}/c"}),
        ({"CLAUDE_CONFIG_DIR": "."}, "{here}", {"CLAUDE_CONFIG_DIR": "{here}"}),
        ({"CLAUDE_CONFIG_DIR": "~/c", "HOME": "/h"}, "/h/c", {"CLAUDE_CONFIG_DIR": "/h/c", "HOME": "/h"}),
        ({"CLAUDE_CONFIG_DIR": "/a/b/../c"}, "/a/c", {"CLAUDE_CONFIG_DIR": "/a/c"}),
        ({"CLAUDE_CONFIG_DIR": f"/{DECOMPOSED}"}, f"/{COMPOSED}", {"CLAUDE_CONFIG_DIR": f"/{DECOMPOSED}"}),
        ({"HOME": f"/{DECOMPOSED}"}, f"/{COMPOSED}/.claude", {"HOME": f"/{DECOMPOSED}"}),
    ],
)
def test_the_folder_and_what_claude_code_is_told(
    environ: dict[str, str], folder: str, told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ["OTHER"] = "~/kept"
    given = {name: value.format(here=tmp_path) for name, value in told.items()}
    assert config_dir(environ) == Path(folder.format(here=tmp_path))
    assert settled(environ) == {**given, "OTHER": "~/kept"}
    assert config_dir(settled(environ)) == config_dir(environ)


def test_a_link_is_not_followed_for_what_comes_before_dots(tmp_path: Path) -> None:
    """Claude Code resolves `..` in the text (measured); so the folder is beside the link, not beside what it leads to."""
    (tmp_path / "a" / "real").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a" / "real")
    assert config_dir({"CLAUDE_CONFIG_DIR": f"{tmp_path}/b/link/../c"}) == tmp_path / "b" / "c"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / ".claude").touch()
    with pytest.raises(InternalError, match=f"^The folder {tmp_path}/.claude cannot be used .*CLAUDE_CONFIG_DIR"):
        require_config_dir({"HOME": str(tmp_path)})
    with pytest.raises(InternalError, match=f"^CLAUDE_CONFIG_DIR {tmp_path}/.claude/x cannot be used"):
        require_config_dir({"CLAUDE_CONFIG_DIR": f"{tmp_path}/.claude/x"})
    (tmp_path / COMPOSED).touch()
    with pytest.raises(InternalError, match=f"composes .NFC. to {tmp_path}/{COMPOSED} cannot be used"):
        require_config_dir({"CLAUDE_CONFIG_DIR": f"{tmp_path}/{DECOMPOSED}"})
