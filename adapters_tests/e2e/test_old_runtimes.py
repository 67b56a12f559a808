"""A runtime that is too old: programs that refuse what the agent asks for, in the words of the real ones."""

from __future__ import annotations

import sys

import pytest

from adapters.acp.errors import InternalError
from adapters_tests.e2e.rig import Rig

pytestmark = pytest.mark.anyio

REFUSALS = {
    "claude": [
        "error: unknown option '--session-mirror'",
        "error: unknown option '--replay-user-messages'\n(Did you mean --x?)",
    ],
    "codex": [
        "error: unrecognized subcommand 'app-server'\n\nUsage: codex [OPTIONS]\n\nFor more information, try '--help'.",
        "error: unexpected argument '-c' found\n\nUsage: codex app-server\n\nFor more information, try '--help'.",
        "Error: stdin is not a terminal\n\nStack backtrace:\n   0: <unknown>",
    ],
}

OLD = """#!{python}
import sys
if sys.argv[1:] == ["--version"]:
    print({version!r})
    sys.exit(0)
print({refusal!r}, file=sys.stderr)
sys.exit(1)
"""


def program(rig: Rig, source: str, **values: str) -> dict[str, str]:
    """The variable that chooses this program."""
    path = rig.root / "old"
    path.write_text(source.format(python=sys.executable, **values))
    path.chmod(0o755)
    return {rig.runtime.executable: str(path)}


@pytest.mark.parametrize("which", range(3))
async def test_a_refused_argument_names_the_version_that_is_there_and_the_tested_one(rig: Rig, which: int) -> None:
    refusals = REFUSALS[rig.runtime.name]
    refusal = refusals[which % len(refusals)]
    prints, old, tested = {
        "claude": ("1.0.7 (Claude Code)", "Claude Code 1.0.7", "Claude Code 2.1.332"),
        "codex": ("codex-cli 0.20.0", "Codex 0.20.0", "Codex 0.163.0"),
    }[rig.runtime.name]
    async with rig.agent(**program(rig, OLD, version=prints, refusal=refusal)) as link:
        with pytest.raises(InternalError) as caught:
            await link.new()
    said = (
        f"{old} lacks what this agent needs ({refusal.splitlines()[0]}): update it; the agent is tested with {tested}"
    )
    assert said in caught.value.message
