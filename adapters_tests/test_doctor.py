"""`acp-adapters doctor`: each finding, both forms of the report, and what it must never show."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from adapters import inquiry
from adapters.claude.cli import program as claude
from adapters.codex.server import program as codex_environment
from adapters.doctor import run_doctor
from adapters.installing import install_command
from adapters.plugins import FAILED, OK, UNSURE, Check
from adapters.runtimes.claude_checks import check_claude
from adapters.runtimes.codex_checks import check_codex

VERSION = "echo '9.9.9 (Claude Code)'"
"""It says this whatever it is asked: of a login it says nothing."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environ(tmp_path: Path, home: Path) -> dict[str, str]:
    """A home in which everything is well, with a Claude Code that knows its version."""
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home), "CLAUDE_CODE_EXECUTABLE": program(tmp_path, VERSION)}


def program(folder: Path, script: str) -> str:
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def finding(name: str, environ: dict[str, str]) -> Check:
    return next(check for check in check_claude(environ) if check.name == name)


def report(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> tuple[int, str]:
    monkeypatch.setattr(os, "environ", environ)
    out = io.StringIO()
    return run_doctor(["claude"], out, as_json=as_json), out.getvalue()


# --- the findings ------------------------------------------------------------------------------------------------------


def test_all_is_well(environ: dict[str, str]) -> None:
    environ["ANTHROPIC_API_KEY"] = "sk-secret"
    assert [check.status for check in check_claude(environ)] == [OK] * 6


def test_it_names_the_program_and_where_it_was_found(environ: dict[str, str]) -> None:
    path = environ["CLAUDE_CODE_EXECUTABLE"]
    assert finding("program", environ) == Check("program", OK, f"{path} (from CLAUDE_CODE_EXECUTABLE)")
    assert finding("version", environ) == Check("version", OK, f"9.9.9 (Claude Code), tested with {claude.TESTED}")


def test_a_program_that_is_not_there_would_not_work(environ: dict[str, str]) -> None:
    environ["CLAUDE_CODE_EXECUTABLE"] = "/nowhere/claude"
    check = finding("program", environ)
    assert check.status == FAILED
    assert "CLAUDE_CODE_EXECUTABLE" in check.detail


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo broken >&2; exit 3", "status 3: broken"),
        ("exit 0", "status 0: no output"),
        ("kill -9 $$", "status -9: no output"),
        ("sleep 60 & exec sleep 60", "no answer to --version within 0.2 seconds"),
    ],
)
def test_a_program_that_does_not_start_would_not_work(
    environ: dict[str, str], tmp_path: Path, script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: a hanging program is killed, and what it started too (else this test would take a minute)."""
    monkeypatch.setattr(inquiry, "SECONDS", 0.2 if "sleep" in script else 20)
    environ["CLAUDE_CODE_EXECUTABLE"] = program(tmp_path, script)
    check = finding("version", environ)
    assert check.status == FAILED
    assert says in check.detail
    assert check.remedy is not None
    assert "CLAUDE_CODE_EXECUTABLE" in check.remedy


def test_a_program_of_another_machine_would_not_work(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "alien"
    path.write_bytes(b"\x7fELF and nothing else")
    path.chmod(0o755)
    environ["CLAUDE_CODE_EXECUTABLE"] = str(path)
    assert finding("version", environ).detail.startswith("the program cannot be started: ")


def test_output_of_a_program_cannot_forge_lines(environ: dict[str, str], tmp_path: Path) -> None:
    environ["CLAUDE_CODE_EXECUTABLE"] = program(tmp_path, r"printf '1.0\033[2J\r  [ok] forged\nmore\n'")
    assert finding("version", environ).detail == "this program is not Claude Code: --version prints 1.0[2J"


@pytest.mark.parametrize(
    ("name", "variable"), [("session store", "CLAUDE_CONFIG_DIR"), ("state folder", "XDG_STATE_HOME")]
)
def test_a_place_that_cannot_be_written_would_not_work(
    environ: dict[str, str], tmp_path: Path, name: str, variable: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    environ[variable] = str(file)
    check = finding(name, environ)
    assert check.status == FAILED
    assert str(file) in check.detail
    assert (check.remedy or check.detail).count("set ") == 1


def test_places_that_will_be_made_are_fine_and_not_made(environ: dict[str, str], home: Path) -> None:
    check = finding("session store", environ)
    assert check == Check("session store", OK, f"{home}/.claude/projects (will be made)")
    assert not (home / ".claude").exists()


def test_it_writes_nothing(environ: dict[str, str], home: Path) -> None:
    check_claude(environ)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("prints", "status", "detail"),
    [
        ("v20.20.2", FAILED, "this program is not Claude Code: --version prints v20.20.2"),
        ("codex-cli 0.163.0", FAILED, "this program is not Claude Code: --version prints codex-cli 0.163.0"),
        ("2.1 (Claude Code)", FAILED, "this program is not Claude Code: --version prints 2.1 (Claude Code)"),
        ("2.1.33 (Claude Code)", UNSURE, f"2.1.33 (Claude Code), older than the tested {claude.TESTED}"),
        ("10.0.0-beta.1 (Claude Code)", OK, f"10.0.0-beta.1 (Claude Code), tested with {claude.TESTED}"),
    ],
)
def test_what_calls_itself_otherwise_is_not_the_program(
    environ: dict[str, str], tmp_path: Path, prints: str, status: str, detail: str
) -> None:
    environ["CLAUDE_CODE_EXECUTABLE"] = program(tmp_path, f"echo '{prints}'")
    check = finding("version", environ)
    assert (check.status, check.detail) == (status, detail)


# --- the settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": "sk-secret"}', None),
        (b'\xef\xbb\xbf{"a": 1}', None),
        (b" \n", None),
        (b'{"a": 1,\n x}', ":2:2: Expecting property name enclosed in double quotes"),
        (b'{// sk-secret\n"a": 1}', ":1:2: Expecting property name enclosed in double quotes"),
        (b'{"a": NaN}', " cannot be read: it is not JSON"),
        (b"[]", ":1:1: it is not a JSON object"),
        (b'"\xff"', " is not UTF-8 text"),
        (b"[" * 100_000, " cannot be read: it is not JSON"),
    ],
)
def test_settings_that_claude_code_passes_over_are_named_with_the_place(
    environ: dict[str, str], home: Path, content: bytes, problem: str | None
) -> None:
    """Nothing of what is in them is shown."""
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_bytes(content)
    check = finding("settings", environ)
    assert (check.status, check.detail) == ((FAILED, f"{settings}{problem}") if problem else (OK, str(settings)))


def test_settings_that_are_no_file_are_not_read(environ: dict[str, str], home: Path) -> None:
    os.mkfifo(home / ".claude.json")  # reading it would block for ever
    check = finding("settings", environ)
    assert (check.status, check.detail) == (FAILED, f"{home}/.claude.json is not a file")


# --- the login -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_a_login_is_known_by_the_name_of_its_variable(environ: dict[str, str], variable: str) -> None:
    environ[variable] = "sk-secret"
    check = finding("login", environ)
    assert check.status == OK
    assert variable in check.detail
    assert "sk-secret" not in repr(check)


def test_a_login_is_known_by_its_file_which_is_not_read(environ: dict[str, str], home: Path) -> None:
    credentials = home / ".claude" / ".credentials.json"
    credentials.parent.mkdir()
    os.mkfifo(credentials)  # reading it would block for ever
    assert finding("login", environ).status == OK


def test_no_sign_of_a_login_is_no_failure_but_says_what_to_do(environ: dict[str, str]) -> None:
    check = finding("login", environ)
    assert check.status == UNSURE
    assert check.remedy is not None
    assert f"{environ['CLAUDE_CODE_EXECUTABLE']} auth login" in check.remedy


ANSWERS = """case "$*" in
--version) echo '9.9.9 (Claude Code)' ;;
'auth status') {answer} ;;
*) exit 7 ;;
esac"""


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        ("""echo '{"loggedIn": false, "authMethod": "none"}'; exit 1""", FAILED, "not logged in"),
        (
            """echo '{"loggedIn": true, "authMethod": "api_key", "apiKeySource": "sk secret"}'""",
            OK,
            "Claude Code has a login (api_key) (the first prompt shows whether it is valid)",
        ),
        ("exit 1", UNSURE, "none found, but doctor cannot read a system keychain or a key helper"),
    ],
)
def test_a_login_is_known_by_what_claude_code_says(
    environ: dict[str, str], tmp_path: Path, answer: str, status: str, detail: str
) -> None:
    environ["CLAUDE_CODE_EXECUTABLE"] = program(tmp_path, ANSWERS.replace("{answer}", answer))
    check = finding("login", environ)
    assert (check.status, check.detail) == (status, detail)


def test_a_keychain_cannot_be_seen(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS a login may be there all the same."""
    monkeypatch.setattr(sys, "platform", "darwin")
    answer = ANSWERS.replace("{answer}", """echo '{"loggedIn": false}'; exit 1""")
    environ["CLAUDE_CODE_EXECUTABLE"] = program(tmp_path, answer)
    assert finding("login", environ).status == UNSURE


