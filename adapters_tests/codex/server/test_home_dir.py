"""Which folder is Codex's home, and that a Codex which is started elsewhere is told the same one."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from adapters.acp.errors import InternalError
from adapters.codex.server.home_dir import codex_home, require_codex_home, settled

DECOMPOSED = unicodedata.normalize("NFD", "hömé")


@pytest.mark.parametrize(
    ("environ", "folder", "told"),
    [
        ({"HOME": "/h"}, "/h/.codex", {"HOME": "/h"}),
        ({"HOME": "/h", "CODEX_HOME": ""}, "/h/.codex", {"HOME": "/h"}),
        ({"HOME": "h"}, "{here}/h/.codex", {"HOME": "{here}/h"}),
        ({"CODEX_HOME": "{here}/c/"}, "{here}/c", {"CODEX_HOME": "{here}/c"}),
        ({"CODEX_HOME": "c"}, "{here}/c", {"CODEX_HOME": "{here}/c"}),
        ({"CODEX_HOME": "~/c", "HOME": "{here}"}, "{here}/c", {"CODEX_HOME": "{here}/c", "HOME": "{here}"}),
        ({"CODEX_HOME": "b/link/../c"}, "{here}/a/c", {"CODEX_HOME": "{here}/a/c"}),
        ({"CODEX_HOME": DECOMPOSED}, "{here}/" + DECOMPOSED, {"CODEX_HOME": "{here}/" + DECOMPOSED}),
    ],
)
def test_the_folder_and_what_codex_is_told(
    environ: dict[str, str], folder: str, told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex resolves links and `..` as the system does (measured)."""
    (tmp_path / "a" / "real").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a" / "real")
    monkeypatch.chdir(tmp_path)
    environ = {name: value.format(here=tmp_path) for name, value in environ.items()} | {"OTHER": "~/kept"}
    given = {name: value.format(here=tmp_path) for name, value in told.items()}
    assert codex_home(environ) == Path(folder.format(here=tmp_path))
    assert settled(environ) == {**given, "OTHER": "~/kept"}
    assert codex_home(settled(environ)) == codex_home(environ)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """One that the user has named must be there; the default one is made by Codex."""
    require_codex_home({"HOME": str(tmp_path)})
    with pytest.raises(InternalError, match=f"^CODEX_HOME {tmp_path}/none cannot be used .it does not exist"):
        require_codex_home({"CODEX_HOME": f"{tmp_path}/none"})
    (tmp_path / ".codex").touch()
    with pytest.raises(InternalError, match=f"^CODEX_HOME {tmp_path}/.codex cannot be used"):
        require_codex_home({"CODEX_HOME": f"{tmp_path}/.codex"})
    with pytest.raises(InternalError, match=f"^The folder {tmp_path}/.codex cannot be used .*CODEX_HOME"):
        require_codex_home({"HOME": str(tmp_path)})
