"""The recorded scenarios of `fixtures/claude`, and the pictures that live frames and stored entries make of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.acp.schema import SessionUpdate, UserMessage, dump
from adapters.claude.show.live import Translator, replay
from adapters.claude.stored.content import from_content
from adapters.client.view import SessionView

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
NAMES = sorted(path.name for path in FIXTURES.iterdir())


def json_lines(path: Path) -> list[Any]:
    """The values of a JSON lines file; only a newline ends a line."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


@dataclass(frozen=True)
class Scenario:
    """One recording."""

    name: str
    cwd: str
    prompts: Mapping[str, Any]
    frames: list[dict[str, Any]]
    stored: Path

    @classmethod
    def load(cls, name: str) -> "Scenario":
        folder = FIXTURES / name
        told = json.loads((folder / "scenario.json").read_text())
        prompts = {prompt["uuid"]: prompt["content"] for prompt in told["prompts"]}
        return cls(name, told["cwd"], prompts, json_lines(folder / "frames.jsonl"), folder / "stored.jsonl")

    def live(self) -> Iterator[SessionUpdate]:
        """What a client was told while the scenario ran; prompts as the core reports them, when they are taken."""
        translator = Translator(self.cwd)
        for frame in self.frames:
            if frame["type"] == "command_lifecycle" and frame["state"] == "started":
                message_id = frame["command_uuid"]
                yield UserMessage(message_id=message_id, content=from_content(self.prompts[message_id]))
            yield from translator.feed(frame)
        yield from translator.finish("failed")

    def replayed(self) -> Iterator[SessionUpdate]:
        """What a client is told that resumes the session."""
        yield from replay(self.stored, self.cwd)


def view(updates: Iterator[SessionUpdate]) -> SessionView:
    """The picture that these updates make."""
    return SessionView.of(dump(update) for update in updates)
