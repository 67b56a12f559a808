"""Faults to plant in a copy of the agent, so that it can be shown that the judge sees them.

Each is an exact line of the product and what stands there instead. A line that is no longer there is an error: the plant has to
be kept up with the product.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import adapters

PACKAGE = Path(adapters.__file__).parent


@dataclass(frozen=True, slots=True)
class Change:
    """Text of a file of the package, and what replaces it."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault, steps of a `Walk` that meet it for certain, and what the judge says then."""

    changes: tuple[Change, ...]
    steps: str
    says: str
    times: int = field(default=1, kw_only=True)
    """How often the steps are played on end with the fault: whether they meet it is up to the runtime's timing as well."""
    runtimes: tuple[str, ...] = ("claude", "codex")
    world: str = "plain"
    """In which the steps are played."""


PLANTS: dict[str, Plant] = {
    "no look-up": Plant(
        (Change("core/session.py", "recorded = await self.runtime.is_recorded(wanted)", "recorded = False"),),
        "submit_tool tool_runs submit release settle kill_agent resend_last settle",
        "stored 2 times",
    ),
    "no join": Plant(
        (Change("core/submissions.py", "pending = self._pending.get(key)", "pending = None"),),
        "submit_tool tool_runs submit resend_last withdraw_last release settle",
        "one attempt was withdrawn, the other was",
    ),
    "an early answer": Plant(
        (
            Change(
                "core/session.py",
                "            await self.runtime.submit(submission.message_id, submission.payload.blocks)\n",
                "            await self.runtime.submit(submission.message_id, submission.payload.blocks)\n"
                "            self._settle_inserted(submission)\n",
            ),
        ),
        "kill_at_answer",
        "was acknowledged and is not stored",
        times=3,
    ),
    "a lying withdrawal": Plant(
        (
            Change(
                "core/session.py",
                "            self._spawn(self._ask_withdrawal, submission)",
                "            self._fail(submission, None)",
            ),
        ),
        "submit settle freeze settle",
        "has only errors that say that it was not inserted, and is stored",
        times=4,
    ),
    "no session id in the key": Plant(
        (
            Change(
                "core/submissions.py",
                "return str(uuid_utils.uuid5(_namespace(session_id), key))",
                "return str(uuid_utils.uuid5(NAMESPACE, key))",
            ),
        ),
        "submit answered sibling settle",
        "have one id",
    ),
    "a stale cache": Plant(
        (
            Change(
                "claude/session.py", "_logged_kinds: set[str] = set()", "_stores = {}\n_logged_kinds: set[str] = set()"
            ),
            Change(
                "claude/session.py",
                "self._store = Store(session_id, find)",
                "self._store = _stores.setdefault(session_id, Store(session_id, find))",
            ),
            Change(
                "claude/stored_watch.py",
                "            self._unexplained |= unannounced\n",
                "            self._unexplained |= unannounced\n            self.refresh = anyio.lowlevel.checkpoint\n",
            ),
        ),
        "submit answered guest_agent settle",
        "acknowledged",
        ("claude",),
    ),
    "a stale cache of Codex": Plant(
        (
            Change("codex/thread/loaded.py", "_TRIES: Final = 3", "_histories = {}\n_TRIES: Final = 3"),
            Change(
                "codex/thread/loaded.py",
                "self.history = History(thread_id, host.home)",
                "self.history = _histories.setdefault(thread_id, History(thread_id, host.home))",
            ),
            Change(
                "codex/thread/history.py",
                "        self.doubt()\n        self.unwritten = False\n        self._seen.clear()",
                "        return",
            ),
        ),
        "submit answered guest_agent settle",
        "stored 2 times",
        ("codex",),
    ),
    "no orphan stop": Plant(
        (
            Change("claude/cli/orphans.py", "for orphan in orphans:", "for orphan in ():"),
            Change("claude/cli/process.py", 'if sys.platform == "linux" and sys.executable:', "if False:"),
            Change("reaper.py", "if not sys.executable or not _can_look():", "if True:"),
        ),
        "submit_tool tool_runs submit queued kill_agent resend_last answered release orphans_end settle",
        "stored 2 times",
        ("claude",),  # Codex ends with its agent, and locks its threads itself
    ),
    "one witness": Plant(
        (
            Change(
                "codex/thread/history.py",
                "        where = self._filed.where(message_id)\n        if message_id in self._listed:",
                "        return message_id in self._listed\n        if message_id in self._listed:",
            ),
            Change(
                "codex/thread/history.py",
                "        return listed if listed is await self.is_in_file(message_id) else None",
                "        return listed",
            ),
        ),
        "freeze_database settle",
        "stored 2 times",
        ("codex",),
        "databases",
        times=3,
    ),
    "a report for storage": Plant(
        (
            Change(
                "codex/session.py",
                "            return self._history.is_in_file_already(message_id)",
                "            return True",
            ),
        ),
        "full_disk settle",
        "was acknowledged and is not stored",
        ("codex",),
        "disk",
        times=3,
    ),
    "a move as a side effect": Plant(
        (
            Change(
                "codex/thread/loaded.py",
                """        answer = await server.request("thread/unsubscribe", {"threadId": self.thread_id}, bound=bound)
""",
                """        await server.request("thread/archive", {"threadId": self.thread_id}, bound=bound)
        answer = await server.request("thread/unarchive", {"threadId": self.thread_id}, bound=bound)
""",
            ),
        ),
        "close_under_lock",
        "was acknowledged and is not stored",
        ("codex",),
        "databases",
        times=4,
    ),
    "the newest file": Plant(
        (
            Change(
                "claude/stored/session_files.py",
                "    ours = [path for path in found if own.is_at(str(path.parent))]\n",
                "    ours = sorted(found, key=lambda path: path.stat().st_mtime)[-1:]\n",
            ),
        ),
        "submit answered settle copy_session copy_session copy_session submit answered kill_both settle",
        "a replay lacks",
        ("claude",),
        "copies",
    ),
    "a lock out of sight": Plant(
        (
            Change("claude/cli/launch.py", "[self.folder, *([beside] if beside else [])]", "[self.folder]"),
            Change(
                "claude/cli/launch.py",
                "if rival := await in_thread(partial(orphans.find_rival, config_dir(self.environ), session_id)):",
                "if rival := 0:",
            ),
        ),
        "submit_tool tool_runs rival_elsewhere release settle",
        "an agent elsewhere got the session although it is active",
        ("claude",),
        "elsewhere",
    ),
    "a filter that trusts names": Plant(
        (
            Change(
                "claude/stored/transcript.py",
                """        if b'"mergedSendUuids"' in line or _TOOLS_RESULT.match(line) is None:
            return True
        return _NEXT_IN_LIST.search(line) is not None  # perhaps what the user says beside the result
""",
                """        return not (b'"tool_use_id"' in line and b'"toolUseResult"' in line)
""",
            ),
        ),
        "submit_every_odd settle kill_both",
        "was refused as not inserted after it had been acknowledged",
        ("claude",),
        "blocks",
    ),
    "stripped edges": Plant(
        (
            Change(
                "claude/stored/content.py",
                '    texts = [index for index, block in enumerate(content) if block.get("type") == "text"]\n    if not texts:',
                "    texts: list[int] = []\n    if not texts:",
            ),
        ),
        "submit_every_odd settle",
        "replayed as",
        ("claude",),
        "blocks",
    ),
    "another folder for the child": Plant(
        (
            Change(
                "claude/cli/config_dir.py",
                "kept[VARIABLE] = os.path.normpath(chosen)",
                "kept[VARIABLE] = environ[VARIABLE]",
            ),
        ),
        "submit answered",
        "was acknowledged and is not stored",
        ("claude",),
        "a relative folder",
    ),
    "no other reaper": Plant(
        (
            Change(
                "reaper.py",
                "            lost = await self._run()\n",
                "            lost = await self._run()\n            return\n",
            ),
        ),
        "daemon kill_without_reaper",
        "left behind by an agent that has ended",
        ("claude",),  # Codex ends its commands itself when its agent dies
        world="reaper",
    ),
    "a log that can fail": Plant(
        (
            Change(
                "streams.py",
                "    with suppress(OSError, ValueError):\n        try:\n            descriptor",
                "    if True:\n        try:\n            descriptor",
            ),
        ),
        "garbage submit answered end_agent garbage submit answered end_agent garbage submit answered end_agent garbage settle",
        "ConnectionLostError",
        world="stderr",
    ),
}


def planted_copy(folder: Path, plant: str) -> Path:
    """Copy the package into `folder` with the fault in it; gives the folder, for PYTHONPATH."""
    shutil.copytree(PACKAGE, folder / "adapters", ignore=shutil.ignore_patterns("__pycache__"))
    plant_in(folder / "adapters", plant)
    return folder


def plant_in(package: Path, plant: str) -> None:
    """Change the files of this copy. Raises `AssertionError` where the text to change is not there, or more than once."""
    for change in PLANTS[plant].changes:
        path = package / change.file
        text = path.read_text() if path.exists() else ""
        assert text.count(change.old) == 1, f"{change.file} does not hold the one place of {plant!r}: {change.old!r}"
        path.write_text(text.replace(change.old, change.new))
