"""The command `acp-adapters check`: from its options to an exit status. Owns folders, environment and scripted model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

import anyio

from adapters.check import report
from adapters.check.bench import Bench
from adapters.check.catalogue import CATALOGUE, rules
from adapters.check.launch import Launcher, ProcessLauncher
from adapters.check.run import Runner
from adapters.check.stage import FreeStage, ScriptedStage, Stage
from adapters.check.verdict import Outcome
from adapters.scripted.home import work_folder
from adapters.scripted.script import Block, Script
from adapters.scripted.server import ScriptedServer

__all__ = [
    "Request",
    "Scripted",
    "choose",
    "list_rules",
    "run_check",
]

BOUND = 20.0
"""Seconds of any one wait."""
_SIGN_EVERY = 5.0
"""Seconds without a decided rule after which the check shows that it is alive."""


class Scripted(Protocol):
    """What is needed of a runtime that talks to a scripted model: a part of `adapters.plugins.Plugin`."""

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        """The whole environment of a runtime in this home that talks to the model at this URL."""
        ...

    def model(self, script: Script) -> ScriptedServer:
        """The model, not started."""
        ...

    def asking(self, command: str) -> tuple[Block, Sequence[str]]:
        """The model's call of a shell command that the runtime asks about, and the modes in which it asks."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """What to check, and how."""

    command: Sequence[str]
    scripted: Scripted | None = None
    """The runtime behind the command, if it shall talk to a scripted model."""
    prompts: bool = False
    """Without `scripted`: whether prompts may be sent."""
    cwd: Path | None = None
    bound: float = BOUND
    chosen: frozenset[str] | None = None
    as_json: bool = False


def choose(words: str) -> frozenset[str]:
    """The rules named in a list like `KEY-4,TRACE`: ids, or everything up to a dash. Raises `ValueError` for others."""
    chosen: set[str] = set()
    for word in filter(None, (part.strip().upper() for part in words.split(","))):
        found = {rule.id for rule in rules() if rule.id.upper() == word or rule.id.upper().partition("-")[0] == word}
        if not found:
            raise ValueError(f"there is no rule {word!r}; --list shows all")
        chosen |= found
    return frozenset(chosen)


def list_rules(out: TextIO) -> int:
    """Print the table."""
    for section in CATALOGUE:
        print(f"\n{section.title}", file=out)
        for rule in section.rules:
            should = "should: " if rule.level == "should" else ""
            print(f"  {rule.id:<9}  {should}{rule.sentence} [{rule.source}]", file=out)
    return 0


async def run_check(request: Request, out: TextIO, progress: Callable[[str], object] | None = None) -> int:
    """Check the command and print what comes out. Gives 0, or 1 when a rule is broken or the check failed.

    As JSON it is printed at the end, and `progress` is called with the lines of the rules meanwhile. Leaves nothing behind.
    """
    folder = _temporary_folder()
    try:
        async with _stage(request, folder) as (stage, launcher, cwd):
            bench = Bench(launcher, stage, cwd, request.bound)
            return await _check(request, bench, out, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="acp-check-")).resolve()


async def _check(request: Request, bench: Bench, out: TextIO, progress: Callable[[str], object] | None) -> int:
    def write(text: str) -> None:
        if not request.as_json:
            print(text, end="", file=out, flush=True)
        elif progress is not None:
            progress(text)

    printer = report.Printer(write, CATALOGUE)
    may_prompt = request.prompts or request.scripted is not None
    runner = Runner(bench, CATALOGUE, request.chosen, prompts=may_prompt)
    async with signs_of_life(runner, printer, progress):
        outcomes: list[Outcome] = await runner.run(printer.tell)
    if request.as_json:
        print(report.as_json(outcomes, bench, request.command), file=out, flush=True)
    else:
        printer.summary(outcomes, bench, _misplaced(request.command, bench.cwd))
    return int(any(report.is_failure(outcome) or outcome.undecided for outcome in outcomes))


def _misplaced(command: Sequence[str], folder: Path) -> list[str]:
    """Arguments that name something from where the user is, and nothing from the folder in which the command is started."""
    values = ((word, word.partition("=")[2] if word.startswith("-") else word) for word in command[1:])
    exists = os.path.exists  # False, not an error, for what can be no path
    return [word for word, path in values if path and exists(path) and not exists(folder / path)]


@asynccontextmanager
async def signs_of_life(
    runner: Runner, printer: report.Printer, progress: Callable[[str], object] | None
) -> AsyncGenerator[None]:
    """While no rule is decided, say every few seconds where the check is and how long it has taken."""

    async def say(write: Callable[[str], object]) -> None:
        start = last = anyio.current_time()
        told = printer.told
        while True:
            await anyio.sleep(_SIGN_EVERY / 10)
            now = anyio.current_time()
            if printer.told != told:
                told, last = printer.told, now
            elif now - last >= _SIGN_EVERY:
                last = now
                write(report.sign_of_life(runner.number, runner.total, runner.at, now - start))

    failure: Exception | None = None  # of the body: it leaves as it is, not in the task group's group
    async with anyio.create_task_group() as tasks:
        if progress is not None:
            tasks.start_soon(say, progress)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def _stage(request: Request, folder: Path) -> AsyncGenerator[tuple[Stage, Launcher, Path]]:
    """The model, the launcher and the working folder. A folder of ours is used unless one is named."""
    cwd = request.cwd or work_folder(folder / "project")
    cwd = Path(await anyio.Path(cwd).resolve())
    if request.scripted is None:
        yield FreeStage(), ProcessLauncher(request.command, os.environ, cwd), cwd
        return
    async with request.scripted.model(Script()) as model:
        env = request.scripted.isolated(folder, model.base_url)
        yield ScriptedStage(model, request.scripted.asking, cwd), ProcessLauncher(request.command, env, cwd), cwd
