"""Claude Code's permission requests as options for the user, and the user's choice as the answer to Claude Code.

Owns the options of each kind of request and their names. Pure. Knows no connection. Approval is never the default: any answer
that is not one of the offered options denies (PERM-2, PERM-3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from adapters.acp.shapes import as_list, as_mapping, as_text
from adapters.claude.show.tool_titles import mcp_title, shown_name
from adapters.claude.shown_plan import ShownPlan
from adapters.core.port import PermissionOption
from adapters.driver.question_text import (
    Choices,
    described,
    fields,
    name_of,
    said,
    title_of,
    unseen_note,
    visible,
    whole,
)
from adapters.driver.tool_text import fenced

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
"""Destination of an update -> how long it holds. An update with another destination is not offered: its effect is unknown."""

_MODES: Final = {
    "acceptEdits": "Accept all edits",
    "bypassPermissions": "Allow everything without asking",
    "dontAsk": "Deny everything that is not allowed by a rule",
    "plan": "Switch to plan mode",
    "default": "Ask before each edit",
    "auto": "Decide automatically",
}

_LEFT_OUT: Final = re.compile(r"<[A-Za-z/!?]|^ {0,3}\[[^\]]+\]:", re.MULTILINE)
"""HTML, comments and definitions of links, of which Markdown shows nothing."""

_SUBJECTS: Final = ("command", "file_path", "notebook_path", "url", "query", "pattern", "path", "skill", "description")
"""Fields of a tool's input that say best what it would do, in order."""

_IN_CALL: Final = {
    "Bash": frozenset({"timeout"}),  # decides nothing
    "Edit": frozenset({"old_string", "new_string"}),
    "MultiEdit": frozenset({"edits"}),
    "Write": frozenset({"content"}),
    "NotebookEdit": frozenset({"new_source"}),
    "WebFetch": frozenset({"prompt"}),
    "Agent": frozenset({"prompt"}),
    "Task": frozenset({"prompt"}),
}
"""Members of a tool's input that need not be told beside its call, whose content shows them whole."""


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
    command: str = ""
    """The command that would run, when it can be seen whole as it is."""
    plan: ShownPlan | None = None
    """The plan that would be approved: it may change under the question."""

    def answer(self, option_id: str | None) -> Mapping[str, Any]:
        """The response to a choice; None or an id that was not offered is a refusal."""
        return self.answers.get(option_id, self.refusal) if option_id is not None else self.refusal


def ask_of(request: Mapping[str, Any], *, call_shown: bool = True) -> Ask | Mapping[str, Any]:
    """The choices for a `can_use_tool` request; or our answer at once where no client could show it.

    `call_shown`: the client sees the call and its content with the question. Where it does not, as with a subagent's call, the
    question says all of it itself.
    """
    asking = _SHOWN.get(as_text(request.get("tool_name")))
    shown = asking(request) if asking else _tool(request, call_shown=call_shown)
    return replace(shown, tool_use_id=as_text(request.get("tool_use_id"))) if isinstance(shown, Ask) else shown


def denied(message: str = _STOPPED) -> Mapping[str, Any]:
    """The response that runs nothing and tells the model why."""
    return {"behavior": "deny", "message": message}


# --- tools -----------------------------------------------------------------------------------------------------------


def _tool(request: Mapping[str, Any], *, call_shown: bool) -> Ask:
    made = Choices()
    made.add("allow_once", "Allow", "allow_once", _allowed(request))
    for index, (name, rules, updates) in enumerate(_always(request), 1):
        made.add(f"allow_always_{index}", name, "allow_always", _allowed(request, updates), rules)
    made.add("reject_once", "Reject", "reject_once", denied(_DENIED))
    name, tool_input = as_text(request.get("tool_name")), as_mapping(request.get("input"))
    tool = mcp_title(name) or as_text(request.get("display_name")) or name or "a tool"
    subject = _subject(tool_input)
    text = as_text(tool_input.get(subject)).strip()
    title = title_of(f"{tool}: {text}" if text else f"Use {tool}")
    hidden = _IN_CALL.get(name, frozenset()) if call_shown else frozenset[str]()
    told = {"description": request.get("description")}
    rest = {key: value for key, value in tool_input.items() if key not in hidden | {subject} and told.get(key) != value}
    description = described(
        [
            *_said(request, text),
            whole(text, title),
            *fields(rest),
            unseen_note(tool_input),
            *made.details,
        ]
    )
    command = text if subject == "command" and visible(text) == text else ""
    return Ask(title, made.options, made.answers, denied(_DENIED), description, command=command)


def _subject(tool_input: Mapping[str, Any]) -> str:
    """The member of the input that says best what it would do; empty when there is none."""
    return next((name for name in _SUBJECTS if as_text(tool_input.get(name)).strip()), "")


