"""The result of a tool call, from its result block and Claude Code's structured result.

Owns status, content and raw output of ended calls, the same for a live frame and a stored entry. Results come from tools and may
have any shape: a wrong type costs at most its own value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from adapters.acp.schema import (
    ContentBlock,
    ContentItem,
    PlanEntry,
    PlanItems,
    PlanUpdate,
    ResourceLinkBlock,
    TextBlock,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
)
from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show.diffs import diff_of, first_changed_line, path_of, reported_hunks
from adapters.claude.stored.cli_texts import without_notes
from adapters.claude.stored.content import from_content
from adapters.core.file_change import FileChange
from adapters.core.file_diff import FileDiff
from adapters.driver import media
from adapters.driver.tool_text import absolute, fenced

PLAN_ID = "todos"
"""The one plan of a session (PLAN-2): Claude Code keeps one list of to-dos."""

_REJECTED = "User rejected tool use"
"""The structured result of a call that an interrupt or the user stopped (CLI 2.1.332); a denial has a text of its own."""

_PLAIN = frozenset(
    {"Agent", "Task", "WebFetch", "WebSearch", "AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "Skill"}
)
"""Tools whose text is written for people (Markdown); of the others' it is shown as it is, in a code block."""

_REPEATED = frozenset(
    {"originalFile", "original_file", "updated_file", "structuredPatch", "base64", "originalFileContents"}
)
"""Members of structured results that are large and shown otherwise: kept out of the raw output."""

_SAVED = re.compile(
    r"\[\w+ from [^\n]*\] Binary content \((?P<type>[^(),\s]+), [^()\n]*\) saved to (?P<path>/[^\n]*/tool-results/[^/\n]+)"
)
"""What stands for a picture or a sound that the model is not given (CLI 2.1.332)."""

_STATUSES = frozenset({"pending", "in_progress", "completed"})
_ERROR = ("<tool_use_error>", "</tool_use_error>")


def finished_call(
    name: str, block: Mapping[str, Any], result: Any, cwd: str, change: FileChange | None = None
) -> ToolCallUpdate:
    """The final report of a call: `block` is its tool_result block, `result` the structured result of frame or entry.

    `change` is what it did to a file, where that is not what the result says.
    """
    structured = as_mapping(result)
    failed = bool(block.get("is_error"))
    content = _changed(change, structured) if change else _content(name, block, structured, cwd, failed=failed)
    fields: dict[str, Any] = {"content": list(content)}
    if failed:
        fields["status"] = "cancelled" if result == _REJECTED else "failed"
    else:
        fields["status"] = "completed"
        path = absolute(path_of(structured), cwd)
        line = (change and change.first_line) or first_changed_line(structured)
        if path and line:
            fields["locations"] = [ToolCallLocation(path=path, line=line)]
    raw = _raw_output(block, structured)
    if raw is not None:
        fields["raw_output"] = raw
    return ToolCallUpdate(tool_call_id=as_text(block.get("tool_use_id")), **fields)


def plan_of(name: str, block: Mapping[str, Any], result: Any, tool_input: Any) -> PlanUpdate | None:
    """The plan after a successful TodoWrite; None for every other result."""
    if name != "TodoWrite" or block.get("is_error"):
        return None
    todos = as_mapping(result).get("newTodos")
    if not isinstance(todos, list):
        todos = as_mapping(tool_input).get("todos")
    entries: list[PlanEntry] = []
    for todo in map(as_mapping, as_list(todos)):
        status = as_text(todo.get("status"))
        entries.append(
            PlanEntry(
                content=as_text(todo.get("content")),
                priority="medium",
                status=status if status in _STATUSES else "pending",  # pyright: ignore[reportArgumentType]
            )
        )
    return PlanUpdate(plan=PlanItems(plan_id=PLAN_ID, entries=entries))


def _content(
    name: str, block: Mapping[str, Any], structured: Mapping[str, Any], cwd: str, *, failed: bool
) -> Iterator[ToolCallContent]:
    if failed:
        for shown in _blocks(block.get("content")):
            if isinstance(shown, TextBlock):
                text = shown.text.strip()
                if text.startswith(_ERROR[0]) and text.endswith(_ERROR[1]):
                    text = text.removeprefix(_ERROR[0]).removesuffix(_ERROR[1])
                yield _item(TextBlock(text=fenced(text) if name == "Bash" else text))
            else:
                yield _item(shown)
        return
    diff = diff_of(structured, absolute(path_of(structured), cwd))
    if diff is not None:
        yield diff
        return
    for shown in _shown(name, block, structured):
        yield _item(_presented(name, shown))


def _changed(change: FileChange, structured: Mapping[str, Any]) -> Iterator[ToolCallContent]:
    """A change as a diff; what is reported of a file that no patch can show, in words."""
    yield FileDiff.of(change)
    if not change.is_known and (hunks := reported_hunks(structured)):
        yield _item(TextBlock(text=fenced(hunks, "diff")))


def _shown(name: str, block: Mapping[str, Any], structured: Mapping[str, Any]) -> Sequence[ContentBlock]:
    """The blocks of a result without what the runtime adds for the model only."""
    if name == "Read":
        text = as_mapping(structured.get("file")).get("content")
        if isinstance(text, str):
            return [TextBlock(text=text)] if text else []
    if (
        name == "Bash"
        and structured.get("stdout") == structured.get("stderr") == ""
        and not structured.get("backgroundTaskId")
    ):
        return []  # the runtime tells the model so in words
    if name in ("Agent", "Task"):
        report = _blocks(structured.get("content"))
        if report:
            return report
    return _blocks(block.get("content"))


def _blocks(content: Any) -> Sequence[ContentBlock]:
    """Content blocks as they are: tools write no markup of ours."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks: list[ContentBlock] = []
    for given in map(as_mapping, as_list(content)):
        text = given.get("text")
        if given.get("type") != "text":
            blocks.extend(map(media.shown, from_content([given])))
        elif isinstance(text, str) and (shown := without_notes(text)):
            blocks.append(TextBlock(text=shown))
            blocks.extend(_saved(shown))
    return blocks


def _saved(text: str) -> Iterator[ResourceLinkBlock]:
    """The file that the runtime has kept something in that it shows to nobody."""
    if found := _SAVED.fullmatch(text):
        with suppress(ValueError):  # a path that is no Unicode
            path = Path(found["path"])
            yield ResourceLinkBlock(name=path.name, uri=path.as_uri(), mime_type=found["type"])


def _presented(name: str, block: ContentBlock) -> ContentBlock:
    if isinstance(block, TextBlock) and name not in _PLAIN and not name.startswith("mcp__"):
        return TextBlock(text=fenced(block.text))
    return block


def _item(block: ContentBlock) -> ContentItem:
    return ContentItem(content=block)


def _raw_output(block: Mapping[str, Any], structured: Mapping[str, Any]) -> Any:
    if structured:
        return _slim(structured)
    content = block.get("content")
    if isinstance(content, str):
        return content
    texts = [as_mapping(item).get("text") for item in as_list(content)]
    return content if texts and all(isinstance(text, str) for text in texts) else None


def _slim(structured: Mapping[str, Any]) -> dict[str, Any]:
    slim: dict[str, Any] = {name: value for name, value in structured.items() if name not in _REPEATED}
    file = as_mapping(slim.get("file"))
    if file:
        slim["file"] = {name: value for name, value in file.items() if name not in _REPEATED | {"content"}}
    return slim
