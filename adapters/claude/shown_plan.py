"""The plan that the user saw, and whether Claude Code would still execute the same plan.

Claude Code (2.1.332) keeps a plan in a file below `plans/` and reads the file again after the approval. So the file is compared
with what was shown before an approval is passed on. If no plan was shown, the question does not name the file, but the stored
session does. Then nothing may have been written to that file since, or, if the session names no file, into the folder of all
plans.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from adapters.acp.shapes import as_mapping, as_text
from adapters.claude.stored.transcript import parse_line
from adapters.core.file_calls import open_file, read_file, scan

CHANGED: Final = (
    "The plan's file changed while the user was asked, so they have not seen the plan that would be approved. "
    "Call ExitPlanMode again."
)
"""The model gets this text when an approval is not passed on."""

_MOST: Final = 16 * 1024 * 1024
_MARK: Final = "\ufeff"
"""What some editors write first: it is no text, and shown or not."""

_CLOCK: Final = 2.0
"""Seconds by which a file system's time may lag behind ours."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The files of a session's plans."""

    folder: Path
    """That of all sessions, unless the user's settings name one in the project (`plansDirectory`)."""
    transcript: Callable[[], Path | None]
    """Gives the stored session's file, None while there is none. Blocks; may raise `OSError`."""

    def named(self) -> str:
        """The file of the session's plan, as the stored session named it last; empty while it has named none."""
        path, name = self.transcript(), ""
        if path is None:
            return name
        with open_file(path) as file:
            for line in file:
                if b'"plan_mode' in line and b'"planFilePath"' in line:
                    attachment = as_mapping(as_mapping(parse_line(line)).get("attachment"))
                    name = as_text(attachment.get("planFilePath")) or name
        return name


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """The plan that was shown. `file` is empty where there was none."""

    text: str
    file: str
    asked_at: float = field(default_factory=time.time)

    @staticmethod
    def of(tool_input: Mapping[str, Any]) -> ShownPlan:
        """The plan in the input of ExitPlanMode; Claude Code puts the file's text there, whatever the model gave."""
        return ShownPlan(as_text(tool_input.get("plan")), as_text(tool_input.get("planFilePath")))

    def stands(self, plans: Plans) -> bool:
        """Whether the plan is still what was shown. Blocks. False, too, when that cannot be seen."""
        try:
            if file := self.file or plans.named():
                return _plain(read_file(file, _MOST).decode("utf-8", "replace")) == _plain(self.text)
            return not any(self._is_newer(entry.stat()) for entry in scan(plans.folder))
        except FileNotFoundError:
            return not self.file  # still no plan, no folder of plans, or one that went away while it was looked at
        except OSError:
            return False

    def _is_newer(self, there: os.stat_result) -> bool:
        """Whether a file came or changed after the question; one that was moved here keeps its time of change."""
        return max(there.st_mtime, there.st_ctime) >= self.asked_at - _CLOCK


def _plain(text: str) -> str:
    """A plan without what nobody sees at its ends: only white space is no plan."""
    return text.removeprefix(_MARK).strip()
