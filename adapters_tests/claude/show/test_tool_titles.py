"""Tool calls as a client sees them: the table, diffs, results, and the life of a call."""

import json
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.acp.schema import dump
from adapters.claude.show.diffs import diff_of, first_changed_line
from adapters.claude.show.tool_calls import ToolCalls
from adapters.claude.show.tool_results import finished_call, plan_of
from adapters.claude.show.tool_titles import describe, tool_call
from adapters.driver.tool_text import absolute
from adapters_tests import schema

CWD = "/project"


def update(call: Any) -> dict[str, Any]:
    wire = dump(call)
    params = {"sessionId": "s", "update": wire}
    schema.validate_agent_message({"jsonrpc": "2.0", "method": "session/update", "params": params})
    return wire


@pytest.mark.parametrize(
    ("name", "given_input", "kind", "title"),
    [
        ("Read", {"file_path": "/project/a.py"}, "read", "Read a.py"),
        ("Read", {"file_path": "/other/a.py", "offset": 7}, "read", "Read /other/a.py from line 7"),
        ("Edit", {"file_path": "/project/d/a.py"}, "edit", "Edit d/a.py"),
        ("MultiEdit", {"file_path": "a.py"}, "edit", "Edit a.py"),
        ("Write", {"file_path": "/project-2/a.py"}, "edit", "Write /project-2/a.py"),
        ("NotebookEdit", {"notebook_path": "/project/n.ipynb"}, "edit", "Edit n.ipynb"),
        ("Bash", {"command": "ls\n  -l"}, "execute", "ls -l"),
        ("Bash", {}, "execute", "Bash"),
        ("Bash", {"command": "x" * 500}, "execute", "x" * 199 + "…"),
        ("BashOutput", {"bash_id": "b1"}, "execute", "Read the output of b1"),
        ("KillShell", {"shell_id": "b1"}, "execute", "Stop b1"),
        ("Glob", {"pattern": "**/*.py", "path": "/project/src"}, "search", "Find **/*.py in src"),
        ("Glob", {"pattern": "*.py"}, "search", "Find *.py"),
        ("Grep", {"pattern": "a{b}[c]", "glob": "*.rs"}, "search", "Search for a{b}[c] (*.rs)"),
        ("Grep", {}, "search", "Search for"),
        ("LS", {"path": "/project/src"}, "search", "List src"),
        ("WebFetch", {"url": "https://x.org/{y}", "prompt": "sum up"}, "fetch", "Fetch https://x.org/{y}"),
        ("WebSearch", {"query": "acp"}, "fetch", "Search the web for acp"),
        ("Task", {"description": "Look around", "prompt": "p"}, "think", "Look around"),
        ("Agent", {"description": "Look around"}, "think", "Look around"),
        ("TodoWrite", {"todos": []}, "think", "Update the plan"),
        ("TaskUpdate", {"taskId": "1", "status": "completed"}, "think", "Update task 1: completed"),
        ("ExitPlanMode", {"plan": "# Plan"}, "switch_mode", "Leave plan mode"),
        ("AskUserQuestion", {"questions": [{"question": "Which?"}, 5]}, "other", "Ask a question"),
        ("mcp__my_server__do__it", {"x": 1}, "other", "my_server: do__it"),
        ("SomethingNew", {"x": 1}, "other", "SomethingNew"),
        ("", None, "other", "Tool"),
        ("Read", "not an object", "read", "Read"),
        ("Read", {"file_path": ["x"], "offset": True}, "read", "Read"),
    ],
)
def test_kind_and_title(name: str, given_input: Any, kind: str, title: str) -> None:
    """TOOL-2, TOOL-5: every known tool by name; unknown ones and odd inputs pass."""
    description = describe(name, given_input, CWD)
    assert (description.kind, description.title) == (kind, title)
    wire = update(tool_call(name, "t", given_input, CWD, "pending"))
    assert wire["rawInput"] == given_input


@pytest.mark.parametrize(
    ("given_input", "locations"),
    [
        ({"file_path": "/a/b"}, [{"path": "/a/b"}]),
        ({"file_path": "b/../c"}, [{"path": "/project/c"}]),
        ({"file_path": "/a/b", "offset": 3}, [{"path": "/a/b", "line": 3}]),
        ({"file_path": "/a/b", "offset": 0}, [{"path": "/a/b"}]),
        ({"file_path": "/a/b", "offset": -3}, [{"path": "/a/b"}]),
        ({"file_path": "/a/b", "offset": True}, [{"path": "/a/b"}]),
        ({"file_path": ""}, []),
        ({}, []),
    ],
)
def test_locations_are_absolute_with_lines_from_one(given_input: Any, locations: Any) -> None:
    """TOOL-7."""
    assert update(tool_call("Read", "t", given_input, CWD, "pending"))["locations"] == locations


