"""plugins.py: a runtime of another package is found, and a driver of another author can be held to every rule of the check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import adapters
from adapters import plugins

ROOT = Path(adapters.__file__).parents[1]
PARROT = Path(__file__).parent / "third_runtime" / "parrot"


def installed(folder: Path, name: str, value: str) -> Path:
    """Note in `folder`, a place on the path, that a distribution there brings this runtime, as an installer would."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {value}\n")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A place on the path with the package parrot in it."""
    folder = installed(tmp_path / "site", "parrot", "parrot:PLUGIN")
    shutil.copytree(PARROT, folder / "parrot", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def command(site: Path, *arguments: str) -> list[str]:
    path = f"PYTHONPATH={site}{os.pathsep}{ROOT}"
    return ["/usr/bin/env", path, "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m", "adapters", *arguments]


def run(words: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(words, env=environ, cwd=home, capture_output=True, text=True, timeout=600, check=False)


def test_the_own_runtimes_are_found_without_metadata_and_declared_in_it() -> None:
    """Other tools find them as they find those of other packages."""
    declared = {entry.name: entry.value for entry in plugins._entries()}
    assert {name: declared[name] for name in plugins.OWN} == {
        name: f"{module}:PLUGIN" for name, module in plugins.OWN.items()
    }
    assert plugins.load("claude").title == "Claude Code"
    with pytest.raises(KeyError):
        plugins.load("parrot")


def test_a_runtime_of_another_package_is_a_command_like_the_own_ones(site: Path, tmp_path: Path) -> None:
    shown = run(command(site, "--help"), tmp_path).stdout
    assert "  parrot     serve Parrot to an ACP client over stdin and stdout\n" in shown
    doctor = run(command(site, "doctor", "parrot"), tmp_path)
    assert (doctor.returncode, "  [ok] program: it is a part of the agent\n" in doctor.stdout) == (0, True)


def test_a_package_that_cannot_be_imported_breaks_only_its_own_command(tmp_path: Path) -> None:
    site = installed(tmp_path / "site", "broken", "no_such_module:PLUGIN")
    shown = run(command(site, "--help"), tmp_path)
    assert (shown.returncode, "  broken     serve broken to an ACP client" in shown.stdout) == (0, True)
    assert shown.stderr == "acp-adapters: the runtime 'broken' cannot be loaded (ModuleNotFoundError)\n"
    ran = run(command(site, "broken"), tmp_path)
    reason = "the runtime 'broken' cannot be loaded (ModuleNotFoundError): reinstall the package that brings it"
    assert (ran.returncode, reason in ran.stderr) == (1, True)


def test_a_driver_of_another_author_holds_every_rule(site: Path, tmp_path: Path) -> None:
    """The check is the suite for drivers: it kills the agent at any moment, and counts what happened from outside."""
    asked = [*command(site, "check", "--scripted", "parrot"), "--", *command(site, "parrot")]
    ran = run(asked, tmp_path)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-1000:]
    last = ran.stdout.strip().splitlines()[-1]
    held, broken, left_out = (int(part.split()[0]) for part in last.split(", "))
    assert (broken, left_out) == (0, 6), ran.stdout[-4000:]
    assert held > 100
