"""An agent as a process: the protocol on stdin and stdout, signals, and only log lines on stderr.

Owns how the process ends. Knows the transport and the server, no runtime and no message.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import PurePath
from typing import Final, Protocol, cast

import anyio
from anyio.abc import TaskStatus

from adapters.acp.rpc import Transport
from adapters.acp.stdio import claim_stdio
from adapters.log import LogEvent, log_to_stderr
from adapters.streams import OutputLostError, closed

_log: Final = logging.getLogger(__name__)

_ORDERLY: Final = (signal.SIGTERM, signal.SIGINT)


class Server(Protocol):
    """Serves connections: see `adapters.core.front.Server`."""

    async def run_connection(self, transport: Transport) -> None:
        """Serve one connection until its end."""
        ...


def run(open_server: Callable[[], AbstractAsyncContextManager[Server]]) -> int:
    """Serve one client on stdin and stdout until it leaves, or SIGTERM or SIGINT comes; return the exit status.

    The end of input and the first signal are the same orderly end: sessions are closed, output is flushed, status 0
    (STDIO-11, STDIO-14). A second signal ends the process at once, by that signal. A failure of the agent itself is one log
    line and status 1.
    """
    one_line_reports()
    if missing := closed():
        return _cannot_start(f"{' and '.join(missing)} closed")
    try:
        transport = claim_stdio()
    except OSError as error:
        return _cannot_start(error.strerror)
    try:
        anyio.run(_serve, open_server, _Input(transport))
        status = 0
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException as error:  # noqa: BLE001 - the last boundary: a traceback is for nobody (it can hold secrets)
        _log.warning(LogEvent("internal error", **where(error)))
        status = 1
    return status


def _cannot_start(reason: str | None) -> int:
    _log.warning(LogEvent("cannot start: stdin and stdout must be connected to an ACP client", reason=reason))
    return 1


def run_for_people(function: Callable[..., Awaitable[int]], *args: object) -> int:
    """Run a command that a person watches; SIGINT and SIGTERM cancel it, so that it cleans up. Returns its exit status."""
    log_to_stderr()

    async def cancellable() -> int:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_cancel_on_signal, tasks.cancel_scope)
            status = await function(*args)
            if not tasks.cancel_scope.cancel_called:
                tasks.cancel_scope.cancel()
                return status
        return 128 + signal.SIGINT

    try:
        return anyio.run(cancellable)
    except BaseExceptionGroup as group:  # task groups wrap what leaves them; what ends a command is one thing
        lost, _ = group.split(OutputLostError)
        raise _innermost(lost or group) from None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


async def _cancel_on_signal(
    scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(*_ORDERLY) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


def leave(status: int) -> int:
    """Return the status, or end the process with it at once if a thread would keep it: one that is importing cannot be ended."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        os._exit(status)
    return status


class _Input:
    """A transport whose input can be ended from inside, which looks to the connection as if the client had ended it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ended = False
        self._receiving: anyio.CancelScope | None = None

    async def receive(self) -> bytes:
        if self._ended:
            return b""
        with anyio.CancelScope() as self._receiving:
            return await self._transport.receive()
        return b""

    async def send(self, data: bytes) -> None:
        await self._transport.send(data)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def end(self) -> None:
        self._ended = True
        if self._receiving is not None:
            self._receiving.cancel()


async def _serve(open_server: Callable[[], AbstractAsyncContextManager[Server]], transport: _Input) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, transport)
        async with open_server() as server:
            await server.run_connection(transport)
        tasks.cancel_scope.cancel()


async def _end_on_signal(transport: _Input, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    with anyio.open_signal_receiver(*_ORDERLY) as signals:
        task_status.started()
        async for _ in signals:
            break
        transport.end()
        async for number in signals:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


# --- stderr ------------------------------------------------------------------------------------------------------------


def one_line_reports() -> None:
    """Turn what libraries and the interpreter would print as tracebacks into log lines without any content.

    Messages of libraries are not printed: they can quote what they could not read, and so a prompt (STDIO-15).
    """
    log_to_stderr()
    logging.basicConfig(handlers=[_LibraryLog(logging.WARNING)], force=True)
    sys.unraisablehook = lambda unraisable: _log.warning(LogEvent("error in cleanup", **where(unraisable.exc_value)))
    threading.excepthook = lambda failure: _log.warning(LogEvent("error in thread", **where(failure.exc_value)))


class _LibraryLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        place = f"{PurePath(record.pathname).name}:{record.lineno}"
        details = where(error) if error is not None else {"at": place}
        _log.warning(LogEvent("library event", logger=record.name, level=record.levelname, **details))


def where(error: BaseException | None) -> dict[str, str]:
    """Kind and place of an exception, without its text: the innermost line of ours, or of anybody's."""
    if error is None:
        return {}
    error = _innermost(error)
    places: list[str] = []
    ours: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        file = PurePath(trace.tb_frame.f_code.co_filename)
        place = f"{'/'.join(file.parts[-2:])}:{trace.tb_lineno}"
        places.append(place)
        if "adapters" in file.parts[-4:-1]:
            ours.append(place)
        trace = trace.tb_next
    found = ours or places
    return {"error": type(error).__name__, **({"at": found[-1]} if found else {})}
