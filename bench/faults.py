"""Every fault at every operation on a keyed prompt's way, in the real agent and the real runtime.

    python bench/faults.py --runtime claude|codex [--scenario resume|new|fold ...] [--kind KIND ...] [--world NAME]
        [--every N [--offset N]]

For each point: the agent runs until the fault, a fresh agent resumes the session and sends the same prompt again, and the
history is judged (`adapters_tests/reliability/history.py`): answers, ids, the runtime's own store, model calls. Prints a line
per broken promise and a table; exit status 1 when there is one. `--world` chooses another home, as in a world of the soak.
Scripted model on 127.0.0.1, a temporary home. Linux only.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from adapters_tests.e2e.rig import open_rig
from adapters_tests.e2e.runtimes import RUNTIMES, RuntimeUnderTest
from adapters_tests.reliability.points import KINDS, SCENARIOS, Bench, Result, points_of
from adapters_tests.reliability.worlds import WORLDS

ARRANGED = [name for name, world in WORLDS.items() if world.home is not WORLDS["plain"].home]
"""The worlds that arrange a home; the others differ in their steps only, and here the steps are those of the scenario."""


async def run(runtime: RuntimeUnderTest, options: argparse.Namespace) -> list[Result]:
    """Play the points; each scenario has a home of its own."""
    results: list[Result] = []
    deadline = time.monotonic() + 60 * options.minutes
    for scenario in options.scenario:
        # Not below the temp folder: Codex does not like a home there.
        root = Path(tempfile.mkdtemp(prefix="faults-", dir=options.folder))
        try:
            async with runtime.model() as model, open_rig(runtime, model, root / "h") as rig, AsyncExitStack() as stack:
                stack.enter_context(WORLDS[options.world].home(rig, Random(f"home of {scenario}")))
                stack.push_async_callback(rig.all_gone)  # before the home is put back
                bench = Bench(rig)
                labels = max([await bench.operations(scenario) for _ in range(2)], key=len)
                points = [point for point in points_of(scenario, labels) if point.kind in options.kind]
                points = points[options.offset :: options.every]
                say(f"{runtime.name} {scenario}: {len(labels)} operations, {len(points)} points")
                for number, point in enumerate(points, 1):
                    if time.monotonic() > deadline:
                        say(f"  time is up: {len(points) - number + 1} points of {scenario} were not tried")
                        break
                    results.append(await bench.play(point))
                    report(results[-1], number, len(points), verbose=options.verbose)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return results


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def report(result: Result, number: int, count: int, *, verbose: bool) -> None:
    """A line for a broken promise; all of them with --verbose, and one now and then."""
    if verbose or number % 50 == 0:
        say(
            f"  {number}/{count} {result.point} -> {result.hit or 'not reached'}, {result.first}, {result.seconds:.1f} s"
        )
    for fault in result.faults:
        say(f"  BROKEN {result.point}: {fault}")


def table(runtime: str, results: list[Result]) -> None:
    """What was hit, and what came of it."""
    say(f"\n{runtime}: fault, points, of them reached, first attempt ok / failed / unknown / not opened, broken")
    for kind in [kind for kind in KINDS if any(result.point.kind == kind for result in results)]:
        some = [result for result in results if result.point.kind == kind]
        first = Counter(result.first.partition(":")[0].partition(",")[0] for result in some if result.hit)
        outcomes = " / ".join(str(first[name]) for name in ("ok", "failed", "unknown", "not opened"))
        reached, broken = sum(bool(result.hit) for result in some), sum(bool(result.faults) for result in some)
        say(f"  {kind:13} {len(some):5} {reached:5}   {outcomes:22} {broken:3}")
    reached = [result for result in results if result.hit]
    say(
        f"total: {len(results)} points, {len(reached)} reached, {sum(result.attempts for result in results)} attempts, "
        f"{sum(result.lost for result in results)} answers lost, {sum(result.calls for result in results)} model calls, "
        f"{sum(result.torn for result in results)} torn insertions, {sum(bool(r.faults) for r in results)} broken promises"
    )


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", required=True, choices=[runtime.name for runtime in RUNTIMES])
    parser.add_argument("--scenario", nargs="*", default=list(SCENARIOS), choices=SCENARIOS)
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--world", default="plain", choices=["plain", *ARRANGED], help="the home of this world")
    parser.add_argument("--every", type=int, default=1, help="only every Nth point ...")
    parser.add_argument("--offset", type=int, default=0, help="... behind so many")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more points after so many")
    parser.add_argument("--folder", default="/var/tmp", help="where homes are made")  # noqa: S108
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if lacking := WORLDS[options.world].needs():
        parser.error(f"the world {options.world} cannot be had here: {lacking}")
    [runtime] = [runtime for runtime in RUNTIMES if runtime.name == options.runtime]
    results = anyio.run(run, runtime, options)
    table(runtime.name, results)
    return 1 if any(result.faults for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
