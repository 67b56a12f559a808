"""File changes as patches: git takes each of them, on the files as they were, and gives the files as they are."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Block, Shell, ToolUse, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.rig import Link, Rig
from adapters_tests.e2e.runtimes import CLAUDE, CODEX

pytestmark = pytest.mark.anyio

codex = pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session")
claude = pytest.mark.parametrize("runtime", [CLAUDE], ids=["claude"], indirect=True, scope="session")


class Case(NamedTuple):
    """Files before, a patch as a model writes it, and the place and title that a client is shown."""

    before: dict[str, str]
    patch: str
    line: int = 1
    title: str = "Edit a.txt"


def update(name: str, hunk: str, moved: str = "") -> str:
    move = f"*** Move to: {moved}\n" if moved else ""
    return f"*** Update File: {name}\n{move}@@\n{hunk}"


LINES = "".join(f"l{number}\n" for number in range(40))
OLD_TO_NEW = "-x\n+X\n"

CASES = {
    "add": Case({}, "*** Add File: a.txt\n+one\n+two\n", title="Add a.txt"),
    "add_empty": Case({}, "*** Add File: a.txt\n", title="Add a.txt"),
    "add_over": Case({"a.txt": "lost one\nlost two\n"}, "*** Add File: a.txt\n+one\n"),
    "add_over_unfinished": Case({"a.txt": "lost one"}, "*** Add File: a.txt\n+one\n"),
    "add_over_crlf": Case({"a.txt": "lost one\r\n"}, "*** Add File: a.txt\n+one\n"),
    "add_over_empty": Case({"a.txt": ""}, "*** Add File: a.txt\n+one\n"),
    "delete": Case({"a.txt": "x\ny\n"}, "*** Delete File: a.txt\n", title="Delete a.txt"),
    "delete_unfinished": Case({"a.txt": "x\ny"}, "*** Delete File: a.txt\n", title="Delete a.txt"),
    "delete_empty": Case({"a.txt": ""}, "*** Delete File: a.txt\n", title="Delete a.txt"),
    "delete_crlf": Case({"a.txt": "x\r\ny\r\n"}, "*** Delete File: a.txt\n", title="Delete a.txt"),
    "update": Case({"a.txt": LINES}, update("a.txt", " l9\n-l10\n+L10\n l11\n"), 11),
    "update_twice": Case({"a.txt": LINES}, update("a.txt", "-l3\n+L3\n@@\n-l30\n+L30\n"), 4),
    "update_unfinished": Case({"a.txt": "x\ny"}, update("a.txt", "-y\n+z\n"), 2),
    "update_crlf": Case({"a.txt": "x\r\ny\r\nz\r\n"}, update("a.txt", " x\n-y\n+Y\n"), 2),
    "update_mixed": Case({"a.txt": "x\r\ny\nz\r\n"}, update("a.txt", " x\n-y\n+Y\n"), 2),
    "update_to_nothing": Case({"a.txt": "x\n"}, update("a.txt", "-x\n")),
    "update_the_end": Case({"a.txt": "x\n"}, update("a.txt", " x\n+y\n*** End of File\n"), 2),
    "update_odd_lines": Case({"a.txt": "x\x0cy\u2028z\n"}, update("a.txt", "-x\x0cy\u2028z\n+x\n")),
    "move": Case({"a.txt": "x\ny\n"}, update("a.txt", OLD_TO_NEW, "b.txt"), title="Move a.txt to b.txt"),
    "move_only": Case({"a.txt": "x\ny\n"}, update("a.txt", " x\n y\n", "b.txt"), title="Move a.txt to b.txt"),
    "move_over": Case(
        {"a.txt": "x\ny\n", "b.txt": "lost one\nlost two"},
        update("a.txt", OLD_TO_NEW, "b.txt"),
        title="Move a.txt to b.txt",
    ),
    "move_crlf": Case(
        {"a.txt": "x\r\ny\r\n"}, update("a.txt", OLD_TO_NEW, "sub/b.txt"), title="Move a.txt to sub/b.txt"
    ),
    "move_unfinished": Case({"a.txt": "x\ny"}, update("a.txt", OLD_TO_NEW, "b.txt"), title="Move a.txt to b.txt"),
    "blanks": Case({"a b.txt": "x\n"}, update("a b.txt", OLD_TO_NEW), title="Edit a b.txt"),
    "quotes": Case({"a\"b'.txt": "x\n"}, update("a\"b'.txt", OLD_TO_NEW), title="Edit a\"b'.txt"),
    "unicode": Case({"ä你.txt": "x\n"}, update("ä你.txt", OLD_TO_NEW), title="Edit ä你.txt"),
    "backslash": Case({"a\\b.txt": "x\n"}, update("a\\b.txt", OLD_TO_NEW), title="Edit a\\b.txt"),
    "move_odd": Case({"a b.txt": "x\n"}, update("a b.txt", OLD_TO_NEW, 'ü "c.txt'), title='Move a b.txt to ü "c.txt'),
    "several": Case(
        {"a.txt": "x\n", "d.txt": "lost one\n", "n.txt": "lost two\n"},
        update("a.txt", OLD_TO_NEW) + "*** Add File: n.txt\n+n\n*** Delete File: d.txt\n",
        title="Edit a.txt, d.txt, n.txt",
    ),
}


def repository(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def applied(patch: str, named: Path, folder: Path) -> dict[str, bytes]:
    """The files of a folder after git has applied a patch that names them below another one."""
    inside = patch.replace(f"{named}/", "").encode()
    done = subprocess.run(["git", "apply", "-p0", "-"], input=inside, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stderr.decode()}\n{patch}"
    return contents(folder)


def only_call(view: SessionView) -> dict[str, Any]:
    [call] = view.items("tool_call")
    return call.fields


@codex
@pytest.mark.parametrize("name", CASES)
async def test_git_takes_the_patch(link: Link, name: str, tmp_path: Path) -> None:
    """DIFF-1 to DIFF-3, TOOL-7: what is written over is shown too, live and in a replay; each place has its line."""
    case = CASES[name]
    folder = repository(link.rig.root / "cases" / name, case.before)
    link.rig.answer(
        name, Answer((Shell(f"apply_patch <<'EOF'\n*** Begin Patch\n{case.patch}*** End Patch\nEOF"),)), say("Done.")
    )
    session = await link.client.new(str(folder))
    await link.turn(session, name)
    call = only_call(link.client.view(session))
    assert (call["title"], call["status"]) == (case.title, "completed")
    [diff] = [item for item in call["content"] if item["type"] == "diff"]
    after = contents(folder)
    assert applied(diff["patch"]["text"], folder, repository(tmp_path / "again", case.before)) == after
    lost = [line for text in case.before.values() for line in text.splitlines() if line.startswith("lost")]
    assert all(f"-{line}" in diff["patch"]["text"] for line in lost)
    first, *_ = call["locations"]
    assert first["line"] == case.line
    assert name.startswith("delete") or str(Path(first["path"]).relative_to(folder)) in after
    live = deepcopy(call)
    await link.client.close(session)
    mark = link.client.record.mark
    await link.client.resume(session, str(folder), replay=True)
    assert only_call(SessionView.of(link.client.updates(session, mark))) == live


@codex
@pytest.mark.parametrize("text", ["\udcff binary", "x" * 1_100_000], ids=["binary", "large"])
async def test_a_lost_file_that_cannot_be_shown_is_named(link: Link, asked: Asked, text: str, request: Any) -> None:
    """No patch can say it; words do."""
    name = f"lost {request.node.callspec.id}"
    folder = repository(link.rig.root / "lost" / request.node.callspec.id.replace("/", "-"), {})
    write(folder / "a.txt", text)
    patch = "*** Begin Patch\n*** Add File: a.txt\n+new\n*** End Patch"
    link.rig.answer(name, Answer((Shell(f"apply_patch <<'EOF'\n{patch}\nEOF"),)), say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, name)
    call = only_call(link.client.view(session))
    diff, words = call["content"]
    assert diff["changes"] == [{"operation": "modify", "path": str(folder / "a.txt")}]
    assert "patch" not in diff
    assert words["content"]["text"] == "Replaces a.txt, whose content cannot be shown as text."
    assert asked.questions == []


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


# --- Claude Code -----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A file before, None for no file, and the call that changes it."""

    before: str | None
    tool: str
    given: dict[str, Any]
    file: str = "a.txt"
    line: int = 1
    foreseen: bool = True
    """Whether the question shows the patch."""

    def calls(self, path: Path) -> tuple[Answer, ...]:
        """Claude Code changes no file that it has not read."""
        read: tuple[Block, ...] = () if self.before is None else (ToolUse("Read", {"file_path": str(path)}),)
        change = ToolUse(self.tool, {"file_path": str(path), **self.given})
        return *(Answer((call,)) for call in read), Answer((change,))


