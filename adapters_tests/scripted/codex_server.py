"""The real Codex app-server in an isolated home, driven by raw JSON lines. Shared by the tests of this folder."""

import importlib.util
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from adapters.acp.framing import LineDecoder, LineTooLong
from adapters.scripted import ScriptedModel, isolated_codex_home

LIMIT = 40.0  # seconds; no step of these tests takes a tenth of it on an idle machine

Frame = dict[str, Any]


def codex_binary() -> str | None:
    """The binary in its wheel, None where it is not installed."""
    if importlib.util.find_spec("codex_cli_bin") is None:
        return None
    import codex_cli_bin  # noqa: PLC0415 - not everybody has it

    return str(codex_cli_bin.bundled_codex_path())


class Codex:
    """One running app-server: what it wrote, and ways to ask it and to wait for it."""

    def __init__(self, process: Process, root: Path) -> None:
        self.process = process
        self.root = root
        self.frames: list[Frame] = []
        self.errors = ""
        """What it wrote to stderr."""
        self.thread = ""
        self._last = 0
        self._changed = anyio.Event()

    async def send(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps(frame).encode() + b"\n")

    async def reply(self, method: str, **params: Any) -> Frame:
        """Send a request; return its response, result or error."""
        self._last += 1
        number = self._last
        await self.send(id=number, method=method, params=params)
        return await self.wait(lambda frame: "method" not in frame and frame["id"] == number)

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request; return its result."""
        reply = await self.reply(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def start_thread(self, **params: Any) -> None:
        """Start a thread, the one that prompts go to from now on."""
        result = await self.ask("thread/start", cwd=str(self.root / "cwd"), **params)
        self.thread = result["thread"]["id"]

    async def prompt(self, *texts: str, images: Sequence[Path] = ()) -> str:
        """Start a turn; return its id."""
        content = [*map(text_input, texts), *({"type": "localImage", "path": str(path)} for path in images)]
        result = await self.ask("turn/start", threadId=self.thread, input=content)
        return str(result["turn"]["id"])

    async def steer(self, turn: str, text: str) -> None:
        """Send a prompt into a running turn."""
        await self.ask("turn/steer", threadId=self.thread, expectedTurnId=turn, input=[text_input(text)])

    async def ended(self, turn: str) -> Frame:
        """The turn as its end reports it."""
        frame = await self.event("turn/completed", lambda params: params["turn"]["id"] == turn)
        return frame["params"]["turn"]

    async def turn(self, *texts: str, images: Sequence[Path] = ()) -> Frame:
        """A turn from its prompt to its end."""
        return await self.ended(await self.prompt(*texts, images=images))

    async def said(self, text: str) -> str:
        """The last words of a turn, which must complete."""
        turn = await self.turn(text)
        assert turn["status"] == "completed", turn
        return turn["items"][-1]["text"]

    async def event(self, method: str, wanted: Callable[[Any], bool] = lambda _: True, start: int = 0) -> Frame:
        """The first notification or request of that method that is wanted."""
        return await self.wait(lambda frame: frame.get("method") == method and wanted(frame["params"]), start)

    def events(self, method: str) -> list[Any]:
        """The parameters of all notifications of that method."""
        return [frame["params"] for frame in self.frames if frame.get("method") == method]

    def items(self, kind: str) -> list[Frame]:
        """The completed items of that type."""
        items = [params["item"] for params in self.events("item/completed")]
        return [item for item in items if item["type"] == kind]

    async def wait(self, wanted: Callable[[Frame], bool], start: int = 0) -> Frame:
        """The first frame from `start` on that is wanted."""
        with anyio.fail_after(LIMIT):
            while True:
                for frame in self.frames[start:]:
                    if wanted(frame):
                        return frame
                await self._changed.wait()

    async def read(self) -> None:
        assert self.process.stdout is not None
        lines = LineDecoder()
        async for data in self.process.stdout:
            for line in lines.feed(data):
                assert not isinstance(line, LineTooLong)
                self.frames.append(json.loads(line))
            self._changed.set()
            self._changed = anyio.Event()

    async def read_errors(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.errors += data.decode(errors="replace")


def text_input(text: str) -> Frame:
    return {"type": "text", "text": text, "text_elements": []}


@asynccontextmanager
async def codex(
    model: ScriptedModel, /, *arguments: str, root: Path | None = None, **thread: Any
) -> AsyncIterator[Codex]:
    """The real app-server with a new thread that talks to `model`; gone, with its home unless `root` is given, at the end."""
    binary = codex_binary()
    assert binary is not None
    with tempfile.TemporaryDirectory() as folder:
        root = root or Path(folder)
        (root / "cwd").mkdir(exist_ok=True)
        environment = isolated_codex_home(root / "home", model.base_url, [root / "cwd"])
        failure: Exception | None = None
        async with (
            await anyio.open_process([binary, "app-server", *arguments], env=environment, cwd=root / "cwd") as process,
            anyio.create_task_group() as group,
        ):
            server = Codex(process, root)
            try:
                group.start_soon(server.read)
                group.start_soon(server.read_errors)
                client = {"name": "tests", "title": "tests", "version": "0"}
                await server.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
                await server.send(method="initialized")
                await server.start_thread(**thread)
                yield server
            except Exception as error:  # noqa: BLE001 - leaves below as itself, not in a group
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    assert process.stdin is not None
                    await process.stdin.aclose()
                    with anyio.move_on_after(5):
                        await process.wait()
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                group.cancel_scope.cancel()
        if failure is not None:
            raise failure