@pytest.mark.parametrize(("platform", "warned"), [("darwin", True), ("linux", False)])
def test_what_a_killed_agent_leaves_on_macos_is_a_warning(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, platform: str, *, warned: bool
) -> None:
    """Without `/proc` nothing finds them, so the promise "at most once" does not hold there after a kill."""
    environ["CODEX_PATH"] = environ["CLAUDE_CODE_EXECUTABLE"]  # no Codex, which costs it only its version
    monkeypatch.setattr(sys, "platform", platform)
    for check in (check_claude, check_codex):
        found = [finding.detail for finding in check(environ) if finding.name == "crash safety"]
        assert len(found) == warned
        assert all(text.startswith("macOS: processes left by a killed agent are not stopped; ") for text in found)


# --- the findings for Codex --------------------------------------------------------------------------------------------

CODEX = """case "$*" in
--version) echo 'codex-cli 9.9.9' ;;
'login status') {login} ;;
*) exit 7 ;;
esac"""
NOT_LOGGED_IN = "echo 'Not logged in' >&2; exit 1"
BROKEN_CONFIGURATION = "echo 'Error loading configuration: /x/config.toml:7:3: sk-secret' >&2; exit 1"


def codex(environ: dict[str, str], folder: Path, login: str) -> dict[str, Check]:
    environ["CODEX_PATH"] = program(folder, CODEX.replace("{login}", login))
    return {check.name: check for check in check_codex(environ)}


