"""Codex's questions as options for the user, and the user's choice as the answer to Codex.

Owns the options of each kind of question and their names. Pure. Knows no connection. Approval is never the default: any answer
that is not one of the offered options declines (PERM-2, PERM-3). Declining lets the turn go on; cancelling would end it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.codex.show.items import change_texts, is_shown_whole, shell_command
from adapters.core import server_keys
from adapters.core.port import PermissionOption
from adapters.driver.question_text import (
    Choices,
    code,
    described,
    fields,
    name_of,
    said,
    title_of,
    unseen_note,
    visible,
    whole,
)
from adapters.driver.tool_text import absolute, relative

Fields = Mapping[str, Any]

_NOT_SHOWN: Final = (
    "The user did not see this question: their client can only show one question with a choice of answers at a time. "
    "Ask it in your reply as text, or one by one."
)
_NOT_ANSWERED: Final = "The user did not answer this question."

_MOST_CHOICES: Final = 20
_STDIN: Final = ["write_stdin", "--session-id"]
"""How the command of a question begins that is about input to a running command (0.163.0); the input is its last word."""
_RUNS: Final = "inProgress"
"""The status of an item that is not over."""
_LOCAL: Final = "local"
"""The environment that is this machine."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question as it is shown, and what each choice answers."""

    title: str
    options: Sequence[PermissionOption]
    answers: Mapping[str, Fields]
    """Option id -> the result of Codex's request."""
    refusal: Fields
    """The same for every other outcome."""
    approvals: frozenset[str]
    """The options after which the tool runs."""
    description: str | None = None
    item_id: str = ""
    """The running item that the question is about; empty when it is about none."""
    command: str = ""
    """The command that would run, when it can be seen whole as it is."""
    item_runs: bool = False
    """The item runs already, and does not wait for the answer."""

    def answer(self, option_id: str | None) -> Fields:
        """The result for a choice; None or an id that was not offered is a refusal."""
        return self.answers.get(option_id, self.refusal) if option_id is not None else self.refusal


Running = Mapping[str, Fields]
"""Items by id, in order: those of the running turn, and what else runs."""


def ask_of(
    method: str, params: Fields, running: Running, cwd: str, *, shown: bool = True, given: Collection[str] = ()
) -> Ask | Fields | None:
    """The choices for a request of Codex; our answer at once where no client could show it; None for an unknown request.

    `shown`: the client sees the running items. Where it does not, or the item is not there, the question says all of it itself.
    `given`: the keys of the MCP servers that the client gave to the session.
    """
    asking = _SHOWN.get(method)
    return asking(params, _Known(running, shown, given), cwd) if asking else None


def declined(method: str, params: Fields) -> Fields | None:
    """The answer that runs nothing and lets the turn go on; None for an unknown request."""
    asked = ask_of(method, params, {}, "/")
    return asked.refusal if isinstance(asked, Ask) else asked


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the items that a question may be about."""

    items: Running
    shown: bool
    given: Collection[str]

    def item(self, item_id: str) -> Fields:
        return as_mapping(self.items.get(item_id))

    def is_running(self, item_id: str) -> bool:
        return item_id in self.items and self.item(item_id).get("status", _RUNS) == _RUNS

    def is_shown(self, item_id: str) -> bool:
        """Whether the client sees it, and sees it run: what is over says nothing of what is asked now."""
        return self.shown and self.is_running(item_id)


def _asking(made: Choices, title: str, refusal: Fields, *parts: str, **more: Any) -> Ask:
    approvals = frozenset(option.option_id for option in made.options if option.kind.startswith("allow"))
    description = described([*parts, *made.details])
    return Ask(title_of(title), made.options, made.answers, refusal, approvals, description, **more)


# --- commands and files ----------------------------------------------------------------------------------------------


def _command(params: Fields, known: _Known, cwd: str) -> Ask:
    item_id = as_text(params.get("itemId"))
    item = known.item(item_id)
    command = shell_command(as_text(params.get("command")) or as_text(item.get("command")))
    host = as_text(as_mapping(params.get("networkApprovalContext")).get("host"))
    writes = params.get("kind") == "writeStdin"
    asked = f"Run {command}" if command else "Run a command"
    text = command
    if writes:
        text = _input_of(command) or command
        target = shell_command(as_text(item.get("command"))) or (command if text == command else "")
        asked = f"Write to the running command {target}" if target else "Write to a running command"
    elif host:
        asked = f"Connect to {host}"
    title = title_of(asked)
    made = Choices()
    made.add("accept", "Allow", "allow_once", {"decision": "accept"})
    if not writes:  # Codex asks again all the same (0.163.0)
        name = f"Allow connections to {host} for this session" if host else "Allow this command for this session"
        made.add("accept_for_session", name, "allow_always", {"decision": "acceptForSession"})
    _remember(made, params)
    made.add("decline", "Reject", "reject_once", {"decision": "decline"})
    made.add("cancel", "Reject and stop", "reject_once", {"decision": "cancel"})
    folder = absolute(params.get("cwd"), cwd)
    environment = as_text(params.get("environmentId"))
    plain = command if command and not (writes or host) and visible(command) == command else ""
    return _asking(
        made,
        asked,
        {"decision": "decline"},
        said(as_text(params.get("reason"))),
        "" if text else "Codex does not say which command it is.",
        text if host and text == said(text) else whole(text, title),
        unseen_note(text),
        whole(host, title),
        f"In {name_of(folder)}" if folder and folder != cwd else "",
        f"In the environment {name_of(environment)}" if environment not in ("", _LOCAL) else "",
        *_permission_texts(as_mapping(params.get("additionalPermissions"))),
        item_id=item_id,
        command=plain,
        item_runs=writes,
    )


def _input_of(command: str) -> str:
    """What is written, from the command that stands for it; empty where it has another form."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    return words[-1] if words[:2] == _STDIN and len(words) == len(_STDIN) + 2 else ""


