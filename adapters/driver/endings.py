"""How work ends, in the words that both drivers use: the outcome of a turn, and the end of a process that nobody asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapters.acp.errors import InternalError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `WorkEnded` is to say."""

    stop_reason: str
    error: Mapping[str, Any] | None = None
    interrupted: bool = False


def died(program: str, code: int | None, last_words: str = "") -> InternalError:
    """The error of work that ended with its process. `code`: its exit status, negative for a signal, None when not known."""
    how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    said = f": {last_words}" if last_words else ""
    text = f"{program} ended unexpectedly ({how}){said}. The next prompt starts it again."
    return InternalError(text, {"category": "process_exit", "exitCode": code})
