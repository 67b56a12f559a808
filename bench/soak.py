"""A soak: random histories with the real agent and runtime, judged by the runtime's own store, the wire and the model's calls.

    python bench/soak.py --runtime claude|codex --steps N --seed S [--length N] [--only I] [--plant NAME] [--plants K]

Runs N random steps (prompts, retries, cancels, questions, kills, rival agents, the user's own turns; see
`adapters_tests/reliability/walk.py`) in histories of `--length` steps, each in a fresh home and session. Prints how often
what was hit, and every broken promise with the seed and the steps that led to it; `--only I` plays history I of the seed
alone. `--plant` runs a copy of the agent with a fault in it, to see it caught. `--plants K` does that with every fault that
can be planted for this runtime (or the one that `--plant` names), with K seeds from `--seed` on, each until it is caught or
N steps are done, and prints after how many steps it was. Exit status 1 when a promise was broken, or with `--plants` when
a fault was not caught. Linux only.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from adapters_tests.e2e.rig import open_rig
from adapters_tests.e2e.runtimes import RUNTIMES, RuntimeUnderTest
from adapters_tests.reliability.plants import PLANTS, planted_copy
from adapters_tests.reliability.steps import Tally
from adapters_tests.reliability.walk import BrokenPromiseError, Walk

_TELL_EVERY = 10


async def soak(runtime: RuntimeUnderTest, options: argparse.Namespace) -> int:
    """Play the histories; gives how many were broken."""
    total, broken, began = Tally(), 0, time.monotonic()
    numbers: Sequence[int] = range(-(-options.steps // options.length))
    try:
        for number in numbers if options.only is None else [options.only]:
            if time.monotonic() - began > 60 * options.minutes:
                break
            tally, fault = await history(runtime, f"{options.seed}.{number}", options, options.plant)
            total.add(tally)
            if fault:
                broken += 1
                print(f"BROKEN {fault}", flush=True)
            if not (number + 1) % _TELL_EVERY:
                print(f"  {total.steps.total()} steps, {time.monotonic() - began:.0f} s, {broken} broken", flush=True)
    finally:  # also when it is interrupted
        report(runtime.name, options.seed, total, broken, time.monotonic() - began)
    return broken


async def history(
    runtime: RuntimeUnderTest, seed: str, options: argparse.Namespace, plant: str | None
) -> tuple[Tally, str]:
    """Play one history in a home of its own; gives what happened, and what was broken, empty if nothing was."""
    # Not below the temp folder: Codex does not like a home there.
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=options.folder))
    tally, fault = Tally(), ""
    try:
        async with runtime.model() as model, open_rig(runtime, model, folder / "h") as rig:
            if plant:
                rig.extra_env["PYTHONPATH"] = str(planted_copy(folder / "copy", plant))
            walk = Walk(rig, seed)
            tally = walk.tally
            await walk.run(options.length)
    except BrokenPromiseError as error:
        fault = str(error)
    except Exception as error:  # noqa: BLE001 - a process left over, or a fault of the bench: told, and the soak goes on
        fault = f"history {seed}: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally, fault


async def plants(runtime: RuntimeUnderTest, options: argparse.Namespace) -> int:
    """Look for every planted fault; gives how many of the tries did not find it."""
    tried = missed = 0
    print(
        f"{runtime.name}: steps until a planted fault is caught, '-' if it was not in {options.steps}; what was said first"
    )
    names = [options.plant] if options.plant else [name for name in PLANTS if runtime.name in PLANTS[name].runtimes]
    for plant in names:
        steps: list[str] = []
        said = ""
        for seed in range(options.seed, options.seed + options.plants):
            count, fault = await _caught(runtime, seed, plant, options)
            steps.append(str(count) if fault else "-")
            said = said or fault.partition("\n")[2].strip().partition("\n")[0] or fault
        tried, missed = tried + len(steps), missed + steps.count("-")
        print(f"  {plant:26} {' '.join(f'{count:>3}' for count in steps)}  {said}", flush=True)
    print(f"caught {tried - missed} of {tried}")
    return missed


async def _caught(runtime: RuntimeUnderTest, seed: int, plant: str, options: argparse.Namespace) -> tuple[int, str]:
    """After how many steps the fault was caught and as what; empty if it was not."""
    steps = number = 0
    while steps < options.steps:
        tally, fault = await history(runtime, f"{seed}.{number}", options, plant)
        steps += tally.steps.total()
        number += 1
        if fault:
            return steps, fault
    return steps, ""


def report(runtime: str, seed: int, total: Tally, broken: int, seconds: float) -> None:
    """What was hit how often."""
    print(f"\n{runtime}, seed {seed}: {total.steps.total()} steps in {total.histories} histories, {seconds:.0f} s")
    for name, count in sorted(total.steps.items(), key=lambda item: -item[1]):
        print(f"  {name:16} {count:6}")
    answers = {name: total.outcomes[name] for name in ("ok", "failed", "unknown", "open")}
    print(f"attempts: {sum(answers.values())}, answered ok {answers['ok']}, refused {answers['failed']}, ", end="")
    print(f"answer lost or not known {answers['unknown']}, left without an answer {answers['open']}")
    others = {name: count for name, count in total.outcomes.items() if name not in answers}
    print(f"model calls: {total.model_calls}; {', '.join(f'{name}: {count}' for name, count in others.items())}")
    print(f"torn insertions seen: {total.torn}; histories that broke a promise: {broken}", flush=True)


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", required=True, choices=[runtime.name for runtime in RUNTIMES])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--length", type=int, default=40, help="steps of one history")
    parser.add_argument("--only", type=int, help="play this history of the seed alone")
    parser.add_argument("--plants", type=int, help="look for every planted fault, with so many seeds")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a fault for a copy of the agent")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more histories after so many")
    parser.add_argument("--folder", default="/var/tmp", help="where homes are made")  # noqa: S108
    options = parser.parse_args()
    [runtime] = [runtime for runtime in RUNTIMES if runtime.name == options.runtime]
    try:
        return 1 if anyio.run(plants if options.plants else soak, runtime, options) else 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
