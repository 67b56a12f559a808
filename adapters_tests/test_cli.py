"""The command `acp-adapters` as a user or a client meets it: what it prints, where, and its exit status."""

import errno
import gc
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import adapters
from adapters import cli, doctor
from adapters.acp.errors import InternalError
from adapters.acp.framing import LineDecoder
from adapters.client.client import Client
from adapters.client.process import AgentProcess, start_agent
from adapters.installing import install_command
from adapters.sources import fingerprint
from adapters_tests.odd_stderr import KINDS, with_stderr

ROOT = Path(adapters.__file__).parents[1]
COMMAND = [sys.executable, "-m", "adapters"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Nothing of the user's; a runtime of each kind that is found but says nothing."""
    stub = tmp_path / "claude"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    silent = tmp_path / "codex"
    silent.write_text("#!/bin/sh\nexec cat >/dev/null\n")  # it is started before a session is asked for
    silent.chmod(0o755)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "CLAUDE_CODE_EXECUTABLE": str(stub),
        "CODEX_PATH": str(silent),
    }


def ran(environ: dict[str, str], *arguments: str, data: bytes = b"") -> tuple[int, str, str]:
    command = [*COMMAND, *arguments]
    result = subprocess.run(command, input=data, capture_output=True, env=environ, timeout=60, check=False)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


# --- for people --------------------------------------------------------------------------------------------------------


def test_version_goes_to_stdout(environ: dict[str, str]) -> None:
    """Two clones with one version are told apart, and an update of an installed package is seen."""
    printed = f"acp-adapters {adapters.__version__} (code {fingerprint()})\n"
    assert ran(environ, "--version") == (0, printed, "")


