"""The session list: what a row shows, which files are rows, paging; and deleting."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.acp.errors import InvalidParams
from adapters.claude.stored.listing import delete, list_page
from adapters.core import file_calls

SECOND = 1_000_000_000


def session_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def prompt(text: Any = "hello", **fields: Any) -> dict[str, Any]:
    entry = {
        "type": "user",
        "uuid": "u",
        "message": {"role": "user", "content": text},
        "promptSource": "sdk",
        "cwd": "/project",
        "timestamp": "2026-01-02T03:04:05.678Z",
    }
    return entry | fields


def store(config: Path, number: int, *entries: Any, folder: str = "-project", written: int | None = None) -> Path:
    path = config / "projects" / folder / f"{session_id(number)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        entry if isinstance(entry, bytes) else json.dumps(entry, separators=(",", ":")).encode() for entry in entries
    ]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    at = (number if written is None else written) * SECOND
    os.utime(path, ns=(at, at))
    return path


def rows(config: Path, cwd: str | None = None) -> list[str]:
    return [row.session_id for row in list_page(config, cwd, None, 1000).sessions]


def titled(tmp_path: Path, *entries: Any) -> str | None:
    store(tmp_path, 1, *entries)
    (row,) = list_page(tmp_path, None, None).sessions
    return row.title


def test_nothing_stored_is_an_empty_list(tmp_path: Path) -> None:
    """LIST-1."""
    page = list_page(tmp_path, None, None)
    assert (list(page.sessions), page.next_cursor) == ([], None)


def test_a_row_shows_folder_title_and_time(tmp_path: Path) -> None:
    """LIST-1: RFC 3339 time of the last entry, the first prompt as the title."""
    store(
        tmp_path,
        1,
        {"type": "queue-operation"},
        prompt("fix\nthe  bug"),
        prompt("later", timestamp="2026-01-02T04:00:00Z"),
    )
    (row,) = list_page(tmp_path, None, None).sessions
    assert (row.session_id, row.cwd, row.title) == (session_id(1), "/project", "fix the bug")
    assert row.updated_at == "2026-01-02T04:00:00.000Z"


def test_time_of_the_file_where_no_entry_tells(tmp_path: Path) -> None:
    store(tmp_path, 1, prompt(timestamp="yesterday"), written=1_700_000_000)
    (row,) = list_page(tmp_path, None, None).sessions
    assert row.updated_at == "2023-11-14T22:13:20.000Z"


def test_newest_first_and_every_session_once(tmp_path: Path) -> None:
    """LIST-3: pages follow each other without gap or repeat; no cursor after the last one."""
    for number in range(1, 8):
        store(tmp_path, number, prompt(), folder=f"-f{number % 3}", written=number // 2)
    store(tmp_path, 3, prompt(), folder="-copy", written=0)
    seen: list[str] = []
    cursor = None
    sizes: list[int] = []
    while True:
        page = list_page(tmp_path, None, cursor, 3)
        seen += [row.session_id for row in page.sessions]
        sizes.append(len(page.sessions))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [session_id(number) for number in (7, 6, 5, 4, 3, 2, 1)]
    assert sizes == [3, 3, 1]


def test_full_last_page_has_no_cursor(tmp_path: Path) -> None:
    """LIST-3: a page that is exactly full ends the list when nothing follows, also when only damaged files follow."""
    store(tmp_path, 1, b"garbage")
    for number in (2, 3):
        store(tmp_path, number, prompt())
    page = list_page(tmp_path, None, None, 2)
    assert (len(page.sessions), page.next_cursor) == (2, None)


@pytest.mark.parametrize(
    "cursor", ["", "x", "AAAA", "WzEsMl0=", "bnVsbA==", "[1,2,3]", "é", "\udcb2", "WzEsICJ4IiwgInkiXQ=="]
)
def test_foreign_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    """LIST-3: a cursor that is not ours is -32602, `""` included."""
    with pytest.raises(InvalidParams, match="cursor"):
        list_page(tmp_path, None, cursor)


@given(st.text(st.characters(exclude_categories=())))
def test_any_cursor_is_refused_or_ours(cursor: str) -> None:
    with pytest.raises(InvalidParams):
        list_page(Path("/nonexistent"), None, cursor)


def test_folder_comes_from_inside_the_file(tmp_path: Path) -> None:
    """LIST-2: `a-b`, `a/b` and `a.b` share a folder name; the filter is exact, before paging, and normalises."""
    for number, cwd in enumerate(("/w/a-b", "/w/a/b", "/w/a.b", "/w/a", "/w/a-b/sub"), 1):
        store(tmp_path, number, prompt(cwd=cwd), folder="-w-a-b")
    assert rows(tmp_path, "/w/a/b") == [session_id(2)]
    assert rows(tmp_path, "/w/a.b/") == [session_id(3)]
    assert rows(tmp_path, "/w/x/../a-b") == [session_id(1)]
    assert rows(tmp_path, "/w/none") == []
    assert list_page(tmp_path, "/w/a/b", None, 1).next_cursor is None


@pytest.mark.parametrize("copied_at", [1, 9])
def test_of_copies_the_one_in_the_folder_of_its_own_cwd_is_shown(tmp_path: Path, copied_at: int) -> None:
    """It is the one that a resume there works with, whatever the times say."""
    store(tmp_path, 1, prompt("old"), folder="-copy", written=copied_at)
    store(tmp_path, 1, prompt("old"), {"type": "custom-title", "customTitle": "mine"}, folder="-project", written=5)
    (row,) = list_page(tmp_path, None, None).sessions
    assert row.title == "mine"


def test_folder_through_a_link(tmp_path: Path) -> None:
    """The runtime stores where a link leads to; the filter finds that."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store(tmp_path, 1, prompt(cwd=os.path.realpath(tmp_path / "real")))
    assert rows(tmp_path, str(tmp_path / "link")) == [session_id(1)]


