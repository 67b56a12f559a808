"""Checks our agents and the TypeScript adapters with `acp-adapters check`, and writes the tables of `docs/conformance.md`.

    python bench/conformance.py --npm DIR       # a folder with node_modules: see --help
    python bench/conformance.py --results DIR   # only write the page again, from results of an earlier run

Owns the section between the marks on that page. The judge is the product; nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.check.catalogue import CATALOGUE
from adapters.check.verdict import Rule
from adapters.driver import uuids

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "conformance.md"
BEGIN, END = "<!-- bench/conformance.py writes from here -->", "<!-- to here -->"
PACKAGES = ("@agentclientprotocol/claude-agent-acp@0.101.0", "@agentclientprotocol/codex-acp@2.6.0", "node@22")
UUID = re.compile(rf"\b{uuids.UUID}\b")
WORDS = {"held": "held", "broken": "**broken**", "not applicable": "-"}
ITEMS = ("Idempotency keys: the field", "Idempotency keys: the seven traces and their edges")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """One column."""

    name: str
    """Also the name of its result file."""
    runtime: str
    command: tuple[str, ...] = ()
    """Empty: there is no folder to start it from; an earlier result will do."""


def subjects(npm: Path | None) -> list[Subject]:
    """The four agents. Raises `SystemExit` when a package is not in its folder."""
    installed = Path(sys.executable).with_name("acp-adapters")
    ours = (str(installed),) if installed.exists() else (sys.executable, "-m", "adapters")
    found = [Subject(f"acp-adapters {runtime}", runtime, (*ours, runtime)) for runtime in ("claude", "codex")]
    for package, runtime in (("claude-agent-acp", "claude"), ("codex-acp", "codex")):
        if npm is None:
            found.append(Subject(package, runtime))
            continue
        script = npm / "node_modules/@agentclientprotocol" / package / "dist/index.js"
        if not script.is_file():
            raise SystemExit(f"There is no {script}: run  npm install --prefix {npm} {' '.join(PACKAGES)}")
        node = npm / "node_modules/node/bin/node"
        program = str(node) if node.exists() else (shutil.which("node") or "node")
        found.append(Subject(package, runtime, (program, str(script))))
    return found


def check(subject: Subject, seconds: float) -> Json:
    """The result of one check, as `--json` prints it."""
    ours = [sys.executable, "-m", "adapters", "check", "--json", "--timeout", f"{seconds:g}"]
    ran = subprocess.run(
        [*ours, "--scripted", subject.runtime, "--", *subject.command], stdout=subprocess.PIPE, cwd=ROOT, check=False
    )
    if ran.returncode not in (0, 1):
        raise SystemExit(f"The check of {subject.name} ended with status {ran.returncode}.")
    return json.loads(ran.stdout)


def section(results: Mapping[str, Json]) -> str:
    """The Markdown between the marks."""
    standing = {name: {row["id"]: row for row in result["rules"]} for name, result in results.items()}
    titles = {name: _title(name, result) for name, result in results.items()}
    lines: list[str] = []
    for part in CATALOGUE:
        lines += [
            "",
            f"### {part.title}",
            "",
            f"| Rule | Sentence | {' | '.join(titles.values())} |",
            f"|---|---|{'---|' * len(results)}",
        ]
        lines += [_row(rule, [standing[name].get(rule.id) for name in results]) for rule in part.rules]
    counts = [f"* {titles[name]}: {_plain(result['summary'])}" for name, result in results.items()]
    return "\n".join(["", *counts, *lines, "", "### What was seen", "", *_seen(results, titles), ""])


def _title(name: str, result: Json) -> str:
    version = (result.get("agent") or {}).get("version", "")
    return name if name.startswith("acp-adapters") else f"{name} {version}".strip()


def _row(rule: Rule, cells: list[Json | None]) -> str:
    should = " (should)" if rule.level == "should" else ""
    words = [WORDS[cell["standing"]] if cell else "?" for cell in cells]
    if should:
        words = ["no" if word == "**broken**" else word for word in words]
    return f"| {rule.id} | {rule.sentence}{should} | {' | '.join(words)} |"


def _seen(results: Mapping[str, Json], titles: Mapping[str, str]) -> list[str]:
    """A line for each rule that does not hold, and for each that could not be looked at."""
    key_rules = {rule.id for part in CATALOGUE if part.title in ITEMS for rule in part.rules}
    lines: list[str] = []
    for name, result in results.items():
        told = [row for row in result["rules"] if row["standing"] != "held"]
        if result["readsIdempotencyKey"] is False:
            lines.append(
                f"* {titles[name]} does not read `idempotencyKey`, which is a proposal and not in schema 2.4.0;"
                " that is why the rules about it do not hold."
            )
            told = [row for row in told if row["id"] not in key_rules]
        lines += [f"* {titles[name]}, {row['id']}: {_plain(row['reason'])}" for row in told]
    return lines


def _plain(text: str) -> str:
    return UUID.sub("...", text).replace("|", "\\|")


def write(results: Mapping[str, Json]) -> None:
    """Put the section on the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{section(results)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Check, keep the results, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--npm", type=Path, help=f"a folder with node_modules: npm install --prefix DIR {' '.join(PACKAGES)}"
    )
    parser.add_argument("--results", type=Path, help="a folder for the results; those that are there are used")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds of any one wait")
    given = parser.parse_args()
    folder = given.results or Path(tempfile.mkdtemp(prefix="acp-conformance-"))
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Json] = {}
    for subject in subjects(given.npm):
        file = folder / f"{subject.name.replace(' ', '-')}.json"
        if not file.exists() and not subject.command:
            print(f"{subject.name}: not checked, because --npm is not given", flush=True)
            continue
        if not file.exists():
            print(f"checking {subject.name} ...", file=sys.stderr, flush=True)
            file.write_text(json.dumps(check(subject, given.timeout), indent=2), encoding="utf-8")
        results[subject.name] = json.loads(file.read_text(encoding="utf-8"))
        print(f"{subject.name}: {results[subject.name]['summary']}", flush=True)
    write(results)
    print(f"results in {folder}; tables in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
