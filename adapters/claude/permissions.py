"""Claude Code's permission requests as choices for the user, and the user's choice as the CLI's answer.

Owns the options of each kind of request and their names. Pure; knows no connection. Approval is never the default: whatever is
not one of the offered options denies (PERM-2, PERM-3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.core.runtime import PermissionOption
from adapters.core.shapes import as_list, as_mapping, as_text

_DENIED: Final = (
    "The user did not approve this. Do not try it in another way; ask what to do instead, or go on without it."
)
_STOPPED: Final = "The user stopped this work."
_NO_QUESTIONS: Final = (
    "The user's client cannot show these questions: it can only offer one question with one answer at a time. "
    "Ask them in your reply as text, or one by one."
)
_NO_ANSWER: Final = "The user did not answer the question."

_WHERE: Final = {
    "session": "for this session",
    "localSettings": "in this project",
    "projectSettings": "in this project, for everybody",
    "userSettings": "in all projects",
}
"""Destination of an update -> how long it holds. Another one is passed on and shown as it is."""

_MODES: Final = {
    "acceptEdits": "Accept all edits",
    "bypassPermissions": "Allow everything without asking",
    "dontAsk": "Deny everything that is not allowed by a rule",
    "plan": "Switch to plan mode",
    "default": "Ask before each edit",
    "auto": "Decide automatically",
}

_SUBJECTS: Final = ("command", "file_path", "notebook_path", "url", "query", "pattern", "path", "skill", "description")
"""Fields of a tool's input that say best what it would do, in order."""

_LONGEST_TITLE: Final = 300  # characters
_LONGEST_LABEL: Final = 120


@dataclass(frozen=True, slots=True)
class Ask:
    """A permission request as it is shown, and what each choice answers."""

    title: str
    options: Sequence[PermissionOption]
    answers: Mapping[str, Mapping[str, Any]]
    """Option id -> the `response` of our control response."""
    refusal: Mapping[str, Any]
    """The same for every other outcome."""
    description: str | None = None
    tool_use_id: str = ""

    def answer(self, option_id: str | None) -> Mapping[str, Any]:
        """The response to a choice; None or an id that was not offered is a refusal."""
        return self.answers.get(option_id, self.refusal) if option_id is not None else self.refusal


@dataclass(slots=True)
class _Options:
    options: list[PermissionOption] = field(default_factory=list[PermissionOption])
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def add(self, option_id: str, name: str, kind: str, answer: Mapping[str, Any]) -> None:
        self.options.append(PermissionOption(option_id, name, kind))
        self.answers[option_id] = answer


def ask_of(request: Mapping[str, Any]) -> Ask | Mapping[str, Any]:
    """The choices for a `can_use_tool` request; or our answer at once where no client could show it."""
    shown = _SHOWN.get(as_text(request.get("tool_name")), _tool)(request)
    return replace(shown, tool_use_id=as_text(request.get("tool_use_id"))) if isinstance(shown, Ask) else shown


def denied(message: str = _STOPPED) -> Mapping[str, Any]:
    """The response that runs nothing and tells the model why."""
    return {"behavior": "deny", "message": message}


# --- tools -----------------------------------------------------------------------------------------------------------


def _tool(request: Mapping[str, Any]) -> Ask:
    made = _Options()
    made.add("allow_once", "Allow", "allow_once", _allowed(request))
    for index, (name, updates) in enumerate(_always(request), 1):
        made.add(f"allow_always_{index}", name, "allow_always", _allowed(request, updates))
    made.add("reject_once", "Reject", "reject_once", denied(_DENIED))
    tool = as_text(request.get("display_name")) or as_text(request.get("tool_name")) or "a tool"
    subject = _subject(as_mapping(request.get("input")))
    title = _shortened(f"{tool}: {subject}" if subject else f"Use {tool}", _LONGEST_TITLE)
    return Ask(title, made.options, made.answers, denied(_DENIED), _description(request, subject))


def _subject(tool_input: Mapping[str, Any]) -> str:
    return next(filter(None, (as_text(tool_input.get(name)).strip() for name in _SUBJECTS)), "")


def _description(request: Mapping[str, Any], subject: str) -> str | None:
    """Why it asks and what for, in the CLI's words."""
    lines = [as_text(request.get(name)).strip() for name in ("description", "decision_reason")]
    if (blocked := as_text(request.get("blocked_path"))) and blocked not in subject:
        lines.append(f"Path: {blocked}")
    said = [line for line in dict.fromkeys(lines) if line and line != subject]
    return "\n".join(said) or None