def test_edit_that_waits_shows_its_change() -> None:
    """DIFF-1: before it ran, a permission dialog can show which file and what; positions are not yet known."""
    edit = {"file_path": "a.py", "old_string": "one\ntwo\n", "new_string": "```\n"}
    diff, text = update(tool_call("Edit", "t", edit, CWD, "pending"))["content"]
    assert diff == {"type": "diff", "changes": [{"operation": "modify", "path": "/project/a.py"}]}
    assert text["content"]["text"] == "````diff\n-one\n-two\n+```\n````"
    many = {
        "file_path": "/a",
        "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
    }
    assert describe("MultiEdit", many, CWD).content[1].content.text == "```diff\n-a\n+b\n-c\n+d\n```"  # type: ignore[union-attr]
    created = {"file_path": "/a", "old_string": "", "new_string": "new"}
    (only,) = update(tool_call("Edit", "t", created, CWD, "pending"))["content"]
    assert only["type"] == "content"


# --- diffs -----------------------------------------------------------------------------------------------------------


def hunk(old: str, new: str) -> dict[str, Any]:
    """The one hunk that replaces all of `old`, as Claude Code's diff library counts."""

    def lines(mark: str, text: str) -> list[str]:
        parts = text.split("\n")
        last = parts.pop()
        return [mark + part for part in parts] + ([mark + last, "\\ No newline at end of file"] if last else [])

    removed, added = lines("-", old), lines("+", new)
    count = [sum(line[0] != "\\" for line in side) for side in (removed, added)]
    return {"oldStart": 1, "oldLines": count[0], "newStart": 1, "newLines": count[1], "lines": removed + added}


texts = st.lists(st.sampled_from(["a", "b", "", "é", " x", "-y", "+z", "\r"]), max_size=5).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""]) if lines else ""])
)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@given(texts, texts.filter(bool), st.sampled_from(["f.txt", "a b.txt", 'q"é.txt']))
@settings(max_examples=25, deadline=None)
def test_git_applies_what_we_write(tmp_path_factory: pytest.TempPathFactory, old: str, new: str, name: str) -> None:
    """DIFF-2, DIFF-3: git itself applies the patch, to the file that `changes` names, and gets the new content."""
    folder = tmp_path_factory.mktemp("d")
    path = folder / name
    creates = not old
    if creates:
        diff = diff_of({"type": "create", "content": new, "structuredPatch": [], "originalFile": None}, str(path))
    elif old == new:
        return
    else:
        path.write_bytes(old.encode())
        diff = diff_of({"structuredPatch": [hunk(old, new)], "originalFile": old}, str(path))
    wire = dump(diff)  # type: ignore[arg-type]
    assert wire["changes"] == [{"operation": "add" if creates else "modify", "path": str(path)}]
    patch = wire["patch"]["text"].encode()
    command = ["git", "apply", "--whitespace=nowarn", "--unsafe-paths", "-p0", "-"]
    environment = {"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/", "HOME": str(folder)}
    done = subprocess.run(command, cwd="/", env=environment, input=patch, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, (done.stderr, patch)
    assert path.read_bytes() == new.encode()


@pytest.mark.parametrize(
    "hunks",
    [
        None,
        [],
        "odd",
        [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a"]}],
        [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "+b", 5]}],
        [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "*b"]}],
        [5],
    ],
)
def test_a_patch_that_does_not_add_up_is_left_out(hunks: Any) -> None:
    """DIFF-2: the change stays, it is authoritative; the patch must agree with it."""
    diff = diff_of({"structuredPatch": hunks}, "/a")
    assert dump(diff) == {"type": "diff", "changes": [{"operation": "modify", "path": "/a"}]}  # type: ignore[arg-type]


def test_first_changed_line_is_behind_the_context() -> None:
    assert first_changed_line({"structuredPatch": [{"newStart": 10, "lines": [" a", " b", "-c", "+d"]}]}) == 12
    assert first_changed_line({"structuredPatch": [{"newStart": 0, "lines": ["-c"]}]}) is None
    assert first_changed_line({"structuredPatch": [None]}) is None
    assert first_changed_line({}) is None


# --- results ---------------------------------------------------------------------------------------------------------


