"""Codex's file changes as patches: git takes each of them, on the files as they were, and gives the files as they are."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapters.client.view import SessionView
from adapters.scripted.script import Answer, Shell, say
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.rig import Link
from adapters_tests.e2e.runtimes import CODEX

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("runtime", [CODEX], ids=["codex"], indirect=True, scope="session"),
]


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
