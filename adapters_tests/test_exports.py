"""The names that others rely on: the package, its command, and what documents and clients import."""

import importlib
import importlib.metadata
import importlib.resources
import tomllib
from pathlib import Path

import pytest

import adapters

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NAMES = {
    "adapters": ["__version__"],
    "adapters.acp.errors": [
        "AcpError",
        "AuthRequired",
        "InternalError",
        "InvalidParams",
        "InvalidRequest",
        "MethodNotFound",
        "ParseError",
        "RequestCancelled",
        "ResourceNotFound",
        "UnsupportedVersion",
    ],
    "adapters.acp.framing": ["LineDecoder", "LineTooLong", "decode", "encode"],
    "adapters.acp.memory": ["memory_pair"],
    "adapters.acp.retry": ["RETRY_CLASSES"],
    "adapters.acp.rpc": ["Connection", "Handler", "Transport"],
    "adapters.acp.stdio": ["StdioTransport", "claim_stdio"],
    "adapters.check.command": ["Request", "run_check"],
    "adapters.check.wire": ["WireError", "validate_agent_message"],
    "adapters.core.front": ["AgentInfo", "serve"],
    "adapters.core.submissions": ["derived_id"],
    "adapters.scripted": ["ScriptedModel", "isolated_claude_home", "load_script"],
}


PUBLIC = {
    "adapters.client": {
        "AcpError",
        "AgentProcess",
        "Call",
        "Client",
        "ConnectionLostError",
        "Entry",
        "MalformedAnswerError",
        "Outbox",
        "OutboxInUseError",
        "Outcome",
        "Policy",
        "PromptCall",
        "Question",
        "SessionView",
        "allow",
        "allow_always",
        "reject",
        "start_agent",
    },
}
"""Packages whose `__all__` is a promise."""


@pytest.mark.parametrize(("module", "names"), PUBLIC.items(), ids=list(PUBLIC))
def test_the_public_names_are_exactly_these(module: str, names: set[str]) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) == names
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.parametrize(("module", "names"), NAMES.items(), ids=list(NAMES))
def test_names_stay(module: str, names: list[str]) -> None:
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


def test_the_command_is_installed_under_its_name() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="acp-adapters")
    assert entry.value == "adapters.cli:main"
    assert callable(entry.load())
    assert importlib.metadata.version("acp-adapters") == adapters.__version__


def test_it_is_typed_and_asks_for_little() -> None:
    assert importlib.resources.files("adapters").joinpath("py.typed").is_file()
    assert sorted(name.split(">")[0] for name in PROJECT["dependencies"]) == ["anyio", "h11", "pydantic", "uuid-utils"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert "claude" in PROJECT["optional-dependencies"]
    assert [name.split(">")[0] for name in PROJECT["optional-dependencies"]["check"]] == ["jsonschema"]
