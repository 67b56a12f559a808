"""Scripts as JSON: reads the form of `docs/scripted-model.md` into the values of `script.py`.

Owns field names and the places of mistakes. Every mistake is a `ScriptError` of one sentence that begins with its place, such as
``demo.json: rules[2].steps[0].delay must be a number, not "2"``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from adapters.scripted.script import (
    Answer,
    Block,
    Drop,
    GateOpening,
    HttpFailure,
    Rule,
    Script,
    ScriptError,
    Shell,
    Spread,
    StreamFailure,
    Text,
    Thinking,
    ToolUse,
    Usage,
    say,
)

T = TypeVar("T")


def load_script(path: str | Path) -> Script:
    """Read a script file (JSON, UTF-8). File names of gates are relative to its folder.

    Raises `ScriptError`, also for a file that cannot be read.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        value = json.loads(text)
    except OSError as error:
        raise ScriptError(f"{file}: the script cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ScriptError(f"{file}: the script is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ScriptError(f"{file}: line {error.lineno}, column {error.colno} is not JSON ({error.msg})") from None
    except RecursionError:
        raise ScriptError(f"{file}: the script is nested too deeply") from None
    try:
        return parse_script(value, file.absolute().parent)
    except ScriptError as error:
        raise ScriptError(f"{file}: {error}") from None


def parse_script(value: Any, folder: Path | None = None) -> Script:
    """A script from its JSON value. Raises `ScriptError`. `folder` is where relative gate files are (default: here)."""
    fields = _Fields(value, "")
    plain = Script()
    return fields.build(
        Script,
        rules=tuple(_rule(entry, place) for entry, place in fields.items("rules")),
        default=_steps(fields, "default", plain.default),
        after_steps=fields.inner("after_steps", _answer, plain.after_steps),
        compaction=fields.inner("compaction", _answer, plain.compaction),
        gates={name: _gate(entry, place, folder or Path.cwd()) for name, entry, place in fields.entries("gates")},
    )


def _rule(value: Any, place: str) -> Rule:
    fields = _Fields(value, place)
    return fields.build(
        Rule,
        steps=_steps(fields, "steps", ()),
        exact=fields.text("exact"),
        contains=fields.text("contains"),
        regex=fields.text("regex"),
        joins=fields.flag("joins"),
    )


def _steps(fields: _Fields, name: str, default: tuple[Answer, ...]) -> tuple[Answer, ...]:
    if not fields.has(name):
        return default
    return tuple(_answer(entry, place) for entry, place in fields.items(name))


def _answer(value: Any, place: str) -> Answer:
    if isinstance(value, str):
        return say(value)
    fields = _Fields(value, place)
    return fields.build(
        Answer,
        blocks=tuple(_block(entry, inner) for entry, inner in fields.items("blocks")),
        delay=fields.number("delay", 0.0),
        delta_delay=fields.number("delta_delay", 0.0),
        gate=fields.text("gate"),
        failure=fields.inner("error", _http_failure, None),
        stream_failure=fields.inner("stream_error", _stream_failure, None),
        drop=fields.inner("drop", _drop, None),
        stop_reason=fields.text("stop_reason"),
        usage=fields.inner("usage", _usage, Usage()),
    )


def _block(value: Any, place: str) -> Block:
    if isinstance(value, str):
        return Text(value)
    fields = _Fields(value, place)
    kind = fields.required_text("type")
    if kind not in _BLOCKS:
        names = ", ".join(_BLOCKS)
        raise ScriptError(f"{fields.at('type')} must be one of {names}, not {_shown(kind)}")
    return _BLOCKS[kind](fields)


def _text(fields: _Fields) -> Block:
    return fields.build(Text, text=fields.required_text("text"), spread=_spread(fields))


def _thinking(fields: _Fields) -> Block:
    return fields.build(Thinking, thinking=fields.required_text("thinking"), spread=_spread(fields))


def _tool_use(fields: _Fields) -> Block:
    return fields.build(
        ToolUse,
        name=fields.required_text("name"),
        input=fields.object_or_text("input"),
        id=fields.text("id"),
        namespace=fields.text("namespace"),
        deltas=fields.integer("deltas", 1),
        gate=fields.text("gate"),
    )


def _shell(fields: _Fields) -> Block:
    return fields.build(Shell, command=fields.required_text("command"), gate=fields.text("gate"))


_BLOCKS: dict[str, Callable[[_Fields], Block]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "shell": _shell,
}


def _spread(fields: _Fields) -> Spread:
    return fields.build_part(
        Spread,
        repeat=fields.integer("repeat", 1),
        deltas=fields.integer("deltas", None),
        delta_size=fields.integer("delta_size", None),
        gate=fields.text("gate"),
        gate_after=fields.integer("gate_after", 0),
    )


def _http_failure(value: Any, place: str) -> HttpFailure:
    fields = _Fields(value, place)
    return fields.build(
        HttpFailure,
        status=fields.required_integer("status"),
        type=fields.text("type"),
        message=fields.text("message") or "scripted failure",
        times=fields.integer("times", None),
        retry_after=fields.number("retry_after", None),
    )


def _stream_failure(value: Any, place: str) -> StreamFailure:
    fields = _Fields(value, place)
    return fields.build(
        StreamFailure,
        type=fields.text("type") or "api_error",
        message=fields.text("message") or "scripted failure",
        after_events=fields.integer("after_events", 1),
        times=fields.integer("times", None),
    )


def _drop(value: Any, place: str) -> Drop:
    fields = _Fields(value, place)
    return fields.build(
        Drop,
        after_events=fields.integer("after_events", None),
        after_bytes=fields.integer("after_bytes", None),
        times=fields.integer("times", None),
        gate=fields.text("gate"),
    )


def _usage(value: Any, place: str) -> Usage:
    fields = _Fields(value, place)
    plain = Usage()
    return fields.build(
        Usage,
        input_tokens=fields.integer("input_tokens", plain.input_tokens),
        output_tokens=fields.integer("output_tokens", plain.output_tokens),
        cached_input_tokens=fields.integer("cached_input_tokens", plain.cached_input_tokens),
    )


def _gate(value: Any, place: str, folder: Path) -> GateOpening:
    fields = _Fields(value, place)
    file = fields.text("file")
    return fields.build(
        GateOpening, file=None if file is None else str(folder / file), seconds=fields.number("seconds", None)
    )


class _Fields:
    """The fields of one JSON object, with its place in the script; remembers which were asked for."""

    def __init__(self, value: Any, place: str) -> None:
        self._place = place
        if not isinstance(value, dict):
            raise ScriptError(f"{place or 'the script'} must be an object, not {_shown(value)}")
        self._values = cast("dict[str, Any]", value)
        self._known: set[str] = set()

    def at(self, name: str) -> str:
        """The place of a field."""
        return f"{self._place}.{name}" if self._place else name

    def has(self, name: str) -> bool:
        """Whether the field is given."""
        self._known.add(name)
        return name in self._values

    def build(self, make: Callable[..., T], **values: Any) -> T:
        """Make the value of this object once all its fields were asked for; its complaint gets this place."""
        self._end()
        return self.build_part(make, **values)

    def build_part(self, make: Callable[..., T], **values: Any) -> T:
        """Make a value of some of the fields."""
        try:
            return make(**values)
        except ScriptError as error:
            raise ScriptError(f"{self._place}: {error}" if self._place else str(error)) from None

    def _end(self) -> None:
        """Refuse unknown fields: they are typing errors."""
        for name in self._values:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                raise ScriptError(f"{self.at(name)} is no field of this object, which has {known}")

    def text(self, name: str) -> str | None:
        """A string, or None when absent."""
        return self._typed(name, str, "a string", None)

    def required_text(self, name: str) -> str:
        """A string that must be there."""
        return self._require(name, self.text(name), "a string")

    def flag(self, name: str) -> bool:
        """A boolean; absent is false."""
        return bool(self._typed(name, bool, "true or false", False))

    def integer(self, name: str, default: Any) -> Any:
        """An integer, or the default when absent."""
        return self._typed(name, int, "an integer", default)

    def required_integer(self, name: str) -> int:
        """An integer that must be there."""
        return self._require(name, self.integer(name, None), "an integer")

    def number(self, name: str, default: float | None) -> Any:
        """A number, or the default when absent."""
        return self._typed(name, (int, float), "a number", default)

    def object_or_text(self, name: str) -> dict[str, Any] | str:
        """An object or a string; absent is an empty object."""
        found: dict[str, Any] | str = self._typed(name, (dict, str), "an object or a string", {})
        return found

    def items(self, name: str) -> list[tuple[Any, str]]:
        """The entries of a list with their places; absent is empty."""
        found: list[Any] = self._typed(name, list, "a list", [])
        return [(entry, f"{self.at(name)}[{index}]") for index, entry in enumerate(found)]

    def entries(self, name: str) -> list[tuple[str, Any, str]]:
        """Names, values and places of the members of an object; absent is empty."""
        found: dict[str, Any] = self._typed(name, dict, "an object", {})
        return [(key, entry, f"{self.at(name)}.{key}") for key, entry in found.items()]

    def inner(self, name: str, read: Callable[[Any, str], T], default: T | None) -> Any:
        """A value read from the field, or the default when absent."""
        self._known.add(name)
        return read(self._values[name], self.at(name)) if name in self._values else default

    def _typed(self, name: str, kind: type | tuple[type, ...], words: str, default: Any) -> Any:
        self._known.add(name)
        if name not in self._values:
            return default
        value = self._values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ScriptError(f"{self.at(name)} must be {words}, not {_shown(value)}")
        return value

    def _require(self, name: str, value: T | None, words: str) -> T:
        if value is None:
            raise ScriptError(f"{self.at(name)} is missing; it must be {words}")
        return value


def _shown(value: Any) -> str:
    """A value in a message: short."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."  # noqa: PLR2004 - fits a line
