"""Every published example is judged as it is marked: by the schema, and by our own readers."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.calls import as_id
from adapters.acp.errors import AcpError
from adapters.acp.handshake import parse_initialize
from adapters.acp.schema import dump, parse_params, parse_result, parse_update, selected_option
from adapters_tests.schema import WireError, validate

FILE = Path(__file__).parent.parent.parent / "fixtures" / "wire-examples.jsonl"
EXAMPLES: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
V2 = [example for example in EXAMPLES if example["schema"] != "v1"]

STRICTER = {
    "lone surrogate: not a Unicode character (digest rule E16): -32602; JSON Schema alone does not catch it, "
    "and some JSON parsers refuse the whole line": "E16: the schema cannot say it",
    "schema-valid unknown cursor, but the agent must refuse it: -32602": "RESUME-3: unknown cursors are refused",
}
"""Examples that are marked invalid although the schema lets them pass -> why. Our readers refuse them."""

SALVAGED = {
    "v1 diff shape; a lenient client drops the item": "skip-invalid-items of content",
    "cols must be at least 1; readers salvage by dropping size": "default-on-error of size",
    "type missing on a command (v1 shape)": "skip-invalid-items of availableCommands",
}
"""Examples that the schema refuses and our readers accept -> the mark that says so."""

KNOWN_BETTER = {
    "the SAME malformed key passes the 2.4.0 schema, which does not know the field: "
    "validators must carry the proposed overlay": "KEY-4: our readers know the field",
}
"""Examples that the schema without the overlay accepts and our readers refuse -> the rule."""


def name(example: dict[str, Any]) -> str:
    return f"{EXAMPLES.index(example) + 1}-{example['method']}-{example['kind']}"


def read(example: dict[str, Any]) -> None:
    """Read one message as the side that receives it does. Raises `AcpError` or `ValueError` for a message that it refuses."""
    message, method = example["message"], example["method"]
    if not isinstance(message, dict):
        raise ValueError  # noqa: TRY004 - what rpc refuses
    if "method" in message:
        if "id" in message and as_id(message["id"]) is None:
            raise ValueError
        if method == "initialize":
            parse_initialize(message["params"])
        elif method == "$/cancel_request":
            if as_id(message["params"]["requestId"]) is None:
                raise ValueError
        elif example["kind"] == "request" and method == "session/cancel":
            raise ValueError  # a notification: the agent has no such request
        else:
            parse_params(method, message.get("params"))
    elif "error" in message:
        if "result" in message:
            raise ValueError
        AcpError.from_wire(message["error"])
    else:
        parse_result(method, message["result"])


def test_the_file_is_complete() -> None:
    assert len(EXAMPLES) == 161
    assert len({json.dumps(example, sort_keys=True) for example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize("example", V2, ids=name)
def test_the_schema_judges_as_marked(example: dict[str, Any]) -> None:
    """KEY-6: with the overlay of the key where the example says so."""
    options = {"unstable": example["schema"] == "unstable", "key": example["schema"] == "key", "closed": False}
    try:
        validate(example["message"], example["from"], example["method"], **options)
    except WireError:
        assert not example["valid"]
    else:
        assert example["valid"] or example["why"] in STRICTER


@pytest.mark.parametrize("example", V2, ids=name)
def test_our_readers_judge_as_marked(example: dict[str, Any]) -> None:
    why = example.get("why", "")
    expected = (example["valid"] or why in SALVAGED) and why not in KNOWN_BETTER
    try:
        read(example)
    except (AcpError, ValueError):
        assert not expected
    else:
        assert expected


@pytest.mark.parametrize("example", [e for e in V2 if e["valid"] and e["method"] == "session/update"], ids=name)
def test_an_update_is_passed_on_as_it_came(example: dict[str, Any]) -> None:
    """CONT-1, EXT-7: every field, null and unknown variant survives; an error beside another stop reason does not (STOP-3)."""
    update = example["message"]["params"]["update"]
    expected = dict(update)
    if update.get("state") == "idle" and update.get("stopReason") != "error":
        for unknown in ("error", "resetAt"):
            expected.pop(unknown, None)
    assert dump(parse_update(update)) == expected


@pytest.mark.parametrize("example", [e for e in V2 if e["method"] == "session/request_permission"], ids=name)
def test_only_a_well_formed_choice_is_one(example: dict[str, Any]) -> None:
    """PERM-2, PERM-3, MAL-1."""
    result = example["message"].get("result")
    chosen = "y" if result == {"outcome": {"outcome": "selected", "optionId": "y"}} else None
    assert selected_option(result, ["y", "n"]) == chosen
    assert selected_option(result, ["n"]) is None
