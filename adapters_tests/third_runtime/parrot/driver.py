"""The driver. A session is a file of JSON lines; the file is the record of which prompts were inserted."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from adapters.acp.errors import AcpError, InternalError, InvalidParams, ResourceNotFound
from adapters.acp.schema import (
    AgentMessage,
    ContentBlock,
    SessionUpdate,
    TextBlock,
    ToolCallUpdate,
    UserMessage,
    dump,
    parse_content,
)
from adapters.core import port

FEATURES = port.Features(delete=True)
Json = dict[str, Any]


class ParrotSession:
    def __init__(self, runtime: ParrotRuntime, session_id: str, sink: port.EventSink) -> None:
        self.session_id = session_id
        self.commands: Sequence[Any] = ()
        self._runtime = runtime
        self._sink = sink
        self._file = os.open(runtime.path(session_id), os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise InternalError("Another agent works on this session: close it there.") from error
        self._work: anyio.CancelScope | None = None
        self._answers: dict[str, tuple[anyio.Event, list[str | None]]] = {}
        self._idle = anyio.Event()
        self._idle.set()

    # --- the port ----------------------------------------------------------------------------------------------------

    async def started(self) -> None:
        pass

    @property
    def ready(self) -> bool:
        return self._work is None

    def local_reply(self, prompt: Sequence[ContentBlock]) -> None:
        return None

    def is_live_only(self, prompt: Sequence[ContentBlock]) -> bool:
        return False

    async def is_recorded(self, message_id: str) -> bool:
        return any(entry.get("id") == message_id for entry in self._entries() if entry["who"] == "user")

    async def submit(self, message_id: str, prompt: Sequence[ContentBlock]) -> None:
        self._work = anyio.CancelScope()
        self._idle = anyio.Event()
        self._runtime.tasks.start_soon(self._run, self._work, message_id, [dump(block) for block in prompt])

    async def withdraw(self, message_id: str) -> None:
        pass  # what was submitted is inserted in the same step

    async def interrupt(self) -> None:
        if self._work:
            self._work.cancel()

    async def answer_permission(self, request_id: str, option_id: str | None) -> None:
        if waiting := self._answers.pop(request_id, None):
            waiting[1].append(option_id)
            waiting[0].set()

    async def reconfigure(self, setup: port.SessionSetup) -> None:
        pass

    async def replay(self) -> AsyncIterator[SessionUpdate]:
        for entry in list(self._entries()):
            match entry:
                case {"who": "user", "id": message_id, "blocks": blocks}:
                    yield UserMessage(message_id=message_id, content=[parse_content(block) for block in blocks])
                case {"who": "agent", "id": message_id, "text": text}:
                    yield AgentMessage(message_id=message_id, content=[TextBlock(text=text)])
                case {"who": "call", "id": call, "command": command}:
                    done = any(other.get("of") == call for other in self._entries())
                    yield ToolCallUpdate(tool_call_id=call, title=command, status="completed" if done else "failed")
                case _:
                    pass

    async def close(self) -> None:
        await self.interrupt()
        await self._idle.wait()
        os.close(self._file)

    # --- work --------------------------------------------------------------------------------------------------------

    async def _run(self, scope: anyio.CancelScope, message_id: str, blocks: list[Json]) -> None:
        error: AcpError | None = None
        try:
            self._append({"who": "user", "id": message_id, "blocks": blocks})
        except OSError as problem:
            self._work = None
            self._idle.set()
            self._sink.deliver(
                port.PromptFailed(message_id, InternalError(f"It cannot be stored: {problem.strerror}."))
            )
            return
        self._sink.deliver(port.WorkStarted())
        self._sink.deliver(port.PromptTaken(message_id))
        self._sink.deliver(port.PromptInserted(message_id))
        with scope:
            try:
                while await self._step():
                    await self._sink.writable()
            except (OSError, ValueError) as problem:
                error = InternalError(f"The model failed: {problem}.")
        self._work = None
        self._answers.clear()
        stop = "cancelled" if scope.cancelled_caught else "error" if error else "end_turn"
        self._sink.deliver(port.WorkEnded(stop, error.to_wire() if error else None, interrupted=scope.cancelled_caught))
        self._idle.set()
        self._sink.deliver(port.ReadyChanged())

    async def _step(self) -> bool:
        """One call of the model, and the tools that it wants; whether it is to be called again."""
        answer = await self._runtime.ask_model(list(self._messages()))
        again = False
        for block in answer["content"]:
            if block["type"] == "text" and block["text"]:
                entry = {"who": "agent", "id": str(uuid.uuid4()), "text": block["text"]}
                self._append(entry)
                message = AgentMessage(message_id=entry["id"], content=[TextBlock(text=block["text"])])
                self._sink.deliver(port.Output(message))
            elif block["type"] == "tool_use":
                again = True
                await self._tool(block["id"], block["input"])
        return again

    async def _tool(self, call: str, wanted: Json) -> None:
        command = wanted["command"]
        self._append({"who": "call", "id": call, "command": command, "input": wanted})
        update = ToolCallUpdate(tool_call_id=call, title=command, kind="execute", status="pending")
        self._sink.deliver(port.Output(update))
        status = "failed"
        try:
            if wanted.get("ask") and not await self._allowed(call, update):
                output = "The user refused."
            else:
                self._sink.deliver(port.Output(ToolCallUpdate(tool_call_id=call, status="in_progress")))
                output, status = await self._shell(command), "completed"
            self._append({"who": "result", "of": call, "text": output})
        except BaseException:
            status = "cancelled"
            raise
        finally:
            self._sink.deliver(port.Output(ToolCallUpdate(tool_call_id=call, status=status)))

    async def _allowed(self, call: str, update: ToolCallUpdate) -> bool:
        event, answer = anyio.Event(), list[str | None]()
        self._answers[call] = event, answer
        options = [port.PermissionOption("yes", "Yes", "allow_once"), port.PermissionOption("no", "No", "reject_once")]
        self._sink.deliver(port.PermissionRequested(call, "Run this command?", options, update))
        await event.wait()
        return answer == ["yes"]

    async def _shell(self, command: str) -> str:
        environ = dict(self._runtime.environ)
        async with await anyio.open_process(command, stderr=None, env=environ, start_new_session=True) as process:
            try:
                assert process.stdout is not None
                output = b"".join([data async for data in process.stdout])
                await process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return output.decode(errors="replace")

    # --- the file ----------------------------------------------------------------------------------------------------

    def _append(self, entry: Json) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        os.fsync(self._file)

    def _entries(self) -> Iterator[Json]:
        return entries(self._runtime.path(self.session_id))

    def _messages(self) -> Iterator[Json]:
        """The conversation for the model."""
        for entry in self._entries():
            match entry:
                case {"who": "user", "blocks": blocks}:
                    text = "".join(block.get("text", "") for block in blocks)
                    yield {"role": "user", "content": [{"type": "text", "text": text}]}
                case {"who": "agent", "text": text}:
                    yield {"role": "assistant", "content": [{"type": "text", "text": text}]}
                case {"who": "call", "id": call, "input": wanted}:
                    block = {"type": "tool_use", "id": call, "name": "Bash", "input": wanted}
                    yield {"role": "assistant", "content": [block]}
                case {"who": "result", "of": call, "text": text}:
                    block = {"type": "tool_result", "tool_use_id": call, "content": text}
                    yield {"role": "user", "content": [block]}
                case _:
                    pass


class ParrotRuntime:
    features = FEATURES

    def __init__(self, tasks: TaskGroup, environ: Mapping[str, str]) -> None:
        self.tasks = tasks
        self.environ = environ
        self._folder = Path(environ.get("PARROT_HOME") or Path.home() / ".parrot")

    def path(self, session_id: str) -> Path:
        return self._folder / f"{uuid.UUID(session_id)}.jsonl"

    async def new_session(self, setup: port.SessionSetup, sink: port.EventSink) -> ParrotSession:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        session_id = str(uuid.uuid4())
        self.path(session_id).write_text(json.dumps({"who": "session", "cwd": setup.cwd}) + "\n")
        return ParrotSession(self, session_id, sink)

    async def open_session(self, session_id: str, setup: port.SessionSetup, sink: port.EventSink) -> ParrotSession:
        if self._cwd(session_id) is None:
            raise ResourceNotFound(session_id, port.NOT_STORED)
        if self._cwd(session_id) != setup.cwd:
            raise InvalidParams("cwd is not the folder of this session.")
        return ParrotSession(self, session_id, sink)

    async def list_sessions(self, cwd: str | None, cursor: str | None) -> port.SessionPage:
        if cursor is not None:
            raise InvalidParams("cursor is not one that this agent gave: list from the start.")
        found = sorted(self._folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
        rows = [port.StoredSession(path.stem, place) for path in found if (place := self._cwd(path.stem))]
        return port.SessionPage([row for row in rows if cwd in (None, row.cwd)])

    async def delete_session(self, session_id: str) -> None:
        if self._cwd(session_id) is not None:
            self.path(session_id).unlink()

    async def aclose(self) -> None:
        pass

    async def ask_model(self, messages: list[Json]) -> Json:
        body = json.dumps({"model": "parrot", "max_tokens": 1000, "messages": messages}).encode()
        headers = {"content-type": "application/json", "x-api-key": "none", "anthropic-version": "2023-06-01"}
        request = urllib.request.Request(f"{self.environ['PARROT_MODEL']}/v1/messages", body, headers)
        return await anyio.to_thread.run_sync(partial(_post, request), abandon_on_cancel=True)

    def _cwd(self, session_id: str) -> str | None:
        try:
            return next(entries(self.path(session_id)), {}).get("cwd")
        except (OSError, ValueError):
            return None


def _post(request: urllib.request.Request) -> Json:
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def entries(path: Path) -> Iterator[Json]:
    """The entries of a file. A torn last line was not stored."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