def _remember(made: Choices, params: Fields) -> None:
    """Decisions that Codex keeps in the user's rules, beyond this session and this folder."""
    prefix = as_list(params.get("proposedExecpolicyAmendment"))
    words = [as_text(word) for word in prefix]
    if words and all(words):
        decision = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": words}}
        name = "Always allow commands that start with {} (in all projects)"
        made.add("accept_prefix", name, "allow_always", {"decision": decision}, [shlex.join(words)])
    amendments = as_list(params.get("proposedNetworkPolicyAmendments"))
    for index, amendment in enumerate(map(as_mapping, amendments), 1):
        host = as_text(amendment.get("host"))
        decision = {"decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment}}}
        if host and amendment.get("action") == "allow":
            name = "Always allow connections to {} (in all projects)"
            made.add(f"allow_host_{index}", name, "allow_always", decision, [host])
        elif host and amendment.get("action") == "deny":
            name = "Never allow connections to {} (in all projects)"
            made.add(f"deny_host_{index}", name, "reject_always", decision, [host])


def _file_change(params: Fields, known: _Known, cwd: str) -> Ask:
    item_id = as_text(params.get("itemId"))
    changes = known.item(item_id).get("changes")
    paths = list(dict.fromkeys(path for change in as_list(changes) for path in _paths(as_mapping(change), cwd)))
    names = [relative(path, cwd) for path in paths]
    root = as_text(params.get("grantRoot"))
    made = Choices()
    made.add("accept", "Allow", "allow_once", {"decision": "accept"})
    if paths:  # Codex remembers each of them, whatever is changed in it (0.163.0)
        what = [*names, *([f"everything under {root}"] if root else [])]
        name = "Allow all changes of {} for this session"
        made.add("accept_for_session", name, "allow_always", {"decision": "acceptForSession"}, what)
    made.add("decline", "Reject", "reject_once", {"decision": "decline"})
    made.add("cancel", "Reject and stop", "reject_once", {"decision": "cancel"})
    asked = f"Change {', '.join(names)}" if names else "Change files"
    title = title_of(asked)
    texts = change_texts(changes, cwd)
    return _asking(
        made,
        asked,
        {"decision": "decline"},
        said(as_text(params.get("reason"))),
        "" if texts else "Codex does not say which change it is.",
        f"Asks to write under {name_of(root)} for the rest of the session" if root else "",
        *([] if known.is_shown(item_id) and is_shown_whole(changes, cwd) else texts),
        *([code("\n".join(names))] if title != asked else []),
        unseen_note(changes) if texts else "",
        item_id=item_id,
    )


def _paths(change: Fields, cwd: str) -> list[str]:
    moved = as_mapping(change.get("kind")).get("move_path")
    return [path for path in (absolute(change.get("path"), cwd), absolute(moved, cwd)) if path]


def _permissions(params: Fields, _known: _Known, cwd: str) -> Ask:
    wanted = as_mapping(params.get("permissions"))
    granted = {name: value for name, value in wanted.items() if value is not None}
    refusal: Fields = {"permissions": {}, "scope": "turn"}
    made = Choices()
    made.add("grant_turn", "Allow for this turn", "allow_once", {"permissions": granted, "scope": "turn"})
    made.add("grant_session", "Allow for this session", "allow_always", {"permissions": granted, "scope": "session"})
    made.add("decline", "Reject", "reject_once", refusal)
    folder = absolute(params.get("cwd"), cwd)
    texts = _permission_texts(wanted)
    return _asking(
        made,
        "Grant more permissions",
        refusal,
        said(as_text(params.get("reason"))),
        *(texts or ["Codex does not say which permissions they are."]),
        f"In {name_of(folder)}" if folder and folder != cwd else "",
    )


def _permission_texts(wanted: Fields) -> list[str]:
    """Everything that is asked for, each in a line of its own; what is not known here as it came."""
    lines: list[str] = []
    network, files = as_mapping(wanted.get("network")), as_mapping(wanted.get("fileSystem"))
    if network.get("enabled"):
        lines.append("Access to the network")
    for access in ("read", "write"):
        lines += [f"{access.capitalize()} {name_of(path)}" for path in map(as_text, as_list(files.get(access))) if path]
    for entry in map(as_mapping, as_list(files.get("entries"))):
        access = as_text(entry.get("access")) or "Access to"
        lines.append(f"{access.capitalize()} {_place(as_mapping(entry.get('path')))}")
    rest = [
        *fields({name: value for name, value in wanted.items() if name not in ("network", "fileSystem")}),
        *fields({name: value for name, value in network.items() if name != "enabled"}),
        *fields({name: value for name, value in files.items() if name not in _FILE_PERMISSIONS}),
    ]
    return [*lines, *rest]


_FILE_PERMISSIONS: Final = frozenset({"read", "write", "entries", "globScanMaxDepth"})
_PLACES: Final = {
    "root": "everything on this machine",
    "tmpdir": "the folder for temporary files",
    "slash_tmp": "the folder tmp of this machine",
    "project_roots": "the folders of the session",
    "minimal": "what programs need to run",
}
"""Special places of a permission -> what they are."""


def _place(place: Fields) -> str:
    special = as_mapping(place.get("value"))
    known = _PLACES.get(as_text(special.get("kind")))
    if known:
        below = as_text(special.get("subpath"))
        return f"{known}, below {name_of(below)}" if below else known
    path = as_text(place.get("path")) or as_text(place.get("pattern"))
    return name_of(path or json.dumps(place, ensure_ascii=False))


# --- questions -------------------------------------------------------------------------------------------------------


def _questions(params: Fields, _known: _Known, _cwd: str) -> Ask | Fields:
    questions = [as_mapping(question) for question in as_list(params.get("questions"))]
    if len(questions) != 1 or questions[0].get("isSecret"):
        return _unanswered(questions, _NOT_SHOWN)
    question = questions[0]
    question_id, text = as_text(question.get("id")), as_text(question.get("question"))
    choices = [as_mapping(choice) for choice in as_list(question.get("options"))]
    labels = [as_text(choice.get("label")) for choice in choices]
    if not text or not labels or len(set(labels)) != len(labels) or not all(labels) or len(labels) > _MOST_CHOICES:
        return _unanswered(questions, _NOT_SHOWN)
    refusal = _unanswered(questions, _NOT_ANSWERED)
    made = Choices()
    for index, label in enumerate(labels, 1):
        made.add(f"answer_{index}", label, "allow_once", {"answers": {question_id: {"answers": [label]}}})
    made.add("decline", "Do not answer", "reject_once", refusal)
    more = [
        f"{title_of(label)}: {said(described)}"
        for label, choice in zip(labels, choices, strict=True)
        if (described := as_text(choice.get("description")))
    ]
    return _asking(made, text, refusal, whole(text, title_of(text)), *more)


def _unanswered(questions: Sequence[Fields], why: str) -> Fields:
    """The truth for the model: nobody chose, and why. It can be told where free text is an answer."""
    free = [as_text(question.get("id")) for question in questions if question.get("isOther") is True]
    return {"answers": {question_id: {"answers": [why]} for question_id in free if question_id}}


def _elicitation(params: Fields, known: _Known, _cwd: str) -> Ask | Fields:
    meta = as_mapping(params.get("_meta"))
    if meta.get("codex_approval_kind") == "mcp_tool_call":
        return _mcp_tool(params, meta, known)
    refusal = _acted("decline")
    server = server_keys.name_of(as_text(params.get("serverName")))
    message = as_text(params.get("message")) or f"{server} asks"
    made = Choices()
    match params.get("mode"):
        case "url" if url := as_text(params.get("url")):
            made.add("accept", "I have opened it", "allow_once", _acted("accept"))
            more = [said(url)]
        case "form" if _choices(made, as_mapping(params.get("requestedSchema"))):
            more = []
        case _:
            return refusal
    made.add("decline", "Decline", "reject_once", refusal)
    made.add("cancel", "Cancel", "reject_once", _acted("cancel"))
    asked_by = f"Asked by the MCP server {said(server)}"
    return _asking(made, message, refusal, asked_by, whole(message, title_of(message)), *more)


def _choices(made: Choices, schema: Fields) -> bool:
    """The answers of a form that is one choice, or a plain confirmation; False for every other form."""
    properties = as_mapping(schema.get("properties"))
    if not properties:
        made.add("accept", "Accept", "allow_once", _acted("accept", {}))
        return True
    if len(properties) != 1:
        return False
    name, described = next(iter(properties.items()))
    field_schema = as_mapping(described)
    if field_schema.get("type") == "boolean":
        values: list[tuple[str, Any]] = [("Yes", True), ("No", False)]
    else:
        titled = [as_mapping(choice) for choice in as_list(field_schema.get("oneOf"))]
        values = [(as_text(choice.get("title")), as_text(choice.get("const"))) for choice in titled]
        values = values or [(as_text(value), as_text(value)) for value in as_list(field_schema.get("enum"))]
    if not 1 <= len(values) <= _MOST_CHOICES or field_schema.get("type") not in ("boolean", "string"):
        return False
    for index, (title, value) in enumerate(values, 1):
        made.add(f"answer_{index}", title or str(value), "allow_once", _acted("accept", {name: value}))
    return True


def _mcp_tool(params: Fields, meta: Fields, known: _Known) -> Ask:
    key = as_text(params.get("serverName"))
    server = server_keys.name_of(key)
    given = as_mapping(meta.get("tool_params"))
    item_id = _mcp_item(key, given, known)
    tool = as_text(known.item(item_id).get("tool"))
    named = f"the tool {tool} of {server}" if tool else f"this tool of {server}"
    made = Choices()
    made.add("accept", "Allow", "allow_once", _acted("accept", {}))
    offered = as_list(meta.get("persist")) if isinstance(meta.get("persist"), list) else [meta.get("persist")]
    for name, label in (
        ("session", f"Allow every use of {named} for this session"),
        ("always", f"Always allow every use of {named} (in all projects)"),
    ):
        # Codex keeps what is always allowed beside a server in the user's configuration: of a client's server, nowhere (0.163.0).
        if name in offered and not (name == "always" and key in known.given):
            made.add(f"accept_{name}", label, "allow_always", _acted("accept", {}, {"persist": name}))
    made.add("decline", "Reject", "reject_once", _acted("decline"))
    made.add("cancel", "Reject and stop", "reject_once", _acted("cancel"))
    rows = [as_mapping(row) for row in as_list(meta.get("tool_params_display"))]
    names = {as_text(row.get("name")): as_text(row.get("display_name")) or as_text(row.get("name")) for row in rows}
    shown = given or {name: row.get("value") for name, row in zip(names, rows, strict=False)}
    message = server_keys.named(as_text(params.get("message")), key) or f"Use a tool of the MCP server {server}"
    return _asking(
        made,
        message,
        _acted("decline"),
        whole(message, title_of(message)),
        said(as_text(meta.get("tool_description"))),
        *fields({names.get(name) or name: value for name, value in shown.items()}),
        item_id=item_id,
    )


def _mcp_item(server: str, given: Fields, known: _Known) -> str:
    """The call that waits: the latest with this input; of a server that does not say it, the latest."""
    calls = {
        item_id: item
        for item_id, item in known.items.items()
        if item.get("type") == "mcpToolCall" and item.get("server") == server and known.is_running(item_id)
    }
    same = [item_id for item_id, item in calls.items() if as_mapping(item.get("arguments")) == given]
    return next(reversed(same or list(calls)), "")


def _acted(action: str, content: Fields | None = None, meta: Fields | None = None) -> Fields:
    return {"action": action, "content": content, "_meta": meta}


_SHOWN: Final[Mapping[str, Callable[[Fields, _Known, str], Ask | Fields]]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _file_change,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _questions,
    "mcpServer/elicitation/request": _elicitation,
}
"""Codex's requests to a host that are for the user. Everything else is refused with an error."""
