"""The command `acp-adapters check`: arguments, exit statuses, words, and what it says of programs that are no agents."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters import cli
from adapters.check.bench import Bench
from adapters.check.catalogue import CATALOGUE, rules
from adapters.check.command import Request, choose, run_check
from adapters.check.launch import ProcessLauncher
from adapters.check.stage import FreeStage
from adapters_tests.check import odd_agents
from adapters_tests.e2e.processes import wait_for
from adapters_tests.odd_stderr import KINDS, with_stderr

ODD = str(Path(odd_agents.__file__))
NEEDS_A_SESSION = frozenset({"INIT-10", "INIT-1", "SETUP-10", "SETUP-1", "PROMPT-3", "TRACE-1"})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def check_odd(kind: str, bound: float, *, as_json: bool = False) -> tuple[int, str]:
    """Check one of the odd agents for a few rules."""
    out = io.StringIO()
    command = [sys.executable, ODD, kind]
    request = Request(command, prompts=True, bound=bound, chosen=NEEDS_A_SESSION, as_json=as_json)
    status = anyio.run(run_check, request, out)
    return status, out.getvalue()


# --- what is no agent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "bound", "says"),
    [
        ("hang", 1, "initialize was not answered within 1 s"),
        (
            "crash",
            30,
            'the agent ended with status 3 (last line on stderr: "fatal: giving up") before it answered initialize',
        ),
        ("version_1", 30, "the agent answered protocolVersion 1: it does not speak version 2"),
        ("no_sessions", 30, "session/new was answered with error -32000"),
        ("one_answer", 30, "the agent closed its output before it answered"),
        ("banner", 1, "was not answered within 1 s"),
        ("banner", 1, "<- 'Welcome to the agent!', which is no JSON (22 bytes)"),
        ("glued", 1, """<- 'Loading... {"jsonrpc": "2.0", "id": 1, """),
    ],
)
def test_an_odd_agent_is_told_as_it_is(kind: str, bound: float, says: str) -> None:
    status, text = check_odd(kind, bound)
    assert status == 1
    assert says in text
    assert "Traceback" not in text
    assert "the check itself failed" not in text
    assert "0 held" in text.splitlines()[-1] or kind in ("no_sessions", "one_answer", "banner")
    assert "not applicable  TRACE-1" in text or "more rules were not checked, for the same reasons" in text


def test_what_was_not_looked_at_says_why() -> None:
    _, text = check_odd("version_1", 30)
    reason = "not checked, because INIT-10 does not hold: the agent answered protocolVersion 1"
    assert text.count(reason) == 1, "said once, however many rules it stops"
    assert f"\n{len(NEEDS_A_SESSION) - 2} more rules were not checked, for the same reasons.\n" in text


def test_the_messages_that_show_it_are_printed() -> None:
    _, text = check_odd("version_1", 30)
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith('-> {"jsonrpc": "2.0", "id": 1, "method": "initialize"') for line in lines)
    assert any(line.startswith('<- {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1') for line in lines)


def test_json_holds_all_that_is_printed() -> None:
    status, text = check_odd("version_1", 30, as_json=True)
    result: dict[str, Any] = json.loads(text)
    assert status == 1
    assert result["broken"] == 1
    assert result["modelCallsCounted"] is False
    assert result["readsIdempotencyKey"] is None
    by_id = {row["id"]: row for row in result["rules"]}
    assert set(by_id) == NEEDS_A_SESSION
    assert by_id["INIT-10"]["standing"] == "broken"
    assert len(by_id["INIT-10"]["messages"]) == 2
    assert by_id["TRACE-1"]["standing"] == "not applicable"


# --- agents that do not answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mute", "deaf"])
def test_a_dead_agent_is_given_up_and_waited_for_no_longer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers `initialize` and nothing else: three long waits, short ones, and then none; the check says where it is."""
    monkeypatch.setattr("adapters.check.command._SIGN_EVERY", 1.0)
    out, signs = io.StringIO(), io.StringIO()
    request = Request([sys.executable, ODD, kind], prompts=True, bound=2.5)
    start = time.monotonic()
    assert anyio.run(run_check, request, out, signs.write) == 1
    assert time.monotonic() - start < 60, "121 rules of 1 s and more"
    text = out.getvalue()
    assert "broken          " in text
    assert "not decided, because waits are short after" in text
    assert "not checked, because the agent did not answer in 6 rules in a row" in text
    assert re.match(r"\.\.\. 0:\d\d min, rule \d+ of 121: [A-Z]+-\d+\n", signs.getvalue())


def test_an_agent_that_does_not_end_is_waited_for_once(tmp_path: Path) -> None:
    async def starts() -> list[float]:
        launcher, took = ProcessLauncher([sys.executable, ODD, "deaf"], os.environ, tmp_path), []
        for _ in range(3):
            async with launcher.start() as agent:
                await agent.transport.send(b'{"id": 1, "method": "initialize"}\n')
                assert b"result" in await agent.transport.receive()
                ended = time.monotonic()
            took.append(time.monotonic() - ended)
        return took

    first, *others = anyio.run(starts)
    assert first > 1.9
    assert max(others) < 1.5


def test_a_path_that_is_not_found_from_where_the_command_is_started_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "--rule", "INIT-10", "--", sys.executable, "agent.py"]) == 1
    assert "where agent.py does not exist: write absolute paths, or give --cwd." in capsys.readouterr().out


# --- arguments -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "check needs a command"),
        (["--json"], "check needs a command"),
        (
            ["--", "no-such-command-anywhere"],
            "cannot find the command 'no-such-command-anywhere': it is not on the PATH",
        ),
        (
            ["--", "./no-such-file"],
            "cannot find the command './no-such-file': a relative path starts from /",
        ),
        (["claude"], "write the command after --"),
        (["--scripted", "gpt", "--", "cat"], "--scripted: unknown runtime 'gpt': choose claude or codex"),
        (["--scripted", "claude", "--prompts", "--", "cat"], "--prompts and --scripted exclude each other"),
        (["--rule", "KEY-99", "--", "cat"], "--rule: there is no rule 'KEY-99'"),
        (["--timeout", "soon", "--", "cat"], "--timeout: 'soon' must be a number of seconds, above 0 and at most 3600"),
        (["--timeout", "0", "--", "cat"], "--timeout: '0' must be a number"),
        (["--timeout", "nan", "--", "cat"], "--timeout: 'nan' must be a number"),
        (["--timeout=-1", "--", "cat"], "--timeout: '-1' must be a number"),
        (["--cwd", "/no/such/folder", "--", "cat"], "--cwd: /no/such/folder is not a folder"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert cli.main(["check", *arguments]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_the_command_may_be_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is started in another folder."""
    program = tmp_path / "bin" / "agent"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ODD}" version_1\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "--rule", "INIT-10", "--", "bin/agent"]) == 1
    assert "the agent answered protocolVersion 1" in capsys.readouterr().out