def _always(request: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Each suggestion that a user can understand, with its name. Updates are passed back as they came."""
    rules: dict[str, list[Mapping[str, Any]]] = {}
    others: list[tuple[str, Sequence[Mapping[str, Any]]]] = []
    for update in map(as_mapping, as_list(request.get("permission_suggestions"))):
        where = as_text(update.get("destination")) or "session"
        match update.get("type"):
            case "addRules" if update.get("behavior") == "allow" and _rule_names(update):
                rules.setdefault(where, []).append(update)
            case "addDirectories" if folders := _texts(update.get("directories")):
                others.append((f"Allow access to {_joined(folders)} {_where(where)}", [update]))
            case "setMode" if mode := as_text(update.get("mode")):
                others.append((f"{_MODES.get(mode, f'Switch to mode {mode}')} {_where(where)}", [update]))
            case _:
                continue
    for where, updates in rules.items():
        names = [name for update in updates for name in _rule_names(update)]
        yield f"Always allow {_joined(names)} {_where(where)}", updates
    yield from others


def _rule_names(update: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for rule in map(as_mapping, as_list(update.get("rules"))):
        tool, content = as_text(rule.get("toolName")), as_text(rule.get("ruleContent"))
        if tool:
            names.append(f"{tool}({content})" if content else tool)
    return names


def _where(destination: str) -> str:
    return _WHERE.get(destination, f"({destination})")


def _allowed(request: Mapping[str, Any], updates: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    answer: dict[str, Any] = {"behavior": "allow", "updatedInput": as_mapping(request.get("input"))}
    if updates:
        answer["updatedPermissions"] = list(updates)
    return answer


# --- plans and questions ----------------------------------------------------------------------------------------------


def _plan(request: Mapping[str, Any]) -> Ask:
    edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    made = _Options()
    made.add("allow_once", "Start, and ask before each edit", "allow_once", _allowed(request))
    made.add(
        "allow_always_1", "Start, and accept all edits for this session", "allow_always", _allowed(request, [edits])
    )
    refusal = denied("The user wants to keep planning. Stay in plan mode and ask what to change.")
    made.add("reject_once", "Keep planning", "reject_once", refusal)
    plan = as_text(as_mapping(request.get("input")).get("plan")).strip()
    return Ask("Start with this plan?", made.options, made.answers, refusal, plan or None)


def _question(request: Mapping[str, Any]) -> Ask | Mapping[str, Any]:
    tool_input = as_mapping(request.get("input"))
    questions = [as_mapping(question) for question in as_list(tool_input.get("questions"))]
    if len(questions) != 1 or questions[0].get("multiSelect"):
        return denied(_NO_QUESTIONS)
    question = as_text(questions[0].get("question"))
    choices = [as_mapping(choice) for choice in as_list(questions[0].get("options"))]
    labels = [as_text(choice.get("label")) for choice in choices]
    if not question or not labels or not all(labels) or len(set(labels)) != len(labels):
        return denied(_NO_QUESTIONS)
    made = _Options()
    for index, label in enumerate(labels, 1):
        answered = {**tool_input, "answers": {question: label}}
        answer = {"behavior": "allow", "updatedInput": answered}
        made.add(f"answer_{index}", _shortened(label, _LONGEST_LABEL), "allow_once", answer)
    made.add("reject_once", "Do not answer", "reject_once", denied(_NO_ANSWER))
    described = [
        f"{label}: {text}"
        for label, choice in zip(labels, choices, strict=True)
        if (text := as_text(choice.get("description")))
    ]
    title = _shortened(question, _LONGEST_TITLE)
    return Ask(title, made.options, made.answers, denied(_NO_ANSWER), "\n".join(described) or None)


_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any]], Ask | Mapping[str, Any]]]] = {
    "AskUserQuestion": _question,
    "ExitPlanMode": _plan,
}
"""Tools whose permission is something else than whether they may run."""


# --- texts ------------------------------------------------------------------------------------------------------------


def _texts(value: Any) -> list[str]:
    return [text for text in map(as_text, as_list(value)) if text]


def _joined(names: Sequence[str]) -> str:
    return _shortened(", ".join(names), _LONGEST_LABEL)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
