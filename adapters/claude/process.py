"""One Claude Code process: its pipes, its control requests, and its end.

Owns bytes, frames and signals. Knows no turn, no prompt and no update: frames go to whoever runs it. Nothing here waits
without a bound: a full or dead pipe holds up nobody but the writer, and the process is always reaped.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import Process as Subprocess

from adapters.acp.errors import ParseError
from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.claude import orphans, procfs
from adapters.claude.frames import ControlAnswer, control_answer_of, control_request
from adapters.core.shapes import as_mapping
from adapters.log import log

_READ: Final = 256 * 1024  # bytes
_LONGEST_LINE: Final = 512 * 1024 * 1024  # bytes; a transcript_mirror frame of some 40 MiB prompts is one line
_STDERR_KEPT: Final = 8 * 1024  # bytes of the end of stderr, for error messages
_EOF_BOUND: Final = 0.25
"""Seconds an idle process gets from the end of its input. Measured: 0.03 s, 0.11 s with MCP servers."""
_TERM_BOUND: Final = 0.5
"""Seconds from TERM to KILL (measured: 0.03 to 0.2 s, ends its tools itself)."""
_DRAIN_BOUND: Final = 0.3
"""Seconds to read what is left after the exit, where a child of it still holds the pipe."""
_SILENT_BOUND: Final = 1.0
"""Seconds a process may live on after it has closed its stdout; then it is killed."""
_KILL_BOUND: Final = 5.0
"""Seconds from KILL to the exit; longer only in uninterruptible sleep."""

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
    """A control request came to nothing: refused, not answered within its bound, or the process is gone."""


class ClaudeProcess:
    """A started process. Somebody must await `run`; everything else may be called at any time."""

    def __init__(self, process: Subprocess) -> None:
        self._process = process
        self.pid = process.pid
        self.gone = anyio.Event()
        """The process has ended and is reaped, and `run` is about to return."""
        self.held_up = False
        """Reading waits for slow clients: silence of the process means nothing meanwhile."""
        self._input: deque[bytes] = deque()
        self._wake = anyio.Event()
        self._closing_input = False
        self.stopping = False
        """We asked it to end."""
        self._waiting: dict[str, Callable[[ControlAnswer | None], None]] = {}
        self._stderr = b""
        self._logged: set[str] = set()

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it lives."""
        return self._process.returncode

    @property
    def alive(self) -> bool:
        """Whether it lives at this moment: the news of its end may still be on the way (exactly known where there is /proc)."""
        return self.exit_code is None and (procfs.look(self.pid) is not None or not procfs.available())

    @property
    def last_words(self) -> str:
        """The last line on stderr, shortened; empty when there was none."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    # --- running -------------------------------------------------------------------------------------------------------

    async def run(self, on_frame: Callable[[Mapping[str, Any]], None], writable: Callable[[], Awaitable[None]]) -> None:
        """Read frames until the process is gone. `writable` is awaited between reads: it slows the process down."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._collect_stderr)
                tasks.start_soon(self._end_after_exit, tasks.cancel_scope)
                await self._read(on_frame, writable)
                with anyio.move_on_after(_SILENT_BOUND):
                    await self._process.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._reap()
            for answered in list(self._waiting.values()):
                answered(None)
            self.gone.set()

    async def _read(
        self, on_frame: Callable[[Mapping[str, Any]], None], writable: Callable[[], Awaitable[None]]
    ) -> None:
        assert self._process.stdout is not None  # noqa: S101 - spawned with a pipe
        decoder = LineDecoder(_LONGEST_LINE)
        while True:
            try:
                data = await self._process.stdout.receive(_READ)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # a torn last line is no frame
            for line in decoder.feed(data):
                if frame := self._parse(line):
                    self._dispatch(frame, on_frame)
            self.held_up = True
            await writable()
            self.held_up = False

    def _parse(self, line: bytes | LineTooLong) -> Mapping[str, Any] | None:
        if isinstance(line, LineTooLong):
            self._log_once("Claude Code wrote a line that is too long", size=line.size)
            return None
        frame: Mapping[str, Any] = {}
        with suppress(ParseError):
            frame = as_mapping(decode(line))
        if not frame:
            self._log_once("Claude Code wrote a line that is no frame", size=len(line))
        return frame

    def _dispatch(self, frame: Mapping[str, Any], on_frame: Callable[[Mapping[str, Any]], None]) -> None:
        answer = control_answer_of(frame)
        if answer is None:
            on_frame(frame)
        elif answered := self._waiting.pop(answer.request_id, None):
            answered(answer)
        # else: the CLI echoes our own permission answers, and answers may come too late

    async def _collect_stderr(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - spawned with a pipe
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                self._stderr = (self._stderr + await self._process.stderr.receive())[-_STDERR_KEPT:]

    async def _end_after_exit(self, scope: anyio.CancelScope) -> None:
        """A child of the process may hold its stdout open; that must not hide its end."""
        await self._process.wait()
        await anyio.sleep(_DRAIN_BOUND)
        while self.held_up and not self.stopping:  # noqa: ASYNC110 - two plain flags of a rare case
            await anyio.sleep(_DRAIN_BOUND)
        scope.cancel()

    async def _reap(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        with anyio.move_on_after(_KILL_BOUND) as bound:
            await self._process.aclose()
        if bound.cancelled_caught:
            log("Claude Code does not end after KILL", pid=self.pid)

    def _log_once(self, event: str, **fields: object) -> None:
        if event not in self._logged:
            self._logged.add(event)
            log(event, pid=self.pid, **fields)

    # --- writing -------------------------------------------------------------------------------------------------------

    def send(self, frame: Mapping[str, Any]) -> None:
        """Write a frame, in order. Never waits; what a dead process does not read is dropped."""
        self._input.append(encode(frame))
        self._wake.set()

    async def _write(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - spawned with a pipe
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while True:
                while self._input:
                    await self._process.stdin.send(self._input.popleft())
                if self._closing_input:
                    await self._process.stdin.aclose()
                    return
                self._wake = anyio.Event()
                await self._wake.wait()

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

    # --- ending --------------------------------------------------------------------------------------------------------

    async def stop(self, *, busy: bool) -> None:
        """End the process and its children; return when they are gone, within a second in all but freak cases.

        An idle one ends by the end of its input; a busy one would finish its turn first, so it gets TERM.
        """
        with anyio.CancelScope(shield=True):
            family = procfs.family(self.pid)
            self.stopping = True
            if not busy:
                self._closing_input = True
                self._wake.set()
                with anyio.move_on_after(_EOF_BOUND):
                    await self.gone.wait()
            self.signal(signal.SIGTERM)
            with anyio.move_on_after(_TERM_BOUND):
                await self.gone.wait()
            self.signal(signal.SIGKILL)
            await self.gone.wait()
            await orphans.kill(family)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and its group, if it lives. TERM makes it end its tools; KILL leaves them running."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


async def spawn(argv: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> ClaudeProcess:
    """Start Claude Code in a session and process group of its own; on Linux it ends when this process dies.

    Raises `OSError` when it cannot be started.
    """
    command = list(argv)
    if sys.platform == "linux" and sys.executable:
        command = [sys.executable, "-I", "-S", "-c", _START_WITH_PARENT, str(os.getpid()), *argv]
    process = await anyio.open_process(command, cwd=cwd, env=env, start_new_session=True)
    return ClaudeProcess(process)
