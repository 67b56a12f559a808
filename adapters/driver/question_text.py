"""Texts of questions that a person decides on: the whole subject is shown, and nothing in it is invisible.

Owns the title and the description of a question. A title is one short line; what does not fit is repeated in whole in the
description. Texts come from models and tools, so text that could be read as markup or that is invisible is shown as code. Pure.
Knows no runtime.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, cast

from adapters.core.port import PermissionOption
from adapters.driver.tool_text import fenced, one_line

__all__ = [
    "LONGEST_LABEL",
    "LONGEST_TITLE",
    "Choices",
    "code",
    "described",
    "fields",
    "is_unseen",
    "label_of",
    "name_of",
    "said",
    "title_of",
    "unseen_note",
    "visible",
    "whole",
]

LONGEST_TITLE: Final = 300
"""Characters of a question's title."""

LONGEST_LABEL: Final = 120
"""Characters of an option's name that every client shows. A longer name is sent whole, and said in the description too."""

_MOST_NAMED: Final = 8
"""Unseen characters that a warning names."""

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Unicode categories without a picture: controls, directions, joiners, private and unassigned ones, odd blanks."""

_BLANK_LETTERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that draw nothing."""

_SELECTORS: Final = re.compile("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MARKUP: Final = re.compile(r"[`<>*_\[\]\\|~#&\n]")
"""Text that Markdown could read as markup."""
_SWALLOWS: Final = re.compile(r"```|~~~|[<\n]")
"""Text that could hide the text after it."""
_SEEN: Final = frozenset(" \n\t")


def visible(text: str) -> str:
    """The text with a name in place of each character that cannot be seen, as `[U+202E]`. Lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"[U+{ord(char):04X}]" if is_unseen(char) else char for char in text.replace("\r\n", "\n"))


def is_unseen(char: str) -> bool:
    """Whether a character would not be seen, or would be taken for another one."""
    if char in _SEEN:
        return False
    hidden = unicodedata.category(char) in _UNSEEN or char in _BLANK_LETTERS
    return hidden or _SELECTORS.fullmatch(char) is not None


def title_of(text: str) -> str:
    """A text as a title: one line, cut where it is too long (what was cut belongs in the description: `whole`)."""
    return one_line(visible(text), LONGEST_TITLE)


def label_of(text: str) -> str:
    """A text as the name of an option: one line, never cut."""
    return " ".join(visible(text).split())


def whole(text: str, title: str, language: str = "") -> str:
    """The text for the description, as code; empty where the title has all of it."""
    return "" if not text.strip() or text.strip() in title else code(text, language)


def code(text: str, language: str = "") -> str:
    """A text as a code block in which every character is seen."""
    return fenced(visible(text), language)


def said(text: str) -> str:
    """A model's or a tool's text about a question: unchanged, or as code if it could hide the text beside it."""
    shown = visible(text.strip())
    return fenced(shown) if _SWALLOWS.search(shown) else shown


def name_of(text: str) -> str:
    """A path or another name in a sentence: as it is, or as code when it would not be shown so."""
    shown = visible(text)
    if not _MARKUP.search(shown) and "\t" not in shown:
        return shown
    shown = shown.replace("\n", "[U+000A]").replace("\t", "[U+0009]")
    ticks = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    return f"{ticks} {shown} {ticks}" if len(ticks) > 1 else f"`{shown}`"


def fields(given: Mapping[str, Any]) -> list[str]:
    """The input of a tool, one text for each member that says something."""
    return [_field(name, value) for name, value in given.items() if value not in (None, False, "", [], {})]


def _field(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    plain = text == visible(text) and not _MARKUP.search(text) and len(text) <= LONGEST_LABEL
    return f"{label_of(name)}: {text}" if plain else f"{label_of(name)}:\n{code(text)}"


def unseen_note(*values: Any) -> str:
    """A warning that names the characters in these values (any JSON) that cannot be seen; empty when there are none."""
    found = sorted({char for text in _texts(values) for char in set(text) if char != "\r" and is_unseen(char)})
    names = ", ".join([f"U+{ord(char):04X}" for char in found[:_MOST_NAMED]] + ["…"] * (len(found) > _MOST_NAMED))
    return f"Holds characters that cannot be seen: {names}." if names else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(tuple(chain.from_iterable(cast("Mapping[Any, Any]", value).items())))
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[Any]", value):
            yield from _texts(part)


def described(parts: Iterable[str]) -> str | None:
    """The parts of a description, each once, in order; None when there is nothing to say."""
    return "\n".join(dict.fromkeys(part.strip() for part in parts if part.strip())) or None


@dataclass(slots=True)
class Choices:
    """The options of a question, and what each one answers to the runtime."""

    options: list[PermissionOption] = field(default_factory=list[PermissionOption])
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    details: list[str] = field(default_factory=list[str])
    """For the description: what a name does not show whole, or might not be shown whole of."""

    def add(self, option_id: str, name: str, kind: str, answer: Mapping[str, Any], rules: Sequence[str] = ()) -> None:
        """One more option. A `{}` in the name stands for the rules that it grants."""
        label = label_of(name.replace("{}", ", ".join(rules)) if rules else name)
        self.options.append(PermissionOption(option_id, label, kind))
        self.answers[option_id] = answer
        if rules and (len(label) > LONGEST_LABEL or any(rule not in label or ", " in rule for rule in rules)):
            self.details.append(f"{label_of(name.replace('{}', '').strip())}:\n" + code("\n".join(rules)))
        elif not rules and (len(label) > LONGEST_LABEL or visible(name) != name):
            self.details.append(code(name))
