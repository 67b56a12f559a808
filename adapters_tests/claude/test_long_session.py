"""A stored session of 150 MB costs little to open, in memory and for everybody else; only the CLI is a fake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.core.submissions import derived_id
from adapters_tests.raw import MOST, opened

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

SESSION = "aaaaaaaa-0000-4000-8000-00000000000a"
KEY = "a key of long ago"
SIZE = 150_000_000

FAKE = """
import json, os, sys, time
while "--resume" in sys.argv and not os.path.exists(os.environ["HOME"] + "/has read it"):
    time.sleep(0.01)
for line in sys.stdin:
    frame = json.loads(line)
    if frame.get("type") == "control_request":
        response = {"subtype": "success", "request_id": frame["request_id"], "response": {"commands": []}}
        print(json.dumps({"type": "control_response", "response": response}), flush=True)
"""


def store(file: Path, cwd: str) -> int:
    """A long session of turns with a tool, each with some 60 kB; gives their number."""
    file.parent.mkdir(parents=True)
    words, output = "The quick brown fox. " * 400, "a line of the output of a command\n" * 1200
    parent, number = None, 0
    with file.open("w", encoding="utf-8") as out:
        while out.tell() < SIZE:
            at = f"{number:08x}-0000-4000-8000-00000000000"
            uuids = [derived_id(SESSION, KEY) if number == 3 else f"{at}0", f"{at}1", f"{at}2", f"{at}3"]
            call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
            messages: list[dict[str, Any]] = [
                {"role": "user", "content": [{"type": "text", "text": f"Do it, {number}."}]},
                {"role": "assistant", "id": f"m{number}", "content": [{"type": "text", "text": words}, call]},
                {"role": "user", "content": [result]},
                {"role": "assistant", "id": f"n{number}", "content": [{"type": "text", "text": words}]},
            ]
            for uuid, message in zip(uuids, messages, strict=True):
                entry = {"type": message["role"], "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "cwd": cwd}
                extra = {"toolUseResult": {"stdout": output, "stderr": ""}} if uuid == uuids[2] else {}
                out.write(json.dumps({**entry, "message": message, **extra}, separators=(",", ":")) + "\n")
                parent = uuid
            number += 1
    return number


async def test_opening_a_long_session_costs_little(tmp_path: Path) -> None:
    """F26: minutes and gigabytes. Neither the replay nor the first look-up of a key holds the session in memory.

    Nor does the replay wait until Claude Code has read the session.
    """
    cwd = tmp_path / "project"
    cwd.mkdir()
    env = {
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
        "ACP_ADAPTERS_STATE_DIR": str(tmp_path / "state"),
        "CLAUDE_CODE_EXECUTABLE": str(tmp_path / "fake"),
    }
    turns = store(tmp_path / "config" / "projects" / "-w" / f"{SESSION}.jsonl", str(cwd))
    async with opened("claude", FAKE, tmp_path, env) as raw:
        raw.forget_peak()
        before, read_before = raw.memory("VmRSS"), raw.bytes_read()
        resume = {"sessionId": SESSION, "cwd": str(cwd), "mcpServers": [], "replayFrom": {"type": "start"}}
        await raw.send(3, "session/resume", resume)
        assert b'"method":"session/update"' in await raw.next()
        assert raw.bytes_read() - read_before < SIZE / 5, "the first update waits for no reading of the whole"
        await raw.send(4, "session/new", {"cwd": str(cwd), "mcpServers": []})
        assert (await raw.answer())["id"] == 4, "others are served while a session is replayed"
        (tmp_path / "has read it").touch()  # the real Claude Code reads all of it, too: seconds
        assert "result" in (answer := await raw.answer()), answer
        assert raw.updates >= 5 * turns - 1
        prompt = {"sessionId": SESSION, "prompt": [{"type": "text", "text": "again"}], "idempotencyKey": KEY}
        await raw.send(5, "session/prompt", prompt)
        assert (await raw.answer())["result"] == {"messageId": derived_id(SESSION, KEY)}
        assert raw.memory("VmHWM") - before < MOST