def edit(before: str | None, old: str, new: str, line: int = 1, file: str = "a.txt", **more: Any) -> Step:
    foreseen = more.pop("foreseen", True)
    return Step(before, "Edit", {"old_string": old, "new_string": new, **more}, file, line, foreseen)


def write_over(before: str | None, content: str, line: int = 1, **more: Any) -> Step:
    return Step(before, "Write", {"content": content}, line=line, **more)


def odd(file: str) -> Step:
    return edit("a\r\nb\r\n", "b", "B", 2, file)


WINDOWS = LINES.replace("\n", "\r\n")

STEPS = {
    "lf": edit(LINES, "l10\n", "L10\n", 11),
    "lf_unfinished": edit("a\nb", "b", "B", 2),
    "crlf": edit(WINDOWS, "l10\n", "L10\n", 11),
    "crlf_lines": edit(WINDOWS, "l10\nl11\n", "X\nY\nZ\n", 11),
    "crlf_twice": edit("x\r\n" + WINDOWS + "x\r\n", "x\n", "y\n", replace_all=True),
    "crlf_unfinished": edit("a\r\nb", "b", "B", 2),
    "crlf_end_added": edit("a\r\nb", "b", "b\n", 2),
    "crlf_given": edit("a\r\nb\r\n", "b", "B\r\nC", 2),
    "crlf_given_for_lf": edit("a\nb\n", "b", "B\r\nC", 2),
    "crlf_line_gone": edit("a\r\nb\r\nc\r\n", "b", "", 2),
    "crlf_all_gone": edit("a\r\n", "a\n", ""),
    "crlf_lone_cr": edit("a\rb\r\nc\r\n", "c", "C", 2),
    "crlf_double_cr": edit("a\r\r\nb\r\nc\r\n", "c", "C"),
    "crlf_spaces_at_ends": edit("a\r\nb\r\n", "b", "B  \nC\t", 2),
    "mixed_mostly_crlf": edit("a\r\nb\nc\r\nd\r\n", "d", "D", 2),
    "mixed_mostly_lf": edit("a\nb\nc\r\nd\n", "b", "B", 2),
    "mixed_evenly": edit(LINES + WINDOWS, "l39\nl0\nl1\n", "X\n", 40),
    "mixed_late": edit("x\n" * 2100 + "y\r\n" * 5000, "x\ny\n", "z\n", 2100),
    "mixed_with_quotes": edit("say \u201chi\u201d\r\nb\r\n", 'say "hi"', 'say "ho"', foreseen=False),
    "bom": edit("\ufeffa\nb\n", "b", "B", 2),
    "bom_crlf": edit("\ufeffa\r\nb\r\n", "a", "A"),
    "odd_lines": edit("a\u2028x\x0cy\r\nb\r\n", "b", "B", 2),
    "large": edit("".join(f"line {number}\r\n" for number in range(60_000)), "line 30000\n", "LINE\n", 30_001),
    "new_by_edit": edit(None, "", "a\nb"),
    "new_by_edit_crlf": edit(None, "", "a\r\nb\r\n"),
    "empty_by_edit": edit("", "", "a\n"),
    "new": write_over(None, "a\r\nb\r\n"),
    "over_lf": write_over(LINES, LINES.replace("l10", "L10"), 11),
    "over_crlf": write_over("a\r\nb\r\n", "a\nB\n"),
    "over_crlf_the_same": write_over("a\r\nb\r\n", "a\nb\n", foreseen=True),
    "over_crlf_with_crlf": write_over("a\r\nb\r\n", "a\r\nB\r\n", 2),
    "over_lf_with_crlf": write_over("a\nb\n", "a\r\nb\r\n"),
    "over_unfinished": write_over("a\r\nb", "a\nb\n"),
    "over_bom": write_over("\ufeffa\r\nb\r\n", "a\nB\n"),
    "over_with_nothing": write_over("a\r\n", ""),
    "blanks": odd("a b.txt"),
    "quotes": odd("a\"b'.txt"),
    "unicode": odd("\u00e4\u4f60.txt"),
    "tab": odd("a\tb.txt"),
    "newline": odd("a\nb.txt"),
    "backslash": odd("a\\b.txt"),
    "dash": odd("-a.txt"),
}


