"""File calls that do not come back: bounded one by one, and nobody waits for their thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from adapters.core import file_calls
from adapters.core.file_calls import StuckError, in_thread, in_thread_without, open_file, read_file, scan, stat

pytestmark = pytest.mark.anyio


class Mount:
    """Places that do not answer until they are let go, as those of a network mount whose server is gone."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.entered = 0
        self._back = threading.Event()

    def answer(self) -> None:
        self.dead.clear()
        self._back.set()

    def enter(self, path: object) -> None:
        if str(path) in self.dead:
            self.entered += 1
            self._back.wait(30)


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    """In the place of the operating system's own calls."""
    made = Mount()
    for name in ("stat", "open", "scandir"):
        real = getattr(os, name)

        def call(path: object, *args: object, _real: object = real, **named: object) -> object:
            made.enter(path)
            return _real(path, *args, **named)  # type: ignore[operator]

        monkeypatch.setattr(file_calls.os, name, call)
    monkeypatch.setattr(file_calls, "BOUND", 0.2)
    yield made
    made.answer()


async def came_back() -> None:
    """Wait until no place counts as stuck."""
    with anyio.fail_after(5):
        while file_calls._stuck_places:  # noqa: ASYNC110 - a thread says so, nobody else
            await anyio.sleep(0.01)


async def test_work_gives_and_raises_what_it_does() -> None:
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


@pytest.mark.parametrize("call", [stat, scan, read_file])
async def test_a_call_that_does_not_come_back_is_an_error(tmp_path: Path, mount: Mount, call: object) -> None:
    path = tmp_path / "dead"
    path.mkdir() if call is scan else path.write_text("x")
    arguments = (path, 10) if call is read_file else (path,)
    mount.dead.add(str(path))
    with anyio.fail_after(5), pytest.raises(StuckError, match="does not answer"):
        await in_thread(lambda: call(*arguments))  # type: ignore[operator]
    mount.answer()
    await came_back()
    await in_thread(lambda: call(*arguments))  # type: ignore[operator]


async def test_one_bad_place_costs_one_thread(tmp_path: Path, mount: Mount) -> None:
    """However often it is asked for: the others are refused at once."""
    (tmp_path / "dead").write_text("x")
    mount.dead.add(str(tmp_path / "dead"))
    threads = threading.active_count()
    for _ in range(100):
        with pytest.raises(StuckError):
            await in_thread(lambda: open_file(tmp_path / "dead"), undo=lambda file: file.close())
    assert mount.entered == 1
    assert threading.active_count() <= threads + 2


async def test_work_that_can_do_without_it_goes_on(tmp_path: Path, mount: Mount) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    mount.dead |= {str(folders[0]), str(folders[1])}

    def names() -> list[str]:
        found: list[str] = []
        for folder in folders:
            try:
                scan(folder)
                found.append(folder.name)
            except OSError:
                continue
        return found

    with anyio.fail_after(5):
        assert await in_thread_without(names) == ["c"]


async def test_long_work_is_not_bounded(mount: Mount, tmp_path: Path) -> None:
    """Only a single call is."""
    clock = threading.Event()

    def slow() -> int:
        for _ in range(20):
            stat(tmp_path)
            clock.wait(file_calls.BOUND / 5)
        return 1

    assert await in_thread(slow) == 1
    assert mount.entered == 0


@pytest.mark.parametrize("how", ["cancelled", "stuck"])
async def test_what_nobody_waits_for_any_more_is_taken_back(tmp_path: Path, mount: Mount, how: str) -> None:
    """A lock that is taken too late must not be kept."""
    (tmp_path / "dead").write_text("x")
    mount.dead.add(str(tmp_path / "dead"))
    undone: list[object] = []
    with anyio.move_on_after(0.05 if how == "cancelled" else 5), suppress(StuckError):
        await in_thread(lambda: open_file(tmp_path / "dead"), undo=lambda file: undone.append(file.close()))
    assert undone == []
    mount.answer()
    with anyio.fail_after(5):
        while not undone:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.01)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
async def test_only_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"not a file|Is a directory"):
        open_file(path)


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    content = os.urandom(3_000_000) + b"\nlast"
    (tmp_path / "x").write_bytes(content)
    with open_file(tmp_path / "x") as file:
        assert file.read() == content
        file.seek(0)
        assert b"".join(file) == content
    assert read_file(tmp_path / "x", 10) == content[:10]
