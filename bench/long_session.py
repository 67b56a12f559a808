"""What a stored session of 60 MB costs: acp-adapters beside the TypeScript adapters, in one run.

    python bench/long_session.py [claude] [codex] [--npm DIR] [--runs N]

Makes the session itself: the real runtime stores a few turns, whose entries are then repeated under new ids. Every run is a new
agent process on that one session. Linux only (reads /proc). See bench/README.md.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from agents import CLAUDE, Agent, Contender, Runtime, forget_peak, resident_mb, started
from comparing import Row, Values, in_turns, run, table

from adapters.codex.bounds import Bounds
from adapters.codex.server.process import spawn
from adapters.core.submissions import derived_id
from adapters.driver.uuids import UUID
from adapters.scripted import Answer, Rule, Script, ScriptedModel, Shell, Text, say
from adapters.scripted.home import work_folder

MEGABYTES = 60
KEY = "a key of long ago"

KNOWN = Row("known key -> answered, the first after a restart", "ms")
ROWS = (
    Row("spawn -> session/resume answered", "ms"),
    KNOWN,
    Row("the same key again", "ms"),
    Row("replay: session/resume sent -> answered", "ms", "faster", share=1.0),
    Row("updates in it", ""),
    Row("memory grows by", "MB", "under 64 MB", most=64.0),
)
MOST_KNOWN = 150.0
"""Milliseconds for a known key with Claude Code. With Codex the limit is what the runtime's own listing takes."""
NOISE = 1.1
"""Two measurements of the same differ so much."""

Entry = dict[str, Any]


def script() -> Script:
    """A turn as they are: some text, a tool with output, some more text."""
    words = "The quick brown fox jumps over the lazy dog. " * 60
    shell = Answer((Text(words), Shell("cat output.txt")))  # reading asks nobody for permission
    return Script((Rule((shell, say(words)), contains="Do it"),))


@dataclass
class Stored:
    """The long session."""

    home: Path
    project: Path
    session: str
    env: dict[str, str]
    file: Path


@asynccontextmanager
async def long_session(runtime: Runtime, us: Contender, folder: Path, size: int) -> AsyncGenerator[Stored]:
    """A session of so many bytes, in a home of its own."""
    home, project = folder / "home", folder / "project"
    work_folder(project)
    lines = (f"line {number} of the output of a command\n" for number in range(150))
    (project / "output.txt").write_text("".join(lines), encoding="utf-8")
    async with ScriptedModel(script()) as model:
        env = runtime.environment(home, model.base_url, project)
        async with started(us, env, project) as agent:
            await agent.initialize()
            _, result = await agent.ask("session/new", {"cwd": str(project), "mcpServers": []})
            session = result["sessionId"]
            for number in range(3):
                await agent.turn(session, f"Do it, for the time number {number}.", f"key {number}")
            assert agent.process.stdin is not None
            await agent.process.stdin.aclose()
            await agent.process.wait()
        (file,) = home.rglob(f"*{session}.jsonl")
        grow = grow_claude if runtime is CLAUDE else grow_codex
        grow(file, size, derived_id(session, KEY))
        yield Stored(home, project, session, env, file)


# --- growing ---------------------------------------------------------------------------------------------------------


def entries_of(file: Path) -> list[Entry]:
    """The entries of a stored session."""
    return [json.loads(line) for line in file.read_bytes().split(b"\n") if line]


def repeat(file: Path, turn: Sequence[Entry], size: int, change: Callable[[int, str], str]) -> None:
    """Append a turn until the file has this size; `change` gives the text of its n-th copy."""
    text = "".join(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n" for entry in turn)
    written = file.stat().st_size
    with file.open("a", encoding="utf-8") as out:
        number = 0
        while written < size:
            written += out.write(change(number, text))
            number += 1


def fresh(text: str, number: int, found: Sequence[str]) -> str:
    """A text with other ids in place of those that were found: of the same form, told apart by the number."""
    for old in found:
        new = f"{number:08x}{old[8:]}" if _UUID.fullmatch(old) else f"{old}x{number}"
        text = text.replace(old, new)
    return text


_UUID = re.compile(UUID)
_NAMED = re.compile(r'"((?:toolu|call|msg|rs|fc|resp|req)_[0-9A-Za-z]+)"')


def grow_claude(file: Path, size: int, message_id: str) -> None:
    """Repeat the last turn of a transcript: a chain in which each entry names the one before it."""
    entries = entries_of(file)
    turn = entries[max(i for i, entry in enumerate(entries) if _is_prompt(entry)) :]
    chain = [entry for entry in turn if "uuid" in entry]
    first, last = chain[0]["uuid"], chain[-1]["uuid"]
    assert chain[0]["parentUuid"]
    text = json.dumps(turn)
    ids = sorted({entry["uuid"] for entry in chain} | set(_NAMED.findall(text)))

    def copy(number: int, text: str) -> str:
        text = text.replace(f'"parentUuid":"{chain[0]["parentUuid"]}"', '"parentUuid":"BEFORE"', 1)
        before = f"{number - 1:08x}{last[8:]}" if number else last
        changed = fresh(text, number, ids).replace("BEFORE", before)
        return changed.replace(f"{number:08x}{first[8:]}", message_id) if number == _KNOWN else changed

    repeat(file, [entry for entry in turn if "uuid" in entry], size, copy)


_KNOWN = 5
"""The copy whose message has the known id: long ago."""


def _is_prompt(entry: Entry) -> bool:
    return entry.get("type") == "user" and "Do it" in json.dumps(entry["message"]["content"])


def grow_codex(file: Path, size: int, message_id: str) -> None:
    """Repeat the last turn of a thread's file, with counted-on ordinals; what Codex wrote after it is dropped."""
    entries = entries_of(file)
    began = max(i for i, entry in enumerate(entries) if entry["payload"].get("type") == "task_started")
    ended = max(i for i, entry in enumerate(entries) if entry["payload"].get("type") == "task_complete")
    turn = entries[began : ended + 1]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries[: ended + 1]), encoding="utf-8")
    thread = next(entry["payload"]["id"] for entry in entries if entry["type"] == "session_meta")
    text = json.dumps(turn)
    (client_id,) = {entry["payload"]["item"]["client_id"] for entry in turn if _is_user_item(entry)}
    ids = sorted((set(_UUID.findall(text)) - {thread}) | set(_NAMED.findall(text)))
    ordinal = entries[ended]["ordinal"]

    def copy(number: int, _text: str) -> str:
        nonlocal ordinal
        lines: list[str] = []
        for entry in turn:
            ordinal += 1
            lines.append(json.dumps({**entry, "ordinal": ordinal}, separators=(",", ":")) + "\n")
        changed = fresh("".join(lines), number, ids)
        return changed.replace(f"{number:08x}{client_id[8:]}", message_id) if number == _KNOWN else changed

    repeat(file, turn, size, copy)