def test_the_folder_is_that_of_the_first_entry(tmp_path: Path) -> None:
    """A shell that changed its folder does not move the session."""
    store(tmp_path, 1, prompt(cwd="/w/a"), prompt(cwd="/w/b"))
    assert rows(tmp_path, "/w/a") == [session_id(1)]


def test_first_prompt_larger_than_the_head(tmp_path: Path) -> None:
    """A prompt of many megabytes hides neither folder nor title: the folder is behind it in its line."""
    store(tmp_path, 1, prompt('say "hi"\n' + "é" * 3_000_000))
    store(tmp_path, 2, prompt([{"type": "text", "text": "look at " + "x" * 200_000}]))
    page = list_page(tmp_path, "/project", None).sessions
    assert [row.title and row.title[:9] for row in page] == ["look at x", 'say "hi" ']


def test_a_command_is_the_title_under_the_name_that_was_typed(tmp_path: Path) -> None:
    """Claude Code stores it under its first name; a note about its queue has what was sent."""
    stored = (
        "<command-name>/usage</command-name>\n<command-message>usage</command-message>\n<command-args></command-args>"
    )
    notes = [
        {"type": "queue-operation", "operation": "enqueue", "content": "/cost"},
        {"type": "queue-operation", "operation": "dequeue"},
    ]
    assert titled(tmp_path, *notes, prompt(stored)) == "/cost"
    assert titled(tmp_path, prompt(stored)) == "/usage"
    assert titled(tmp_path, *notes, prompt("hello"), prompt(stored)) == "hello"


def test_titles_in_the_order_of_their_worth(tmp_path: Path) -> None:
    """A title the user gave wins, the last one; then the runtime's; then the first prompt."""
    first = prompt("first prompt")
    assert titled(tmp_path, first) == "first prompt"
    assert titled(tmp_path, first, {"type": "summary", "summary": "sum"}) == "sum"
    ai = {"type": "ai-title", "aiTitle": "ai"}
    assert titled(tmp_path, first, {"type": "summary", "summary": "sum"}, ai) == "ai"
    custom = [{"type": "custom-title", "customTitle": title} for title in ("old", "new", "")]
    assert titled(tmp_path, first, *custom, ai) == "new"
    filler = {"type": "assistant", "message": {"content": "x" * 200_000}}
    assert titled(tmp_path, first, *custom, filler, filler) == "new"
    assert titled(tmp_path, first, filler, filler, *custom) == "new"


