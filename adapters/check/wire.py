"""Judges messages by the published v2 schema: for the check of an agent, and for any test that sees messages.

`validate_agent_message` and `validate_client_message` take one message. `Wire` also remembers which method a response answers.
The judge goes beyond the schema in three points: the idempotency key (KEY-6), fields that the types of the schema do not have
(EXT-1), and the `data` that some errors must have. Messages may use the stable schema only, unless a test says otherwise. A
response without the method of its request is judged as an envelope.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import (
    ValidationError,
    best_match,  # pyright: ignore[reportUnknownVariableType]  # its stubs are incomplete
)

__all__ = [
    "Wire",
    "WireError",
    "validate_agent_message",
    "validate_client_message",
]

FOLDER = Path(__file__).with_name("schema")
DRAFT = Draft202012Validator
KEY_OVERLAY = {"anyOf": [{"$ref": "#/$defs/IdempotencyKey"}, {"type": "null"}]}
ERROR_DATA = {-32002: "SessionNotFoundErrorData", -32022: "UnsupportedProtocolVersionErrorData"}


class WireError(Exception):
    """A message that the schema does not allow."""


@cache
def schema(*, unstable: bool = False, key: bool = True) -> dict[str, Any]:
    """The schema file, with the overlay of the key unless `key` is false."""
    loaded = json.loads((FOLDER / ("schema.unstable.json" if unstable else "schema.json")).read_text("utf-8"))
    if key:
        loaded["$defs"]["IdempotencyKey"] = {"type": "string", "minLength": 1, "maxLength": 255}
        loaded["$defs"]["PromptRequest"]["properties"]["idempotencyKey"] = KEY_OVERLAY
    return loaded


@cache
def methods(*, unstable: bool = False) -> Mapping[tuple[str, str], str]:
    """(method, "Request" | "Response" | "Notification") -> name of the definition."""
    found: dict[tuple[str, str], str] = {}
    for name, definition in schema(unstable=unstable)["$defs"].items():
        if method := definition.get("x-method"):
            kind = next(kind for kind in ("Request", "Response", "Notification") if name.endswith(kind))
            found[method, kind] = name
    return found


@cache
def update_variants(*, unstable: bool = False) -> frozenset[str]:
    """The tags of `session/update` that the schema knows."""
    branches = schema(unstable=unstable)["$defs"]["SessionUpdate"]["anyOf"]
    tags = (branch.get("properties", {}).get("sessionUpdate", {}).get("const") for branch in branches)
    return frozenset(tag for tag in tags if tag is not None)


@cache
def validator(
    name: str, *, unstable: bool = False, key: bool = True, closed: bool = True, update: str | None = None
) -> DRAFT:
    """The validator of one definition. `closed`: fields that the definition lacks are errors, at every level (EXT-1).

    `update`: every update in it is of this kind. That says the same of such a one in a fifth of the time.
    """
    definitions = _closed(unstable=unstable, key=key) if closed else schema(unstable=unstable, key=key)["$defs"]
    if update is not None:
        one = {**definitions["SessionUpdate"], "allOf": [_updates(unstable=unstable, key=key)[update]]}
        definitions = {**definitions, "SessionUpdate": one}
    wrapper: dict[str, Any] = {"$ref": f"#/$defs/{name}", "$defs": definitions}
    return DRAFT(wrapper | ({"unevaluatedProperties": False} if closed else {}))


@cache
def _closed(*, unstable: bool, key: bool) -> dict[str, Any]:
    definitions = deepcopy(schema(unstable=unstable, key=key)["$defs"])
    for definition in definitions.values():
        _close_members(definition)
    # The variant is chosen by its tag: validating one of twenty is fast, and its errors name the field.
    definitions["SessionUpdate"] = _by_tag(definitions["SessionUpdate"], "sessionUpdate")
    definitions["ContentBlock"] = _by_tag(definitions["ContentBlock"], "type")
    definitions["ToolCallContent"] = _by_tag(definitions["ToolCallContent"], "type")
    return definitions


@cache
def _updates(*, unstable: bool, key: bool) -> dict[str, Any]:
    """The closed variants of an update by their tags, those that the schema knows."""
    found: dict[str, Any] = {}
    (chain,) = _closed(unstable=unstable, key=key)["SessionUpdate"]["allOf"]
    while "if" in chain:
        found[chain["if"]["properties"]["sessionUpdate"]["const"]] = chain["then"]
        chain = chain["else"]
    return found


def _close_members(node: dict[str, Any]) -> None:
    for name, member in node.get("properties", {}).items():
        if name not in ("data", "_meta", "rawInput", "rawOutput"):
            _close(member)
    if isinstance(node.get("items"), dict):
        _close(node["items"])
    for combined in ("anyOf", "allOf", "oneOf"):
        for branch in node.get(combined, ()):
            _close_members(branch)


def _close(node: dict[str, Any]) -> None:
    if node.keys() & {"$ref", "anyOf", "allOf", "oneOf"}:
        node["unevaluatedProperties"] = False
    _close_members(node)


def _by_tag(union: dict[str, Any], tag: str) -> dict[str, Any]:
    known = {
        branch["properties"][tag]["const"]: branch for branch in union["anyOf"] if "const" in branch["properties"][tag]
    }
    other = next(branch for branch in union["anyOf"] if "const" not in branch["properties"][tag])
    chain: dict[str, Any] = other
    for value, branch in reversed(known.items()):  # the first is tried first: of content that is text
        chain = {"if": {"properties": {tag: {"const": value}}, "required": [tag]}, "then": branch, "else": chain}
    return {"type": "object", "required": [tag], "properties": {tag: {"type": "string"}}, "allOf": [chain]}


class Wire:
    """Both directions of one connection: validates each message, results by the method of their request.

    `closed` false allows fields that the spec types do not have, as readers must (EXT-1). Raises `WireError`.
    """

    def __init__(self, *, unstable: bool = False, closed: bool = True) -> None:
        self._options = {"unstable": unstable, "closed": closed}
        self._asked: dict[tuple[str, type, Any], str] = {}

    def sent_by_agent(self, message: Any) -> None:
        """Take a message of the agent."""
        self._sent("agent", message)

    def sent_by_client(self, message: Any) -> None:
        """Take a message of the client."""
        self._sent("client", message)

    def _sent(self, sender: str, message: Any) -> None:
        members = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        method: Any = members.get("method")
        request_id: Any = members.get("id")
        peer = "client" if sender == "agent" else "agent"
        asked = None if method is not None else self._asked.pop((peer, _type_of(request_id), request_id), None)
        validate(message, sender, asked, **self._options)
        if method is not None and "id" in members:
            self._asked[sender, type(request_id), request_id] = method


def _type_of(value: object) -> type[object]:
    return type(value)


def validate_agent_message(message: Any, method: str | None = None, *, unstable: bool = False) -> None:
    """Raise `WireError` unless an agent may send this. `method`: of the request that a response answers."""
    validate(message, "agent", method, unstable=unstable)


def validate_client_message(message: Any, method: str | None = None, *, unstable: bool = False) -> None:
    """Raise `WireError` unless a client may send this. `method`: of the request that a response answers."""
    validate(message, "client", method, unstable=unstable)


def validate(
    message: Any,
    sender: str,
    asked: str | None = None,
    *,
    unstable: bool = False,
    key: bool = True,
    closed: bool = True,
) -> None:
    """Raise `WireError` unless `sender` may send this message; `asked` is the method that a response answers."""
    _require(isinstance(message, dict), "a message is an object")
    _require(message.get("jsonrpc") == "2.0", "jsonrpc is 2.0")
    options = {"unstable": unstable, "key": key, "closed": closed}
    if "method" in message:
        _require(message.keys() <= {"jsonrpc", "id", "method", "params"}, "no other members in a call")
        if "id" in message:
            _check("RequestId", message["id"], **options)
        _validate_call(message, sender, options)
    else:
        _require(message.keys() <= {"jsonrpc", "id", "result", "error"}, "no other members in a response")
        _require("id" in message, "a response has an id")
        _require(("result" in message) != ("error" in message), "a response has either result or error")
        _validate_response(message, asked, options)


def _validate_call(message: dict[str, Any], sender: str, options: dict[str, bool]) -> None:
    kind = "Request" if "id" in message else "Notification"
    method = message["method"]
    name = methods(unstable=options["unstable"]).get((method, kind))
    if name is None:
        _require(method.startswith("_"), f"{method} is no {kind.lower()} of this schema")
        return
    receiver = schema(unstable=options["unstable"])["$defs"][name]["x-side"]
    _require(
        receiver in ("protocol", {"agent": "client", "client": "agent"}[sender]), f"{sender} does not send {method}"
    )
    _check(name, {} if message.get("params") is None else message["params"], **options)


def _validate_response(message: dict[str, Any], asked: str | None, options: dict[str, bool]) -> None:
    if "error" in message:
        if message["id"] is not None:
            _check("RequestId", message["id"], **options)
        error = message["error"]
        _check("Error", error, **options)
        if definition := ERROR_DATA.get(error["code"]):
            _check(definition, error.get("data"), **(options | {"closed": False}))
    else:
        _check("RequestId", message["id"], **options)
        _require(isinstance(message["result"], dict), "a result is an object")
        name = methods(unstable=options["unstable"]).get((asked or "", "Response"))
        if name is not None:
            _check(name, message["result"], **options)


def _check(name: str, value: Any, *, unstable: bool, key: bool, closed: bool) -> None:
    update: str | None = None
    if closed and name == "UpdateSessionNotification":
        tag = _member(_member(value, "update"), "sessionUpdate")
        update = tag if isinstance(tag, str) and tag in _updates(unstable=unstable, key=key) else None
    judge: Any = validator(name, unstable=unstable, key=key, closed=closed, update=update)  # its stubs are incomplete
    error: ValidationError | None = next(judge.iter_errors(value), None)
    if error is not None:
        best = cast("ValidationError", best_match([error]) or error)
        raise WireError(f"{name}: {best.json_path}: {best.message[:300]}")


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise WireError(what)
