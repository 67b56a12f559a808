"""`acp-adapters doctor` with the real runtimes: what they say of themselves, and that nothing is written for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters_tests.e2e.rig import Rig

pytestmark = pytest.mark.anyio


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder with its time and content."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")
    }


async def doctor(rig: Rig, environ: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Its exit status and its findings by name. It writes nothing into the home."""
    command = [*rig.runtime.command[:-1], "doctor", "--json", rig.runtime.name]
    apart = rig.root.parent / "apart"  # for temporary files
    apart.mkdir(exist_ok=True)
    before = snapshot(rig.root)
    with anyio.fail_after(60):
        ran = await anyio.run_process(command, env={**environ, "TMPDIR": str(apart)}, cwd=rig.root, check=False)
    assert snapshot(rig.root) == before
    assert list(apart.iterdir()) == []
    assert ran.stderr == b""
    checks = json.loads(ran.stdout)["runtimes"][rig.runtime.name]["checks"]
    return ran.returncode, {check["name"]: check for check in checks}


def logged_out(rig: Rig, *, home: bool) -> dict[str, str]:
    """The environment of a user without a login, with a home of the runtime or before there is one."""
    environ = rig.env
    if rig.runtime.name == "claude":
        del environ["ANTHROPIC_API_KEY"]
        return environ if home else {**environ, "CLAUDE_CONFIG_DIR": str(rig.root / "none")}
    if not home:
        return {**environ, "CODEX_HOME": "", "HOME": str(rig.root / "tmp")}
    config = Path(environ["CODEX_HOME"]) / "config.toml"
    config.write_text(re.sub("^model_provider = .*$", "", config.read_text(), flags=re.MULTILINE))
    return environ


async def test_all_is_well(rig: Rig) -> None:
    status, checks = await doctor(rig, rig.env)
    assert status == 0
    assert {check["status"] for name, check in checks.items() if name != "login"} == {"ok"}
    assert re.search(r"(\d+\.\d+\.\d+).*, tested with \1", checks["version"]["detail"])


@pytest.mark.parametrize("home", [True, False])
async def test_nobody_is_logged_in(rig: Rig, *, home: bool) -> None:
    status, checks = await doctor(rig, logged_out(rig, home=home))
    assert (status, checks["login"]["status"], checks["login"]["detail"]) == (1, "failed", "not logged in")


async def test_a_login_is_seen(rig: Rig) -> None:
    """A file of the runtime's own, in the user's folder."""
    environ = logged_out(rig, home=True)
    if rig.runtime.name == "claude":
        day = 4_102_444_800_000
        tokens = {"accessToken": "dummy", "refreshToken": "dummy", "expiresAt": day, "scopes": ["user:inference"]}
        file, content = Path(environ["CLAUDE_CONFIG_DIR"], ".credentials.json"), {"claudeAiOauth": tokens}
    else:
        file, content = Path(environ["CODEX_HOME"], "auth.json"), {"OPENAI_API_KEY": "sk-dummy"}
    file.write_text(json.dumps(content))
    status, checks = await doctor(rig, environ)
    assert (status, checks["login"]["status"]) == (0, "ok")
    assert "dummy" not in json.dumps(checks)


def broken(rig: Rig, environ: dict[str, str]) -> tuple[Path, str]:
    """A configuration that is wrong in its second line, and the name of its finding."""
    if rig.runtime.name == "claude":
        file, name, text = Path(environ["CLAUDE_CONFIG_DIR"], "settings.json"), "settings", '{"model": "dummy",\n oops}'
    else:
        file, name, text = Path(environ["CODEX_HOME"], "config.toml"), "configuration", 'model = "dummy"\n[oops\n'
    file.write_text(text)
    return file, name


async def test_a_broken_configuration_is_named_with_its_place(rig: Rig) -> None:
    environ = rig.env
    file, name = broken(rig, environ)
    status, checks = await doctor(rig, environ)
    assert (status, checks[name]["status"]) == (1, "failed")
    assert f"{file}:2:" in checks[name]["detail"]


async def test_another_program_is_named_as_such(rig: Rig) -> None:
    status, checks = await doctor(rig, {**rig.env, rig.runtime.executable: "/bin/ls"})
    title = {"claude": "Claude Code", "codex": "Codex"}[rig.runtime.name]
    assert (status, checks["version"]["status"]) == (1, "failed")
    assert checks["version"]["detail"].startswith(f"this program is not {title}: --version prints ls ")