def foreign(**fields: Any) -> dict[str, Any]:
    """A prompt of another session."""
    other = {"sessionId": session_id(99), "uuid": "f", "cwd": "/elsewhere", "timestamp": "2031-01-01T00:00:00Z"}
    return prompt("Payroll migration", **(other | fields))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_rows_facts_are_of_its_own_session(tmp_path: Path, where: str, labelled: bool) -> None:
    """Entries and titles of another one in the file tell nothing."""
    label = {"sessionId": session_id(1)} if labelled else {}
    own = prompt("mine", **label)
    others = [
        foreign(),
        foreign(uuid="g", parentUuid="u"),
        {"type": "custom-title", "customTitle": "Payroll", "sessionId": session_id(99)},
        {"type": "ai-title", "aiTitle": "Payroll", "sessionId": session_id(99)},
        {"type": "summary", "summary": "Payroll", "leafUuid": "f"},
    ]
    store(tmp_path, 1, *((*others, own) if where == "before" else (own, *others)))
    (row,) = list_page(tmp_path, None, None).sessions
    assert (row.title, row.cwd, row.updated_at) == ("mine", "/project", "2026-01-02T03:04:05.678Z")


def test_a_rows_facts_behind_a_huge_prompt_of_another_session(tmp_path: Path) -> None:
    huge = foreign(message={"role": "user", "content": "Payroll " * 20_000}, sessionId=session_id(99))
    del huge["cwd"], huge["sessionId"]
    huge |= {
        "cwd": "/elsewhere",
        "sessionId": session_id(99),
    }  # as Claude Code writes them: side by side, behind the text
    own = prompt("mine")
    del own["cwd"]
    own |= {"cwd": "/project", "sessionId": session_id(1)}
    store(tmp_path, 1, huge, own)
    (row,) = list_page(tmp_path, None, None).sessions
    assert (row.title, row.cwd) == ("mine", "/project")


def test_a_summary_of_this_conversation_is_a_title(tmp_path: Path) -> None:
    assert titled(tmp_path, prompt("first"), {"type": "summary", "summary": "sum", "leafUuid": "u"}) == "sum"


def test_a_session_whose_file_got_another_name_keeps_its_facts(tmp_path: Path) -> None:
    """Claude Code resumes it under that name."""
    store(tmp_path, 1, foreign())
    (row,) = list_page(tmp_path, None, None).sessions
    assert (row.title, row.cwd) == ("Payroll migration", "/elsewhere")


def test_title_is_what_a_user_said(tmp_path: Path) -> None:
    """Markers, notes, commands and tool results of the runtime are no title; a command is one when there is nothing else."""
    command = prompt("<command-name>/cost</command-name>\n<command-message>cost</command-message>", promptSource=None)
    result = prompt([{"type": "tool_result", "tool_use_id": "t", "content": "out"}])
    notes = [
        prompt("caveat", isMeta=True),
        prompt("[Request interrupted by user]", promptSource=None),
        prompt("<local-command-stdout>out</local-command-stdout>", promptSource=None),
        prompt("sum", isCompactSummary=True),
        result,
    ]
    assert titled(tmp_path, *notes, command) == "/cost"
    assert titled(tmp_path, *notes, command, prompt("real")) == "real"
    assert titled(tmp_path, *notes) is None
    link = '<resource_link name="a.py" uri="file:///a.py"/>'
    assert titled(tmp_path, prompt([{"type": "text", "text": link}])) == "a.py"
    assert titled(tmp_path, prompt("word " * 100)).endswith("…")  # type: ignore[union-attr]


def test_files_that_are_no_sessions(tmp_path: Path) -> None:
    """Subagents, sidechains, sessions that stored nothing, and other files are no rows; damaged ones never break the list."""
    store(tmp_path, 1, prompt())
    store(tmp_path, 2, prompt(isSidechain=True))
    store(tmp_path, 3, {"type": "queue-operation"}, {"type": "mode"})
    store(tmp_path, 4)
    store(tmp_path, 5, b"\xff\xfe\x00garbage", b"[1]", b'{"cwd":5}', b'{"cwd":"relative"}')
    store(tmp_path, 6, b"\x00" * 100_000)
    folder = tmp_path / "projects" / "-project"
    agent = store(tmp_path, 7, prompt())
    agent.rename(folder / "agent-123.jsonl")
    store(tmp_path, 8, prompt()).rename(folder / "notes.txt")
    nested = folder / session_id(1) / "subagents"
    nested.mkdir(parents=True)
    store(tmp_path, 9, prompt()).rename(nested / f"{session_id(9)}.jsonl")
    (folder / f"{session_id(10)}.jsonl").symlink_to("nowhere")
    (folder / f"{session_id(11)}.jsonl").mkdir()
    (tmp_path / "projects" / "a-file").write_text("x")
    torn = store(tmp_path, 12, prompt("torn"))
    torn.write_bytes(torn.read_bytes() + b'{"type":"user","message":{"content":"ha')
    assert sorted(rows(tmp_path)) == [session_id(1), session_id(12)]


