"""Stored sessions as other versions, crashes and disks leave them: what they hold is found all the same, or it is an error.

The lines are put into files that the real runtime has written, and the real runtime goes on with them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.errors import AcpError
from adapters_tests.e2e.rig import Link, Rig

pytestmark = pytest.mark.anyio

ODD: tuple[bytes, ...] = (
    b'{"type":"a-type-of-next-year","uuid":"11111111-1111-4111-8111-111111111111","payload":{"x":[1,2]}}\n',
    b'{"type":7,"payload":null}\n',
    b'{"type":"user","message":"not an object","uuid":["x"]}\n',
    b'{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"Unheard","client_id":7}}}\n',
    b'{"type":"response_item","ordinal":1,"payload":{"type":"of_next_year"}}\n',
    b'{"type":"summary","summary":"of a version before","leafUuid":"x"}\n',
    b"[1,2,3]\n",
    b"null\n",
    b"\n",
    b"\xff\xfe\x00 no text at all \x80\n",
    b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","te\n',
    b'{"type":"queue-operation","operation":"enqueue","content":"a","sessionId":"x"}\n',
)
"""Lines of no use, each of another kind."""


def files_of(rig: Rig, session: str) -> list[Path]:
    folder = rig.root / ("claude/projects" if rig.runtime.name == "claude" else "codex/sessions")
    found = [path for path in folder.rglob(f"*{session}*") if path.is_file()]
    assert found
    return found


async def written(rig: Rig, text: str) -> tuple[str, list[str]]:
    """A session of three keyed prompts, closed by its agent."""
    async with rig.agent() as link:
        session = await link.new()
        ids = [await link.turn(session, f"{text} {number}", f"drift-key-{number}") for number in range(3)]
    return session, ids


async def known(rig: Rig, link: Link, session: str, text: str, ids: list[str]) -> None:
    """Every key is answered with its id, without a model call; a new prompt goes on with the conversation."""
    calls = rig.model.total_calls
    for number, message_id in enumerate(ids):
        call = await link.prompt(session, f"{text} {number}", f"drift-key-{number}")
        assert await call.message_id() == message_id
    assert rig.model.total_calls == calls
    await link.turn(session, f"{text} after", "drift-key-after")
    assert rig.model.calls(f"{text} after") == 1


async def shown_and_known(rig: Rig, session: str, text: str, ids: list[str]) -> None:
    """To another agent, too: the messages are in its replay, and their keys are known."""
    async with rig.agent() as link:
        await link.resume(session, replay=True)
        assert link.user_messages(session) == ids
        await known(rig, link, session, text, ids)


@pytest.mark.parametrize("where", ["between", "behind"])
async def test_lines_that_nobody_understands_hide_nothing(rig: Rig, text: str, where: str) -> None:
    """D11, KEY-42, ADP-5: unknown types, damaged and torn lines, other shapes; ids behind them are found, and shown."""
    session, ids = await written(rig, text)
    for path in files_of(rig, session):
        lines = path.read_bytes().splitlines(keepends=True)
        if where == "behind":
            lines += [*ODD, b'{"type":"user","uuid":"torn']
        else:
            first, rest = lines[0], lines[1:]
            lines = [first, *(part for line in rest for part in (*ODD, line))]
        path.write_bytes(b"".join(lines))
    await shown_and_known(rig, session, text, ids)


async def test_entries_stored_twice_are_one_message(rig: Rig, text: str) -> None:
    """KEY-42, REPLAY-2: a copy of the last lines, with the same ids and ordinals."""
    session, ids = await written(rig, text)
    for path in files_of(rig, session):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines, *lines[-8:]]))
    await shown_and_known(rig, session, text, ids)


async def test_what_a_runtime_keeps_beside_its_record_may_be_gone(rig: Rig, text: str) -> None:
    """ADP-5: indexes, projections and caches; the record itself is enough."""
    session, ids = await written(rig, text)
    store = rig.root / rig.runtime.name
    records = files_of(rig, session)
    for path in store.iterdir():
        if any(record.is_relative_to(path) for record in records) or path.name in ("config.toml", ".claude.json"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    await shown_and_known(rig, session, text, ids)


async def test_a_store_that_cannot_be_read_is_an_error_and_not_a_new_prompt(rig: Rig, text: str) -> None:
    """ADP-6, KEY-42, RESUME-7: also where it is read only at the resume; nothing is inserted, and it works again later."""
    session, ids = await written(rig, text)
    [path] = files_of(rig, session)
    content = path.read_bytes()
    async with rig.agent() as link:
        for damaged in (b"", b"\xff{{{\n" * 20):
            path.write_bytes(damaged)
            with pytest.raises(AcpError) as caught:
                await link.resume(session)
            assert caught.value.code == -32603
            assert path.read_bytes() == damaged
        path.write_bytes(content)
        await link.resume(session)
        await known(rig, link, session, text, ids)


async def test_entries_of_older_versions(rig: Rig, text: str) -> None:
    """D11, KEY-42: fewer fields than today's; the ids are there."""
    if rig.runtime.name != "claude":
        pytest.skip("legacy threads of Codex: adapters_tests/codex/test_fixtures.py")
    session, ids = await written(rig, text)
    for path in files_of(rig, session):
        old: list[bytes] = []
        for line in path.read_bytes().splitlines():
            entry: dict[str, Any] = json.loads(line)
            for name in ("version", "gitBranch", "slug", "entrypoint", "promptSource", "userType", "requestId"):
                entry.pop(name, None)
            old.append(json.dumps(entry).encode() + b"\n")  # with blanks, as JSON was written once
        path.write_bytes(b"".join(old))
    await shown_and_known(rig, session, text, ids)