def _is_user_item(entry: Entry) -> bool:
    payload = entry["payload"]
    return payload.get("type") == "item_completed" and payload["item"].get("type") == "UserMessage"


# --- measuring ---------------------------------------------------------------------------------------------------------


async def measure(stored: Stored, contender: Contender, *, ours: bool) -> Values:
    """Two agent processes, one after the other: a value for each row."""
    params = {"sessionId": stored.session, "cwd": str(stored.project), "mcpServers": []}
    known: list[float | None] = [None, None]
    async with started(contender, stored.env, stored.project) as agent:
        await agent.initialize()
        _, request = await agent.request("session/resume", params)
        resumed, _ = await agent.answer(request)
        resumed -= agent.spawned
        if ours:
            known = [await _known(agent, stored.session) for _ in range(2)]
        await _leave(agent)
    async with started(contender, stored.env, stored.project) as agent:
        await agent.initialize()
        await anyio.sleep(0.5)  # what an agent loads beside the first request is no growth
        before = resident_mb(agent.pid)
        forget_peak(agent.pid)
        replayed, _ = await agent.ask("session/resume", {**params, "replayFrom": {"type": "start"}})
        grown = resident_mb(agent.pid, "VmHWM") - before
        updates = sum(message.get("method") == "session/update" for _, message in agent.messages)
        await _leave(agent)
    return [resumed * 1000, *known, replayed * 1000, updates, grown]


async def _known(agent: Agent, session: str) -> float:
    since = len(agent.messages)
    sent, request = await agent.prompt(session, "Not to be run.", KEY)
    at, result = await agent.answer(request)
    assert result["messageId"] == derived_id(session, KEY)
    assert not any(message.get("method") == "session/update" for _, message in agent.messages[since:])
    return (at - sent) * 1000


async def _leave(agent: Agent) -> None:
    assert agent.process.stdin is not None
    await agent.process.stdin.aclose()
    with anyio.move_on_after(10):
        await agent.process.wait()


async def listing_ms(runtime: Runtime, stored: Stored) -> float:
    """What the app-server alone takes to list all items of the thread, once it has loaded it."""
    server = await spawn([runtime.executable(), "app-server"], stored.env, Bounds())
    async with anyio.create_task_group() as tasks:

        async def writable() -> None:
            return None

        tasks.start_soon(server.run, lambda *_: None, lambda *_: None, writable)
        info = {"name": "bench", "title": "bench", "version": "1"}
        await server.request("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        server.notify("initialized")
        await server.request("thread/resume", {"threadId": stored.session, "excludeTurns": True}, bound=120)
        began = time.perf_counter()
        cursor: str | None = None
        while True:
            page = {"threadId": stored.session, "limit": 100, **({"cursor": cursor} if cursor else {})}
            cursor = (await server.request("thread/items/list", page, bound=120)).get("nextCursor")
            if cursor is None:
                break
        took = time.perf_counter() - began
        await server.stop()
        tasks.cancel_scope.cancel()
    return took * 1000


async def compare(runtime: Runtime, us: Contender, them: Contender, runs: int) -> str:
    """The table for one runtime."""
    with tempfile.TemporaryDirectory(prefix="acp-bench-", ignore_cleanup_errors=True) as folder:
        async with long_session(runtime, us, Path(folder), MEGABYTES * 1_000_000) as stored:
            size = stored.file.stat().st_size / 1e6
            values = await in_turns(
                runtime, (us, them), runs, lambda _, contender: measure(stored, contender, ours=contender is us)
            )
            if runtime is CLAUDE:
                limit, words = MOST_KNOWN, "under 150 ms"
            else:
                listed = statistics.median([await listing_ms(runtime, stored) for _ in range(runs + 1)])
                limit, words = listed * NOISE, f"the listing alone, {listed:.0f} ms, give or take {NOISE - 1:.0%}"
    rows = [replace(row, budget=words, most=limit) if row is KNOWN else row for row in ROWS]
    return f"A stored session of {size:.0f} MB:\n\n{table(rows, (us, them), values)}"


if __name__ == "__main__":
    run("Compare what a long stored session costs.", 3, compare)
