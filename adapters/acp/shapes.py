"""Readers for a runtime's JSON: a value of a wrong type reads as absent (D11). Knows no field of any runtime."""

from collections.abc import Mapping, Sequence
from typing import Any, cast


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """The value when it is a JSON array, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def as_text(value: Any) -> str:
    """The value when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """The value when it is a non-negative integer, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def as_integer(value: Any) -> int | None:
    """The value when it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