def patch_in(content: list[dict[str, Any]]) -> str:
    [diff] = [item for item in content if item["type"] == "diff"]
    return diff["patch"]["text"]


@claude
@pytest.mark.parametrize("name", STEPS)
async def test_git_takes_the_patch_of_an_edit(link: Link, asked: Asked, name: str, tmp_path: Path) -> None:
    """DIFF-1 to DIFF-3, TOOL-7, PERM-1: line ends too, in the question, live, and in a replay here."""
    step = STEPS[name]
    folder = repository(link.rig.root / "steps" / name, {})
    files = {} if step.before is None else {step.file: step.before}
    path = folder / step.file
    if step.before is not None:
        path.write_bytes(step.before.encode())
    link.rig.answer(name, *step.calls(path), say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, name)
    *_, call = link.client.view(session).items("tool_call")
    assert (call.fields["name"], call.fields["status"]) == (step.tool, "completed")
    after = contents(folder)
    assert applied(patch_in(call.fields["content"]), folder, repository(tmp_path / "again", files)) == after
    assert call.fields["locations"] == [{"path": str(path), "line": step.line}]
    [question] = [question.params for question in asked.questions]
    shown = question["subject"]["toolCall"]["content"]
    if step.foreseen:
        assert applied(patch_in(shown), folder, repository(tmp_path / "foreseen", files)) == after
    else:
        assert "patch" not in json.dumps(shown)
    live = deepcopy(call.fields)
    await link.client.close(session)
    mark = link.client.record.mark
    await link.client.resume(session, str(folder), replay=True)
    *_, replayed = SessionView.of(link.client.updates(session, mark)).items("tool_call")
    assert replayed.fields == live