async def _folder_gone(folder: Path) -> None:
    bench = Bench(ProcessLauncher(["true"], os.environ, folder), FreeStage(), folder, 5)
    async with bench.fresh():
        pass


def test_a_folder_of_ours_that_is_gone_is_no_fault_of_the_agent(tmp_path: Path) -> None:
    """It would be `Broken`; so it is a failure of the check."""
    with pytest.raises(FileNotFoundError):
        anyio.run(_folder_gone, tmp_path / "project")


def test_list_prints_every_rule_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--list"]) == 0
    text = capsys.readouterr().out
    for rule in rules():
        assert f"{rule.sentence} [{rule.source}]" in text


def test_rules_are_chosen_by_id_and_by_kind() -> None:
    assert choose("key-4, trace-1") == {"KEY-4", "TRACE-1"}
    assert choose("TRACE") == {rule.id for rule in rules() if rule.id.startswith("TRACE-")}
    with pytest.raises(ValueError, match="there is no rule"):
        choose("KEY-4,NONE")


def test_without_leave_no_prompt_is_sent(capfd: pytest.CaptureFixture[str]) -> None:
    """The rules that send prompts say how to have them looked at."""
    assert cli.main(["check", "--rule", "PROMPT-3,TRACE-1,INIT-10", "--", sys.executable, ODD, "sessions"]) == 0
    text = capfd.readouterr().out
    assert "held            INIT-10" in text
    assert text.count("needs prompts: give --scripted claude|codex, or --prompts") == 2
    assert text.splitlines()[-1] == "1 held, 0 broken, 2 not applicable"


# --- the table ---------------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_sentences_plain() -> None:
    ids = [rule.id for rule in rules()]
    assert len(set(ids)) == len(ids)
    for rule in rules():
        assert not rule.sentence.endswith(".")
        assert rule.source
        assert rule.check.__doc__
    assert len({section.title for section in CATALOGUE}) == len(CATALOGUE)


# --- as a process -------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_interrupted_it_leaves_nothing_running(tmp_path: Path) -> None:
    """SIGINT in the middle of a wait: the agent is ended, no traceback, and the status of an interrupt."""
    mark = tmp_path / "started"
    script = tmp_path / "agent.py"
    script.write_text(
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(3600)\n"
    )
    command = [sys.executable, "-m", "adapters", "check", "--timeout", "600", "--", sys.executable, str(script)]
    process = await anyio.open_process(command, cwd=Path(cli.__file__).parents[1])
    assert process.stderr is not None
    with anyio.fail_after(120):
        await wait_for(lambda: mark.exists() and mark.read_text() != "", 60, "the agent runs")
        process.send_signal(signal.SIGINT)
        errors = b"".join([data async for data in process.stderr])
        assert await process.wait() == 130
    assert b"Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


ODD_CHECK = [sys.executable, "-m", "adapters", "check", "--rule", "INIT,SETUP", "--", sys.executable, ODD, "sessions"]


def test_a_reader_who_has_enough_ends_the_check_in_silence() -> None:
    process = subprocess.Popen(
        ODD_CHECK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(cli.__file__).parents[1]
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        lines = process.stderr.read().decode().splitlines()
        assert process.wait(60) == 1
    assert [line for line in lines if not line.startswith("... ")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_stderr_changes_nothing_of_the_result(kind: str) -> None:
    """Where the lines go while the result is printed as JSON."""
    command = [*ODD_CHECK[:4], "--json", *ODD_CHECK[4:]]
    result = subprocess.run(
        with_stderr(kind, command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=Path(cli.__file__).parents[1],
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert json.loads(result.stdout)["rules"]


@pytest.mark.anyio
async def test_what_a_killed_agent_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A child in a session of its own outlives its agent, and not the check."""
    mark = tmp_path / "child"
    child = f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(3600)"
    script = tmp_path / "agent.py"
    script.write_text(
        "import subprocess, sys, time, pathlib\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        f"while not pathlib.Path({str(mark)!r}).exists(): time.sleep(0.01)\n"
        "sys.exit(1)\n"
    )
    out = io.StringIO()
    request = Request([sys.executable, str(script)], bound=30, chosen=frozenset({"INIT-10"}))
    assert await run_check(request, out) == 1
    assert "the agent ended with status 1 before it answered initialize" in out.getvalue()
    pid = int(mark.read_text())
    await wait_for(lambda: not alive(pid), 30, "the child is gone")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