def test_all_is_well_with_codex(environ: dict[str, str], tmp_path: Path, home: Path) -> None:
    (home / ".codex").mkdir()
    checks = codex(environ, tmp_path, "echo 'Logged in using an API key - sk-secret'")
    assert list(checks) == ["program", "version", "configuration", "session store", "login"]
    assert {check.status for check in checks.values()} == {OK}
    assert checks["version"].detail == f"codex-cli 9.9.9, tested with {codex_environment.TESTED}"
    assert "sk-secret" not in repr(checks)


@pytest.mark.parametrize("make", [True, False])
def test_no_login_of_codex_would_not_work_and_says_what_to_do(
    environ: dict[str, str], tmp_path: Path, home: Path, *, make: bool
) -> None:
    """Nor is a home that Codex has not made yet, and the doctor does not make it."""
    if make:
        (home / ".codex").mkdir()
    checks = codex(environ, tmp_path, NOT_LOGGED_IN)
    assert (checks["configuration"].status, checks["login"].status) == (OK, FAILED)
    assert checks["login"].remedy is not None
    assert f"{environ['CODEX_PATH']} login" in checks["login"].remedy
    assert (home / ".codex").exists() == make


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ('model_provider = "mine"', UNSURE),
        ('profile = "p"\n[profiles.p]\nmodel_provider = "mine"', UNSURE),
        ('model_provider = "openai"', FAILED),
        ('[profiles.p]\nmodel_provider = "mine"', FAILED),
        ("", FAILED),
    ],
)
def test_a_provider_of_the_users_own_may_need_no_login(
    environ: dict[str, str], tmp_path: Path, home: Path, config: str, status: str
) -> None:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(config)
    assert codex(environ, tmp_path, NOT_LOGGED_IN)["login"].status == status


