"""The command line as data: the commands and options, and the parser over that table.

Owns the grammar and the help texts. Starts nothing. Knows a runtime by its name only. Written by hand, because every start of an
agent pays for the parser: `argparse` costs 8 ms and 1.4 MB, a tenth of the budget of `initialize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

PROGRAM: Final = "acp-adapters"
_WIDTH: Final = 110
"""Characters of a line for people."""


class UsageError(Exception):
    """The arguments make no sense; the message is one sentence that says what to write instead."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `value` is the placeholder of its value, None for a switch. `many`: it may be given again."""

    name: str
    help: str
    value: str | None = None
    many: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `takes_runtime`: a runtime's name may follow it. `takes_rest`: a command line may follow after `--`."""

    name: str
    help: str
    text: str = ""
    """The text of `COMMAND --help` above the options."""
    options: Sequence[Option] = ()
    takes_runtime: bool = False
    takes_rest: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """The parsed arguments. `command` is "help" or "version" for those two."""

    command: str
    runtime: str | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Given options by name without dashes; a switch has the value "", the values of one given again are joined by commas."""
    topic: Command | None = None
    """The command that help is wanted on."""
    rest: Sequence[str] = ()
    """The words after `--`."""


class Grammar:
    """The table of commands, the parser over it, and its help."""

    def __init__(self, summary: str, commands: Sequence[Command], runtimes: Sequence[str], footer: str = "") -> None:
        self._summary = summary
        self._commands = {command.name: command for command in commands}
        self._runtimes = tuple(runtimes)
        self._footer = footer

    def parse(self, arguments: Sequence[str]) -> Invocation:
        """Understand the arguments after the program's name. Raises `UsageError`."""
        if not arguments:
            raise UsageError(f"no command given: choose {self._names()} (see {PROGRAM} --help)")
        first, *rest = arguments
        if first in ("--version", "-V"):
            return Invocation("version")
        if first in ("--help", "-h"):
            return Invocation("help")
        command = self._commands.get(first)
        if command is None:
            kind = "option" if first.startswith("-") else "command"
            raise UsageError(f"unknown {kind} {first!r}: choose {self._names()} (see {PROGRAM} --help)")
        return self._parse_command(command, rest)

    def help(self, topic: Command | None = None) -> str:
        """The help text, of everything or of one command; ends in a newline."""
        if topic is not None:
            return _command_help(topic, self._runtimes)
        rows = [(name, command.help) for name, command in self._commands.items()]
        rows += [("--version", "print the version"), ("--help", "print this text; after a command: its options")]
        return f"usage: {PROGRAM} COMMAND [OPTIONS]\n\n{self._summary}\n\n{_table(rows)}\n\n{self._footer}\n"

    def _parse_command(self, command: Command, words: Sequence[str]) -> Invocation:
        known = {option.name: option for option in command.options}
        options: dict[str, str] = {}
        runtime: str | None = None
        rest = iter(words)
        for word in rest:
            if word == "--" and command.takes_rest:
                return Invocation(command.name, runtime, options, rest=tuple(rest))
            name, equals, value = word.partition("=")
            if word in ("--help", "-h"):
                return Invocation("help", topic=command)
            if not word.startswith("-"):
                if command.takes_rest:
                    raise UsageError(f"write the command after --: {PROGRAM} {command.name} [OPTIONS] -- {word} ...")
                if not command.takes_runtime or runtime is not None:
                    raise UsageError(f"{command.name} takes no argument {word!r} (see {PROGRAM} {command.name} --help)")
                if word not in self._runtimes:
                    raise UsageError(f"unknown runtime {word!r}: choose {' or '.join(self._runtimes)}")
                runtime = word
                continue
            option = known.get(name)
            if option is None:
                raise UsageError(f"unknown option {name!r} of {command.name} (see {PROGRAM} {command.name} --help)")
            if option.value is None and equals:
                raise UsageError(f"{name} takes no value")
            if option.value is not None and not equals:
                value = next(rest, "")
            if option.value is not None and not value:
                raise UsageError(f"{name} needs a value: {name} {option.value}")
            key = name.lstrip("-")
            options[key] = f"{options[key]},{value}" if option.many and key in options else value
        return Invocation(command.name, runtime, options)

    def _names(self) -> str:
        *most, last = self._commands
        return f"{', '.join(most)} or {last}" if most else last


def _command_help(command: Command, runtimes: Sequence[str]) -> str:
    argument = f" [{'|'.join(runtimes)}]" if command.takes_runtime else ""
    usage = [f" [{_heading(option)}]{'...' if option.many else ''}" for option in command.options]
    usage += [" -- COMMAND [ARGUMENT...]"] if command.takes_rest else []
    begin = f"usage: {PROGRAM} {command.name}{argument}"
    rows = [(_heading(option), option.help) for option in command.options]
    text = f"\n\n{command.text}" if command.text else ""
    options = f"\n\n{_table(rows)}" if rows else ""
    return f"{wrapped(begin, usage)}\n\n{command.help[0].upper()}{command.help[1:]}.{text}{options}\n"


def wrapped(begin: str, parts: Sequence[str]) -> str:
    """The parts behind the beginning, in as many lines of a terminal as they take. No part is cut; the first stays there."""
    first, *rest = parts or [""]
    lines = [begin + first]
    for part in rest:
        if len(lines[-1]) + len(part) > _WIDTH:
            lines.append(" " * len(begin))
        lines[-1] += part
    return "\n".join(lines)


def _heading(option: Option) -> str:
    return option.name if option.value is None else f"{option.name} {option.value}"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {text}" for name, text in rows)