def test_no_pipe_and_no_loop_keeps_the_list(tmp_path: Path) -> None:
    store(tmp_path, 1, prompt())
    folder = tmp_path / "projects" / "-project"
    os.mkfifo(folder / f"{session_id(2)}.jsonl")
    (tmp_path / "projects" / "loop").symlink_to("loop")
    assert rows(tmp_path) == [session_id(1)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "type",
    "message",
    "cwd",
    "timestamp",
    "customTitle",
    "summary",
    "isSidechain",
    "promptSource",
    "uuid",
    "origin",
]


@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(["user", "summary"]), max_size=6), max_size=4
    )
)
def test_any_entries_make_a_list(tmp_path_factory: pytest.TempPathFactory, entries: list[Any]) -> None:
    """D11: a wrong type anywhere costs at most that file's row."""
    config = tmp_path_factory.mktemp("c")
    store(config, 1, *entries)
    store(config, 2, prompt())
    assert session_id(2) in rows(config)


def test_listing_changes_nothing(tmp_path: Path) -> None:
    """LIST-5."""
    path = store(tmp_path, 1, prompt())
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.rglob("*")))
    list_page(tmp_path, None, None)
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(tmp_path.rglob("*"))) == before


# --- deleting --------------------------------------------------------------------------------------------------------


def test_delete_removes_the_session_and_its_companions(tmp_path: Path) -> None:
    """DEL-1: transcript, subagents' folder and copies are gone; other sessions stay."""
    store(tmp_path, 1, prompt())
    store(tmp_path, 1, prompt(), folder="-copy")
    store(tmp_path, 2, prompt())
    companion = tmp_path / "projects" / "-project" / session_id(1) / "subagents"
    companion.mkdir(parents=True)
    (companion / "agent-1.jsonl").write_text("{}")
    (tmp_path / "projects" / "a-file").write_text("x")
    delete(tmp_path, session_id(1))
    assert rows(tmp_path) == [session_id(2)]
    assert not list(tmp_path.glob(f"projects/*/{session_id(1)}*"))
    delete(tmp_path, session_id(1))  # DEL-2


def test_delete_is_not_kept_by_entries_that_are_none_of_its_business(tmp_path: Path) -> None:
    """A loop of links, a file beside the folders; a pipe of its own name goes with it."""
    path = store(tmp_path, 1, prompt())
    (tmp_path / "projects" / "loop").symlink_to("loop")
    (tmp_path / "projects" / "-other").mkdir()
    os.mkfifo(tmp_path / "projects" / "-other" / path.name)
    delete(tmp_path, session_id(1))
    assert not list(tmp_path.glob(f"projects/*/{session_id(1)}*"))


def test_delete_says_so_when_it_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be looked into matters where nothing was found elsewhere."""
    store(tmp_path, 1, prompt())
    closed = tmp_path / "projects" / "-closed"
    closed.mkdir()
    real = file_calls.stat

    def refused(path: str, **named: bool) -> os.stat_result:
        if path.startswith(str(closed)):
            raise PermissionError(errno.EACCES, "no", path)
        return real(path, **named)

    monkeypatch.setattr(file_calls, "stat", refused)
    delete(tmp_path, session_id(1))
    with pytest.raises(PermissionError):
        delete(tmp_path, session_id(1))


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "*", "a/b", "\0", "\udcb2"])
def test_delete_takes_no_path_for_an_id(tmp_path: Path, name: str) -> None:
    """DEL-2: an id that names no session is success and removes nothing."""
    path = store(tmp_path, 1, prompt())
    delete(tmp_path, name)
    assert path.exists()


def test_delete_does_not_follow_a_link(tmp_path: Path) -> None:
    """A companion that is a link is removed itself, not what it points to."""
    store(tmp_path, 1, prompt())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (tmp_path / "projects" / "-project" / session_id(1)).symlink_to(outside)
    delete(tmp_path, session_id(1))
    assert (outside / "kept").exists()
    assert not list(tmp_path.glob(f"projects/*/{session_id(1)}*"))


def test_delete_without_a_store(tmp_path: Path) -> None:
    delete(tmp_path, session_id(1))
