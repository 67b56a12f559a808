"""Pictures and sounds that tools give: each comes as something that a client can draw, play or save. On the real runtimes."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from adapters.client.view import SessionView
from adapters.scripted.script import Answer, ToolUse, say
from adapters_tests.e2e.mcp_servers import program
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CODEX

pytestmark = pytest.mark.anyio

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # a PNG of one pixel
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="4"/></svg>'
DRAWN = {"image/png", "image/jpeg", "image/gif", "image/webp"}

GALLERY = program("""\
result = {"tools": [{"name": "show", "inputSchema": {"type": "object"}, "description": "show a picture"}]}
    elif message["method"] == "tools/call":
        result = {"content": [json.loads(sys.argv[1])]}\
""")


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


SHOWN: dict[str, dict[str, Any]] = {
    "png": {"type": "image", "mimeType": "image/png", "data": PIXEL},
    "svg": {"type": "image", "mimeType": "image/svg+xml", "data": encoded(SVG)},
    "tiff": {"type": "image", "mimeType": "image/tiff", "data": encoded("II*\0 no picture")},
    "odd-sound": {"type": "audio", "mimeType": "audio/x-aiff", "data": encoded("FORM")},
}


@pytest.mark.parametrize("kind", SHOWN)
async def test_what_a_tool_of_a_server_shows_can_be_used(link: Link, text: str, kind: str) -> None:
    """CONT-1, REPLAY-2: no image that no client can draw; the picture is the same in a replay."""
    block = SHOWN[kind]
    server = {
        "type": "stdio",
        "name": "gallery",
        "command": sys.executable,
        "args": ["-c", GALLERY, json.dumps(block)],
        "env": [],
    }
    session = await link.new(mcpServers=[server])
    await link.turn(session, text)  # the tools are known with the first answer
    called = f"Show {text}"
    link.rig.answer(called, Answer((showing(link.rig),)), say("Shown."))
    await link.turn(session, called)
    view = await link.replays_alike(session)
    [call] = view.items("tool_call")
    contents = [item["content"] for item in call.fields["content"]]
    pictures = [content for content in contents if content["type"] == "image"]
    assert all(picture["mimeType"] in DRAWN for picture in pictures)
    assert not [content for content in contents if content["type"] == "audio"]
    if kind == "png":
        assert [picture["data"] for picture in pictures] == [PIXEL]
    elif link.rig.runtime is not CODEX:  # Claude Code keeps it in a file
        [saved] = [content for content in contents if content["type"] == "resource_link"]
        assert saved["mimeType"] == block["mimeType"]
        assert content_of(saved["uri"]) == b64decode(block["data"])
    elif block["type"] == "audio":  # it drops sounds for a model that hears none
        assert "audio" in contents[0]["text"]
    else:
        [resource] = [content["resource"] for content in contents]
        assert resource.get("text") == SVG if kind == "svg" else resource["blob"] == block["data"]


def content_of(uri: str) -> bytes:
    return Path(unquote(urlsplit(uri).path)).read_bytes()


def showing(rig: Rig) -> ToolUse:
    if rig.runtime is not CODEX:
        return ToolUse("mcp__gallery__show", {})
    offered = {
        tool.get("name", "")
        for call in rig.model.records
        for tool in call.body.get("tools", [])
        if tool.get("type") == "namespace"
    }
    return ToolUse("show", {}, namespace=next(name for name in offered if name.startswith("mcp__gallery")))


@pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session")
async def test_an_image_that_the_model_looks_at_is_shown(link: Link, text: str) -> None:
    """REPLAY-2: the picture while it is there; a link when the file has another one since."""
    path = link.rig.project / "seen it.png"
    path.write_bytes(b64decode(PIXEL))
    link.rig.answer(text, Answer((ToolUse("view_image", {"path": str(path)}),)), say("Seen."))
    session = await link.new()
    await link.turn(session, text)
    view = await link.replays_alike(session)
    assert shown(view) == [{"type": "image", "data": PIXEL, "mimeType": "image/png", "uri": path.as_uri()}]
    path.write_bytes(b64decode(PIXEL) + b"more")
    assert await again(link, session) == [
        {"type": "resource_link", "name": path.name, "uri": path.as_uri(), "size": path.stat().st_size}
    ]
    path.unlink()
    assert await again(link, session) == [{"type": "resource_link", "name": path.name, "uri": path.as_uri()}]


def shown(view: SessionView) -> list[dict[str, Any]]:
    [call] = view.items("tool_call")
    return [item["content"] for item in call.fields["content"]]


async def again(link: Link, session: str) -> list[dict[str, Any]]:
    mark = link.client.record.mark
    await link.resume(session, replay=True)
    return shown(SessionView.of(link.client.updates(session, mark)))
