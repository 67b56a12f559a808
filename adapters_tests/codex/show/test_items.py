"""Items as tool calls. The items are those that Codex 0.163.0 wrote."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.acp.schema import dump
from adapters.codex.show.items import shell_command, spoken_text, status_of, thought_text, tool_call, was_killed

CWD = "/w/My Project - x"


def shown(item: dict[str, Any], status: str | None = None) -> dict[str, Any]:
    call = tool_call({"id": "i1", **item}, CWD, status=status)
    assert call is not None
    return dump(call)


def command(text: str = "echo one", **fields: Any) -> dict[str, Any]:
    return {
        "type": "commandExecution",
        "command": f"/bin/bash -lc '{text}'",
        "cwd": CWD,
        "status": "completed",
        "commandActions": [{"type": "unknown", "command": text}],
        "aggregatedOutput": "one\n",
        "exitCode": 0,
        **fields,
    }


def change(path: str, kind: str, diff: str, **fields: Any) -> dict[str, Any]:
    return {"path": path, "kind": {"type": kind, **fields}, "diff": diff}


def file_change(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"type": "fileChange", "changes": list(changes), "status": "completed"}


def test_a_command() -> None:
    """TOOL-2, TOOL-7: what was run, without the shell around it; what it printed; how it ended."""
    call = shown(command())
    assert call == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "i1",
        "name": "exec_command",
        "title": "echo one",
        "kind": "execute",
        "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "```\none\n```"}}],
        "locations": [],
        "rawInput": {"command": "echo one", "cwd": CWD},
        "rawOutput": {"exitCode": 0},
    }


@pytest.mark.parametrize(
    ("actions", "kind", "paths"),
    [
        ([{"type": "read", "path": "a.txt"}, {"type": "read", "path": "/b"}], "read", [f"{CWD}/a.txt", "/b"]),
        ([{"type": "search", "path": "."}, {"type": "listFiles", "path": None}], "search", []),
        ([{"type": "read", "path": "a"}, {"type": "unknown"}], "execute", [f"{CWD}/a"]),
        ([{"type": "new"}], "execute", []),
        ([], "execute", []),
        (None, "execute", []),
    ],
)
def test_kinds_of_commands(actions: Any, kind: str, paths: list[str]) -> None:
    """TOOL-5: a command that only reads is shown so."""
    call = shown(command(commandActions=actions))
    assert (call["kind"], [place["path"] for place in call["locations"]]) == (kind, paths)


@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("/bin/bash -lc 'echo one; echo two'", "echo one; echo two"),
        ("bash -c ls", "ls"),
        ("/usr/bin/zsh -lc 'a \"b\"'", 'a "b"'),
        ("bash -lc a b", "bash -lc a b"),
        ("python -c x", "python -c x"),
        ("echo 'torn", "echo 'torn"),
        ("", ""),
    ],
)
def test_the_shell_around_a_command_is_taken_off(line: str, inner: str) -> None:
    """Codex puts the user's shell around what the model wrote."""
    assert shell_command(line) == inner


def test_file_changes() -> None:
    """DIFF-1..3: absolute paths, and git's patch of all of them."""
    call = shown(
        file_change(
            change(f"{CWD}/new.txt", "add", "hello\nworld\n"),
            change(f"{CWD}/old.txt", "update", "@@ -1 +1 @@\n-a\n+b\n", move_path=None),
            change("gone.txt", "delete", "x\ny"),
        )
    )
    assert (call["kind"], call["title"]) == ("edit", "Edit new.txt, old.txt, gone.txt")
    [diff] = call["content"]
    assert diff["changes"] == [
        {"operation": "add", "path": f"{CWD}/new.txt"},
        {"operation": "modify", "path": f"{CWD}/old.txt"},
        {"operation": "delete", "path": f"{CWD}/gone.txt"},
    ]
    assert diff["patch"]["text"].count("diff --git ") == 3
    assert "+hello\n+world\n" in diff["patch"]["text"]
    assert "-x\n-y\n\\ No newline at end of file\n" in diff["patch"]["text"]


def test_a_move() -> None:
    """DIFF-1: `oldPath`; what Codex writes behind the hunks is not part of them."""
    moved = f"{CWD}/sub/new name.txt"
    diff = f"@@ -1 +1 @@\n-a\n+b\n\n\nMoved to: {moved}"
    call = shown(file_change(change(f"{CWD}/old.txt", "update", diff, move_path=moved)))
    [content] = call["content"]
    assert call["kind"] == "move"
    assert content["changes"] == [{"operation": "move", "path": moved, "oldPath": f"{CWD}/old.txt"}]
    assert "rename from " in content["patch"]["text"]
    assert "Moved to" not in content["patch"]["text"]


@pytest.mark.parametrize("diff", [None, "no hunks", 7])
def test_a_patch_that_says_less_is_left_out(diff: Any) -> None:
    """DIFF-2: it must agree with the changes."""
    [content] = shown(file_change(change("/a", "update", diff)))["content"]
    assert content == {"type": "diff", "changes": [{"operation": "modify", "path": "/a"}]}


