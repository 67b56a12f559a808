"""Faults to plant in a copy of the agent, so that it can be shown that the judge sees them.

Each is an exact line of the product and what stands there instead. A line that is no longer there is an error: the plant has to
be kept up with the product.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import adapters

PACKAGE = Path(adapters.__file__).parent


@dataclass(frozen=True, slots=True)
class Change:
    """Text of a file of the package, and what replaces it."""

    file: str
    old: str
    new: str


PLANTS: dict[str, tuple[Change, ...]] = {
    "no look-up": (
        Change("core/session.py", "recorded = await self.runtime.is_recorded(wanted)", "recorded = False"),
    ),
    "no join": (
        Change("core/submissions.py", "pending = self._pending.get(key)", "pending = None"),
    ),
    "an early answer": (
        Change(
            "core/session.py",
            "                    self._show(submission)\n                    self._stop_if_unwanted(submission)\n"
            "            case port.PromptInserted",
            "                    self._show(submission)\n                    self._settle_inserted(submission)\n"
            "                    self._stop_if_unwanted(submission)\n            case port.PromptInserted",
        ),
    ),
    "a lying withdrawal": (
        Change(
            "core/session.py",
            "            submission.payload.withdrawing = True\n            self._spawn(self._ask_withdrawal, submission)",
            "            self._fail(submission, None)",
        ),
    ),
    "no session id in the key": (
        Change(
            "core/submissions.py",
            "return str(uuid_utils.uuid5(_namespace(session_id), key))",
            "return str(uuid_utils.uuid5(NAMESPACE, key))",
        ),
    ),
    "a stale cache": (
        Change(
            "claude/store.py",
            "            try:\n                # A detour",
            "            if self._fresh is None:\n                return\n            try:\n                # A detour",
        ),
        Change("claude/store.py", "            self._unexplained |= unannounced", "            self._fresh = None"),
        Change("claude/store.py", "        self._fresh = False\n\n    async", "        pass\n\n    async"),
        Change("claude/store.py", "            self._fresh = True", "            pass"),
    ),
    "no orphan stop": (
        Change("claude/launch.py", "await orphans.end_orphans(self.folder, session_id)", "return"),
        Change("claude/process.py", 'if sys.platform == "linux" and sys.executable:', "if False:"),
    ),
}  # fmt: skip


def planted_copy(folder: Path, plant: str) -> Path:
    """Copy the package into `folder` with the fault in it; gives the folder, for PYTHONPATH."""
    shutil.copytree(PACKAGE, folder / "adapters", ignore=shutil.ignore_patterns("__pycache__"))
    for change in PLANTS[plant]:
        path = folder / "adapters" / change.file
        text = path.read_text()
        assert text.count(change.old) == 1, f"{change.file} no longer holds the one place of {plant!r}: {change.old!r}"
        path.write_text(text.replace(change.old, change.new))
    return folder
