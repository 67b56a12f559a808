"""handshake.py: what `initialize` may look like."""

from typing import Any

import pytest

from adapters.acp.errors import InvalidParams, UnsupportedVersion
from adapters.acp.handshake import ClientInfo, parse_initialize

INFO = {"name": "editor", "version": "1"}
JUNK: list[Any] = [None, True, False, 0, 1.5, "text", [], [{}]]


def parse(supported: tuple[int, ...] = (2,), **params: Any) -> ClientInfo:
    return parse_initialize({"protocolVersion": 2, "info": INFO, **params}, supported)


def test_a_complete_request() -> None:
    client = parse(
        info={"name": "editor", "version": "1", "title": "Editor", "_meta": {"x": 1}},
        capabilities={"auth": {"terminal": {}}, "elicitation": {"form": {}, "url": {"x": 1}}, "_meta": {}},
        _meta={"traceparent": "00"},
    )
    assert client == ClientInfo(2, 2, "editor", "1", True, True, True, {"traceparent": "00"})


def test_the_least_request() -> None:
    assert parse() == ClientInfo(2, 2, "editor", "1", False, False, False, {})


@pytest.mark.parametrize(
    ("supported", "requested", "chosen"),
    [((2,), 2, 2), ((2,), 3, 2), ((2,), 65535, 2), ((1, 2), 1, 1), ((1, 2), 2, 2), ((1, 2), 7, 2), ((2,), 2.0, 2)],
)
def test_the_highest_version_at_or_below_the_requested_is_chosen(
    supported: tuple[int, ...], requested: float, chosen: int
) -> None:
    """INIT-2, INIT-10."""
    client = parse(supported, protocolVersion=requested)
    assert (client.protocol_version, client.requested) == (chosen, requested)
    assert type(client.protocol_version) is int


@pytest.mark.parametrize(("supported", "requested"), [((2,), 1), ((2,), 0), ((1, 2), 0)])
def test_no_version_at_or_below_the_requested_is_an_error(supported: tuple[int, ...], requested: int) -> None:
    """INIT-2: whatever the rest of the params."""
    with pytest.raises(UnsupportedVersion) as raised:
        parse_initialize({"protocolVersion": requested}, supported)
    assert f"asks for version {requested} of ACP, and this agent supports version " in raised.value.message
    assert raised.value.to_wire() == {
        "code": -32022,
        "message": raised.value.message,
        "data": {"requested": requested, "supported": list(supported)},
    }


@pytest.mark.parametrize("version", ["absent", None, True, "2", 1.5, -1, 65536, 2**70, float("inf"), [2], {}])
def test_a_malformed_version_is_invalid(version: Any) -> None:
    """INIT-3."""
    with pytest.raises(InvalidParams, match="protocolVersion"):
        parse_initialize({"info": INFO} if version == "absent" else {"protocolVersion": version, "info": INFO})


@pytest.mark.parametrize("params", [None, [], "text", 5])
def test_params_must_be_an_object(params: Any) -> None:
    """RPC-10."""
    with pytest.raises(InvalidParams):
        parse_initialize(params)


@pytest.mark.parametrize(
    "info",
    [
        *JUNK,
        {},
        {"name": "x"},
        {"version": "1"},
        {"name": None, "version": "1"},
        {"name": "x", "version": 1},
    ],
)
def test_info_is_strict_for_version_two_and_lenient_beyond(info: Any) -> None:
    """INIT-5, INIT-6."""
    with pytest.raises(InvalidParams, match="info"):
        parse(info=info)
    client = parse(protocolVersion=3, info=info)
    assert (client.name, client.version, client.protocol_version) == ("unknown", "unknown", 2)


