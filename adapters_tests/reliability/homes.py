"""Homes of other kinds: on a small disk that can be filled, or under a name that is spelled in another way.

Each is a context manager that arranges a rig's home before its first agent, and puts back what it has done to the machine. A
disk is mounted in a mount namespace of this process alone, so nobody else sees it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from unicodedata import normalize

from adapters_tests.e2e.rig import Rig

_NEW_NAMESPACE = 0x00020000
"""CLONE_NEWNS: `os.unshare` came with Python 3.12."""

_TRIES, _TRY_EVERY = 50, 0.1

_SIZE = "64m"
"""Of the disk: a home of Codex takes some MB."""


def runtime_folder(rig: Rig) -> Path:
    """The runtime's own folder in an isolated home."""
    return rig.root / rig.runtime.name


def variable_of(rig: Rig) -> str:
    """What names that folder to the runtime."""
    return {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}[rig.runtime.name]


# --- disks -------------------------------------------------------------------------------------------------------------


@cache
def own_namespace() -> str:
    """Give this process mounts of its own, once. Empty when that worked, else why not."""
    if sys.platform != "linux":
        return "there are no mount namespaces"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE):
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


@contextmanager
def on_small_disk(rig: Rig, _random: Random) -> Iterator[None]:
    """The runtime's folder is on a disk of its own."""
    why_not = own_namespace()
    if why_not:
        raise OSError(why_not)
    folder = runtime_folder(rig)
    folder.mkdir(mode=0o700)
    _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "tmpfs", str(folder))
    try:
        rig.fixed_env = rig.env
        yield
    finally:
        _run("umount", "--lazy", str(folder))


@contextmanager
def full(folder: Path, left: int) -> Iterator[None]:
    """The disk is full, but for so many bytes and what is left of the last page of each file."""
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        size = 0
        for step in (1 << 20, 1 << 14, 1 << 12):
            with suppress(OSError):
                while True:
                    os.posix_fallocate(descriptor, size, step)
                    size += step
        os.truncate(descriptor, max(0, size - left))
        yield
    finally:
        os.close(descriptor)
        filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The disk cannot be written. Only while nobody has a file open on it for writing."""
    for patience in range(_TRIES, -1, -1):  # the kernel closes the files of a killed process a little later
        try:
            _run("mount", "-o", "remount,ro", str(folder))
            break
        except subprocess.CalledProcessError:
            if not patience:
                raise
            time.sleep(_TRY_EVERY)
    try:
        yield
    finally:
        _run("mount", "-o", "remount,rw", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


# --- spellings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the variable names the runtime's folder, and where that is."""

    spelled: Callable[[Path], str]
    """Root of the home -> value of the variable."""
    folder: str
    """Below the root: the one folder that this can mean, for an agent that is started in the root."""
    refusable: bool = False
    """The agent may refuse it, by the name of the variable."""


_COMPOSED = normalize("NFC", "con\u0301fig \u00fcber")
_DECOMPOSED = normalize("NFD", _COMPOSED)

SPELLINGS: dict[str, Spelling] = {
    "blanks": Spelling(lambda root: str(root / "my  config "), "my  config "),
    "composed": Spelling(lambda root: str(root / _COMPOSED), _COMPOSED),
    "decomposed": Spelling(lambda root: str(root / _DECOMPOSED), _DECOMPOSED, refusable=True),
    "link": Spelling(lambda root: str(root / "link to it"), "behind a link"),
    "slashes": Spelling(lambda root: f"{root}//slashes///", "slashes"),
    "dots": Spelling(lambda root: f"{root}/project/../dots", "dots", refusable=True),
    "relative": Spelling(lambda _: "relative", "relative", refusable=True),
    "relative with dots": Spelling(lambda _: "./project/../relative", "relative", refusable=True),
    "tilde": Spelling(lambda _: "~/cfg", "cfg", refusable=True),
    "empty": Spelling(lambda _: "", "", refusable=True),
}
"""Spellings of a folder's name, by what is odd about them."""

_DEFAULT = {"claude": ".claude", "codex": ".codex"}


@contextmanager
def spelled(rig: Rig, random: Random, name: str = "") -> Iterator[None]:
    """The runtime's folder is another one, under this odd name or any; where the rig looks is a link to it."""
    name = name or random.choice(list(SPELLINGS))
    spelling = SPELLINGS[name]
    below = spelling.folder or _DEFAULT[rig.runtime.name]
    if rig.runtime.name == "claude":  # which composes the whole path by itself; Codex takes it as it is
        below = normalize("NFC", below)
    folder = rig.root / below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (rig.root / "project").mkdir()
    if name == "link":
        (rig.root / "link to it").symlink_to(folder)
    runtime_folder(rig).symlink_to(folder)
    rig.extra_env[variable_of(rig)] = spelling.spelled(rig.root)
    rig.user_env[variable_of(rig)] = str(folder)  # the user's shell stands elsewhere
    yield


def may_be_refused(rig: Rig) -> bool:
    """Whether the agent may refuse the name that the runtime's folder has in this rig."""
    value = rig.extra_env.get(variable_of(rig))
    return any(spelling.refusable and spelling.spelled(rig.root) == value for spelling in SPELLINGS.values())
