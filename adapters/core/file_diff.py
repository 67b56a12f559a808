"""File changes as content of a tool call, as version 2 of the protocol shows them (DIFF-1 to DIFF-4).

Owns that rendering, and that the changes themselves stay with it up to a connection: another version shows them otherwise, and
could not get their texts back out of a patch. Reads no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import PrivateAttr

from adapters.acp import git_patch
from adapters.acp.schema import (
    AddChange,
    DeleteChange,
    DiffChange,
    DiffItem,
    DiffPatch,
    ModifyChange,
    MoveChange,
    SessionUpdate,
    ToolCallUpdate,
    dump,
)
from adapters.core.file_change import FileChange


class FileDiff(DiffItem):
    """A diff that knows the changes that it shows."""

    _files: tuple[FileChange, ...] = PrivateAttr(())

    @classmethod
    def of(cls, *files: FileChange) -> Self:
        """The diff of these changes: all of them, and the patch where it says the same (DIFF-1, DIFF-2)."""
        fields: dict[str, Any] = {"changes": [_change(file) for file in files]}
        patch = "".join(map(_patch, files)) if all(file.is_known for file in files) else ""
        if patch:
            fields["patch"] = DiffPatch(format="git_patch", text=patch)
        diff = cls(**fields)
        diff._files = files
        return diff

    @property
    def files(self) -> Sequence[FileChange]:
        """The changes, in order."""
        return self._files

    @property
    def says_all(self) -> bool:
        """Whether it has the text of the changes too, all of it."""
        return self.patch is not None


class WireDiff(dict[str, Any]):
    """A diff as on the wire, with the changes that it shows, which are not sent."""

    __slots__ = ("files",)

    def __init__(self, wire: dict[str, Any], files: Sequence[FileChange]) -> None:
        super().__init__(wire)
        self.files = files


def wire_of(update: SessionUpdate) -> dict[str, Any]:
    """An update as on the wire; its diffs are `WireDiff`s, which an encoder takes for what they are there."""
    wire = dump(update)
    if isinstance(update, ToolCallUpdate) and update.content:
        for place, item in enumerate(update.content):
            if isinstance(item, FileDiff):
                wire["content"][place] = WireDiff(wire["content"][place], item.files)
    return wire


def _change(file: FileChange) -> DiffChange:
    match file.operation:
        case "add":
            return AddChange(path=file.path)
        case "delete":
            return DeleteChange(path=file.path)
        case "move":
            return MoveChange(path=file.path, old_path=file.old_path)
        case "modify":
            return ModifyChange(path=file.path)


def _patch(file: FileChange) -> str:
    """The patch of a change that is known; empty where nothing changed."""
    match file:
        case FileChange(operation="add", new=str(text)):
            return git_patch.added(file.path, text)
        case FileChange(operation="delete", old=str(text)):
            return git_patch.deleted(file.path, text)
        case FileChange(hunks=str(hunks)):
            return git_patch.changed(file.path, hunks, old_path=file.old_path or None)
        case FileChange(old=str(old), new=str(new)):
            return git_patch.replaced(file.path, old, new)
        case _:
            return ""
