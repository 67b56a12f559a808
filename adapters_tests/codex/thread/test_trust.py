"""trust.py: only what the user has decided makes a folder trusted; e2e/test_secrets.py shows it on the real Codex."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.acp.schema import McpServerStdio
from adapters.codex.thread import trust
from adapters.codex.thread.requests import start_params
from adapters.core.port import SessionSetup


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


@pytest.mark.parametrize("place", ["configuration", ".git", "worktree"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody(home: Path, folder: Path, place: str) -> None:
    """Whoever opened it would wait for ever."""
    (folder / ".git").rmdir()
    if place == "configuration":
        os.mkfifo(home / "config.toml")
    elif place == ".git":
        os.mkfifo(folder / ".git")
    else:
        (folder / "kept").mkdir()
        os.mkfifo(folder / "kept" / "gitdir")
        (folder / ".git").write_text("gitdir: kept\n")
    assert trust.overrides(home, str(folder))["sandbox"] == "read-only"


@pytest.mark.parametrize("name", ["config.toml", "managed_config.toml"])
def test_a_decision_of_the_user_stands(home: Path, folder: Path, name: str) -> None:
    """Also one against a folder, without Codex's own policies for undecided ones: it would miss the one on `.git` here."""
    (home / name).write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    assert trust.overrides(home, str(folder)) == {}
    assert trust.overrides(home, str(folder / "sub")) == {}
    (home / name).write_text(f'[projects."{folder}"]\ntrust_level = "untrusted"\n')
    assert trust.overrides(home, str(folder)) == {"config": {"projects": {str(folder): UNTRUSTED}}}
    both = {str(folder / "sub"): UNTRUSTED, str(folder): UNTRUSTED}
    assert trust.overrides(home, str(folder / "sub")) == {"config": {"projects": both}}


@pytest.mark.parametrize("row", ['trust_level = "perhaps"', ""])
def test_a_row_without_a_decision_is_none(home: Path, folder: Path, row: str) -> None:
    (home / "config.toml").write_text(f'[projects."{folder}"]\n{row}\n')
    assert "approvalPolicy" in trust.overrides(home, str(folder))


def test_the_nearest_decision_counts(home: Path, folder: Path) -> None:
    rows = f'[projects."{folder}"]\ntrust_level = "{{}}"\n[projects."{folder}/sub"]\ntrust_level = "{{}}"\n'
    (home / "config.toml").write_text(rows.format("untrusted", "trusted"))
    assert trust.overrides(home, str(folder / "sub")) == {}
    (home / "config.toml").write_text(rows.format("trusted", "untrusted"))
    assert trust.overrides(home, str(folder / "sub")).keys() == {"config"}


@pytest.fixture
def worktree(folder: Path) -> Path:
    """A worktree of the repository in `folder`, as git lays it out."""
    tree, kept = folder.parent / "tree", folder / ".git" / "worktrees" / "tree"
    kept.mkdir(parents=True)
    (tree / "sub").mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {kept}\n")
    (kept / "gitdir").write_text(f"{tree}/.git\n")
    return tree


@pytest.mark.parametrize("below", ["", "sub"])
@pytest.mark.parametrize("relative", [False, True])
def test_a_decision_on_a_repository_is_one_on_its_worktrees(
    home: Path, folder: Path, worktree: Path, below: str, *, relative: bool
) -> None:
    if relative:
        (worktree / ".git").write_text("gitdir: ../project/.git/worktrees/tree\n")
        (folder / ".git" / "worktrees" / "tree" / "gitdir").write_text("../../../../tree/.git\n")
    cwd = str(worktree / below)
    assert str(folder) in trust.overrides(home, cwd)["config"]["projects"]
    (home / "config.toml").write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    assert trust.overrides(home, cwd) == {}


@pytest.mark.parametrize("content", ["gitdir: {kept}", "gitdir: {kept}/../..", "gitdir: nowhere", "", "\0", "\ud800"])
def test_a_folder_that_only_says_that_it_is_a_worktree(home: Path, folder: Path, worktree: Path, content: str) -> None:
    """Anybody can write that file; the repository does not know it."""
    other = folder.parent / "other"
    other.mkdir()
    text = content.format(kept=folder / ".git" / "worktrees" / "tree")
    (other / ".git").write_bytes(text.encode("utf-8", "surrogatepass"))
    (home / "config.toml").write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    assert trust.overrides(home, str(other))["config"]["projects"] == {str(other): UNTRUSTED}
    assert trust.overrides(home, str(worktree)) == {}


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


def test_a_decision_under_another_name_of_the_folder_counts(home: Path, folder: Path, tmp_path: Path) -> None:
    """Codex is told where a link leads to, finds no decision there, and must not write one."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    (home / "config.toml").write_text(f'[projects."{link}"]\ntrust_level = "trusted"\n')
    trusted = {"config": {"projects": {str(folder): {"trust_level": "trusted"}}}}
    assert trust.overrides(home, str(folder), str(link)) == trusted
    (home / "config.toml").write_text(f'[projects."{link}"]\ntrust_level = "untrusted"\n')
    untrusted = {"config": {"projects": {str(folder): UNTRUSTED}}}
    assert trust.overrides(home, str(folder), str(link)) == untrusted
    (home / "config.toml").write_text(f'[projects."{folder}"]\ntrust_level = "trusted"\n')
    assert trust.overrides(home, str(folder), str(link)) == {}
