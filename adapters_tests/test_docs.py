"""What the documents promise is there: commands, examples, links, error codes."""

import importlib
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from adapters import cli, plugins
from adapters.acp.errors import BY_CODE
from adapters.core.submissions import derived_id

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/*.md")),
    ROOT / "bench/README.md",
]


def anchors(page: Path) -> set[str]:
    """The link targets that headings make."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_readme_has_exactly_two_commands_that_do_everything() -> None:
    """`.ci/run` runs the second one as it stands there."""
    blocks = re.findall(
        r"^```sh (\w+)\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [(name, text.count("\n")) for name, text in blocks] == [("demo", 1), ("tests", 1)]
    assert blocks[0][1].strip().endswith("/acp-adapters demo")
    assert blocks[1][1].strip().endswith("/python -m pytest")
    assert "^```sh tests$" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def commands(page: Path) -> list[str]:
    """What stands after `acp-adapters` in inline code and at the end of a shell line, without placeholders and comments."""
    text = page.read_text(encoding="utf-8")
    inline = re.findall(r"`acp-adapters ([^`:]+)`", text)
    lines = re.findall(
        r"^(?:.*&& )?(?:\S*/)?acp-adapters ([^:#\n]+)",
        "\n".join(re.findall(r"^```sh.*?^```", text, re.MULTILINE | re.DOTALL)),
        re.MULTILINE,
    )
    return [words for words in inline + lines if "COMMAND" not in words]


def test_every_command_in_the_documents_is_understood() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert len(found) > 15
    for words in found:
        cli.grammar((*plugins.OWN, "parrot")).parse(words.split())  # raises for what does not exist


def test_the_example_of_a_message_id_is_right() -> None:
    """ADP-1, ADP-12: the documented derivation is the one in use."""
    text = (ROOT / "docs/idempotent-prompts.md").read_text(encoding="utf-8")
    matched = re.search(r'uuid5\(UUID\("([^"]+)"\), "([^"]+)"\)', text)
    assert matched is not None
    session_id, key = matched.groups()
    message_id = derived_id(session_id, key)
    assert message_id == str(uuid.uuid5(uuid.UUID(session_id), key))
    assert f'"result":{{"messageId":"{message_id}"}}' in text
    assert text.count(session_id) >= 2
    assert text.count(key) >= 3


def test_every_error_code_is_explained_to_client_authors() -> None:
    text = (ROOT / "docs/idempotent-prompts.md").read_text(encoding="utf-8")
    assert set(BY_CODE) <= {int(code) for code in re.findall(r"-32\d{3}", text)}


def test_the_tests_that_the_reliability_page_names_are_there() -> None:
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:adapters_tests/)?((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for file, test in named:
        path = ROOT / "adapters_tests" / file
        assert path.is_file(), file
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"


RULE = re.compile(r"\b(?:(?:V1-)?[A-Z]{2,}-\d+|[DEF]\d{1,2}|[Tt]race \d+)\b")
"""Ids as the code names them: rules (`KEY-4`), decisions (`D2`), edge cases (`E7`), reported faults (`F35`), traces."""
NO_RULES = {"UTF-8", "UTF-16", "ISO-8859", "PDF-1", "KEY-99"}
"""Encodings, a file's head, and an id that a test needs to be unknown."""
NOWHERE = re.compile(r"\b(?:trap|section) \d+")
"""References to texts that are not in the repository."""


def test_every_id_in_the_code_is_defined_in_the_documents() -> None:
    """A row of a table in docs/conformance.md, or a numbered decision in docs/architecture.md."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("docs/*.md")))
    rows = re.findall(r"^\| (\S+|Trace \d+) \|", text, re.MULTILINE)
    decisions = re.findall(r"^\*\*(D\d+)\. ", text, re.MULTILINE)
    assert [int(name[1:]) for name in decisions] == list(range(1, len(decisions) + 1))
    known = {*rows, *decisions, *NO_RULES}
    unknown: list[str] = []
    for folder in ("adapters", "adapters_tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                named = [name[0].upper() + name[1:] for name in RULE.findall(line)]
                if any(name not in known for name in named) or NOWHERE.search(line):
                    unknown.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert unknown == []


API = ROOT / "docs/api.md"


def public_names() -> dict[str, set[str]]:
    """Module -> the names in the first column of its table in docs/api.md."""
    sections = re.split(r"^#+ ", API.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, set[str]] = {}
    for section in sections:
        title, _, body = section.partition("\n")
        if named := re.fullmatch(r"`(adapters(?:\.\w+)+)`", title):
            cells = re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
            found[named[1]] = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    return found


def test_the_public_names_are_those_on_the_page() -> None:
    found = public_names()
    assert {"adapters.client", "adapters.scripted", "adapters.core.port", "adapters.core.submissions"} <= set(found)
    for name, names in found.items():
        module = importlib.import_module(name)
        assert set(module.__all__) == names, name
        assert [public for public in names if not hasattr(module, public)] == [], name


def test_the_example_of_the_key_record_runs(tmp_path: Path) -> None:
    """KEY-12, ADP-1: two attempts share one insertion, and a third gets its id."""
    matched = re.search(r"^```python keys.py\n(.*?)^```", API.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert matched is not None
    (tmp_path / "keys.py").write_text(matched[1], encoding="utf-8")
    ran = subprocess.run([sys.executable, tmp_path / "keys.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    message_id = derived_id("6c1f2d0a-7c55-4b0e-9d6e-0a4b1c2d3e4f", "key-1")
    assert ran.stdout.splitlines() == [f"attempt {number} -> {message_id}" for number in (1, 2, 3)]
