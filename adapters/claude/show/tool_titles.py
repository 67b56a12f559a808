"""What a client sees of a call of one of Claude Code's tools: kind, title, places and first content, from its name and input.

Owns the table of tools. `tool_results` shows the result. Inputs come from a model and may have any shape: a missing or mistyped
value is left out of the title.
"""

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.acp.schema import (
    ContentItem,
    TextBlock,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
)
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.core.file_change import FileChange
from adapters.core.file_diff import FileDiff
from adapters.core.server_keys import name_of
from adapters.driver.question_text import visible
from adapters.driver.tool_text import absolute, fenced, one_line, relative

_MCP = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)

_formatter = string.Formatter()

Input = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Description:
    """A tool call as a client is told of it before there is a result."""

    kind: str
    title: str
    locations: Sequence[ToolCallLocation] = ()
    content: Sequence[ToolCallContent] = ()


@dataclass(frozen=True, slots=True)
class _Tool:
    """One row of the table."""

    kind: str
    title: str
    """A template: `{name}` is the input of that name, `{name:path}` a path as seen from the session's folder. A part in
    square brackets is left out when an input of it is missing; else only what stands before the inputs remains."""
    path: str = ""
    """The input that holds the path of the call's location."""
    content: Callable[[Input, str], Sequence[ToolCallContent]] | None = None


def _text(text: str) -> ContentItem:
    return ContentItem(content=TextBlock(text=text))


def _edited(tool_input: Input, cwd: str) -> Sequence[ToolCallContent]:
    """The change of an edit that has not run: which file, and the lines as a readable diff (where is not yet known)."""
    path = absolute(tool_input.get("file_path"), cwd)
    edits = [as_mapping(edit) for edit in as_list(tool_input.get("edits"))] or [tool_input]
    pairs = [(as_text(edit.get("old_string")), as_text(edit.get("new_string"))) for edit in edits]
    shown = "\n".join("\n".join([*_marked("-", old), *_marked("+", new)]) for old, new in pairs)
    if not path or not shown:
        return ()
    text = _text(fenced(shown, "diff"))
    if not all(old for old, _ in pairs):
        return (text,)  # creates the file: only the result can tell
    return (FileDiff.of(FileChange(path, "modify")), text)


def _marked(mark: str, text: str) -> list[str]:
    return [mark + line for line in text.splitlines()]


def _written(tool_input: Input, _cwd: str) -> Sequence[ToolCallContent]:
    content = as_text(tool_input.get("content"))
    return (_text(fenced(content)),) if content else ()


def _field(name: str) -> Callable[[Input, str], Sequence[ToolCallContent]]:
    def content(tool_input: Input, _cwd: str) -> Sequence[ToolCallContent]:
        text = as_text(tool_input.get(name))
        return (_text(text),) if text else ()

    return content


def _questions(tool_input: Input, _cwd: str) -> Sequence[ToolCallContent]:
    questions = [as_mapping(question) for question in as_list(tool_input.get("questions"))]
    texts = [as_text(question.get("question")) for question in questions]
    return tuple(_text(text) for text in texts if text)


