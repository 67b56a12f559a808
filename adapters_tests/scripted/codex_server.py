"""The real Codex app-server in an isolated home, driven by raw JSON lines. Shared by the tests of this folder."""

import importlib.util
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.scripted import ScriptedModel, isolated_codex_home
from adapters.scripted.home import work_folder
from adapters_tests.scripted.program import Frame, Program


def codex_binary() -> str | None:
    """The binary in its wheel, None where it is not installed."""
    if importlib.util.find_spec("codex_cli_bin") is None:
        return None
    import codex_cli_bin  # noqa: PLC0415 - not everybody has it

    return str(codex_cli_bin.bundled_codex_path())


class Codex(Program):
    """One running app-server: ways to ask it."""

    root: Path
    thread = ""
    _last = 0

    async def send(self, **frame: Any) -> None:
        await self.write(frame)

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
        work_folder(root / "cwd")
        environment = isolated_codex_home(root / "home", model.base_url, [root / "cwd"])
        async with Codex.started([binary, "app-server", *arguments], environment, root / "cwd") as server:
            server.root = root
            client = {"name": "tests", "title": "tests", "version": "0"}
            await server.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
            await server.send(method="initialized")
            await server.start_thread(**thread)
            yield server