def test_single_kinds_of_file_changes() -> None:
    """TOOL-5."""
    assert shown(file_change(change("/a", "delete", "")))["kind"] == "delete"
    assert shown(file_change(change("/a", "add", "")))["title"] == "Add /a"
    assert shown(file_change())["title"] == "Edit files"


def test_an_mcp_call() -> None:
    """The result's blocks are the protocol's own; malformed ones are left out."""
    call = shown(
        {
            "type": "mcpToolCall",
            "server": "one",
            "tool": "echo",
            "status": "completed",
            "arguments": {"x": "1"},
            "result": {
                "content": [{"type": "text", "text": "hi"}, {"type": "text"}, 7],
                "structuredContent": {"a": 1},
            },
            "error": None,
        }
    )
    assert (call["name"], call["title"], call["rawInput"]) == ("mcp__one__echo", "one: echo", {"x": "1"})
    assert call["content"] == [{"type": "content", "content": {"type": "text", "text": "hi"}}]
    assert call["rawOutput"] == {"a": 1}
    failed = shown({"type": "mcpToolCall", "status": "failed", "error": {"message": "user rejected"}, "result": None})
    assert failed["status"] == "failed"
    assert failed["content"][0]["content"]["text"] == "user rejected"


OTHERS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "webSearch", "query": "q", "action": {"type": "search", "query": "q"}}, "fetch", "Search the web for q"),
    ({"type": "webSearch", "query": "", "action": {"type": "openPage", "url": "https://x"}}, "fetch", "Open https://x"),
    ({"type": "webSearch"}, "fetch", "Search the web"),
    ({"type": "imageView", "path": f"{CWD}/i.png"}, "read", "Look at i.png"),
    ({"type": "imageGeneration", "status": "generating", "revisedPrompt": "a cat"}, "other", "Make an image: a cat"),
    ({"type": "collabAgentToolCall", "tool": "spawnAgent", "prompt": "job"}, "think", "Start an agent: job"),
    ({"type": "collabAgentToolCall", "tool": "later"}, "think", "later"),
    ({"type": "dynamicToolCall", "tool": "t", "contentItems": [{"type": "inputText", "text": "x"}]}, "other", "t"),
    ({"type": "sleep"}, "other", "Wait"),
]


@pytest.mark.parametrize(("item", "kind", "title"), OTHERS, ids=lambda value: str(value)[:40])
def test_other_tools(item: dict[str, Any], kind: str, title: str) -> None:
    """TOOL-2, TOOL-5."""
    call = shown(item)
    assert (call["kind"], call["title"]) == (kind, title)


@pytest.mark.parametrize("kind", ["userMessage", "agentMessage", "reasoning", "hookPrompt", "somethingNew", "", None])
def test_other_items_are_no_tool_calls(kind: Any) -> None:
    """D11."""
    assert tool_call({"type": kind, "id": "i"}, CWD) is None


@pytest.mark.parametrize(
    "kind", ["commandExecution", "fileChange", "mcpToolCall", "webSearch", "imageView", "collabAgentToolCall"]
)
@pytest.mark.parametrize("junk", [None, 7, "x", [], [7], {"x": []}, {"type": 1}])
def test_fields_of_any_shape_cost_at_most_themselves(kind: str, junk: Any) -> None:
    """D11: the call is shown all the same."""
    names = (
        *("command", "cwd", "commandActions", "aggregatedOutput", "exitCode", "changes", "server", "tool", "arguments"),
        *("result", "error", "query", "action", "path", "prompt", "agentsStates", "status"),
    )
    call = shown({"type": kind, **dict.fromkeys(names, junk)})
    assert call["title"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("inProgress", "in_progress"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("declined", "failed"),
        ("later", "in_progress"),
        (None, "completed"),
    ],
)
def test_statuses(status: Any, expected: str) -> None:
    """TOOL-5: an unknown one is still in progress; an item without one is there."""
    assert status_of({"status": status}) == expected


def test_killed_commands() -> None:
    """Trap 11: what an interrupt ends has failed with one of these codes."""
    assert all(was_killed({"status": "failed", "exitCode": code}) for code in (-1, 137, 143))
    assert not was_killed({"status": "failed", "exitCode": 1})
    assert not was_killed({"status": "completed", "exitCode": -1})
    assert not was_killed({"status": "failed", "exitCode": None})


def test_words() -> None:
    """Messages, plans, reviews; the summary of a thought, else the thought."""
    assert spoken_text({"text": "a"}) == "a"
    assert spoken_text({"review": "b"}) == "b"
    assert thought_text({"summary": ["a", "", "b"], "content": ["raw"]}) == "a\n\nb"
    assert thought_text({"summary": [], "content": ["raw"]}) == "raw"
    assert thought_text({"summary": None}) == ""
