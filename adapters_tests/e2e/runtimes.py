"""The runtimes the suite runs with: how to start each, and how to look at it from outside."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from adapters.scripted.home import isolated_claude_home, isolated_codex_home
from adapters.scripted.model import ScriptedModel
from adapters.scripted.script import Block, Shell, ToolUse
from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.processes import Proc
from adapters_tests.e2e.stored import StoredMessage, claude_messages, claude_queued, codex_messages, codex_torn

REPOSITORY = Path(__file__).resolve().parents[2]


class Deviation(Enum):
    """Where a runtime differs so that a test has to look for something else. The value says what, and why that is right."""

    ONE_PROCESS = (
        "One app-server serves all sessions of an agent; it is started before the first session, to be ready for it (D10), "
        "and its death is a death for each of them (D7)."
    )
    LOCKS_ITS_THREADS = (
        "Codex itself keeps everybody else from a thread that is loaded, the user's own command line too, until the process "
        "that has loaded it ends: nobody can write in between while a session is active (D6)."
    )
    NO_COMMANDS = (
        "The app-server knows no slash commands: a runtime's command that runs without the model does not exist. The one that "
        "the adapter offers, /compact, leaves no message in Codex's store, so it is live-only (KEY-43)."
    )
    TORN_INSERTION = (
        "Codex writes a prompt's text for the model 1 to 8 ms before the message with its id. Killed in between, the text stays "
        "in the model's context; sent again, the prompt is one stored message, but the model reads its text twice. No host can "
        "prevent or see that through the API."
    )
    NO_HALF_PAIRS = (
        "Codex drops a request with half a surrogate pair without a word, so it never gets one: the prompt is refused with "
        "-32602 instead of being changed behind the user's back."
    )
    DECLINED_IS_NOT_STORED = (
        "Codex stores no item of a command that the user refused: it is shown live as a failed tool call, and a replay lacks "
        "it."
    )
    SHORT_TEXT = "Codex takes 1,048,576 characters per prompt and refuses more; the refusal is -32602 (PROMPT-13)."


@dataclass(frozen=True)
class RuntimeUnderTest:
    """One runtime behind `acp-adapters NAME`."""

    name: str
    model: Callable[[], ScriptedServer]
    home: Callable[[Path, str], dict[str, str]]
    """Folder and base URL of the model -> the whole environment."""
    stored: Callable[[Path, str], list[StoredMessage]]
    queued: Callable[[Path, str], bool]
    """Home and session id -> whether the runtime itself holds a prompt in a queue."""
    is_runtime: Callable[[Proc], bool]
    """Whether a process is the runtime itself: not the agent, not a tool."""
    user_command: Callable[[str, str], Sequence[str]]
    """Session id and prompt -> what the user's own command line for one more turn in that session is."""
    executable: str
    """The variable that names another binary of the runtime."""
    asking: Callable[[str], Block]
    """Shell command -> the model's call of it that asks for permission."""
    serves: Callable[[Proc, str], bool]
    """Whether this process of the runtime has this session active."""
    torn: Callable[[Path], Counter[str]]
    """Home -> the texts that the model reads once more than they are stored (TORN_INSERTION)."""
    most_text: int
    """Characters of a prompt that the runtime takes, as far as tests go."""
    deviations: frozenset[Deviation] = frozenset()

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "adapters", self.name]

    def environment(self, root: Path, base_url: str) -> dict[str, str]:
        return {**self.home(root, base_url), "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}


def _in_package(package: str, path: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return f"{spec.submodule_search_locations[0]}/{path}"


def claude_binary() -> str:
    return _in_package("claude_agent_sdk", "_bundled/claude")


CLAUDE = RuntimeUnderTest(
    name="claude",
    model=ScriptedModel,
    home=isolated_claude_home,
    stored=claude_messages,
    queued=claude_queued,
    is_runtime=lambda proc: proc.command[:1] == (claude_binary(),),
    user_command=lambda session_id, text: [claude_binary(), "-p", "--resume", session_id, text],
    executable="CLAUDE_CODE_EXECUTABLE",
    asking=Shell,
    serves=lambda proc, session_id: any(session_id in word for word in proc.command),
    torn=lambda _root: Counter(),
    most_text=1_500_000,
)


def codex_binary() -> str:
    return _in_package("codex_cli_bin", "bin/codex")


CODEX = RuntimeUnderTest(
    name="codex",
    model=ScriptedModel,
    home=isolated_codex_home,
    stored=codex_messages,
    queued=lambda _root, _session: True,  # it is never given a prompt that waits: the agent holds it
    is_runtime=lambda proc: proc.command[:2] == (codex_binary(), "app-server"),
    user_command=lambda session_id, text: [
        codex_binary(), "exec", "--skip-git-repo-check", "resume", session_id, text,
    ],
    executable="CODEX_PATH",
    asking=lambda command: ToolUse(
        "exec_command", {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "It has to."}
    ),
    serves=lambda proc, _session_id: proc.command[:2] == (codex_binary(), "app-server"),
    torn=codex_torn,
    most_text=1_048_576,
    deviations=frozenset(Deviation),
)  # fmt: skip

RUNTIMES = (CLAUDE, CODEX)
