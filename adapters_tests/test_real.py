"""Tests that start a real runtime are marked, so that the others can be run without any."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from adapters_tests import real
from adapters_tests.e2e.runtimes import claude_binary, codex_binary

AGENT = [sys.executable, "-m", "adapters"]


@pytest.mark.parametrize(
    "command",
    [
        [claude_binary(), "-p", "hi"],
        [codex_binary(), "app-server"],
        [*AGENT, "claude"],
        [*AGENT, "codex"],
        [*AGENT, "demo"],
    ],
    ids=["claude", "codex", "agent-claude", "agent-codex", "demo"],
)
def test_a_test_without_the_mark_starts_no_runtime(command: list[str]) -> None:
    """However it is started, and behind a shell."""
    for words in (command, ["sh", "-c", 'exec "$@"', "sh", *command]):
        with pytest.raises(pytest.fail.Exception, match="without the mark `real` starts a runtime"):
            subprocess.Popen(words, env={})
        with pytest.raises(pytest.fail.Exception, match="without the mark `real` starts a runtime"):
            anyio.run(anyio.run_process, words)


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [(["claude"], "CLAUDE_CODE_EXECUTABLE"), (["codex"], "CODEX_PATH"), (["demo", "--help"], ""), (["check"], "")],
)
def test_another_program_and_other_commands_are_no_runtime(arguments: list[str], variable: str) -> None:
    assert not real.starts_one([*AGENT, *arguments], {variable: "/bin/fake"})


def test_whoever_is_given_a_runtime_is_marked(request: pytest.FixtureRequest) -> None:
    given = [item for item in request.session.items if real.FIXTURE in getattr(item, "fixturenames", ())]
    assert [item.nodeid for item in given if item.get_closest_marker("real") is None] == []
