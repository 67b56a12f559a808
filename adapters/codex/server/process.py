"""One `codex app-server` process: requests in both directions, and its end.

Owns its messages (no `jsonrpc` member) and ids. `driver.line_process` owns pipes and signals. Knows no thread and no turn: the
caller gets notifications and requests of the server. Every wait has a bound. An answer that does not come is an exception: Codex
drops lines that it cannot parse, and never answers some requests.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import anyio
from anyio.abc import Process as Subprocess

from adapters.acp.errors import InvalidParams
from adapters.acp.shapes import as_integer, as_list, as_mapping, as_text
from adapters.codex.bounds import Bounds
from adapters.codex.server.program import TESTED
from adapters.driver.line_process import LineProcess
from adapters.driver.version import lacking

ANSWER_BOUND: Final = 30.0
"""Seconds for the answer of a request that does no work (measured: 1 to 60 ms)."""

RequestId = int | str


class RequestFailed(Exception):  # noqa: N818 - reads as what happened
    """A request failed. `str()` says why, for logs and messages."""


class Refused(RequestFailed):
    """Codex answered with an error: what was asked for did not happen. Its code is nearly always -32600: the text counts."""

    def __init__(self, code: int | None, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class UnknownMethod(Refused):
    """This Codex does not know the method: it is another version than the one that this agent was made for."""

    def __init__(self, code: int | None, method: str, version: str) -> None:
        self.unknown = f"it does not know {method}"
        super().__init__(code, lacking("Codex", version, TESTED, self.unknown))


class Unanswered(RequestFailed):
    """No answer within the bound: what was asked for may have happened, or happen later."""


class Gone(RequestFailed):
    """The process ended before it answered."""


Answer = Mapping[str, Any] | RequestFailed
"""The outcome of a request."""


class AppServer(LineProcess):
    """A started process. Somebody must await `run`; everything else may be called at any time."""

    def __init__(self, process: Subprocess, bounds: Bounds) -> None:
        super().__init__(process, "Codex")
        self._bounds = bounds
        self.version = ""
        """The app-server's own description, from the answer to `initialize`."""
        self._last_id = 0
        self._waiting: dict[int, Callable[[Mapping[str, Any] | None], None]] = {}

    async def run(
        self,
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: Callable[[RequestId, str, Mapping[str, Any]], None],
        writable: Callable[[], Awaitable[None]],
    ) -> None:
        """Read until the process is gone. `writable` is awaited between reads: it slows the process down."""
        await self.read(lambda message: self._dispatch(message, on_notification, on_request), writable)

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

    def _reaped(self) -> None:
        for answered in list(self._waiting.values()):
            answered(None)

    # --- requests ------------------------------------------------------------------------------------------------------

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
        return await self.begin(method, params, then=then).result(bound)

    def begin(
        self, method: str, params: Mapping[str, Any], *, then: Callable[[Mapping[str, Any]], None] | None = None
    ) -> Pending:
        """Send a request now and wait for its answer later; otherwise as `request`."""
        return Pending(self, method, params, then)

    def forget(self, request_id: int) -> None:
        """Ignore any answer to this request."""
        self._waiting.pop(request_id, None)

    def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request whose outcome is not needed; a refusal is logged."""

        def take(answer: Answer) -> None:
            if isinstance(answer, Refused):
                self.log_once(f"Codex refused {method}", code=answer.code)

        self.ask(method, params, take)

    def ask(self, method: str, params: Mapping[str, Any], take: Callable[[Answer], None]) -> int:
        """Send a request; `take` is called with its answer the moment it is read, or never. Gives the request's id."""
        self._last_id += 1

        def read(answer: Mapping[str, Any] | None) -> None:
            try:
                result = _result(method, answer, self.version)
            except RequestFailed as failed:
                take(failed)
            else:
                take(result)

        if self.gone.is_set():
            read(None)
        elif _holds_half_pair(params):  # Codex would drop the line without a word
            read(
                {
                    "error": {
                        "code": InvalidParams.default_code,
                        "message": "half of a surrogate pair, which Codex cannot read",
                    }
                }
            )
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
        await self.end(eof_bound=self._bounds.eof, term_bound=self._bounds.term)

    def kill(self) -> None:
        """End the process at once, without waiting: it does not do what it must."""
        self.signal(signal.SIGKILL)


class Pending:
    """A request on its way."""

    def __init__(
        self,
        server: AppServer,
        method: str,
        params: Mapping[str, Any],
        then: Callable[[Mapping[str, Any]], None] | None,
    ) -> None:
        self._server = server
        self._method = method
        self._then = then
        self._answer: Answer | None = None
        self._answered = anyio.Event()
        self._request_id = server.ask(method, params, self._take)

    def _take(self, answer: Answer) -> None:
        self._answer = answer
        self._answered.set()
        if self._then and not isinstance(answer, RequestFailed):
            self._then(answer)

    async def result(self, bound: float) -> Mapping[str, Any]:
        """The result. Raises `Refused`, `Unanswered` after `bound` seconds from now, or `Gone`."""
        try:
            waiting = True
            while waiting and self._answer is None:
                with anyio.move_on_after(bound):
                    await self._answered.wait()
                waiting = self._server.held_up
        finally:
            self._server.forget(self._request_id)
        if self._answer is None:
            raise Unanswered(f"Codex did not answer {self._method} within {bound:g} s")
        if isinstance(self._answer, RequestFailed):
            raise self._answer
        return self._answer


def _holds_half_pair(value: Any) -> bool:
    """Whether any text in it is no Unicode: JSON can escape half a surrogate pair, Codex's parser does not take it."""
    if isinstance(value, str):
        try:
            return not value.isascii() and not value.encode()
        except UnicodeEncodeError:
            return True
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return any(_holds_half_pair(part) for pair in fields.items() for part in pair)
    return any(map(_holds_half_pair, as_list(value)))


def _result(method: str, answer: Mapping[str, Any] | None, version: str) -> Mapping[str, Any]:
    if answer is None:
        raise Gone(f"Codex ended before it answered {method}")
    if "error" in answer:
        error = as_mapping(answer.get("error"))
        text = as_text(error.get("message")) or "no reason given"
        if text.startswith(f"Invalid request: unknown variant `{method}`"):  # and then all that it knows
            raise UnknownMethod(as_integer(error.get("code")), method, version)
        raise Refused(as_integer(error.get("code")), text, error.get("data"))
    return as_mapping(answer.get("result"))


async def spawn(argv: Sequence[str], env: Mapping[str, str], bounds: Bounds) -> AppServer:
    """Start an app-server in a session and process group of its own. It ends by itself when our end of its input closes.

    Raises `OSError` when it cannot be started.
    """
    return AppServer(await anyio.open_process(list(argv), env=env, start_new_session=True), bounds)
