"""One `codex app-server` process: its pipes, its requests in both directions, and its end.

Owns JSON lines (no `jsonrpc` member), ids and signals. Knows no thread and no turn: notifications and requests of the server go
to whoever runs it. Nothing waits without a bound: an answer that does not come (Codex drops lines it cannot parse and never
answers some requests) is an exception, and the process is always reaped.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import Process as Subprocess

from adapters.acp.errors import ParseError
from adapters.acp.framing import LineDecoder, LineTooLong, decode, encode
from adapters.core.shapes import as_integer, as_mapping, as_text
from adapters.log import log

_READ: Final = 256 * 1024  # bytes
_LONGEST_LINE: Final = 512 * 1024 * 1024  # bytes; a legacy thread is read in one line
_STDERR_KEPT: Final = 8 * 1024  # bytes of the end of stderr, for error messages
_EOF_BOUND: Final = 0.5
"""Seconds from the end of its input to its exit. Measured: 0.03 to 0.07 s, also in mid-turn."""
_TERM_BOUND: Final = 0.5
_DRAIN_BOUND: Final = 0.3
"""Seconds to read what is left after the exit, where a child of it still holds the pipe."""
_SILENT_BOUND: Final = 1.0
"""Seconds a process may live on after it has closed its stdout; then it is killed."""
_KILL_BOUND: Final = 5.0
"""Seconds from KILL to the exit; longer only in uninterruptible sleep."""

ANSWER_BOUND: Final = 30.0
"""Seconds for the answer of a request that does no work (measured: 1 to 60 ms)."""

RequestId = int | str


class RequestFailed(Exception):  # noqa: N818 - reads as what happened
    """A request came to nothing. `str()` says why, for logs and messages."""


class Refused(RequestFailed):
    """Codex answered with an error: what was asked for did not happen. Its code is nearly always -32600: the text counts."""

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Unanswered(RequestFailed):
    """No answer within the bound: what was asked for may have happened, or happen later."""


class Gone(RequestFailed):
    """The process ended before it answered."""


Answer = Mapping[str, Any] | RequestFailed
"""What became of a request."""


class AppServer:
    """A started process. Somebody must await `run`; everything else may be called at any time."""

    def __init__(self, process: Subprocess) -> None:
        self._process = process
        self.pid = process.pid
        self.gone = anyio.Event()
        """The process has ended and is reaped, and `run` is about to return."""
        self.held_up = False
        """Reading waits for slow clients: silence of the process means nothing meanwhile."""
        self.stopping = False
        """We asked it to end."""
        self._input: deque[bytes] = deque()
        self._wake = anyio.Event()
        self._closing_input = False
        self._last_id = 0
        self._waiting: dict[int, Callable[[Mapping[str, Any] | None], None]] = {}
        self._stderr = b""
        self._logged: set[str] = set()

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it lives."""
        return self._process.returncode

    @property
    def last_words(self) -> str:
        """The last line on stderr, shortened; empty when there was none."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    # --- running -------------------------------------------------------------------------------------------------------

    async def run(
        self,
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: Callable[[RequestId, str, Mapping[str, Any]], None],
        writable: Callable[[], Awaitable[None]],
    ) -> None:
        """Read until the process is gone. `writable` is awaited between reads: it slows the process down."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._collect_stderr)
                tasks.start_soon(self._end_after_exit, tasks.cancel_scope)
                await self._read(on_notification, on_request, writable)
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
        self,
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: Callable[[RequestId, str, Mapping[str, Any]], None],
        writable: Callable[[], Awaitable[None]],
    ) -> None:
        assert self._process.stdout is not None  # noqa: S101 - spawned with a pipe
        decoder = LineDecoder(_LONGEST_LINE)
        while True:
            try:
                data = await self._process.stdout.receive(_READ)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # a torn last line is no message
            for line in decoder.feed(data):
                self._dispatch(self._parse(line), on_notification, on_request)
            self.held_up = True
            await writable()
            self.held_up = False

    def _parse(self, line: bytes | LineTooLong) -> Mapping[str, Any]:
        if isinstance(line, LineTooLong):
            self._log_once("Codex wrote a line that is too long", size=line.size)
            return {}
        message: Mapping[str, Any] = {}
        with suppress(ParseError):
            message = as_mapping(decode(line))
        if not message:
            self._log_once("Codex wrote a line that is no message", size=len(line))
        return message

    def _dispatch(
        self,
        message: Mapping[str, Any],
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: Callable[[RequestId, str, Mapping[str, Any]], None],
    ) -> None:
        """The server's ids are a space of their own: only `method` tells its requests from answers."""
        method, request_id = as_text(message.get("method")), message.get("id")
        if not method:
            number = as_integer(request_id)
            answered = self._waiting.pop(number, None) if number is not None else None
            if answered:
                answered(message)
        elif isinstance(request_id, int | str):
            on_request(request_id, method, as_mapping(message.get("params")))
        else:
            on_notification(method, as_mapping(message.get("params")))

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
        self.signal(signal.SIGKILL)
        with anyio.move_on_after(_KILL_BOUND) as bound:
            await self._process.aclose()
        if bound.cancelled_caught:
            log("Codex does not end after KILL", pid=self.pid)

    def _log_once(self, event: str, **fields: object) -> None:
        if event not in self._logged:
            self._logged.add(event)
            log(event, pid=self.pid, **fields)

    # --- writing -------------------------------------------------------------------------------------------------------

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message, in order. Never waits; what a dead process does not read is dropped."""
        self._input.append(encode(message))
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

    def notify(self, method: str) -> None:
        """Send a notification without params."""
        self.send({"method": method})

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        bound: float = ANSWER_BOUND,
        then: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Mapping[str, Any]:
        """The result of a request. Raises `Refused`, `Unanswered` after `bound` seconds, or `Gone`.

        `then` is called with the result the moment it is read, before anything that Codex wrote after it. Time in which we
        do not read, because a client does not, does not count.
        """
        answered = anyio.Event()
        answers: list[Answer] = []

        def take(answer: Answer) -> None:
            answers.append(answer)
            answered.set()
            if then and not isinstance(answer, RequestFailed):
                then(answer)

        request_id = self.ask(method, params, take)
        try:
            waiting = True
            while waiting and not answers:
                with anyio.move_on_after(bound):
                    await answered.wait()
                waiting = self.held_up
        finally:
            self._waiting.pop(request_id, None)
        if not answers:
            raise Unanswered(f"Codex did not answer {method} within {bound:g} s")
        if isinstance(answers[0], RequestFailed):
            raise answers[0]
        return answers[0]

    def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request whose failure matters to nobody; a refusal is logged."""

        def take(answer: Answer) -> None:
            if isinstance(answer, Refused):
                self._log_once(f"Codex refused {method}", code=answer.code)

        self.ask(method, params, take)

    def ask(self, method: str, params: Mapping[str, Any], take: Callable[[Answer], None]) -> int:
        """Send a request; `take` is called with its answer the moment it is read, or never. Gives the request's id."""
        self._last_id += 1

        def read(answer: Mapping[str, Any] | None) -> None:
            try:
                result = _result(method, answer)
            except RequestFailed as failed:
                take(failed)
            else:
                take(result)

        if self.gone.is_set():
            read(None)
        else:
            self._waiting[self._last_id] = read
            self.send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    def respond(self, request_id: RequestId, result: Mapping[str, Any]) -> None:
        """Answer a request of the server."""
        self.send({"id": request_id, "result": result})

    def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a request of the server with an error: never silence, never an automatic yes."""
        self.send({"id": request_id, "error": {"code": code, "message": message}})

    # --- the end -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the process and its commands, within 1.5 s: end of input, then TERM, then KILL. May be called again."""
        with anyio.CancelScope(shield=True):
            self.stopping = True
            self._closing_input = True
            self._wake.set()
            with anyio.move_on_after(_EOF_BOUND):
                await self.gone.wait()
            self.signal(signal.SIGTERM)
            with anyio.move_on_after(_TERM_BOUND):
                await self.gone.wait()
            self.signal(signal.SIGKILL)
            await self.gone.wait()

    def kill(self) -> None:
        """End the process at once, without waiting: it does not do what it must."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and its group, if it lives."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def _result(method: str, answer: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if answer is None:
        raise Gone(f"Codex ended before it answered {method}")
    if "error" in answer:
        error = as_mapping(answer.get("error"))
        text = as_text(error.get("message")) or "no reason given"
        raise Refused(as_integer(error.get("code")), text, error.get("data"))
    return as_mapping(answer.get("result"))


async def spawn(argv: Sequence[str], env: Mapping[str, str]) -> AppServer:
    """Start an app-server in a session and process group of its own. It ends by itself when our end of its input closes.

    Raises `OSError` when it cannot be started.
    """
    return AppServer(await anyio.open_process(list(argv), env=env, start_new_session=True))
