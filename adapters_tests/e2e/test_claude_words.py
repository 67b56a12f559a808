"""A replay shows what was sent, character by character, whatever Claude Code makes of it in its own session file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from adapters.client.view import SessionView
from adapters_tests.e2e.rig import Link
from adapters_tests.e2e.runtimes import CLAUDE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session"),
]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
LINK = {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"}

BLANKS = (" ", "\n \t", "\u00a0", "\ufeff", "\u200b", "  in front", "behind \n", "\u2028both\r\n", "\\ x ")
COMMANDS = (
    "/cost",
    "/cost  now ",
    "/usage",
    "/init  a \n b ",
    "/settings",
    "/review",
    "/help  me",
    "/no-such  a ",
    " /cost",
)
LOOK_ALIKES = (
    "/etc/x is a file ",
    "(no content)",
    "[Request interrupted by user]",
    "<local-command-stdout>x</local-command-stdout>",
    " <local-command-stdout>x</local-command-stdout> ",
    "<command-name>/cost</command-name>\n<command-message>cost</command-message>",
    "<command-name>/cost</command-name>\n<command-message>cost</command-message> ",
    "<bash-input>ls</bash-input>",
    "<system-reminder>x</system-reminder>",
    "<task-notification>x</task-notification>",
)
SEVERAL: tuple[list[Any], ...] = (
    [" ", "\n"],
    [" a", "b "],
    ["a ", " ", " b"],
    ["\u200b ", "x\u200b"],
    [LINK, "read it\n"],
    [" see ", LINK],
    [IMAGE, " "],
    ["\tlook: ", IMAGE, "\n"],
)


def blocks(prompt: str | list[Any]) -> list[dict[str, Any]]:
    parts = [prompt] if isinstance(prompt, str) else prompt
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


PROMPTS = (*BLANKS, *COMMANDS, *LOOK_ALIKES, *SEVERAL)


async def replayed(link: Link, session: str, message_ids: Iterable[str]) -> list[Any]:
    """What these messages are in a replay after the session was closed."""
    await link.client.close(session)
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    items = {item.item_id: item for item in SessionView.of(link.client.updates(session, mark)).items("user")}
    return [item and item.fields["content"] for item in map(items.get, message_ids)]


async def test_prompts_of_their_own(shared: Link) -> None:
    session = await shared.new()
    message_ids = [await shared.turn(session, blocks(prompt)) for prompt in PROMPTS]
    assert await replayed(shared, session, message_ids) == list(map(blocks, PROMPTS))


async def test_prompts_behind_a_tool(shared: Link, text: str) -> None:
    """The runtime takes each into the running turn, or keeps it for a turn of its own."""
    session = await shared.new()
    message_ids: list[str] = []
    for number, prompt in enumerate(PROMPTS):
        tool = shared.rig.tool(f"{text}, {number}")
        await shared.prompt(session, f"{text}, {number}")
        await tool.started()
        call = await shared.prompt(session, blocks(prompt))
        await shared.rig.queued(session)
        tool.release()
        message_ids.append(await call.message_id())
        await shared.ended(session, message_ids[-1])
    assert await replayed(shared, session, message_ids) == list(map(blocks, PROMPTS))
