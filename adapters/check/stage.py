"""What a rule can make the model do: answer, fail, wait during work, call a tool that waits or asks.

A scripted model does all of this exactly, and counts. For any other model the best available is a prompt that takes a while.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import anyio

from adapters.check.verdict import NotApplicable
from adapters.scripted.calls import holds
from adapters.scripted.gates import Gate
from adapters.scripted.script import Answer, Block, HttpFailure, Rule, Shell, Text, say
from adapters.scripted.server import ScriptedServer

Pause = Literal["model", "tool"]
"""Where work waits: before the model has said anything, or in a running tool."""


class Held(Protocol):
    """Work that waits until it is released."""

    async def arrived(self, within: float) -> None:
        """Return when the work waits. Raises `TimeoutError`."""
        ...

    def release(self) -> None:
        """Let it go on."""
        ...


class Stage(Protocol):
    """The model behind the agent."""

    controlled: bool
    """Whether work can be made to wait, fail and ask; without it such rules try with a long prompt, or do not apply."""

    def hold(self, text: str, pause: Pause) -> Held:
        """Make the work on this prompt wait."""
        ...

    def fail(self, text: str) -> None:
        """Make the model refuse this prompt for good. Raises `NotApplicable`."""
        ...

    def ask(self, text: str, file: Path) -> Sequence[str]:
        """Make the model call a tool that needs a permission and writes this file.

        Gives the values for options of category "mode" at which the agent asks: the first that is offered counts.
        Raises `NotApplicable`.
        """
        ...

    def calls(self, text: str) -> int | None:
        """The number of times the model was asked to answer this prompt; None if calls are not counted."""
        ...


LONG = "Please write the numbers from one to three hundred as words, one per line, and use no tool for it."
"""The prompt whose work takes a while with a real model."""


_TITLE_REQUEST = "<session>"
"""How Claude Code begins a request for a title, which some agents ask for."""


class FreeStage:
    """Any model: nothing can be arranged."""

    controlled = False

    def hold(self, text: str, pause: Pause) -> Held:
        """See `Stage.hold`; the text must be `LONG`."""
        del text, pause
        return _Free()

    def fail(self, text: str) -> None:
        """See `Stage.fail`."""
        del text
        raise NotApplicable("needs --scripted: a real model cannot be made to fail")

    def ask(self, text: str, file: Path) -> Sequence[str]:
        """See `Stage.ask`."""
        del text, file
        raise NotApplicable("needs --scripted: a real model cannot be made to call a certain tool")

    def calls(self, text: str) -> int | None:
        """See `Stage.calls`."""
        del text


class _Free:
    async def arrived(self, within: float) -> None:
        del within

    def release(self) -> None:
        return


class ScriptedStage:
    """The scripted model, for one runtime."""

    controlled = True

    def __init__(
        self, model: ScriptedServer, asking: Callable[[str], tuple[Block, Sequence[str]]], folder: Path
    ) -> None:
        self._model, self._asking, self._folder = model, asking, folder
        self._count = 0

    def hold(self, text: str, pause: Pause) -> Held:
        """See `Stage.hold`."""
        self._count += 1
        if pause == "model":
            name = f"hold{self._count}"
            self._answer(text, Answer((Text(f"Answer {self._count}."),), gate=name))
            return _AtGate(self._model.gate(name))
        started, go = (self._folder / f"tool{self._count}.{what}" for what in ("started", "go"))
        wait = f"touch {_quoted(started)}; while [ ! -e {_quoted(go)} ]; do sleep 0.05; done; echo released"
        self._answer(text, Answer((Shell(wait),)), say("The tool is done."))
        return _InTool(started, go)

    def fail(self, text: str) -> None:
        """See `Stage.fail`. 403 is an error that neither runtime tries again for long."""
        self._answer(text, Answer((Text("After all."),), failure=HttpFailure(403, message="forbidden by the check")))

    def ask(self, text: str, file: Path) -> Sequence[str]:
        """See `Stage.ask`."""
        command = f"touch {_quoted(file)}"
        call, modes = self._asking(command)
        self._answer(text, Answer((call,)), say("That was the tool."))
        return modes

    def calls(self, text: str) -> int | None:
        """See `Stage.calls`. Requests for a title of the session quote the prompt and are not counted."""
        return sum(
            holds(prompt, text) for prompt in self._model.prompts_seen() if not prompt.startswith(_TITLE_REQUEST)
        )

    def _answer(self, text: str, *steps: Answer) -> None:
        rule = Rule(steps, exact=text)
        self._model.script = replace(self._model.script, rules=(rule, *self._model.script.rules))


@dataclass(frozen=True)
class _AtGate:
    gate: Gate

    async def arrived(self, within: float) -> None:
        await self.gate.wait_arrival(seconds=within)

    def release(self) -> None:
        self.gate.release()


@dataclass(frozen=True)
class _InTool:
    started: Path
    go: Path

    async def arrived(self, within: float) -> None:
        with anyio.fail_after(within):
            while not self.started.exists():  # noqa: ASYNC110 - a file announces nothing
                await anyio.sleep(0.02)

    def release(self) -> None:
        self.go.touch()


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
