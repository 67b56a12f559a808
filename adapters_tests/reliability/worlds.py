"""Worlds: what a history may be set in besides its plain steps. A table.

How the steps are done is told by `client_steps`, `store_steps` and `process_steps`, how homes are arranged by `homes`.

A world adds steps to those of `walk`, and may change how the home is made and how agents are started in it. The seed of a
history chooses its world, so a seed still gives the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random

from adapters_tests.e2e.rig import Rig
from adapters_tests.reliability import homes


@dataclass(frozen=True, slots=True)
class World:
    """One dimension of what is around a runtime."""

    says: str
    """What is different in it."""
    steps: Mapping[str, int] = field(default_factory=dict[str, int])
    """What may happen besides the plain steps, and how often."""
    runtimes: tuple[str, ...] = ("claude", "codex")
    home: Callable[[Rig, Random], AbstractContextManager[None]] = lambda _rig, _random: nullcontext()
    """Arranges the home before the first agent. Raises `OSError` where this machine cannot."""
    needs: Callable[[], str] = str
    """What this machine lacks for it; empty when nothing."""
    odd_stderr: bool = False
    """Nobody reads what agents write to stderr."""


WORLDS: dict[str, World] = {
    "plain": World("One session and a sibling, one folder of each kind, plain texts, a store that can be written."),
    "sessions": World(
        "Several sessions, closed and reopened in turn, and killed while they are closed.",
        {
            "open_other": 8, "prompt_other": 8, "close_other": 4, "close_and_kill": 4, "end_and_kill": 3, "list_all": 4,
        },
    ),
    "blocks": World(
        "Prompts that look like a tool's result, a command, a runtime's own text; blanks, half pairs, big and many blocks.",
        {"submit_odd": 14, "submit_blanks": 4, "fold_odd": 4},
    ),
    "elsewhere": World(
        "Agents with another home or state folder on the same sessions: a container, another user's shell.",
        {"rival_elsewhere": 5, "key_to_both": 5, "successor_elsewhere": 4},
    ),
    "databases": World(
        "Codex's databases are locked by somebody, cannot be written, are gone, or are older than its files.",
        {"lock_database": 5, "close_under_lock": 4, "freeze_database": 4, "lose_database": 3, "old_database": 4},
        ("codex",),
    ),
    "copies": World(
        "Copies of a session's file in other project folders: newer, older, torn.",
        {"copy_session": 8, "copy_old_session": 5, "resend_folded": 4, "kill_both": 2},
        ("claude",),
    ),
    "disk": World(
        "The disk of the runtime's folder is full for a while, or cannot be written.",
        {"full_disk": 10, "read_only_disk": 5},
        home=homes.on_small_disk,
        needs=homes.own_namespace,
    ),
    "spellings": World(
        "The runtime's folder has an odd name, or its name is spelled in an odd way.",
        {"kill_both": 4, "guest_agent": 4, "own_turn": 4},
        home=homes.spelled,
    ),
    "a relative folder": World(
        "As `spellings`, always relative: to the agent, not to the folders that it works in.",
        {"kill_both": 4},
        home=partial(homes.spelled, name="relative"),
    ),
    "stderr": World(
        "The agent's stderr is closed, full, or read by nobody.",
        {"garbage": 10, "end_agent": 4, "kill_agent": 4},
        odd_stderr=True,
    ),
    "reaper": World(
        "The reaper is killed, and tools will not end by TERM or have left their group.",
        {"kill_reaper": 4, "stubborn_tool": 6, "nothing_left": 8},
    ),
}  # fmt: skip
"""The worlds by their names."""


def worlds_of(runtime: str) -> list[str]:
    """The worlds in which this runtime can live."""
    return [name for name, world in WORLDS.items() if runtime in world.runtimes]


def world_of(seed: str, names: Sequence[str]) -> str:
    """The one of these worlds that the seed chooses."""
    return Random(f"world of {seed}").choice(names)


def steps_of(seed: str, count: int, plain: Mapping[str, int], world: World) -> list[str]:
    """The steps of a history in a world."""
    weights = {**plain, **world.steps}
    return Random(f"steps of {seed}").choices(list(weights), list(weights.values()), k=count)
