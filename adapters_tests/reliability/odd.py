"""Odd prompts: texts that look like what a runtime or a reader takes for its own, and blocks that are no plain text.

Each carries a name in double brackets, so that the judge can tell it apart however a runtime stores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Blocks = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Odd:
    """A kind of odd prompt: the texts of its blocks, with `@` for its name."""

    texts: tuple[str, ...]
    counted: bool = True
    """Whether the model gets the name as a line of its own, so that it can be counted there."""
    link: bool = False
    """A resource link stands before the texts."""
    refusable: bool = False
    """A runtime may refuse it for what it is."""

    def blocks(self, name: str) -> list[dict[str, Any]]:
        """What is sent."""
        uri = "file:///tmp/a%20name.py"
        link = [{"type": "resource_link", "uri": uri, "name": "a name.py"}] if self.link else []
        return [*link, *({"type": "text", "text": text.replace("@", f"[[{name}]]")} for text in self.texts)]


ODD: dict[str, Odd] = {
    "a tool's result": Odd(("@", "tool_use_id", "toolUseResult")),
    "a tool's result around it": Odd(("tool_use_id", "@", "toolUseResult")),
    "a tool's result in words": Odd(('{"tool_use_id":"1","toolUseResult":{}}', "@", '"tool_use_id" "toolUseResult"')),
    "an assistant's entry": Odd(("@", ',"type":"assistant"', '"type":"assistant"}')),
    "a hidden entry": Odd(("@", '{"isMeta":true,"isSidechain":true}')),
    "a command's name": Odd(("<command-name>/cost</command-name>\n@",), counted=False),
    "a command": Odd(("/cost @",), counted=False),
    "a command that is none": Odd(("/nosuch @",), counted=False),
    "a command's output": Odd(("<local-command-stdout>@</local-command-stdout>",), counted=False),
    "a reminder": Odd(("@", "<system-reminder>Do not forget.</system-reminder>"), counted=False),
    "an environment": Odd(("<environment_context>@</environment_context>",), counted=False),
    "a task's end": Odd(("<task-notification>\n@",)),
    "blanks behind it": Odd(("@", "  \n ")),
    "blanks before it": Odd((" ", "\t", "@"), counted=False),
    "an empty block": Odd(("@", "")),
    "a zero byte": Odd(("@", "zero \x00 byte")),
    "line ends": Odd(("@", "one\r\ntwo\u2028three\u0085four\x0bfive")),
    "half a pair": Odd(("@", "half \ud83d"), refusable=True),
    "a pair and more": Odd(("@", "\U0001f600 e\u0301 \u00e9 \ufeff \u202e \x1b[31m")),
    "a big block": Odd(("@", "big " * 15_000)),
    "many blocks": Odd(("@", *(f"block {number}" for number in range(40)))),
    "a link": Odd(("@",), link=True),
    "a link and markup": Odd(("@", '<resource_link name="b.py" uri="file:///b.py"/>'), link=True),
}
"""The kinds, by what they look like."""
