"""The runtimes the suite runs with: how to start each, and how to look at it from outside."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.scripted.home import isolated_claude_home, isolated_codex_home
from adapters.scripted.model import ScriptedModel
from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.processes import Proc
from adapters_tests.e2e.stored import StoredMessage, claude_messages, claude_queued, codex_messages

REPOSITORY = Path(__file__).resolve().parents[2]


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
    shell_asks: bool
    """Whether a shell command that writes asks for permission by default."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "adapters", self.name]

    def environment(self, root: Path, base_url: str) -> dict[str, str]:
        return {**self.home(root, base_url), "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}


def claude_binary() -> str:
    spec = importlib.util.find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return spec.submodule_search_locations[0] + "/_bundled/claude"


CLAUDE = RuntimeUnderTest(
    name="claude",
    model=ScriptedModel,
    home=isolated_claude_home,
    stored=claude_messages,
    queued=claude_queued,
    is_runtime=lambda proc: proc.command[:1] == (claude_binary(),),
    user_command=lambda session_id, text: [claude_binary(), "-p", "--resume", session_id, text],
    shell_asks=True,
)


def codex_binary() -> str:
    spec = importlib.util.find_spec("codex_cli_bin")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return spec.submodule_search_locations[0] + "/bin/codex"


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
    shell_asks=False,
)  # fmt: skip

RUNTIMES = (CLAUDE, CODEX)
