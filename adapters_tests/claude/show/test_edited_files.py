"""Files are looked at before and after an edit; a look that fails costs nothing but the true line ends."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.schema import ToolCallUpdate
from adapters.claude.show import edited_files
from adapters.claude.show.edited_files import EditedFiles, FilesNow, Found, KnownChanges, look_at
from adapters.claude.show.replay import replay
from adapters.core import file_calls
from adapters.core.file_calls import StuckError
from adapters.core.file_change import FileChange
from adapters.core.port import Output
from adapters_tests.claude.driving import rig
from adapters_tests.core.fake_program import Sink

HUNK = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-b", "+B"]}
EXACT = "@@ -1,1 +1,1 @@\n-b\r\n+B\r"


def called(path: Path | str, call_id: str = "t", name: str = "Edit") -> dict[str, Any]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {"file_path": str(path)}}
    return {"type": "assistant", "message": {"id": "m", "content": [block]}}


def asked(path: Path, call_id: str = "t") -> dict[str, Any]:
    given = {"file_path": str(path), "old_string": "b", "new_string": "B"}
    request = {"subtype": "can_use_tool", "tool_name": "Edit", "tool_use_id": call_id, "input": given}
    return {"type": "control_request", "request_id": "q", "request": request}


def result_of(path: Path) -> dict[str, Any]:
    return {"filePath": str(path), "oldString": "b", "newString": "B", "originalFile": "b\n", "structuredPatch": [HUNK]}


def ended(path: Path, call_id: str = "t") -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": "done"}
    return {"type": "user", "message": {"content": [block]}, "tool_use_result": result_of(path)}


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class Kept(dict[str, FileChange]):
    def files(self, cwd: Path) -> EditedFiles:
        return EditedFiles(str(cwd), self.__setitem__)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(b"b\r\n")
    return path


@pytest.mark.anyio
async def test_a_call_is_looked_at_before_and_after(file: Path) -> None:
    kept = Kept()
    files = kept.files(file.parent)
    await files.look(called("a.txt"))
    await files.look(asked(file))
    assert files.predicted("t") == FileChange(str(file), "modify", hunks=EXACT)
    write(file, b"B\r\n")
    await files.look(ended(file))
    assert kept == {"t": FileChange(str(file), "modify", hunks=EXACT)}


@pytest.mark.anyio
async def test_two_calls_on_one_file_are_two_changes(file: Path) -> None:
    """The second is told before the first has run."""
    kept = Kept()
    files = kept.files(file.parent)
    await files.look(called(file, "one"))
    await files.look(called(file, "two"))
    write(file, b"B\r\n")
    await files.look(ended(file, "one"))
    write(file, b"b\r\n")
    back = {**HUNK, "lines": ["-B", "+b"]}
    await files.look({**ended(file, "two"), "tool_use_result": {**result_of(file), "structuredPatch": [back]}})
    assert [change.hunks for change in kept.values()] == [EXACT, "@@ -1,1 +1,1 @@\n-B\r\n+b\r"]


@pytest.mark.anyio
async def test_what_is_looked_at(file: Path) -> None:
    files = Kept().files(file.parent)
    assert not files.wants(asked(file))
    assert not files.wants(ended(file))
    assert not files.wants(called(file, name="Read"))
    assert not files.wants(called(""))
    assert not files.wants({**called(file), "parent_tool_use_id": "agent"})
    for odd in ({}, {"type": "assistant"}, {"type": "assistant", "message": {"content": [5, {"type": "tool_use"}]}}):
        assert not files.wants(odd)
    assert files.wants(called(file))
    await files.look(called(file))
    assert files.wants(asked(file))
    assert files.wants(ended(file))
    assert not files.wants(ended(file, "other"))
    assert not files.wants({"type": "stream_event"})
    files.clear()
    assert not files.wants(ended(file))


@pytest.mark.anyio
async def test_a_result_of_another_file_or_shape_tells_nothing(file: Path) -> None:
    """D11."""
    kept = Kept()
    files = kept.files(file.parent)
    for result in (result_of(file.parent / "b.txt"), {}, "rejected", {"filePath": str(file), "structuredPatch": 5}):
        await files.look(called(file))
        await files.look({**ended(file), "tool_use_result": result})
    assert kept == {}


@pytest.mark.anyio
async def test_a_look_that_came_too_late_asks_the_file(file: Path) -> None:
    """Claude Code was faster: the file tells how its lines end."""
    kept = Kept()
    files = kept.files(file.parent)
    write(file, b"B\r\n")
    await files.look(called(file))
    await files.look(ended(file))
    assert kept["t"].hunks == EXACT


def test_what_stands_somewhere(tmp_path: Path) -> None:
    """Only files are opened; what cannot be read is no missing file."""
    (tmp_path / "text").write_bytes("ä\r\n".encode())
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * 4_000_001)
    os.mkfifo(tmp_path / "pipe")
    assert look_at(str(tmp_path / "text")) == Found(there=True, text="ä\r\n")
    assert look_at(str(tmp_path / "binary")) == Found(there=True)
    assert look_at(str(tmp_path / "none")) == Found(there=False)
    assert look_at(str(tmp_path / "text" / "none")) == Found(there=False)
    for name in ("large", "pipe", ".", "nul\0", "half \ud800", "x" * 300):
        assert look_at(str(tmp_path / name)) is None


def test_what_is_kept_for_replays_is_bounded() -> None:
    known = KnownChanges()
    for number in range(20):
        known.add("s", f"t{number}", FileChange("/a", "modify", hunks="x" * 999_000))
    assert [known.find("s", f"t{number}") is not None for number in range(20)] == [False] * 12 + [True] * 8
    assert known.find("other", "t19") is None


def test_a_change_that_is_kept_again_counts_once() -> None:
    known = KnownChanges()
    for _ in range(20):
        known.add("s", "t", FileChange("/a", "modify", hunks="x" * 999_000))
    assert known.find("s", "t") is not None
    known.add("s", "u", FileChange("/a", "modify", hunks="x" * 6_000_000))
    assert known.find("s", "t") is not None


def test_files_of_a_replay_are_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without Windows line ends has nothing to tell."""
    looks: list[str] = []
    real = edited_files.look_at
    monkeypatch.setattr(edited_files, "look_at", lambda path: looks.append(path) or real(path))
    other = file.parent / "lf.txt"
    other.write_bytes(b"B\n")
    file.write_bytes(b"B\r\n")
    now = FilesNow(str(file.parent))
    assert [bool(now.change(result_of(path))) for path in (file, file, other, other)] == [True, True, False, False]
    assert looks == [str(file), str(other)]
    created = {"filePath": str(file), "type": "create", "content": "x", "structuredPatch": [], "originalFile": None}
    assert now.change(created) is None
    assert now.change({}) is None
    assert len(looks) == 2


