"""One Claude Code process: its frames, its control requests, and its end with everything that it started.

`driver.line_process` owns pipes and signals. Knows no turn, no prompt and no update: the caller gets the frames.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from anyio.abc import Process as Subprocess

from adapters.claude.cli import orphans
from adapters.claude.cli.frames import ControlAnswer, control_answer_of, control_request
from adapters.driver import procfs
from adapters.driver.line_process import LineProcess, Take

_EOF_BOUND: Final = 0.25
"""Seconds an idle process gets from the end of its input. Measured: 0.03 s, 0.11 s with MCP servers."""
_TERM_BOUND: Final = 0.5
"""Seconds from TERM to KILL (measured: 0.03 to 0.2 s, ends its tools itself)."""

_PR_SET_PDEATHSIG: Final = 1
_START_WITH_PARENT: Final = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the agent is gone")
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes Claude Code after asking the kernel for TERM when the agent dies (D6); 10 ms. Not a `preexec_fn`: that runs Python
between fork and exec, which is unsafe beside threads. The look at the parent closes the race with a death before the request."""


class ControlError(Exception):
    """A control request failed: it was refused or not answered within its bound, or the process is gone."""


class ClaudeProcess(LineProcess):
    """A started process. Somebody must await `run`; everything else may be called at any time."""

    def __init__(self, process: Subprocess) -> None:
        super().__init__(process, "Claude Code")
        self._waiting: dict[str, Callable[[ControlAnswer | None], None]] = {}

    @property
    def alive(self) -> bool:
        """Whether it lives at this moment: the news of its end may still be on the way (exactly known where there is /proc)."""
        return self.exit_code is None and not (procfs.available() and procfs.is_ending(self.pid))

    async def run(self, on_frame: Take, writable: Callable[[], Awaitable[None]]) -> None:
        """Read frames until the process is gone. `writable` is awaited between reads: it slows the process down."""
        await self.read(lambda frame: self._dispatch(frame, on_frame), writable)

    def _dispatch(self, frame: Mapping[str, Any], on_frame: Take) -> Awaitable[None] | None:
        answer = control_answer_of(frame)
        if answer is None:
            return on_frame(frame)
        if answered := self._waiting.pop(answer.request_id, None):
            answered(answer)
        # else: the CLI echoes our own permission answers, and answers may come too late
        return None

    def _reaped(self) -> None:
        for answered in list(self._waiting.values()):
            answered(None)

    async def request(self, subtype: str, *, bound: float, **params: Any) -> Mapping[str, Any]:
        """Send a control request; its answer. Raises `ControlError` when there is none within `bound` seconds."""
        answered = anyio.Event()
        answers: list[ControlAnswer | None] = []

        def take(answer: ControlAnswer | None) -> None:
            answers.append(answer)
            answered.set()

        if self.gone.is_set():
            raise ControlError("the process is gone")
        request_id, frame = control_request(subtype, **params)
        self._waiting[request_id] = take
        self.send(frame)
        try:
            with anyio.move_on_after(bound):
                await answered.wait()
        finally:
            self._waiting.pop(request_id, None)
        answer = answers[0] if answers else None
        if answer is None:
            raise ControlError("the process is gone" if answers else f"no answer to {subtype} within {bound:g} s")
        if answer.error is not None:
            raise ControlError(answer.error)
        return answer.payload

    async def stop(self, *, busy: bool) -> None:
        """End the process and its children; return when they are gone, within a second in all but freak cases.

        An idle one ends by the end of its input; a busy one would finish its turn first, so it gets TERM, which makes it end
        its tools. KILL leaves them running.
        """
        with anyio.CancelScope(shield=True):
            family = procfs.family(self.pid)
            await self.end(eof_bound=None if busy else _EOF_BOUND, term_bound=_TERM_BOUND)
            await orphans.kill(family)


async def spawn(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> ClaudeProcess:
    """Start Claude Code in a session and process group of its own; on Linux it ends when this process dies.

    Raises `OSError` when it cannot be started.
    """
    command = list(argv)
    if sys.platform == "linux" and sys.executable:
        command = [sys.executable, "-I", "-S", "-c", _START_WITH_PARENT, str(os.getpid()), *argv]
    process = await anyio.open_process(command, cwd=cwd, env=env, start_new_session=True)
    return ClaudeProcess(process)
