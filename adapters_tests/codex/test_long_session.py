"""A stored thread of 150 MB costs little to open, in memory and for everybody else; only the app-server is a fake."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from adapters.core.submissions import derived_id
from adapters_tests.raw import MOST, opened

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

THREAD = "aaaaaaaa-0000-4000-8000-00000000000a"
KEY = "a key of long ago"
PAGES, ITEMS = 100, 100
"""Of 1.5 MB each."""

FAKE = """
import json, os, sys, time
THREAD, KNOWN, PAGES, ITEMS = {}
def item(number):
    if number % 4 == 0:
        content = [{"type": "text", "text": f"Do it, {number}.", "text_elements": []}]
        client_id = KNOWN if number == 12 else f"{number:08x}-0000-4000-8000-000000000000"
        return {"type": "userMessage", "id": f"u{number}", "clientId": client_id, "content": content}
    return {"type": "agentMessage", "id": f"a{number}", "text": "The quick brown fox. " * 950}
def page(params):
    begin = int(params.get("cursor") or 0)
    rows = [{"turnId": f"t{n // 4}", "item": item(n), "startedAtMs": n} for n in range(begin, begin + ITEMS)]
    if begin:
        while not os.path.exists(os.environ["HOME"] + "/go on"):
            time.sleep(0.01)
    following = begin + ITEMS
    return {"data": rows, "nextCursor": str(following) if following < PAGES * ITEMS else None}
def thread(params):
    path = os.environ["CODEX_HOME"] + f"/sessions/rollout-2026-11-30T00-00-00-{THREAD}.jsonl"
    found = {"id": params.get("threadId", "b" + THREAD[1:]), "historyMode": "paginated", "path": path}
    return {"thread": found, "model": "m"}
ANSWERS = {"thread/start": thread, "thread/resume": thread, "thread/items/list": page}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = ANSWERS.get(message["method"], lambda params: {"data": []})(message["params"])
        print(json.dumps({"id": message["id"], "result": result}), flush=True)
"""


def write_rollout(home: Path) -> None:
    """The thread's file, as long as what is listed of it."""
    (home / "sessions").mkdir(parents=True)
    with (home / "sessions" / f"rollout-2026-11-30T00-00-00-{THREAD}.jsonl").open("w") as file:
        for number in range(PAGES * ITEMS):
            if number % 4 == 0:
                client_id = derived_id(THREAD, KEY) if number == 12 else f"{number:08x}-0000-4000-8000-000000000000"
                item = {"type": "UserMessage", "id": f"u{number}", "client_id": client_id, "content": []}
            else:
                text = "The quick brown fox. " * 950
                item = {"type": "AgentMessage", "id": f"a{number}", "content": [{"type": "Text", "text": text}]}
            payload = {"type": "item_completed", "thread_id": THREAD, "turn_id": f"t{number // 4}", "item": item}
            line = {"ordinal": number, "type": "event_msg", "payload": payload}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


async def test_opening_a_long_thread_costs_little(tmp_path: Path) -> None:
    """F26: neither the replay nor the first look-up of a key holds the thread in memory, and a page is passed on as it comes."""
    values = (THREAD, derived_id(THREAD, KEY), PAGES, ITEMS)
    env = {"CODEX_HOME": str(tmp_path / "codex"), "CODEX_PATH": str(tmp_path / "fake")}
    cwd = str(tmp_path / "project")
    write_rollout(tmp_path / "codex")
    async with opened("codex", FAKE.replace("{}", repr(values), 1), tmp_path, env) as raw:
        raw.forget_peak()
        before = raw.memory("VmRSS")
        resume = {"sessionId": THREAD, "cwd": cwd, "mcpServers": [], "replayFrom": {"type": "start"}}
        await raw.send(3, "session/resume", resume)
        assert b'"method":"session/update"' in await raw.next(), "the first page is not held back for the others"
        (tmp_path / "go on").touch()
        assert (await raw.answer())["id"] == 3
        assert raw.updates >= PAGES * ITEMS - 1
        prompt = {"sessionId": THREAD, "prompt": [{"type": "text", "text": "again"}], "idempotencyKey": KEY}
        await raw.send(4, "session/prompt", prompt)
        assert (await raw.answer())["result"] == {"messageId": derived_id(THREAD, KEY)}
        assert raw.memory("VmHWM") - before < MOST
