"""An agent as a child process: pipes, signals, and an end within a bound."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from adapters.client.process import start_agent

pytestmark = pytest.mark.anyio

ECHO = "import sys\nfor line in sys.stdin.buffer:\n sys.stdout.buffer.write(line); sys.stdout.buffer.flush()\n"
DEAF = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.write(1, b'up\\n')\ntime.sleep(60)\n"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_bytes_go_both_ways_and_closing_stdin_ends_it() -> None:
    """STDIO-1, STDIO-11."""
    async with start_agent(python(ECHO)) as agent:
        await agent.transport.send(b"hello\n")
        assert await agent.transport.receive() == b"hello\n"
        await agent.transport.aclose()
        assert await agent.wait() == 0
        assert await agent.transport.receive() == b""


async def test_the_child_gets_exactly_the_given_environment_and_folder(tmp_path: os.PathLike[str]) -> None:
    code = "import os, sys\nprint(sorted(n for n in os.environ if n != 'LC_CTYPE'), os.getcwd(), flush=True)\n"
    async with start_agent(python(code), env={"ONLY": "1"}, cwd=os.fspath(tmp_path)) as agent:
        assert (await agent.transport.receive()).decode().split() == ["['ONLY']", os.fspath(tmp_path)]


async def test_signals_and_exit_status() -> None:
    """STDIO-14."""
    async with start_agent(python(ECHO)) as agent:
        agent.kill()
        assert await agent.wait() == -signal.SIGKILL
        agent.kill()  # no process, no error
        assert agent.returncode == -signal.SIGKILL


async def test_a_deaf_agent_is_killed_within_the_bound() -> None:
    """A child that ignores the end of stdin and SIGTERM does not outlive its client."""
    before = time.monotonic()
    async with start_agent(python(DEAF)) as agent:
        assert await agent.transport.receive() == b"up\n"
    assert agent.returncode == -signal.SIGKILL
    assert time.monotonic() - before < 30


async def test_stderr_is_collected() -> None:
    """STDIO-2."""
    async with start_agent(python("import sys\nsys.stderr.write('trouble')\n")) as agent:
        await agent.wait()
    assert agent.stderr == "trouble"


async def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OSError, match="no-such-command"):
        async with start_agent(["/no-such-command"]):
            pass