# --- in a session ----------------------------------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No look comes back until the end of the test."""
    release = threading.Event()
    monkeypatch.setattr(edited_files, "look_at", lambda _: release.wait(30) and None)
    monkeypatch.setattr(edited_files, "_BOUND", 0.1)
    yield
    release.set()


async def shown(sink: Sink, status: str) -> ToolCallUpdate:
    """The update that gives the call this status."""
    with anyio.fail_after(10):
        while True:
            for event in sink.of(Output):
                if isinstance(event.update, ToolCallUpdate) and event.update.status == status:
                    return event.update
            await sink.changed()


@pytest.mark.anyio
@pytest.mark.usefixtures("held")
async def test_a_disk_that_does_not_answer_holds_nothing_up(tmp_path: Path, file: Path) -> None:
    """What is reported is shown, in its order."""
    async with rig(tmp_path) as one:
        _, fake, sink = await one.working()
        await fake.say(called(file), asked(file), ended(file))
        update = await shown(sink, "completed")
        assert "-b\n+B\n" in update.content[0].patch.text  # type: ignore[index, union-attr]


@pytest.mark.anyio
async def test_a_replay_of_a_live_session_shows_what_was_shown(tmp_path: Path, file: Path) -> None:
    """Line ends are not stored; this process knows them, also when the file is changed."""
    async with rig(tmp_path) as one:
        session, fake, sink = await one.working()
        await fake.say(called(file))
        await shown(sink, "in_progress")
        write(file, b"B\r\n")
        await fake.say(ended(file))
        live = await shown(sink, "completed")
        assert "-b\r\n+B\r\n" in live.content[0].patch.text  # type: ignore[index, union-attr]
        write(file, b"")
        stored = {**ended(file), "uuid": "u", "toolUseResult": result_of(file)}
        one.store(session.session_id, {**called(file), "uuid": "v"}, stored)
        replayed = [update async for update in session.replay() if isinstance(update, ToolCallUpdate)]
        assert replayed[-1].content == live.content


@pytest.mark.anyio
async def test_a_replay_does_without_a_file_that_does_not_answer(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the history comes all the same, each update once."""
    release = threading.Event()
    tried: list[str] = []

    def dead(path: str) -> None:
        tried.append(path)
        with suppress(StuckError):
            file_calls._before(path)
            release.wait(30)

    monkeypatch.setattr(edited_files, "look_at", dead)
    async with rig(tmp_path) as one:
        session, _, _ = await one.working()
        stored = [
            {**called(file, f"t{number}"), "uuid": f"v{number}"}
            if kind == "call"
            else {**ended(file, f"t{number}"), "uuid": f"u{number}", "toolUseResult": result_of(file)}
            for number in range(100)
            for kind in ("call", "result")
        ]
        for index, entry in enumerate(stored):
            entry["message"] = {**entry["message"], "id": f"m{index}"}
        one.store(session.session_id, *stored)
        monkeypatch.setattr(file_calls, "BOUND", 0.5)
        replayed = [update async for update in session.replay() if isinstance(update, ToolCallUpdate)]
        release.set()
    ids = [update.tool_call_id for update in replayed if update.status == "completed"]
    assert ids == [f"t{number}" for number in range(100)]
    assert tried == [str(file)] * 2


def test_the_stored_session_alone(file: Path) -> None:
    """In another process: from the file as it now is."""
    file.write_bytes(b"B\r\n")
    path = file.parent / "aaaaaaaa-0000-4000-8000-000000000001.jsonl"
    stored = [{**called(file), "uuid": "v"}, {**ended(file), "uuid": "u", "toolUseResult": result_of(file)}]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in stored))
    *_, last = replay(path, str(file.parent))
    assert isinstance(last, ToolCallUpdate)
    assert "-b\r\n+B\r\n" in last.content[0].patch.text  # type: ignore[index, union-attr]
