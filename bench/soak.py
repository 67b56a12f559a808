"""A soak: random histories with the real agent and runtime, judged by the runtime's own store, the wire and the model's calls.

    python bench/soak.py --runtime claude|codex --steps N --seed S [--length N] [--only I] [--plant NAME]

Runs N random steps (prompts, retries, cancels, questions, kills, rival agents, the user's own turns; see
`adapters_tests/reliability/walk.py`) in histories of `--length` steps, each in a fresh home and session. Prints how often
what was hit, and every broken promise with the seed and the steps that led to it; `--only I` plays history I of the seed
alone. `--plant` runs a copy of the agent with a fault in it, to see it caught. Exit status 1 when a promise was broken.
Linux only.
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
            # Not below the temp folder: Codex does not like a home there.
            folder = Path(tempfile.mkdtemp(prefix="soak-", dir=options.folder))
            walk: Walk | None = None
            try:
                async with runtime.model() as model, open_rig(runtime, model, folder / "h") as rig:
                    if options.plant:
                        rig.extra_env["PYTHONPATH"] = str(planted_copy(folder / "copy", options.plant))
                    walk = Walk(rig, f"{options.seed}.{number}")
                    await walk.run(options.length)
            except BrokenPromiseError as error:
                broken += 1
                print(f"BROKEN {error}", flush=True)
            except Exception as error:  # noqa: BLE001 - a process left over, or a fault of the bench: told, and the soak goes on
                broken += 1
                print(f"BROKEN history {options.seed}.{number}: {type(error).__name__}: {error}", flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            if walk:
                total.add(walk.tally)
            if not (number + 1) % _TELL_EVERY:
                print(f"  {total.steps.total()} steps, {time.monotonic() - began:.0f} s, {broken} broken", flush=True)
    finally:  # also when it is interrupted
        report(runtime.name, options.seed, total, broken, time.monotonic() - began)
    return broken


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
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a fault for a copy of the agent")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more histories after so many")
    parser.add_argument("--folder", default="/var/tmp", help="where homes are made")  # noqa: S108
    options = parser.parse_args()
    [runtime] = [runtime for runtime in RUNTIMES if runtime.name == options.runtime]
    try:
        return 1 if anyio.run(soak, runtime, options) else 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