@claude
async def test_an_edit_that_nobody_is_asked_about(link: Link, tmp_path: Path) -> None:
    """The file is looked at before Claude Code gets to it, in all of several edits."""
    folder = repository(link.rig.root / "unasked", {"a.txt": WINDOWS})
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text(json.dumps({"permissions": {"allow": ["Edit", "Write"]}}))
    path = folder / "a.txt"
    steps = [edit("", f"l{number}\n", f"L{number}\n").calls(path)[-1] for number in (3, 9, 20)]
    both = Answer(tuple(block for number in (30, 35) for block in edit("", f"l{number}\n", "").calls(path)[-1].blocks))
    last = write_over("", "l0\n").calls(path)[-1]
    link.rig.answer("unasked", Answer((ToolUse("Read", {"file_path": str(path)}),)), *steps, both, last, say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, "unasked")
    _, *calls = link.client.view(session).items("tool_call")
    assert [call.fields["status"] for call in calls] == ["completed"] * 6
    again = repository(tmp_path / "again", {"a.txt": WINDOWS})
    for call in calls:
        applied(patch_in(call.fields["content"]), folder, again)
    assert (again / "a.txt").read_bytes() == path.read_bytes() == b"l0\n"


NOTEBOOK = """{
 "cells": [
  {"cell_type": "code", "id": "c1", "metadata": {}, "execution_count": null, "outputs": [], "source": ["print(1)"]}
 ],
 "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5
}
"""