def test_the_fingerprint_is_of_every_module_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.py").write_text("x")
    seen = [fingerprint(tmp_path)]
    for change in (
        lambda: (tmp_path / "below" / "b.py").write_text("y"),
        lambda: (tmp_path / "a.py").write_text("z"),
        lambda: (tmp_path / "a.py").rename(tmp_path / "c.py"),
    ):
        change()
        seen.append(fingerprint(tmp_path))
    assert len(set(seen)) == len(seen)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "c.pyc").write_text("compiled")
    assert fingerprint(tmp_path) == seen[-1]
    assert re.fullmatch("[0-9a-f]{8}", seen[-1])


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in ("claude", "codex", "demo", "doctor", "check")), ["doctor"]],
)
def test_what_people_read_fits_into_a_terminal(environ: dict[str, str], arguments: list[str]) -> None:
    """But for lines with a path or a command, which are there to be copied."""
    _, out, _ = ran(environ, *arguments)
    assert [line for line in out.splitlines() if len(line) > 120 and "/" not in line] == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["claude", "--help"], ["codex", "--help"], ["demo", "-h"], ["doctor", "--help"]]
)
def test_help_goes_to_stdout(environ: dict[str, str], arguments: list[str]) -> None:
    status, out, err = ran(environ, *arguments)
    assert (status, err) == (0, "")
    assert out.startswith("usage: acp-adapters")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["codecs"],
        ["--nope"],
        ["claude", "--nope"],
        ["claude", "--home", "x"],
        ["demo", "emacs"],
        ["doctor", "--home"],
    ],
)
def test_arguments_without_sense_are_one_line_and_status_2(environ: dict[str, str], arguments: list[str]) -> None:
    status, out, err = ran(environ, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("acp-adapters: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (["claude"], "claude-agent-sdk"),
        (["codex"], "openai-codex-cli-bin"),
        (["demo"], "claude-agent-sdk"),
        (["demo", "claude"], "claude-agent-sdk"),
        (["demo", "codex"], "openai-codex-cli-bin"),
    ],
)
def test_a_missing_runtime_names_the_install_command(
    command: list[str],
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for module in ("claude_agent_sdk", "codex_cli_bin"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    for variable in ("CLAUDE_CODE_EXECUTABLE", "CODEX_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(command) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert f" is not installed: run  {install_command(package)}  or set " in printed.err


def test_a_chosen_runtime_that_is_not_there_is_named(environ: dict[str, str]) -> None:
    status, out, err = ran({**environ, "CLAUDE_CODE_EXECUTABLE": "/nowhere/claude"}, "claude")
    assert (status, out) == (1, "")
    assert "CLAUDE_CODE_EXECUTABLE" in err
    assert err.count("\n") == 1


def test_a_script_that_cannot_be_read_is_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    status, out, err = ran(environ, "claude", "--scripted", str(tmp_path / "no.json"))
    assert (status, out) == (2, "")
    assert err.startswith("acp-adapters: --scripted: ")
    assert err.count("\n") == 1


def test_a_home_that_cannot_be_made_is_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("{}")
    status, out, err = ran(environ, "claude", "--scripted", str(script), "--home", str(script / "home"))
    assert (status, out) == (1, "")
    assert err.startswith(f"acp-adapters: --home {script}/home cannot be used (Not a directory)")
    assert err.count("\n") == 1


def test_an_unexpected_failure_is_one_line_without_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("sk-secret")

    monkeypatch.setattr(doctor, "run_doctor", fail)
    assert cli.main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("acp-adapters: internal error RuntimeError ")
    assert printed.err.count("\n") == 1
    assert "sk-secret" not in printed.err


SPEAKING = pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["doctor"], ["doctor", "--json"], ["check", "--list"]]
)


@SPEAKING
def test_a_reader_who_has_enough_is_no_fault(environ: dict[str, str], arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        command = [*COMMAND, *arguments]
        result = subprocess.run(command, stdout=broken, stderr=subprocess.PIPE, env=environ, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (1, b"")


@SPEAKING
@pytest.mark.parametrize(
    ("stdout", "cause"),
    [(">/dev/full", "No space left on device"), (">&-", "it is closed"), ("1</dev/null", "Bad file")],
)
def test_output_that_cannot_be_written_is_told_in_words(
    environ: dict[str, str], arguments: list[str], stdout: str, cause: str
) -> None:
    command = ["sh", "-c", f'exec "$@" {stdout}', "sh", *COMMAND, *arguments]
    result = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=False)
    assert result.returncode == 1
    printed = result.stderr.decode()
    assert printed.startswith("acp-adapters: standard output cannot be written: ")
    assert cause in printed
    assert printed.count("\n") == 1


def test_a_disk_that_is_full_elsewhere_is_told_in_words_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/somewhere")  # noqa: S108 - a name

    monkeypatch.setattr(doctor, "run_doctor", fail)
    assert cli.main(["doctor"]) == 1
    assert (
        capsys.readouterr().err
        == "acp-adapters: stopped by the operating system: No space left on device (/tmp/somewhere); correct that and try again\n"
    )


@pytest.mark.anyio
async def test_in_a_terminal_it_says_what_it_waits_for(environ: dict[str, str]) -> None:
    ours, its = os.openpty()
    command = [*COMMAND, "claude"]
    process = await anyio.open_process(command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
    os.close(its)
    try:
        assert process.stderr is not None
        with anyio.fail_after(30):
            assert b"waiting for an ACP client" in await process.stderr.receive()
            os.write(ours, b"\x04")
            assert await process.wait() == 0
    finally:
        os.close(ours)
        if process.returncode is None:
            process.kill()
        await process.aclose()


@pytest.mark.parametrize("unlike", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_name_that_the_locale_cannot_spell_is_no_failure(
    environ: dict[str, str], tmp_path: Path, unlike: dict[str, str]
) -> None:
    folder = tmp_path / "wörk"
    folder.mkdir()
    chosen = {"LC_ALL": "C", "CLAUDE_CONFIG_DIR": str(folder), "CLAUDE_CODE_EXECUTABLE": sys.executable}
    _, out, err = ran({**environ, **chosen, **unlike}, "doctor", "claude")
    assert err == ""
    assert (str(folder) in out) or (ascii(str(folder))[1:-1] in out)


def test_names_that_cannot_be_read_as_utf8_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "argv", ["acp-adapters", "--version"])
    assert cli.main() == 0
    said = capsys.readouterr().err
    assert said.startswith("acp-adapters: file names are read as ascii, not as UTF-8 ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["nope"], ["claude", "--nope"], ["claude", "--scripted", "/nowhere"], ["doctor"]]
)
def test_the_state_of_stderr_changes_no_status_and_no_output(environ: dict[str, str], arguments: list[str]) -> None:
    command = [*COMMAND, *arguments]
    usual = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=False)
    for kind in KINDS:
        odd = subprocess.run(
            with_stderr(kind, command),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environ,
            timeout=60,
            check=False,
        )
        assert (odd.returncode, odd.stdout) == (usual.returncode, usual.stdout), kind


# --- for clients ---------------------------------------------------------------------------------------------------------

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 2, "info": {"name": "test", "version": "1"}, "capabilities": {}},
}


async def initialized(agent: AgentProcess, version: int = 2) -> dict[str, Any]:
    params = {**INITIALIZE["params"], "protocolVersion": version}
    await agent.transport.send(json.dumps({**INITIALIZE, "params": params}).encode() + b"\n")
    decoder = LineDecoder()
    with anyio.fail_after(30):
        while data := await agent.transport.receive():
            for line in decoder.feed(data):
                assert isinstance(line, bytes)
                return json.loads(line)
    raise AssertionError(f"no answer: {agent.stderr}")


RUNTIMES = pytest.mark.parametrize(("runtime", "title"), [("claude", "Claude Code"), ("codex", "Codex")])


@RUNTIMES
def test_an_empty_stdin_is_a_clean_end(environ: dict[str, str], runtime: str, title: str) -> None:
    """STDIO-11: what agent registries try first."""
    assert ran(environ, runtime) == (0, "", ""), title


