"""D10: `initialize` is answered before anything heavy is imported."""

import subprocess
import sys

import pytest

import adapters.acp.schema as schema_module

LIGHT = ("errors", "framing", "calls", "rpc", "stdio", "memory", "handshake", "retry")
HEAVY = {
    "pydantic",
    "pydantic_core",
    "email",
    "uuid",
    "importlib.metadata",
    "adapters.acp.schema",
    "adapters.acp.model",
}


@pytest.mark.parametrize("module", LIGHT)
def test_the_wire_is_imported_without_the_models(module: str) -> None:
    code = f"import sys, adapters.acp.{module}, anyio._backends._asyncio; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(run.stdout.split())


def test_importing_the_models_builds_none() -> None:
    code = """
import adapters.acp.schema as schema
built = [name for name in schema.__all__
         if isinstance(value := getattr(schema, name), type) and issubclass(value, schema.Bare)
         and value.__pydantic_complete__ and value not in (schema.Bare, schema.Wire)]
print(built)
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_models_of_results_are_loaded_by_whoever_reads_one() -> None:
    """An agent writes results; they cost its client 7 ms."""
    code = """
import sys
import adapters.core.agent
print("adapters.acp.results" in sys.modules)
from adapters.acp.schema import NewSessionResult, selected_option
print(NewSessionResult(session_id="s").session_id, selected_option({"outcome": {"outcome": "cancelled"}}, ["y"]))
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["False", "s None"]


def test_a_name_that_is_no_model_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"adapters\.acp\.schema.*Nothing"):
        _ = schema_module.Nothing


def test_public_names_are_pinned() -> None:
    """What others import is listed; nothing of the listing is missing."""
    assert len(set(schema_module.__all__)) == len(schema_module.__all__)
    assert all(hasattr(schema_module, name) for name in schema_module.__all__)
    assert {"parse_params", "parse_result", "parse_update", "dump", "ContentBlock", "SessionUpdate"} <= set(
        schema_module.__all__
    )