@claude
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_git_takes_the_patch_of_a_notebook(link: Link, end: str, tmp_path: Path, request: Any) -> None:
    """DIFF-2: Claude Code reports two whole texts."""
    name = f"notebook {request.node.callspec.id}"
    before = {"a.ipynb": NOTEBOOK.replace("\n", end)}
    folder = repository(link.rig.root / "notebooks" / ("crlf" if "\r" in end else "lf"), before)
    path = folder / "a.ipynb"
    given = {"notebook_path": str(path), "cell_id": "c1", "new_source": "print(2)"}
    steps = Answer((ToolUse("Read", {"file_path": str(path)}),)), Answer((ToolUse("NotebookEdit", given),))
    link.rig.answer(name, *steps, say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, name)
    *_, call = link.client.view(session).items("tool_call")
    assert applied(patch_in(call.fields["content"]), folder, repository(tmp_path / "again", before)) == contents(folder)
    assert before["a.ipynb"].encode() != path.read_bytes()


@claude
async def test_a_file_that_no_patch_can_show(link: Link) -> None:
    """DIFF-2: to git it is binary; the lines are there to read."""
    folder = repository(link.rig.root / "utf-16", {})
    path = folder / "a.txt"
    path.write_bytes("\ufeffa\r\nb\r\n".encode("utf-16-le"))
    link.rig.answer("utf-16", *edit("", "b", "B").calls(path), say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, "utf-16")
    *_, call = link.client.view(session).items("tool_call")
    diff, words = call.fields["content"]
    assert diff == {"type": "diff", "changes": [{"operation": "modify", "path": str(path)}]}
    assert "-b\n+B\n" in words["content"]["text"]
    assert path.read_bytes() == "\ufeffa\r\nB\r\n".encode("utf-16-le")


@claude
async def test_a_formatter_that_writes_behind_an_edit(link: Link, tmp_path: Path) -> None:
    """The patch is what the edit did; what a hook made of it is not the call's."""
    folder = repository(link.rig.root / "hook", {"a.txt": "a\r\nb\r\n"})
    (folder / ".claude").mkdir()
    hook = {"type": "command", "command": "printf 'formatted\\n' >> a.txt"}
    settings = {"hooks": {"PostToolUse": [{"matcher": "Edit", "hooks": [hook]}]}}
    (folder / ".claude" / "settings.json").write_text(json.dumps(settings))
    path = folder / "a.txt"
    link.rig.answer("hook", *edit("", "b", "B").calls(path), say("Done."))
    session = await link.client.new(str(folder))
    await link.turn(session, "hook")
    assert path.read_bytes() == b"a\r\nB\r\nformatted\n"
    *_, call = link.client.view(session).items("tool_call")
    again = repository(tmp_path / "again", {"a.txt": "a\r\nb\r\n"})
    assert applied(patch_in(call.fields["content"]), folder, again)["a.txt"] == b"a\r\nB\r\n"


@claude
async def test_a_replay_by_another_agent_says_what_can_still_be_known(rig: Rig, tmp_path: Path) -> None:
    """Line ends are not stored: the file tells them as long as it is what the edit has left; else it is as reported."""
    before = {"kept.txt": "a\r\nb\r\n", "lf.txt": "a\nb\n", "over.txt": "a\r\nb\r\n", "changed.txt": "a\r\nb\r\n"}
    folder = repository(rig.root / "later", before)
    steps = [step for file in ("kept.txt", "lf.txt", "changed.txt") for step in edit("", "b", "B").calls(folder / file)]
    rig.answer("later", *steps, *write_over("", "a\nB\n").calls(folder / "over.txt"), say("Done."))
    async with rig.agent() as link:
        session = await link.client.new(str(folder))
        await link.turn(session, "later")
        await link.client.close(session)
    after = contents(folder)
    (folder / "changed.txt").write_bytes(b"something\r\nelse\r\n")
    async with rig.agent() as link:
        await link.client.resume(session, str(folder), replay=True)
        calls = [call for call in link.client.view(session).items("tool_call") if call.fields["name"] != "Read"]
        patches = {Path(call.fields["locations"][0]["path"]).name: patch_in(call.fields["content"]) for call in calls}
        for file in ("kept.txt", "lf.txt"):
            again = repository(tmp_path / file, before)
            assert applied(patches[file], folder, again)[file] == after[file]
        for file in ("over.txt", "changed.txt"):
            assert "\n a\n-b\n+B\n" in patches[file]
