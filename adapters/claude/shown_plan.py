"""The plan that a user was shown, and whether Claude Code would still take the same one.

Claude Code (2.1.332) keeps a plan in a file below `plans/` and reads it again when it is approved: no answer pins the text.
So the file is compared with what was shown before an approval is passed on. Where there was no plan to show, none may have been
written since: the name of its file is not known then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from adapters.core.file_calls import read_file, scan
from adapters.core.shapes import as_text

CHANGED: Final = (
    "The plan's file changed while the user was asked, so they have not seen the plan that would be approved. "
    "Call ExitPlanMode again."
)
"""What the model is told when an approval is not passed on."""

_MOST: Final = 16 * 1024 * 1024
_CLOCK: Final = 2.0
"""Seconds by which a file system's time may lag behind ours."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What was shown. `file` is empty where there was no plan."""

    text: str
    file: str
    asked_at: float = field(default_factory=time.time)

    @staticmethod
    def of(tool_input: Mapping[str, Any]) -> ShownPlan:
        """The plan in the input of ExitPlanMode; Claude Code puts the file's text there, whatever the model gave."""
        return ShownPlan(as_text(tool_input.get("plan")), as_text(tool_input.get("planFilePath")))

    def stands(self, plans: Path) -> bool:
        """Whether the plan is still what was shown. Blocks. False, too, when that cannot be seen."""
        try:
            if self.file:
                return read_file(self.file, _MOST).decode("utf-8", "replace").removeprefix("\ufeff") == self.text
            return not any(entry.stat().st_mtime >= self.asked_at - _CLOCK for entry in scan(plans))
        except FileNotFoundError:
            return not self.file  # no folder of plans, or one that went away while it was looked at
        except OSError:
            return False
