"""Codex's questions as choices for the user, and the user's choice as the answer to Codex.

Owns the options of each kind of question and their names. Pure; knows no connection. Approval is never the default: whatever is
not one of the offered options declines (PERM-2, PERM-3), and declining lets the turn go on where cancelling would end it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.codex.items import shell_command
from adapters.core.runtime import PermissionOption
from adapters.core.server_keys import name_of, named
from adapters.core.shapes import as_list, as_mapping, as_text
from adapters.core.tool_text import absolute, one_line, relative

Fields = Mapping[str, Any]

_NOT_SHOWN: Final = (
    "The user did not see this question: their client can only show one question with a choice of answers at a time. "
    "Ask it in your reply as text, or one by one."
)
_NOT_ANSWERED: Final = "The user did not answer this question."

_LONGEST_TITLE: Final = 300  # characters
_LONGEST_LABEL: Final = 120
_MOST_CHOICES: Final = 20


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

    def answer(self, option_id: str | None) -> Fields:
        """The result for a choice; None or an id that was not offered is a refusal."""
        return self.answers.get(option_id, self.refusal) if option_id is not None else self.refusal


@dataclass(slots=True)
class _Options:
    options: list[PermissionOption] = field(default_factory=list[PermissionOption])
    answers: dict[str, Fields] = field(default_factory=dict[str, Fields])

    def add(self, option_id: str, name: str, kind: str, answer: Fields) -> None:
        self.options.append(PermissionOption(option_id, one_line(name, _LONGEST_LABEL), kind))
        self.answers[option_id] = answer

    def ask(self, title: str, refusal: Fields, *described: str, item_id: str = "") -> Ask:
        approvals = frozenset(option.option_id for option in self.options if option.kind.startswith("allow"))
        lines = list(dict.fromkeys(line.strip() for line in described if line.strip()))
        description = "\n".join(lines) or None
        return Ask(
            one_line(title, _LONGEST_TITLE), self.options, self.answers, refusal, approvals, description, item_id
        )


Running = Mapping[str, Fields]
"""The items that run, in order: item id -> item."""


def ask_of(method: str, params: Fields, running: Running, cwd: str) -> Ask | Fields | None:
    """The choices for a request of Codex; our answer at once where no client could show it; None for an unknown request."""
    shown = _SHOWN.get(method)
    return shown(params, running, cwd) if shown else None


def declined(method: str, params: Fields) -> Fields | None:
    """The answer that runs nothing and lets the turn go on; None for an unknown request."""
    asked = ask_of(method, params, {}, "/")
    return asked.refusal if isinstance(asked, Ask) else asked


# --- commands and files ----------------------------------------------------------------------------------------------


def _command(params: Fields, _running: Running, cwd: str) -> Ask:
    command = shell_command(as_text(params.get("command")))
    network = as_mapping(params.get("networkApprovalContext"))
    host = as_text(network.get("host"))
    made = _Options()
    made.add("accept", "Allow", "allow_once", {"decision": "accept"})
    made.add("accept_for_session", "Allow for this session", "allow_always", {"decision": "acceptForSession"})
    prefix = [as_text(word) for word in as_list(params.get("proposedExecpolicyAmendment"))]
    if prefix and all(prefix):
        decision = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": prefix}}
        made.add(
            "accept_prefix",
            f"Always allow commands that start with {' '.join(prefix)}",
            "allow_always",
            {"decision": decision},
        )
    for index, amendment in enumerate(map(as_mapping, as_list(params.get("proposedNetworkPolicyAmendments"))), 1):
        _amend(made, index, amendment)
    made.add("decline", "Reject", "reject_once", {"decision": "decline"})
    made.add("cancel", "Reject and stop", "reject_once", {"decision": "cancel"})
    title = f"Run {command}" if command else "Run a command"
    if params.get("kind") == "writeStdin":
        title = f"Write to the running command {command}" if command else "Write to a running command"
    if host:
        title = f"Connect to {host}"
    folder = absolute(params.get("cwd"), cwd)
    return made.ask(
        title,
        {"decision": "decline"},
        as_text(params.get("reason")),
        command if host else "",
        f"In {folder}" if folder and folder != cwd else "",
        _permissions_text(as_mapping(params.get("additionalPermissions"))),
        item_id=as_text(params.get("itemId")),
    )


def _amend(made: _Options, index: int, amendment: Fields) -> None:
    """Remember a decision about a host."""
    host = as_text(amendment.get("host"))
    decision = {"decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment}}}
    if host and amendment.get("action") == "allow":
        made.add(f"allow_host_{index}", f"Always allow connections to {host}", "allow_always", decision)
    elif host and amendment.get("action") == "deny":
        made.add(f"deny_host_{index}", f"Never allow connections to {host}", "reject_always", decision)


def _file_change(params: Fields, running: Running, cwd: str) -> Ask:
    item_id = as_text(params.get("itemId"))
    changes = [as_mapping(change) for change in as_list(as_mapping(running.get(item_id)).get("changes"))]
    paths = [relative(path, cwd) for path in (absolute(change.get("path"), cwd) for change in changes) if path]
    made = _Options()
    made.add("accept", "Allow", "allow_once", {"decision": "accept"})
    made.add("accept_for_session", "Allow for this session", "allow_always", {"decision": "acceptForSession"})
    made.add("decline", "Reject", "reject_once", {"decision": "decline"})
    made.add("cancel", "Reject and stop", "reject_once", {"decision": "cancel"})
    root = as_text(params.get("grantRoot"))
    return made.ask(
        f"Change {', '.join(dict.fromkeys(paths))}" if paths else "Change files",
        {"decision": "decline"},
        as_text(params.get("reason")),
        f"Asks to write under {root} for the rest of the session" if root else "",
        item_id=item_id,
    )


def _permissions(params: Fields, _running: Running, _cwd: str) -> Ask:
    wanted = as_mapping(params.get("permissions"))
    granted = {name: value for name, value in wanted.items() if value is not None}
    refusal: Fields = {"permissions": {}, "scope": "turn"}
    made = _Options()
    made.add("grant_turn", "Allow for this turn", "allow_once", {"permissions": granted, "scope": "turn"})
    made.add("grant_session", "Allow for this session", "allow_always", {"permissions": granted, "scope": "session"})
    made.add("decline", "Reject", "reject_once", refusal)
    return made.ask("Grant more permissions", refusal, as_text(params.get("reason")), _permissions_text(wanted))


def _permissions_text(wanted: Fields) -> str:
    lines: list[str] = []
    if as_mapping(wanted.get("network")).get("enabled"):
        lines.append("Access to the network")
    files = as_mapping(wanted.get("fileSystem"))
    for access in ("read", "write"):
        paths = [as_text(path) for path in as_list(files.get(access))]
        if any(paths):
            lines.append(f"{access.capitalize()} {', '.join(filter(None, paths))}")
    for entry in map(as_mapping, as_list(files.get("entries"))):
        place = as_mapping(entry.get("path"))
        where = as_text(place.get("path")) or as_text(place.get("pattern"))
        if where and not any(where in line for line in lines):
            lines.append(f"{as_text(entry.get('access')).capitalize()} {where}")
    return "\n".join(lines)


# --- questions -------------------------------------------------------------------------------------------------------


def _questions(params: Fields, _running: Running, _cwd: str) -> Ask | Fields:
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
    made = _Options()
    for index, label in enumerate(labels, 1):
        made.add(f"answer_{index}", label, "allow_once", {"answers": {question_id: {"answers": [label]}}})
    made.add("decline", "Do not answer", "reject_once", refusal)
    described = [
        f"{label}: {more}"
        for label, choice in zip(labels, choices, strict=True)
        if (more := as_text(choice.get("description")))
    ]
    return made.ask(text, refusal, *described)


def _unanswered(questions: Sequence[Fields], why: str) -> Fields:
    """The truth for the model: nobody chose, and why. It can be told where free text is an answer."""
    free = [as_text(question.get("id")) for question in questions if question.get("isOther") is True]
    return {"answers": {question_id: {"answers": [why]} for question_id in free if question_id}}


def _elicitation(params: Fields, running: Running, _cwd: str) -> Ask | Fields:
    meta = as_mapping(params.get("_meta"))
    if meta.get("codex_approval_kind") == "mcp_tool_call":
        return _mcp_tool(params, meta, running)
    refusal = _acted("decline")
    message = as_text(params.get("message"))
    server = name_of(as_text(params.get("serverName")))
    made = _Options()
    match params.get("mode"):
        case "url" if url := as_text(params.get("url")):
            made.add("accept", "I have opened it", "allow_once", _acted("accept"))
            described = [url]
        case "form" if _choices(made, as_mapping(params.get("requestedSchema"))):
            described = []
        case _:
            return refusal
    made.add("decline", "Decline", "reject_once", refusal)
    made.add("cancel", "Cancel", "reject_once", _acted("cancel"))
    return made.ask(message or f"{server} asks", refusal, f"Asked by the MCP server {server}", *described)


def _choices(made: _Options, schema: Fields) -> bool:
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


def _mcp_tool(params: Fields, meta: Fields, running: Running) -> Ask:
    server = as_text(params.get("serverName"))
    made = _Options()
    made.add("accept", "Allow", "allow_once", _acted("accept", {}))
    offered = as_list(meta.get("persist")) if isinstance(meta.get("persist"), list) else [meta.get("persist")]
    for name, label in (("session", "Allow for this session"), ("always", "Always allow")):
        if name in offered:
            made.add(f"accept_{name}", label, "allow_always", _acted("accept", {}, {"persist": name}))
    made.add("decline", "Reject", "reject_once", _acted("decline"))
    made.add("cancel", "Reject and stop", "reject_once", _acted("cancel"))
    calls = [i for i, item in running.items() if item.get("type") == "mcpToolCall" and item.get("server") == server]
    shown = [
        f"{as_text(row.get('display_name')) or as_text(row.get('name'))}: {row.get('value')}"
        for row in map(as_mapping, as_list(meta.get("tool_params_display")))
    ]
    return made.ask(
        named(as_text(params.get("message")), server) or f"Use a tool of the MCP server {name_of(server)}",
        _acted("decline"),
        as_text(meta.get("tool_description")),
        *(one_line(line) for line in shown),
        item_id=calls[-1] if calls else "",
    )


def _acted(action: str, content: Fields | None = None, meta: Fields | None = None) -> Fields:
    return {"action": action, "content": content, "_meta": meta}


_SHOWN: Final[Mapping[str, Callable[[Fields, Running, str], Ask | Fields]]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _file_change,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _questions,
    "mcpServer/elicitation/request": _elicitation,
}
"""Codex's requests to a host that are for the user. Everything else is refused with an error."""
