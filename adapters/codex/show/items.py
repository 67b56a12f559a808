"""What a client sees of Codex's items: tool calls with kind, title, content and places, from an item as it is now.

Owns the table of tool items. An item is the same live and stored, so it looks the same in both. Fields come from models and tools
and may have any shape: a missing or mistyped value is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.acp.errors import AcpError
from adapters.acp.schema import (
    ContentBlock,
    ContentItem,
    TextBlock,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
    parse_content,
)
from adapters.acp.shapes import as_count, as_integer, as_list, as_mapping, as_text
from adapters.codex.show.overwritten import LOST
from adapters.core import server_keys
from adapters.core.file_change import FileChange
from adapters.core.file_diff import FileDiff
from adapters.driver import media
from adapters.driver.question_text import code, name_of, visible
from adapters.driver.tool_text import absolute, fenced, one_line, relative

Fields = Mapping[str, Any]

_STATUSES: Final = {
    "inProgress": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "declined": "failed",
    "interrupted": "cancelled",
    "generating": "in_progress",
}
"""An item's status -> a tool call's. Items without one are complete once they are there."""

_KILLED: Final = frozenset({-1, 130, 137, 143})
"""Exit codes of commands that were ended from outside (-1 is Codex's own)."""

_SHELLS: Final = re.compile(
    r"(?:(?:/usr(?:/local)?|/opt/homebrew|/run/current-system/sw)?/bin/)?(?:ba|z|da|k)?sh"  # a shell elsewhere is shown
)
_MOVED: Final = re.compile(r"\n*Moved to: [^\n]*\n?\Z")
"""What Codex appends to the hunks of a file that also moves (0.163.0)."""

SEEN_AT: Final = "seenAt"
"""Member of an item: when it was, milliseconds since the epoch, where that is known. No member of Codex's."""

_BEGINS: Final = "begins"
"""Member of an item that has just begun. No member of Codex's."""

_VERBS: Final = {"add": "Add", "delete": "Delete"}

_AGENTS: Final = {
    "spawnAgent": "Start an agent",
    "sendInput": "Write to an agent",
    "sendMessage": "Write to an agent",
    "followupTask": "Give an agent another task",
    "resumeAgent": "Resume an agent",
    "wait": "Wait for agents",
    "closeAgent": "End an agent",
    "interruptAgent": "Interrupt an agent",
    "listAgents": "List the agents",
}


@dataclass(frozen=True, slots=True)
class _Picture:
    """A tool item as a client is shown it."""

    name: str
    kind: str
    title: str
    content: Sequence[ToolCallContent] = ()
    locations: Sequence[ToolCallLocation] = ()
    raw_input: Any = None
    raw_output: Any = None


def tool_call(item: Fields, cwd: str, *, status: str | None = None) -> ToolCallUpdate | None:
    """The whole report of a tool item, None for items that are no tool calls. `status` overrides the item's own."""
    paint = _PICTURES.get(as_text(item.get("type")))
    if paint is None:
        return None
    picture = paint({**item, _BEGINS: True} if status == "in_progress" else item, cwd)
    raw: dict[str, Any] = {}
    if picture.raw_input is not None:
        raw["raw_input"] = picture.raw_input
    if picture.raw_output is not None:
        raw["raw_output"] = picture.raw_output
    return ToolCallUpdate(
        tool_call_id=as_text(item.get("id")),
        name=picture.name,
        title=picture.title,
        kind=picture.kind,  # pyright: ignore[reportArgumentType] - the painters give schema values
        status=status or status_of(item),  # pyright: ignore[reportArgumentType]
        content=list(picture.content),
        locations=list(picture.locations),
        **raw,
    )


def status_of(item: Fields) -> str:
    """The status of a tool item as a tool call's; an unknown one counts as in progress (TOOL-5)."""
    status = item.get("status")
    return _STATUSES.get(status, "in_progress") if isinstance(status, str) else "completed"


def was_killed(item: Fields) -> bool:
    """Whether a command failed because it was ended from outside: in an interrupted turn, by that interrupt."""
    return item.get("status") == "failed" and as_integer(item.get("exitCode")) in _KILLED


def thought_text(item: Fields) -> str:
    """The text of a reasoning item: its summary, else the raw reasoning."""
    parts = [as_text(part) for part in as_list(item.get("summary"))] or [
        as_text(part) for part in as_list(item.get("content"))
    ]
    return "\n\n".join(part for part in parts if part)


def spoken_text(item: Fields) -> str:
    """The text of an item for the user: an agent message, a plan, the result of a review."""
    return as_text(item.get("text")) or as_text(item.get("review"))


def shell_command(command: str) -> str:
    """The command line as the model wrote it, without the shell that Codex puts around it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    wrapped = len(words) == 3 and words[1] in ("-c", "-lc")  # noqa: PLR2004 - shell, flag, command
    return words[2] if wrapped and _SHELLS.fullmatch(words[0]) else command


def file_changes(changes: Any, cwd: str) -> Sequence[ToolCallContent]:
    """The diff of a file change item's `changes`: all of them, and the patch where it says the same (DIFF-1, DIFF-2).

    A file that is written over is part of it where its text is known, and named in words where it is not.
    """
    given = [as_mapping(change) for change in as_list(changes)]
    files = [file for change in given for file in _files(change, cwd)]
    if not files:
        return ()
    unseen = [_text(text) for change in given if (text := _replaced_text(change, cwd))]
    return (FileDiff.of(*files), *unseen)


def change_texts(changes: Any, cwd: str) -> list[str]:
    """Each change of a file change item for a person to read, whole: what happens to which file, and its text."""
    texts: list[str] = []
    for change in map(as_mapping, as_list(changes)):
        kind = as_mapping(change.get("kind"))
        path, moved = as_text(change.get("path")), as_text(kind.get("move_path"))
        head = f"{_VERBS.get(as_text(kind.get('type')), 'Edit')} {name_of(relative(absolute(path, cwd) or path, cwd))}"
        if moved:
            head += f", move it to {name_of(relative(absolute(moved, cwd) or moved, cwd))}"
        diff = as_text(change.get("diff"))
        language = "" if kind.get("type") in _VERBS else "diff"
        texts.append(f"{head}:\n{code(diff, language)}" if diff else head)
        if as_text(change.get(LOST)):
            texts.append(
                f"Replaces {name_of(relative(moved or path, cwd))}, which holds:\n{code(as_text(change[LOST]))}"
            )
        elif unseen := _replaced_text(change, cwd):
            texts.append(unseen)
    return texts


def is_shown_whole(changes: Any, cwd: str) -> bool:
    """Whether the diff of these changes has all that Codex tells of them."""
    told = any(as_mapping(change).get("diff") for change in as_list(changes))
    return not told or any(isinstance(shown, FileDiff) and shown.says_all for shown in file_changes(changes, cwd))


# --- painters --------------------------------------------------------------------------------------------------------


def _text(text: str) -> ContentItem:
    return ContentItem(content=TextBlock(text=text))


def _command(item: Fields, cwd: str) -> _Picture:
    command = shell_command(as_text(item.get("command")))
    actions = [as_mapping(action) for action in as_list(item.get("commandActions"))]
    kinds = {as_text(action.get("type")) for action in actions}
    folder = absolute(item.get("cwd"), cwd)
    paths = [absolute(action.get("path"), folder or cwd) for action in actions if action.get("type") == "read"]
    output = as_text(item.get("aggregatedOutput"))
    code = as_integer(item.get("exitCode"))
    return _Picture(
        "exec_command",
        "read" if kinds == {"read"} else "search" if kinds and kinds <= {"search", "listFiles"} else "execute",
        one_line(visible(command)) or "Run a command",
        (_text(fenced(output)),) if output else (),
        [ToolCallLocation(path=path) for path in dict.fromkeys(paths) if path],
        {"command": command, **({"cwd": folder} if folder else {})},
        None if code is None else {"exitCode": code},
    )


def _file_change(item: Fields, cwd: str) -> _Picture:
    changes = [as_mapping(change) for change in as_list(item.get("changes"))]
    kinds = {as_text(as_mapping(change.get("kind")).get("type")) for change in changes}
    names = [
        " to ".join(relative(path, cwd) for path in places if path)
        for places in (_places(change, cwd) for change in changes)
        if places[0]
    ]
    moves = len(changes) == 1 and bool(_places(changes[0], cwd)[1])
    replaces = any(LOST in change for change in changes)
    verb = "Move" if moves else _VERBS.get(next(iter(kinds)), "Edit") if len(kinds) == 1 and not replaces else "Edit"
    return _Picture(
        "apply_patch",
        "delete" if kinds == {"delete"} else "move" if moves else "edit",
        one_line(f"{verb} {', '.join(dict.fromkeys(names))}") if names else "Edit files",
        file_changes(changes, cwd),
        [place for place in (_place(change, cwd) for change in changes) if place],
    )


def _mcp(item: Fields, _cwd: str) -> _Picture:
    server, tool = server_keys.name_of(as_text(item.get("server"))), as_text(item.get("tool"))
    result = as_mapping(item.get("result"))
    content: list[ToolCallContent] = [ContentItem(content=block) for block in _blocks(result.get("content"))]
    if error := as_text(as_mapping(item.get("error")).get("message")):
        content.append(_text(error))
    return _Picture(
        f"mcp__{server}__{tool}",
        "other",
        one_line(f"{server}: {tool}"),
        content,
        raw_input=item.get("arguments"),
        raw_output=result.get("structuredContent"),
    )


def _dynamic(item: Fields, _cwd: str) -> _Picture:
    name = as_text(item.get("tool")) or "tool"
    texts = [as_text(as_mapping(part).get("text")) for part in as_list(item.get("contentItems"))]
    content = [_text(text) for text in texts if text]
    return _Picture(name, "other", one_line(name), content, raw_input=item.get("arguments"))


def _web_search(item: Fields, _cwd: str) -> _Picture:
    action = as_mapping(item.get("action"))
    queries = [as_text(query) for query in as_list(action.get("queries"))]
    query = as_text(item.get("query")) or as_text(action.get("query")) or ", ".join(filter(None, queries))
    url = as_text(action.get("url"))
    title = f"Open {url}" if url else f"Search the web for {query}" if query else "Search the web"
    return _Picture("web_search", "fetch", one_line(title), raw_input=item.get("action"))


def reads_files(item: Fields) -> bool:
    """Whether its picture is made of a file, wherever that is: it may not answer."""
    return item.get("type") == "imageView"


def _image_view(item: Fields, cwd: str) -> _Picture:
    path = absolute(item.get("path"), cwd)
    locations = [ToolCallLocation(path=path)] if path else []
    # Once is enough: it is over as soon as it has begun.
    block = media.image_file(path, as_count(item.get(SEEN_AT))) if path and _BEGINS not in item else None
    content = [ContentItem(content=block)] if block else []
    return _Picture("view_image", "read", one_line(f"Look at {relative(path, cwd)}"), content, locations)


def _image_generation(item: Fields, cwd: str) -> _Picture:
    prompt, result = as_text(item.get("revisedPrompt")), as_text(item.get("result"))
    content: Sequence[ToolCallContent] = ()
    if result and "://" not in result:
        content = (ContentItem(content=media.image_of(result)),)
    path = absolute(item.get("savedPath"), cwd)
    locations = [ToolCallLocation(path=path)] if path else []
    title = one_line(f"Make an image: {prompt}") if prompt else "Make an image"
    return _Picture("image_generation", "other", title, content, locations)


def _agent(item: Fields, _cwd: str) -> _Picture:
    tool = as_text(item.get("tool"))
    prompt = as_text(item.get("prompt"))
    said = [as_text(as_mapping(state).get("message")) for state in as_mapping(item.get("agentsStates")).values()]
    title = _AGENTS.get(tool, tool or "Agent")
    return _Picture(
        tool or "agent",
        "think",
        one_line(f"{title}: {prompt}" if prompt else title),
        [_text(text) for text in (prompt, *said) if text],
    )


def _sleep(_item: Fields, _cwd: str) -> _Picture:
    return _Picture("sleep", "other", "Wait")


_PICTURES: Final[Mapping[str, Callable[[Fields, str], _Picture]]] = {
    "commandExecution": _command,
    "fileChange": _file_change,
    "mcpToolCall": _mcp,
    "dynamicToolCall": _dynamic,
    "webSearch": _web_search,
    "imageView": _image_view,
    "imageGeneration": _image_generation,
    "collabAgentToolCall": _agent,
    "sleep": _sleep,
}

# --- parts -----------------------------------------------------------------------------------------------------------


def _blocks(content: Any) -> Iterator[ContentBlock]:
    """The blocks of an MCP result, which are the protocol's own; malformed ones are left out."""
    for block in as_list(content):
        try:
            yield media.shown(parse_content(block))
        except AcpError:
            continue


def _files(change: Fields, cwd: str) -> Sequence[FileChange]:
    """What a change does to files: to its own, and to one that it moves that over."""
    path, moved = _places(change, cwd)
    if not path:
        return ()
    over, lost = LOST in change, _text_or_none(change.get(LOST))
    text = _text_or_none(change.get("diff"))
    match as_mapping(change.get("kind")).get("type"):
        case "add" if over:
            return (FileChange(path, "modify", old=lost, new=text),)
        case "add":
            return (FileChange(path, "add", new=text),)
        case "delete":
            return (FileChange(path, "delete", old=text),)
        case _ if moved:
            gone = [FileChange(moved, "delete", old=lost)] if over else []
            return (*gone, FileChange(moved, "move", old_path=path, hunks=_hunks(change)))
        case _:
            return (FileChange(path, "modify", hunks=_hunks(change)),)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _hunks(change: Fields) -> str | None:
    """The hunks of a change, empty for a mere move; None where the item does not hold them."""
    diff = change.get("diff")
    if not isinstance(diff, str):
        return None
    hunks = _MOVED.sub("", diff) if as_mapping(change.get("kind")).get("move_path") else diff
    return hunks if not hunks or hunks.startswith("@@") else None


def _places(change: Fields, cwd: str) -> tuple[str, str]:
    """The path of a change and the one that it moves to, each empty where there is none."""
    path = absolute(change.get("path"), cwd)
    moved = absolute(as_mapping(change.get("kind")).get("move_path"), cwd)
    return path, moved if moved != path else ""


def _place(change: Fields, cwd: str) -> ToolCallLocation | None:
    """Where a change is: in the file that is there after it, at the line of its first change."""
    files = _files(change, cwd)
    return ToolCallLocation(path=files[-1].path, line=files[-1].first_line or 1) if files else None


def _replaced_text(change: Fields, cwd: str) -> str:
    """Says that a file is lost whose text is not known."""
    if LOST not in change or isinstance(change[LOST], str):
        return ""
    path, moved = _places(change, cwd)
    return f"Replaces {name_of(relative(moved or path, cwd))}, whose content cannot be shown as text."
