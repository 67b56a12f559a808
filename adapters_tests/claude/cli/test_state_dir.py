"""state.py: the state folder and its files are the user's alone, whatever the umask and whoever made the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.acp.errors import InternalError
from adapters.claude.cli import state_dir
from adapters.claude.cli.lock import lock_session
from adapters.claude.cli.state_dir import private_file, state_folder

pytestmark = pytest.mark.anyio

S = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """Modes must not depend on it."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, ".local/state/acp-adapters/claude"),
        ({"XDG_STATE_HOME": "{}/x"}, "x/acp-adapters/claude"),
        ({"XDG_STATE_HOME": "relative"}, ".local/state/acp-adapters/claude"),
        ({"ACP_ADAPTERS_STATE_DIR": "{}/a/b", "XDG_STATE_HOME": "{}/x"}, "a/b/claude"),
    ],
)
async def test_every_folder_and_file_is_the_owners_alone(tmp_path: Path, environ: dict[str, str], place: str) -> None:
    folder = state_folder({"HOME": str(tmp_path), **{name: value.format(tmp_path) for name, value in environ.items()}})
    assert folder == tmp_path / place
    made = folder
    while made != tmp_path:
        assert mode(made) == 0o700, made
        made = made.parent
    private_file(folder / "secret", b"x")
    lock = await lock_session(folder, S, bound=0)
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 2
    lock.release()


def test_a_folder_that_others_may_read_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "claude"
    folder.mkdir(parents=True)
    state_folder({"ACP_ADAPTERS_STATE_DIR": str(tmp_path / "s")})
    assert mode(folder) == 0o700


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could change the files in it under us."""
    monkeypatch.setattr(state_dir.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InternalError, match="belongs to another user"):
        state_folder({"ACP_ADAPTERS_STATE_DIR": str(tmp_path)})


@pytest.mark.parametrize("kind", ["lock", "draft"])
async def test_links_that_others_put_there_are_not_followed(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    name = f"{S}.lock" if kind == "lock" else f".{S}.mcp.json.{os.getpid()}"
    (tmp_path / name).symlink_to(victim)
    if kind == "lock":
        with pytest.raises(InternalError, match="cannot be used"):
            await lock_session(tmp_path, S, bound=0)
    else:
        with pytest.raises(OSError, match="symbolic links"):
            private_file(tmp_path / f"{S}.mcp.json", b"secret")
    assert victim.read_text() == "precious"