def test_a_configuration_that_codex_cannot_load_would_not_work(
    environ: dict[str, str], tmp_path: Path, home: Path
) -> None:
    """What is wrong in it is not repeated: it may be a secret."""
    (home / ".codex").mkdir()
    checks = codex(environ, tmp_path, BROKEN_CONFIGURATION)
    assert checks["configuration"].status == FAILED
    assert checks["configuration"].detail == f"{home}/.codex/config.toml:7:3 cannot be loaded"
    assert checks["configuration"].remedy is not None
    assert "login status" in checks["configuration"].remedy
    assert "sk-secret" not in repr(checks)


def test_a_home_of_codex_that_is_not_there_would_not_work(environ: dict[str, str], tmp_path: Path) -> None:
    environ["CODEX_HOME"] = str(tmp_path / "nowhere")
    check = codex(environ, tmp_path, NOT_LOGGED_IN)["configuration"]
    assert check.status == FAILED
    assert "CODEX_HOME" in check.detail


def test_a_codex_that_does_not_answer_is_given_up(
    environ: dict[str, str], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".codex").mkdir()
    monkeypatch.setattr(inquiry, "SECONDS", 0.5)
    checks = codex(environ, tmp_path, "exec sleep 60")
    assert checks["configuration"].status == UNSURE


# --- the report ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_the_report_shows_no_secret(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        environ[name] = "sk-secret"
    status, text = report(environ, monkeypatch, as_json=as_json)
    assert status == 0
    assert "sk-secret" not in text


def test_the_text_has_a_line_per_finding_and_the_next_step(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ["CLAUDE_CODE_EXECUTABLE"] = "/nowhere/claude"
    status, text = report(environ, monkeypatch, as_json=False)
    assert status == 1
    assert text.count("\n  [no] program: ") == 1
    assert "\n  [ok] session store: " in text
    assert "\n  [??] login: " in text
    assert "\n      -> to log in: " in text
    assert text.endswith("Problems found: see the lines marked [no].\n")
    text.encode("ascii")  # prints in every locale


def test_the_json_says_the_same_for_programs(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = report(environ, monkeypatch, as_json=True)
    value = json.loads(text)
    assert (status, value["ok"], value["runtimes"]["claude"]["ok"]) == (0, True, True)
    checks = value["runtimes"]["claude"]["checks"]
    assert [check["name"] for check in checks] == [
        "program",
        "version",
        "settings",
        "session store",
        "state folder",
        "login",
    ]
    assert [sorted(check) for check in checks[:5]] == [["detail", "name", "status"]] * 5
    assert sorted(checks[5]) == ["detail", "name", "remedy", "status"]


def test_a_runtime_that_nobody_asked_for_may_be_missing(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one that works; by its name it is a failure, and so is having none."""
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    environ["PATH"] = str(Path(environ["HOME"]) / "nothing")
    monkeypatch.setattr(os, "environ", environ)
    out = io.StringIO()
    assert run_doctor(["claude", "codex"], out, named=False) == 0
    command = install_command("openai-codex-cli-bin")
    assert "\n  [??] not installed: Codex is not installed: run" in out.getvalue()
    assert any(command in line for line in out.getvalue().splitlines())  # unbroken: it is copied
    assert run_doctor(["claude", "codex"], io.StringIO()) == 1
    assert run_doctor(["codex"], io.StringIO(), named=False) == 1
