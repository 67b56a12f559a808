"""Runtimes as plug-ins: what the commands need to know of a runtime, and which runtimes there are.

Owns the interface and the search. A package adds a runtime by an entry point of the group `acp_adapters.runtimes`. Its name is
the word after `acp-adapters`, its value an object with the members of `Plugin`. The two runtimes of this package are found by
name, because reading the metadata of the environment takes longer than a start may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from adapters.core.front import Prepare
    from adapters.core.port import Features, Runtime
    from adapters.scripted.script import Block, Script
    from adapters.scripted.server import ScriptedServer

__all__ = ["FAILED", "GROUP", "NOT_INSTALLED", "OK", "UNSURE", "Check", "Plugin", "load", "names"]

GROUP: Final = "acp_adapters.runtimes"
"""The group of entry points that brings runtimes."""

OWN: Final[Mapping[str, str]] = {"claude": "adapters.runtimes.claude", "codex": "adapters.runtimes.codex"}
"""Name -> the module whose `PLUGIN` is the runtime, for those that come with this package."""

OK: Final = "ok"
UNSURE: Final = "unsure"
"""Nothing is proved to be wrong, but the user should know."""
FAILED: Final = "failed"
"""The agent would not work."""
NOT_INSTALLED: Final = "not installed"
"""The name of the only check of a runtime that is not installed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding of `doctor`. `status`: OK, UNSURE or FAILED. `remedy` is the next step, for what is not OK."""

    name: str
    status: str
    detail: str
    remedy: str | None = None


class Plugin(Protocol):
    """One runtime. Its methods import what they need when they are called, so that `initialize` is answered before."""

    @property
    def title(self) -> str:
        """The runtime's name for people, as in `Claude Code`."""
        ...

    def missing(self, environ: Mapping[str, str]) -> str | None:
        """Why the runtime cannot be started, and what to do, in one sentence. None: it is installed."""
        ...

    def check_folder(self, environ: Mapping[str, str]) -> None:
        """Raises `AcpError` if the environment names no folder in which the runtime could keep its sessions."""
        ...

    def features(self) -> Features:
        """What its prompts, sessions and servers can be."""
        ...

    def driver(self, tasks: TaskGroup, environ: Mapping[str, str]) -> tuple[Callable[[], Runtime], Prepare | None]:
        """How to load the driver, whose tasks run in the group, and what can begin before that. See `core.front.serve`."""
        ...

    def doctor(self, environ: Mapping[str, str]) -> Sequence[Check]:
        """All that the runtime needs, in the order in which it needs it. Writes nothing, shows no secret."""
        ...

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        """The whole environment of a runtime in this home that talks to the scripted model at this URL. Makes the home."""
        ...

    def model(self, script: Script) -> ScriptedServer:
        """The scripted model that it can talk to. It is not started."""
        ...

    def asking(self, command: str) -> tuple[Block, Sequence[str]]:
        """The model's call of a shell command that the runtime asks the user about, and the modes in which it asks."""
        ...


def names() -> Sequence[str]:
    """All runtimes: this package's own first, then those of other packages, by name."""
    others = sorted({entry.name for entry in _entries()} - OWN.keys())
    return (*OWN, *others)


def load(name: str) -> Plugin:
    """The runtime of this name. Raises `KeyError` for a name that is not in `names`, and what importing it raises."""
    if name in OWN:
        return cast(Plugin, import_module(OWN[name]).PLUGIN)
    for entry in _entries():
        if entry.name == name:
            return cast(Plugin, entry.load())
    raise KeyError(name)


def _entries() -> Iterator[Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - see the head of this file

    yield from entry_points(group=GROUP)