_TOOLS: Mapping[str, _Tool] = {
    "Read": _Tool("read", "Read {file_path:path}[ from line {offset}]", "file_path"),
    "Edit": _Tool("edit", "Edit {file_path:path}", "file_path", _edited),
    "MultiEdit": _Tool("edit", "Edit {file_path:path}", "file_path", _edited),
    "Write": _Tool("edit", "Write {file_path:path}", "file_path", _written),
    "NotebookEdit": _Tool("edit", "Edit {notebook_path:path}", "notebook_path", _field("new_source")),
    "Bash": _Tool("execute", "{command}", content=_field("description")),
    "BashOutput": _Tool("execute", "Read the output of {bash_id}"),
    "TaskOutput": _Tool("execute", "Read the output of {task_id}"),
    "KillShell": _Tool("execute", "Stop {shell_id}"),
    "KillBash": _Tool("execute", "Stop {shell_id}"),
    "TaskStop": _Tool("execute", "Stop {task_id}"),
    "Monitor": _Tool("execute", "{description}"),
    "Glob": _Tool("search", "Find {pattern}[ in {path:path}]", "path"),
    "Grep": _Tool("search", "Search for {pattern}[ in {path:path}][ ({glob})]", "path"),
    "LS": _Tool("search", "List {path:path}", "path"),
    "ToolSearch": _Tool("search", "Find tools: {query}"),
    "WebFetch": _Tool("fetch", "Fetch {url}", content=_field("prompt")),
    "WebSearch": _Tool("fetch", "Search the web for {query}"),
    "Task": _Tool("think", "{description}", content=_field("prompt")),
    "Agent": _Tool("think", "{description}", content=_field("prompt")),
    "TodoWrite": _Tool("think", "Update the plan"),
    "TaskCreate": _Tool("think", "Add to the tasks: {subject}", content=_field("description")),
    "TaskUpdate": _Tool("think", "Update task {taskId}[: {status}]"),
    "TaskGet": _Tool("think", "Look at task {taskId}"),
    "TaskList": _Tool("think", "Look at the tasks"),
    "EnterPlanMode": _Tool("switch_mode", "Enter plan mode"),
    "ExitPlanMode": _Tool("switch_mode", "Leave plan mode", content=_field("plan")),
    "AskUserQuestion": _Tool("other", "Ask a question", content=_questions),
    "Skill": _Tool("other", "Use the skill {skill}"),
    "SlashCommand": _Tool("other", "Run {command}"),
}
"""Of CLI 2.1.332 and its predecessors, whose sessions are still there. A name that is missing passes as kind other."""


def describe(name: str, tool_input: Any, cwd: str) -> Description:
    """The call of a tool with this input, for a client. Never fails; unknown tools are shown under their name."""
    given = as_mapping(tool_input)
    tool = _TOOLS.get(name)
    if tool is None:
        return Description("other", mcp_title(name) or one_line(name) or "Tool")
    path = absolute(given.get(tool.path), cwd) if tool.path else ""
    line = given.get("offset")
    locations: Sequence[ToolCallLocation] = ()
    if path and isinstance(line, int) and not isinstance(line, bool) and line >= 1:
        locations = (ToolCallLocation(path=path, line=line),)
    elif path:
        locations = (ToolCallLocation(path=path),)
    content = tool.content(given, cwd) if tool.content else ()
    title = _title(tool.title, name, given, cwd)
    return Description(tool.kind, one_line(visible(title)) if tool.kind == "execute" else title, locations, content)


def mcp_title(name: str) -> str:
    """The server, under the client's name, and the tool; empty for every other tool."""
    mcp = _MCP.fullmatch(name)
    return one_line(f"{name_of(mcp['server'])}: {mcp['tool']}") if mcp else ""


def shown_name(name: str) -> str:
    """The name of a tool, with the client's name of its MCP server."""
    mcp = _MCP.fullmatch(name)
    return f"mcp__{name_of(mcp['server'])}__{mcp['tool']}" if mcp else name


def tool_call(
    name: str, tool_use_id: str, tool_input: Any, cwd: str, status: str, *, change: FileChange | None = None
) -> ToolCallUpdate:
    """The report of a call that has no result yet: everything that is known of it (TOOL-2).

    `change` is what it will do to a file, where that is known: then it is the content.
    """
    description = describe(name, tool_input, cwd)
    return ToolCallUpdate(
        tool_call_id=tool_use_id,
        name=shown_name(name) or "tool",
        title=description.title,
        kind=description.kind,  # pyright: ignore[reportArgumentType] - the table holds schema values
        status=status,  # pyright: ignore[reportArgumentType]
        content=[FileDiff.of(change)] if change else list(description.content),
        locations=list(description.locations),
        raw_input=tool_input,
    )


def _title(template: str, name: str, given: Input, cwd: str) -> str:
    parts = [_filled(part, given, cwd) for part in re.split(r"[\[\]]", template)]  # every second one is optional
    if parts[0] is None:
        return template.partition("{")[0].strip() or name
    return one_line("".join(part or "" for part in parts))


def _filled(template: str, given: Input, cwd: str) -> str | None:
    """The template with its inputs, None when one is missing."""
    text = ""
    for literal, field, kind, _ in _formatter.parse(template):
        text += literal
        if field is not None:
            value = _as_title(given.get(field))
            if not value:
                return None
            text += relative(value, cwd) if kind == "path" else value
    return text


def _as_title(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if isinstance(value, int) and not isinstance(value, bool) else ""
