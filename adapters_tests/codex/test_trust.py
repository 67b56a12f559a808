"""trust.py: only what the user has decided makes a folder trusted; e2e/test_secrets.py shows it on the real Codex."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.acp.schema import McpServerStdio
from adapters.codex import trust
from adapters.codex.threads import start_params
from adapters.core.runtime import SessionSetup


@pytest.fixture(autouse=True)
def _no_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_SYSTEM", tmp_path / "etc")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()  # whatever the folders above may be
    return tmp_path / "project"


UNTRUSTED = {"trust_level": "untrusted"}


def test_an_undecided_folder_is_not_trusted_and_gets_what_codex_gives_to_one(home: Path, folder: Path) -> None:
    assert trust.overrides(home, str(folder)) == {
        "config": {"projects": {str(folder): UNTRUSTED}},
        "approvalPolicy": "on-request",
        "sandbox": "read-only",
    }


@pytest.mark.parametrize("level", ["trusted", "untrusted"])
@pytest.mark.parametrize("name", ["config.toml", "managed_config.toml"])
def test_a_decision_of_the_user_stands(home: Path, folder: Path, level: str, name: str) -> None:
    (home / name).write_text(f'[projects."{folder}"]\ntrust_level = "{level}"\n')
    assert trust.overrides(home, str(folder)) == {}


def test_a_decision_on_the_repository_is_one_on_its_folders(home: Path, folder: Path) -> None:
    (home / "config.toml").write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    (folder / "sub" / ".git").mkdir()  # a repository of its own
    assert trust.overrides(home, str(folder / "sub"))["config"]["projects"] == {str(folder / "sub"): UNTRUSTED}
    (folder / "sub" / ".git").rmdir()
    assert trust.overrides(home, str(folder / "sub")) == {}
    (home / "config.toml").unlink()
    both = {str(folder / "sub"): UNTRUSTED, str(folder): UNTRUSTED}
    assert trust.overrides(home, str(folder / "sub"))["config"]["projects"] == both


def test_a_link_is_the_folder_that_it_leads_to(home: Path, folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    both = {str(link): UNTRUSTED, str(folder): UNTRUSTED}
    assert trust.overrides(home, str(link))["config"]["projects"] == both
    (home / "config.toml").write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    assert trust.overrides(home, str(link)) == {}


@pytest.mark.parametrize(
    ("config", "added"),
    [
        ('approval_policy = "never"', {"sandbox"}),
        ('sandbox_mode = "workspace-write"', {"approvalPolicy"}),
        ('default_permissions = "x"', {"approvalPolicy"}),
        ('profile = "p"\n[profiles.p]\napproval_policy = "never"\nsandbox_mode = "read-only"', set()),
        ('profile = "p"\n[profiles.q]\napproval_policy = "never"', {"approvalPolicy", "sandbox"}),
        ("this is no TOML", {"approvalPolicy", "sandbox"}),
        ("projects = 7\nprofile = 8\nprofiles = 9", {"approvalPolicy", "sandbox"}),
    ],
)
def test_what_the_user_configured_stays(home: Path, folder: Path, config: str, added: set[str]) -> None:
    (home / "config.toml").write_text(config)
    assert trust.overrides(home, str(folder)).keys() == {"config"} | added


def test_servers_of_the_client_come_beside_it(home: Path, folder: Path) -> None:
    server = McpServerStdio(name="s", command="/bin/true")
    config = start_params(SessionSetup(str(folder), (), (server,)), home)["config"]
    assert config.keys() == {"projects", "mcp_servers"}
