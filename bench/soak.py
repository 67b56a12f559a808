"""A soak: random histories with the real agent and runtime, judged by the runtime's own store, the wire and the model's calls.

    python bench/soak.py --runtime claude|codex --steps N --seed S [--jobs N] [--length N] [--only I]
                         [--world NAME ... | --worlds] [--plant NAME] [--plants K]

Runs N random steps (prompts, retries, cancels, questions, kills, rival agents, the user's own turns; see
`adapters_tests/reliability/walk.py`) in histories of `--length` steps, each in a fresh home and session. Prints how often
what was hit, and every broken promise with the seed and the steps that led to it; `--only I` plays history I of the seed
alone. `--world` sets the histories in these worlds (`adapters_tests/reliability/worlds.py`), `--worlds` in all of them; the
seed of a history chooses among them. `--jobs` plays so many histories side by side.

`--plant` runs a copy of the agent with a fault in it, to see it caught. `--plants K` does that with every fault that can be
planted for this runtime (or the one that `--plant` names), with K seeds from `--seed` on, each until it is caught or N
steps are done, and prints after how many steps it was. Exit status 1 when a promise was broken, or with `--plants` when
a fault was not caught. Linux only.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from adapters_tests.e2e.rig import open_rig
from adapters_tests.e2e.runtimes import RUNTIMES, RuntimeUnderTest
from adapters_tests.reliability.plants import PLANTS, planted_copy
from adapters_tests.reliability.steps import Tally
from adapters_tests.reliability.walk import BrokenPromiseError, Walk
from adapters_tests.reliability.worlds import WORLDS, world_of, worlds_of

_TELL_EVERY = 10

RUNTIMES_BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}


def soak(runtime: RuntimeUnderTest, options: argparse.Namespace) -> int:
    """Play the histories; gives how many were broken."""
    total, broken, began, played = Tally(), 0, time.monotonic(), 0
    numbers = range(-(-options.steps // options.length)) if options.only is None else [options.only]
    seeds = [f"{options.seed}.{number}" for number in numbers]
    try:
        for tally, fault in histories(runtime, seeds, options):
            total.add(tally)
            played += 1
            if fault:
                broken += 1
                print(f"BROKEN {fault}", flush=True)
            if not played % _TELL_EVERY:
                print(f"  {total.steps.total()} steps, {time.monotonic() - began:.0f} s, {broken} broken", flush=True)
    finally:  # also when it is interrupted
        report(runtime.name, options.seed, total, broken, time.monotonic() - began)
    return broken


def histories(runtime: RuntimeUnderTest, seeds: list[str], options: argparse.Namespace) -> Iterator[tuple[Tally, str]]:
    """What each history came to, as they end. Each has a process of its own: a client and a judge cost as much as an agent."""
    deadline = time.monotonic() + 60 * options.minutes
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=20) as pool:
        left, running = list(reversed(seeds)), set[Future[tuple[Tally, str]]]()
        while running or left:
            while left and len(running) < options.jobs and time.monotonic() < deadline:
                running.add(pool.submit(play, runtime.name, left.pop(), options))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def play(runtime: str, seed: str, options: argparse.Namespace) -> tuple[Tally, str]:
    """Play one history, in a process of its own."""
    return anyio.run(history, RUNTIMES_BY_NAME[runtime], seed, options, options.plant)


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
            walk = Walk(rig, seed, world=PLANTS[plant].world if plant else world_of(seed, options.world))
            tally = walk.tally
            await walk.run(options.length)
    except BrokenPromiseError as error:
        fault = str(error)
    except Exception:  # noqa: BLE001 - a process left over, or a fault of the bench: told, and the soak goes on
        fault = f"history {seed}: {traceback.format_exc()}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally, fault


async def look_for_plants(runtime: RuntimeUnderTest, options: argparse.Namespace) -> int:
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
    parser.add_argument(
        "--world", nargs="+", default=["plain"], choices=sorted(WORLDS), help="set histories in these worlds"
    )
    parser.add_argument("--worlds", action="store_true", help="set histories in all worlds")
    parser.add_argument("--jobs", type=int, default=1, help="play so many histories side by side")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more histories after so many")
    parser.add_argument("--folder", default="/var/tmp", help="where homes are made")  # noqa: S108
    options = parser.parse_args()
    runtime = RUNTIMES_BY_NAME[options.runtime]
    options.world = worlds_of(runtime.name) if options.worlds else options.world
    for name in options.world:
        if lacking := WORLDS[name].needs():
            parser.error(f"the world {name} cannot be had here: {lacking}; name the others with --world")
    try:
        broken = anyio.run(look_for_plants, runtime, options) if options.plants else soak(runtime, options)
    except KeyboardInterrupt:
        return 130
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