def result(content: Any, *, error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": error}


def content_of(name: str, content: Any, structured: Any = None, *, error: bool = False) -> list[Any]:
    return update(finished_call(name, result(content, error=error), structured, CWD))["content"]


def text_item(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def test_output_is_shown_as_it_is() -> None:
    """Output of commands is a code block, reports of agents and pages are Markdown."""
    assert content_of("Bash", "*not bold*", {"stdout": "*not bold*", "stderr": ""}) == [
        text_item("```\n*not bold*\n```")
    ]
    assert content_of("WebFetch", "**bold**") == [text_item("**bold**")]
    assert content_of("mcp__a__b", [{"type": "text", "text": "**bold**"}]) == [text_item("**bold**")]


def test_notes_for_the_model_are_not_shown() -> None:
    """Reminders and error tags in results are the runtime's words to the model."""
    assert content_of("Grep", "found\n\n<system-reminder>\nBe good.\n</system-reminder>") == [
        text_item("```\nfound\n```")
    ]
    assert content_of("Glob", "<tool_use_error>No such tool</tool_use_error>", "Error: x", error=True) == [
        text_item("No such tool")
    ]
    file = {"type": "text", "file": {"filePath": "/a", "content": "x\n", "numLines": 1}}
    assert content_of("Read", "1\tx\n<system-reminder>hm</system-reminder>", file) == [text_item("```\nx\n```")]
    assert content_of("Bash", "(Bash completed with no output)", {"stdout": "", "stderr": ""}) == []


def test_an_image_that_no_client_draws_is_a_resource() -> None:
    """CONT-1: what it says of itself does not matter."""
    svg = {"type": "base64", "media_type": "image/png", "data": b64encode(b"<svg></svg>").decode()}
    wire = update(finished_call("mcp__a__b", result([{"type": "image", "source": svg}]), None, CWD))
    assert wire["content"][0]["content"]["resource"]["text"] == "<svg></svg>"


@pytest.mark.parametrize(
    ("path", "linked"),
    [
        ("/c/projects/-w/s/tool-results/blob-1.svg", True),
        ("/etc/passwd", False),
        ("/c/tool-results/a\nb", False),
        ("/c/tool-results/\ud800", False),
    ],
)
def test_a_picture_that_is_kept_in_a_file_is_linked(path: str, linked: bool) -> None:
    text = f"[Image from box] Binary content (image/svg+xml, 82 bytes) saved to {path}"
    wire = update(finished_call("mcp__a__b", result([{"type": "text", "text": text}]), None, CWD))
    shown = [item["content"] for item in wire["content"]]
    assert shown[0]["text"] == text
    link = {"type": "resource_link", "name": "blob-1.svg", "uri": f"file://{path}", "mimeType": "image/svg+xml"}
    assert shown[1:] == ([link] if linked else [])


def test_images_are_shown_once() -> None:
    """A picture is content, not also raw output."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    structured = {"type": "image", "file": {"base64": "AAAA", "type": "image/png"}}
    wire = update(finished_call("Read", result([image]), structured, CWD))
    assert wire["content"] == [
        {"type": "content", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}}
    ]
    assert wire["rawOutput"] == {"type": "image", "file": {"type": "image/png"}}
    assert "rawOutput" not in update(finished_call("mcp__a__b", result([image]), None, CWD))


@pytest.mark.parametrize(
    ("structured", "error", "status"),
    [
        ({"stdout": ""}, False, "completed"),
        ("Error: Exit code 1", True, "failed"),
        ("Error: Not today.", True, "failed"),
        ("User rejected tool use", True, "cancelled"),
        (None, True, "failed"),
    ],
)
def test_final_status(structured: Any, error: bool, status: str) -> None:
    """TOOL-5: an error fails, a denial fails with its reason, what the user stopped is cancelled."""
    assert update(finished_call("Bash", result("x", error=error), structured, CWD))["status"] == status


def test_a_failed_edit_changed_nothing() -> None:
    """DIFF-1: `changes` is authoritative, so an edit that failed has none."""
    assert content_of("Edit", "String not found", "Error: String not found", error=True) == [
        text_item("String not found")
    ]


def test_large_copies_stay_out_of_the_raw_output() -> None:
    structured = {
        "filePath": "a",
        "originalFile": "x" * 1000,
        "structuredPatch": [hunk("a\n", "b\n")],
        "userModified": False,
    }
    wire = update(finished_call("Edit", result("ok"), structured, CWD))
    assert wire["rawOutput"] == {"filePath": "a", "userModified": False}
    assert wire["locations"] == [{"path": "/project/a", "line": 1}]


def test_plan() -> None:
    """PLAN-1, PLAN-2: all entries each time, one stable id, only once it is true."""
    todos = [
        {"content": "A", "status": "completed"},
        {"content": "B", "status": "odd"},
        {"content": 5, "status": ["x"]},
    ]
    wire = update(plan_of("TodoWrite", result("ok"), {"newTodos": todos}, None))
    assert wire["plan"] == {
        "type": "items",
        "planId": "todos",
        "entries": [
            {"content": "A", "priority": "medium", "status": "completed"},
            {"content": "B", "priority": "medium", "status": "pending"},
            {"content": "", "priority": "medium", "status": "pending"},
        ],
    }
    assert plan_of("TodoWrite", result("ok"), None, {"todos": todos}) == plan_of(
        "TodoWrite", result("ok"), {"newTodos": todos}, None
    )
    assert plan_of("TodoWrite", result("no", error=True), None, {"todos": todos}) is None
    assert plan_of("Bash", result("ok"), {"newTodos": todos}, None) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "content", "file", "filePath", "structuredPatch", "lines", "newStart", "todos"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.sampled_from(["Read", "Edit", "Bash", "Agent", "TodoWrite", "Grep", "mcp__a__b", "x", ""]), JSON, JSON, JSON)
def test_any_shape_gives_a_well_formed_report(name: str, given_input: Any, content: Any, structured: Any) -> None:
    """D11: a wrong type anywhere in input or result costs at most what it stood for."""
    update(tool_call(name, "t", given_input, CWD, "pending"))
    update(finished_call(name, result(content), structured, CWD))
    update(finished_call(name, result(content, error=True), structured, CWD))
    if plan := plan_of(name, result(content), structured, given_input):
        update(plan)


# --- the life of a call ----------------------------------------------------------------------------------------------


def statuses(updates: Any) -> list[Any]:
    return [dump(one).get("status") for one in updates]


def test_a_call_goes_from_pending_to_its_end() -> None:
    """TOOL-1, TOOL-10: announced, started, ended; nothing after the end."""
    calls = ToolCalls(CWD)
    assert statuses(calls.announced("t", "Bash")) == ["pending"]
    assert statuses(calls.announced("t", "Bash")) == []
    assert statuses(calls.started("t", "Bash", {"command": "ls"})) == ["in_progress"]
    assert statuses(calls.running("t")) == ["in_progress"]
    assert list(calls.open) == ["t"]
    assert statuses(calls.ended(result("out"), None)) == ["completed"]
    for later in (
        calls.announced("t", "Bash"),
        calls.started("t", "Bash", {}),
        calls.running("t"),
        calls.progress("t", "x"),
        calls.ended(result("again"), None),
        calls.abandon("t"),
        calls.finish("failed"),
    ):
        assert statuses(later) == []


def test_open_calls_get_the_status_they_are_given() -> None:
    """REPLAY-7: those that go on are left alone."""
    calls = ToolCalls(CWD)
    for call_id in ("a", "b"):
        list(calls.started(call_id, "Bash", {}))
    assert [dump(one)["toolCallId"] for one in calls.finish("cancelled", ["b"])] == ["a"]
    assert list(calls.open) == ["b"]


def test_progress_is_content_until_there_is_a_result() -> None:
    calls = ToolCalls(CWD)
    list(calls.started("t", "Agent", {}))
    (progress,) = calls.progress("t", "Running ls")
    assert dump(progress)["content"] == [text_item("Running ls")]
    (ended,) = calls.ended(result("report"), None)
    assert dump(ended)["content"] == [text_item("report")]


def test_a_result_without_its_call_is_still_reported() -> None:
    """A call that began before what we saw ends all the same."""
    (ended,) = ToolCalls(CWD).ended(result("out"), None)
    assert dump(ended)["status"] == "completed"


def test_table_is_json() -> None:
    """Descriptions hold nothing that JSON cannot say."""
    json.dumps(update(tool_call("Read", "t", {"file_path": "/\udcb2"}, CWD, "pending")))
    assert Path(absolute("/\udcb2", CWD)).name == "\udcb2"


def test_an_edit_of_nothing_is_a_new_file(tmp_path: Path) -> None:
    """DIFF-3: as Claude Code 2.1.332 reports it; git takes the patch where there was no file, and gives what is there now."""
    path = tmp_path / "fresh.txt"
    hunk = {"oldStart": 1, "oldLines": 0, "newStart": 1, "newLines": 2}
    lines = ["+hello", "+world", "\\ No newline at end of file"]
    edited = {
        "oldString": "",
        "newString": "hello\nworld",
        "originalFile": "",
        "structuredPatch": [{**hunk, "lines": lines}],
    }
    diff = diff_of(edited, str(path))
    assert diff is not None
    assert [change.operation for change in diff.changes] == ["add"]
    assert diff.patch is not None
    command = ["git", "apply", "--whitespace=nowarn", "--unsafe-paths", "-p0", "-"]
    subprocess.run(command, input=diff.patch.text.encode(), cwd=tmp_path, capture_output=True, check=True)
    assert path.read_text() == "hello\nworld"
    assert first_changed_line(edited) == 1
