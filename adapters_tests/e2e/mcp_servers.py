"""MCP servers of a test: over stdio and over HTTP. They note what they are started with and asked.

Each has the tool `who` and the prompts of `PROMPTS`, each of which says what it was asked with.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from adapters.scripted.script import ToolUse
from adapters.scripted.server import ScriptedServer

PROMPTS = [
    {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}, {"name": "how"}]},
    {"name": "plain"},
    {"name": "with:colon"},
    {"name": "with.dot"},
    {"name": "two words"},
]
_ANSWER = (
    f"PROMPTS = {PROMPTS!r}"
    """
import json
def answer(message, name):
    if message["method"] == "initialize":
        return {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "box", "version": "1"}}
    if message["method"] == "tools/list":
        return {"tools": [{"name": "who", "inputSchema": {"type": "object"}, "description": "who is it"}]}
    if message["method"] == "tools/call":
        return {"content": [{"type": "text", "text": "I am " + name}]}
    if message["method"] == "prompts/list":
        return {"prompts": PROMPTS}
    if message["method"] == "prompts/get":
        said = name + " was asked: " + json.dumps(message["params"], sort_keys=True)
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    return {}
"""
)
_STDIO = f"""
import json, os, sys, time
{_ANSWER}
while not os.path.exists(os.environ.get("STARTS_WITH", "/")):
    time.sleep(0.02)
note, name = open(sys.argv[1], "a"), sys.argv[2]
def noted(value):
    note.write(json.dumps(value) + "\\n")
    note.flush()
noted({{"arguments": sys.argv[3:], "env": dict(os.environ)}})
for line in sys.stdin:
    message = json.loads(line)
    noted({{"method": message["method"]}})
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": answer(message, name)}}), flush=True)
"""


_PROGRAM = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "box", "version": "1"}}
    elif message["method"] == "tools/list":
        BRANCHES
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def program(branches: str) -> str:
    """A program that is an MCP server. `branches` begin with what `tools/list` gives, and go on with what calls give."""
    return _PROGRAM.replace("BRANCHES", branches)


@dataclass(frozen=True)
class Stdio:
    """A server that is started. `name` is what it answers with; the rest is for the client to choose."""

    name: str
    notes: Path

    @property
    def command(self) -> str:
        """The program: a link of its own, so that its path can be any."""
        return sys.executable

    @property
    def arguments(self) -> list[str]:
        return ["-c", _STDIO, str(self.notes), self.name]

    def given(self, *arguments: str, name: str | None = None, command: str = "", **env: str) -> dict[str, Any]:
        """As a client gives it to a session."""
        variables = [{"name": key, "value": value} for key, value in env.items()]
        called = self.name if name is None else name
        argv = [*self.arguments, *arguments]
        return {"type": "stdio", "name": called, "command": command or self.command, "args": argv, "env": variables}

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Arguments and environment of each start."""
        return [line for line in self._lines() if "env" in line]

    @property
    def calls(self) -> int:
        """How often its tool was called."""
        return sum(line.get("method") == "tools/call" for line in self._lines())


@dataclass
class Http:
    """A server that is connected to."""

    port: int
    heard: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    """Path and headers of each request."""

    def given(self, name: str, path: str = "/mcp", **headers: str) -> dict[str, Any]:
        """As a client gives it to a session; `_` in the name of a header stands for `-`."""
        listed = [{"name": key.replace("_", "-"), "value": value} for key, value in headers.items()]
        return {"type": "http", "name": name, "url": f"http://127.0.0.1:{self.port}{path}", "headers": listed}


@contextmanager
def http_server(name: str, status: int = 200) -> Iterator[Http]:
    """An MCP server on loopback that answers each request at once; with an error of this status if that is one."""
    scope: dict[str, Any] = {}
    exec(_ANSWER, scope)  # noqa: S102 - our own text, which the other server gets as a program

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            served.heard.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
            if status != 200:
                self.send_error(status)
                return
            message = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            body = b""
            if "id" in message:
                result = scope["answer"](message, name)
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Http(listener.server_address[1])
    serving = Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield served
    finally:
        listener.shutdown()
        listener.server_close()
        serving.join()


def offered(model: ScriptedServer) -> list[ToolUse]:
    """The tool `who` of each server that the model was last told of, as it would call it."""
    body = model.records[-1].body
    spaces = [tool for tool in body.get("tools", []) if tool.get("type") == "namespace"]
    if spaces:
        return [
            ToolUse(tool["name"], {}, namespace=space["name"])
            for space in spaces
            for tool in space["tools"]
            if tool["name"] == "who"
        ]
    named = re.findall(r"mcp__[\w-]+?__who\b", json.dumps(body))  # in its list of tools, or in a text that lists more
    return [ToolUse(name, {}) for name in dict.fromkeys(named)]