@pytest.mark.anyio
@RUNTIMES
async def test_it_introduces_itself(environ: dict[str, str], runtime: str, title: str) -> None:
    async with start_agent([*COMMAND, runtime], env=environ) as agent:
        result = (await initialized(agent))["result"]
        assert isinstance(result, dict)
        assert result["protocolVersion"] == 2
        assert result["info"] == {"name": "acp-adapters", "title": title, "version": adapters.__version__}
        assert "session" in result["capabilities"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("setting", "asked", "spoken"),
    [("", 1, 1), ("", 3, 2), ("auto", 1, 1), ("v1", 1, 1), ("v1", 2, 1), ("v2", 2, 2), ("v2", 1, None)],
)
async def test_the_environment_says_which_versions_are_spoken(
    environ: dict[str, str], setting: str, asked: int, spoken: int | None
) -> None:
    """V1-INIT-1, INIT-2."""
    async with start_agent([*COMMAND, "claude"], env={**environ, "ACP_ADAPTERS_PROTOCOL": setting}) as agent:
        answer = await initialized(agent, asked)
        assert answer.get("result", {}).get("protocolVersion") == spoken
        if spoken is None:
            assert answer["error"]["data"]["supported"] == [2]
            step = "use a client that speaks version 2, or unset ACP_ADAPTERS_PROTOCOL where the agent is started."
            assert answer["error"]["message"].endswith(step)
        else:
            assert ("agentInfo" in answer["result"]) == (spoken == 1)


def test_a_version_that_there_is_not_is_an_error_at_the_start(environ: dict[str, str]) -> None:
    status, out, err = ran({**environ, "ACP_ADAPTERS_PROTOCOL": "3"}, "codex")
    assert (status, out) == (1, "")
    assert err == "acp-adapters: ACP_ADAPTERS_PROTOCOL is '3': set it to auto, v1, v2, or unset it\n"


def standard_files(pid: int) -> list[str]:
    return [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]


@pytest.mark.anyio
@RUNTIMES
async def test_no_file_gets_the_number_of_a_closed_standard_descriptor(
    environ: dict[str, str], runtime: str, title: str
) -> None:
    """Its log lines, and what its children print, would go into that file."""
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, runtime]
    async with start_agent(command, env=environ) as agent:
        assert (await initialized(agent))["id"] == 0, title
        assert standard_files(agent.pid) == ["/dev/null"] * 3


@pytest.mark.anyio
@pytest.mark.parametrize("runtime", ["claude", "codex"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
async def test_it_ends_in_silence(environ: dict[str, str], number: signal.Signals | None, runtime: str) -> None:
    """STDIO-14: a signal is the end of input; status 0, nothing on stderr."""
    async with start_agent([*COMMAND, runtime], env=environ) as agent:
        await initialized(agent)
        if number is None:
            await agent.transport.aclose()
        else:
            agent.signal(number)
        assert await agent.wait() == 0
        assert agent.stderr == ""


@pytest.fixture
def beside_a_plugin(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A plugin for pydantic that notes its use in `loaded`, and a Claude Code that notes in `told` what it is told of them."""
    site = tmp_path / "site"
    info = site / "plugin-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pydantic]\nplugin = plugin:PLUGIN\n")
    (site / "plugin.py").write_text(f"""
class Plugin:
    def new_schema_validator(self, *args, **kwargs):
        open({str(tmp_path / "loaded")!r}, "w").close()
        return None, None, None
PLUGIN = Plugin()
""")
    note = f'#!/bin/sh\necho "${{PYDANTIC_DISABLE_PLUGINS-nothing}}" >>{tmp_path / "told"}\nexit 1\n'
    Path(environ["CLAUDE_CODE_EXECUTABLE"]).write_text(note)
    return {**environ, "PYTHONPATH": f"{environ['PYTHONPATH']}:{site}"}


@pytest.mark.parametrize("chosen", [None, "others"])
def test_no_plugin_of_pydantic_reads_what_clients_send(
    beside_a_plugin: dict[str, str], tmp_path: Path, chosen: str | None
) -> None:
    """What is installed beside the agent is for others, unless the user says so; what the runtime is told stays as it is."""

    async def ask() -> None:
        async with start_agent([*COMMAND, "claude"], env=environ) as agent, Client(agent.transport) as client:
            await client.initialize()
            with pytest.raises(InternalError):
                await client.new(str(tmp_path))

    environ = beside_a_plugin | ({"PYDANTIC_DISABLE_PLUGINS": chosen} if chosen else {})
    anyio.run(ask)
    assert set((tmp_path / "told").read_text().split()) == {chosen or "nothing"}
    assert (tmp_path / "loaded").exists() == (chosen is not None)


@pytest.mark.parametrize("fault", [None, ValueError()], ids=repr)
def test_garbage_is_collected_again_when_the_driver_is_loaded_or_cannot_be(fault: Exception | None) -> None:
    assert gc.isenabled()
    try:
        with suppress(ValueError), cli._no_garbage():
            assert not gc.isenabled()
            if fault:
                raise fault
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_noise_on_stdin_is_answered_and_the_end_is_clean(environ: dict[str, str]) -> None:
    """STDIO-6, STDIO-7: stdout holds protocol and nothing else."""
    status, out, _ = ran(environ, "claude", data=b"garbage\n\n[]\n")
    assert status == 0
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == [-32700, -32600]
