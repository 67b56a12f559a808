"""What all comparisons share: rows with their budgets, runs in turns, the table, and the command line.

Knows no agent and no measurement.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from agents import RUNTIMES, Contender, Runtime, node_modules

from adapters import __version__


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is measured; `budget` says in words what `share` and `most` check on (ours, theirs)."""

    name: str
    unit: str
    budget: str = ""
    share: float | None = None
    """Ours may be at most this share of theirs."""
    most: float | None = None
    """Ours may be at most this, in `unit`."""


Values = list[float | None]
"""One for each row; None where a contender has no such thing."""

Measure = Callable[[Runtime, Contender], Awaitable[Values]]


async def in_turns(
    runtime: Runtime, contenders: Sequence[Contender], runs: int, measure: Measure, *, warm_up: bool = True
) -> dict[str, list[Values]]:
    """Measure in turns, after one run of each that is not counted (it fills the disk cache)."""
    values: dict[str, list[Values]] = {contender.name: [] for contender in contenders}
    for number in range(-1 if warm_up else 0, runs):
        for contender in contenders:
            measured = await measure(runtime, contender)
            if number >= 0:
                values[contender.name].append(measured)
    return values


def table(rows: Sequence[Row], contenders: Sequence[Contender], values: dict[str, list[Values]]) -> str:
    """The rows as a Markdown table: median (least to most), ratio of the medians, budget. Ours is the first contender."""
    names = [contender.name for contender in contenders]
    lines = [f"| | {' | '.join(names)} | ratio | budget |", "|---" * (len(names) + 3) + "|"]
    for index, row in enumerate(rows):
        columns = [[value for run in values[name] if (value := run[index]) is not None] for name in names]
        middle = [statistics.median(column) if column else None for column in columns]
        us, them = middle[0], middle[1] if len(middle) > 1 else None
        ratio = us / them if us is not None and them else None
        within = (row.share is None or (ratio is not None and ratio <= row.share)) and (
            row.most is None or (us is not None and us <= row.most)
        )
        budget = f"{row.budget}: {'kept' if within else 'OVER'}" if row.budget else ""
        cells = " | ".join(_cell(column, row.unit) for column in columns)
        lines.append(f"| {row.name} | {cells} | {'' if ratio is None else f'{ratio:.2f}'} | {budget} |")
    return "\n".join(lines)


def _cell(values: Sequence[float], unit: str) -> str:
    if not values:
        return "-"
    digits = 0 if statistics.median(values) >= 20 else 1 if statistics.median(values) >= 2 else 2  # noqa: PLR2004
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} {unit} ({least} to {most})"


def run(description: str, runs: int, compare: Callable[[Runtime, Contender, Contender, int], Awaitable[str]]) -> None:
    """Read the arguments, compare for each runtime, print one table for each."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("runtime", nargs="*", choices=[*RUNTIMES, []], help="claude, codex (default: both)")
    parser.add_argument(
        "--npm", type=Path, metavar="DIR", help="folder with node_modules (default: install into a temporary one)"
    )
    parser.add_argument("--runs", type=int, default=runs, help=f"runs of each (default: {runs})")
    options = parser.parse_args()
    runtimes = [RUNTIMES[name] for name in options.runtime or RUNTIMES]
    with node_modules(runtimes, options.npm) as folder:
        print(f"acp-adapters {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, ", end="")
        print(f"{options.runs} runs each in turns; median (least to most)")
        for runtime in runtimes:
            before = os.getloadavg()[0]
            shown = anyio.run(compare, runtime, runtime.ours(), runtime.theirs(folder), options.runs)
            load = f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after"
            print(f"\n{runtime.title} ({runtime.version()}); {load}\n\n{shown}", flush=True)