def test_missing_info_is_strict_for_version_two_and_lenient_beyond() -> None:
    """INIT-5, INIT-6."""
    with pytest.raises(InvalidParams, match="info must be an object"):
        parse_initialize({"protocolVersion": 2})
    assert parse_initialize({"protocolVersion": 9}).name == "unknown"
    assert parse(protocolVersion=9).name == "editor"


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("path", ["capabilities", "auth", "elicitation", "terminal", "form", "url"])
def test_malformed_capabilities_count_as_not_advertised(path: str, junk: Any) -> None:
    """INIT-7, INIT-9: and spoil no other one."""
    capabilities: dict[str, Any] = {"auth": {"terminal": {}}, "elicitation": {"form": {}, "url": {}}}
    holder = (
        capabilities["auth"] if path == "terminal" else capabilities["elicitation"] if path in ("form", "url") else None
    )
    if holder is not None:
        holder[path] = junk
    elif path != "capabilities":
        capabilities[path] = junk
    client = parse(capabilities=junk if path == "capabilities" else capabilities)
    assert client.auth_terminal is (path not in ("capabilities", "auth", "terminal"))
    assert client.elicitation_form is (path not in ("capabilities", "elicitation", "form"))
    assert client.elicitation_url is (path not in ("capabilities", "elicitation", "url"))


def test_an_empty_elicitation_advertises_no_mode() -> None:
    """INIT-12."""
    client = parse(capabilities={"elicitation": {}})
    assert (client.elicitation_form, client.elicitation_url) == (False, False)


@pytest.mark.parametrize("junk", JUNK)
def test_a_malformed_meta_is_dropped(junk: Any) -> None:
    """MAL-1: `_meta` is never an error."""
    assert parse(_meta=junk).meta == {}


def test_unknown_fields_are_ignored() -> None:
    """EXT-1, INIT-6."""
    assert parse(protocolVersion=3, capabilities={"new": {}}, more=1).name == "editor"


def test_version_one_is_read_by_its_own_names() -> None:
    """INIT-4: and leniently, since it required less."""
    client = parse_initialize({"protocolVersion": 1, "clientInfo": {"name": "old", "version": "3"}}, (1, 2))
    assert (client.name, client.version, client.protocol_version) == ("old", "3", 1)
    assert parse_initialize({"protocolVersion": 1, "info": INFO}, (1, 2)).name == "unknown"


def test_messages_hold_no_values() -> None:
    """RPC-15."""
    with pytest.raises(InvalidParams) as raised:
        parse(info={"name": "secret", "version": ["secret"]})
    assert "secret" not in raised.value.message
    assert raised.value.data is None


def test_what_a_client_of_version_one_can() -> None:
    """V1-INIT-2, V1-INIT-3: booleans where v1 has booleans, objects where it has objects; anything else is not advertised."""
    capabilities: dict[str, Any] = {
        "auth": {"terminal": True},
        "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
        "elicitation": {"form": {}, "url": {}},
        "plan": {},
        "_meta": {"terminal_output": True},
    }
    asked = {"protocolVersion": 1, "clientInfo": INFO, "clientCapabilities": capabilities, "_meta": {"a": 1}}
    everything = dict.fromkeys(
        ("auth_terminal", "elicitation_form", "elicitation_url", "terminal_output", "notices", "compaction", "plans"),
        True,
    )
    known = ClientInfo(1, 1, "editor", "1", meta={"a": 1}, boolean_options=True, **everything)  # pyright: ignore[reportArgumentType]
    assert parse_initialize(asked, (1, 2)) == known
    wrong = {
        "auth": {"terminal": {}},
        "session": {"notices": True, "compaction": 1, "configOptions": {"boolean": True}},
        "elicitation": {"form": True},
        "plan": True,
        "_meta": {"terminal_output": {}, "terminal-auth": 1},
    }
    nothing = ClientInfo(1, 1, "editor", "1")
    assert parse_initialize({**asked, "clientCapabilities": wrong, "_meta": None}, (1, 2)) == nothing
    assert parse_initialize({"protocolVersion": 1, "clientInfo": INFO, "capabilities": capabilities}, (1, 2)) == nothing


def test_a_client_that_prefers_two_may_get_one() -> None:
    """V1-INIT-1: an agent that is told to speak version 1 only reads what it can of a request for version 2."""
    client = parse_initialize({"protocolVersion": 2, "info": INFO, "capabilities": {}}, (1,))
    assert (client.protocol_version, client.requested, client.name) == (1, 2, "unknown")
