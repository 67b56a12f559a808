"""retry.py: the table is complete."""

import pytest

from adapters.acp.retry import RETRY_CLASSES, retry_class
from adapters_tests.schema import schema

SENDER = {"agent": "client", "client": "agent", "proxy": "proxy", "protocol": "both"}
"""Side that handles a method, in the schema -> who sends it."""


def declared(*, unstable: bool) -> set[tuple[str, str, str]]:
    return {
        (
            definition["x-method"],
            "notification" if name.endswith("Notification") else "request",
            SENDER[definition["x-side"]],
        )
        for name, definition in schema(unstable=unstable)["$defs"].items()
        if "x-method" in definition and not name.endswith("Response")
    }


@pytest.mark.parametrize("unstable", [False, True])
def test_every_method_of_the_schema_has_its_class(unstable: bool) -> None:
    """A method added later must say what a repeat does."""
    assert declared(unstable=unstable) <= {(row.method, row.kind, row.sender) for row in RETRY_CLASSES}


def test_every_row_is_a_method_of_its_stability() -> None:
    stable, unstable = declared(unstable=False), declared(unstable=True)
    for row in RETRY_CLASSES:
        key = (row.method, row.kind, row.sender)
        stability = "stable" if key in stable else "unstable" if key in unstable else "rfd"
        assert row.stability == stability, row
    assert len({(row.method, row.kind, row.sender) for row in RETRY_CLASSES}) == len(RETRY_CLASSES)


def test_only_the_prompt_has_a_key() -> None:
    """KEY-1."""
    assert {row.method: row.key for row in RETRY_CLASSES if row.key or row.retry == "keyed"} == {
        "session/prompt": "idempotencyKey"
    }


def test_what_is_not_in_the_table_is_not_retried() -> None:
    assert retry_class("_custom") == "not_retried"
    assert retry_class("session/prompt") == "keyed"
    assert retry_class("session/new") == "duplicating"
    assert retry_class("session/request_permission", "agent") == "idempotent"
    assert retry_class("session/request_permission") == "not_retried"
    assert retry_class("$/cancel_request", "agent", "notification") == "not_retried"
    assert retry_class("mcp/message", "client") == "out_of_scope"
    assert retry_class("mcp/message", "client", "notification") == "not_retried"