def _said(request: Mapping[str, Any], subject: str) -> Iterator[str]:
    """Why it asks and what for, in the CLI's words, without what the title says."""
    tool = as_text(request.get("tool_name"))
    for name in ("description", "decision_reason"):
        text = as_text(request.get(name)).strip()
        text = text.replace(tool, shown_name(tool)) if tool else text
        if text != subject and not (text.endswith("…") and subject.startswith(text[:-1])):
            yield said(text)
    if (blocked := as_text(request.get("blocked_path"))) and blocked not in subject:
        yield f"Path: {name_of(blocked)}"


def _always(request: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str], Sequence[Mapping[str, Any]]]]:
    """Each suggestion that a user can understand whole: its name, what it grants, and the updates as they came."""
    rules: dict[str, list[Mapping[str, Any]]] = {}
    others: list[tuple[str, Sequence[str], Sequence[Mapping[str, Any]]]] = []
    for update in map(as_mapping, as_list(request.get("permission_suggestions"))):
        place = as_text(update.get("destination"))
        where = _WHERE.get(place)
        if where is None:
            continue
        match update.get("type"):
            case "addRules" if update.get("behavior") == "allow" and _rule_names(update):
                rules.setdefault(place, []).append(update)
            case "addDirectories" if folders := _texts(update.get("directories")):
                others.append((f"Allow access to {{}} {where}", folders, [update]))
            case "setMode" if mode := _MODES.get(as_text(update.get("mode"))):
                others.append((f"{mode} {where}", (), [update]))
            case _:
                continue
    for place, updates in rules.items():
        names = [name for update in updates for name in _rule_names(update)]
        yield f"Always allow {{}} {_WHERE[place]}", names, updates
    yield from others


def _rule_names(update: Mapping[str, Any]) -> Sequence[str]:
    """The rules of an update, as the CLI writes them; none when one of them cannot be read."""
    names: list[str] = []
    for rule in map(as_mapping, as_list(update.get("rules"))):
        tool, content = shown_name(as_text(rule.get("toolName"))), rule.get("ruleContent")
        if not tool or not isinstance(content, str | None):
            return ()
        names.append(f"{tool}({content})" if content else tool)
    return names


def _allowed(request: Mapping[str, Any], updates: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    answer: dict[str, Any] = {"behavior": "allow", "updatedInput": as_mapping(request.get("input"))}
    if updates:
        answer["updatedPermissions"] = list(updates)
    return answer


# --- plans and questions ----------------------------------------------------------------------------------------------


def _plan(request: Mapping[str, Any]) -> Ask:
    edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    made = Choices()
    made.add("allow_once", "Start, and ask before each edit", "allow_once", _allowed(request))
    made.add(
        "allow_always_1", "Start, and accept all edits for this session", "allow_always", _allowed(request, [edits])
    )
    refusal = denied("The user wants to keep planning. Stay in plan mode and ask what to change.")
    made.add("reject_once", "Keep planning", "reject_once", refusal)
    plan = ShownPlan.of(as_mapping(request.get("input")))
    title = "Start with this plan?" if plan.text.strip() else "Start without a plan? None was written."
    return Ask(title, made.options, made.answers, refusal, _readable(plan.text) or None, plan=plan)


def _readable(plan: str) -> str:
    """A plan as it was written, which is Markdown; as code when a client that draws it might leave some of it out."""
    text = visible(plan.removeprefix("\ufeff").strip())
    return fenced(text) if _LEFT_OUT.search(text) else text


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
    made = Choices()
    for index, label in enumerate(labels, 1):
        answered = {**tool_input, "answers": {question: label}}
        made.add(f"answer_{index}", label, "allow_once", {"behavior": "allow", "updatedInput": answered})
    made.add("reject_once", "Do not answer", "reject_once", denied(_NO_ANSWER))
    more = [
        f"{title_of(label)}: {said(text)}"
        for label, choice in zip(labels, choices, strict=True)
        if (text := as_text(choice.get("description")))
    ]
    title = title_of(question)
    description = described([whole(question, title), *more, *made.details])
    return Ask(title, made.options, made.answers, denied(_NO_ANSWER), description)


_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any]], Ask | Mapping[str, Any]]]] = {
    "AskUserQuestion": _question,
    "ExitPlanMode": _plan,
}
"""Tools whose permission is something else than whether they may run."""


# --- texts ------------------------------------------------------------------------------------------------------------


def _texts(value: Any) -> Sequence[str]:
    """The texts of a list; none when anything else is in it."""
    texts = [as_text(text) for text in as_list(value)]
    return texts if all(texts) else ()
