"""What a runtime could write outside of a test's own folder, as a listing before the suite and after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
_RUNTIMES_OWN: Final = (".claude", ".claude.json", ".codex", ".mcp.json")
_SETTINGS: Final = ("settings.json", "settings.local.json", "config.toml")
_TOOLS_OWN: Final = {".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", ".coverage", "__pycache__"}


def listing(*places: Path) -> dict[str, int | None]:
    """What runtimes keep in these folders and in all folders above them, and every hidden file of the repository.

    A name -> the time of the last change for files of settings; the rest is a user's too, who may be at work meanwhile.
    """
    folders = {folder for place in places for folder in (place.resolve(), *place.resolve().parents)}
    found: dict[str, int | None] = {}
    for path in (folder / name for folder in folders for name in _RUNTIMES_OWN):
        if path.exists():
            found[str(path)] = None
            found |= {str(file): file.stat().st_mtime_ns for name in _SETTINGS if (file := path / name).is_file()}
    return found | {str(path): None for path in _hidden(REPOSITORY)}


def naming(temporary: Path) -> list[Path]:
    """Files of settings above a temporary folder that name it. Others share the folders above, and may run older tests."""
    files = (folder / own / name for folder in temporary.parents for own in _RUNTIMES_OWN for name in _SETTINGS)
    return [file for file in files if file.is_file() and str(temporary) in file.read_text(errors="replace")]


def _hidden(folder: Path, *, inside: bool = False) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _TOOLS_OWN or path.name.startswith(".coverage"):
            continue
        hidden = inside or path.name.startswith(".")
        if hidden:
            yield path
        if path.is_dir() and not path.is_symlink() and path.name != "node_modules":
            yield from _hidden(path, inside=hidden)
