"""errors.py: classes, codes and wire shapes."""

import pytest

from adapters.acp import errors
from adapters.acp.errors import (
    BY_CODE,
    AcpError,
    InternalError,
    InvalidParams,
    InvalidResult,
    MethodNotFound,
    RequestCancelled,
    ResourceNotFound,
    UnsupportedVersion,
    as_acp_error,
)


def test_every_code_of_the_protocol_has_its_class() -> None:
    """RPC-16: and no other has one."""
    assert {code: error_class.__name__ for code, error_class in BY_CODE.items()} == {
        -32700: "ParseError",
        -32600: "InvalidRequest",
        -32601: "MethodNotFound",
        -32602: "InvalidParams",
        -32603: "InternalError",
        -32800: "RequestCancelled",
        -32000: "AuthRequired",
        -32002: "ResourceNotFound",
        -32022: "UnsupportedVersion",
    }


def test_every_class_is_in_the_tree_of_the_docstring() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, AcpError):
            assert name in (errors.__doc__ or "")


def test_data_that_the_protocol_wants_is_there() -> None:
    """ERR-1, INIT-2, RPC-11."""
    assert ResourceNotFound("s").to_wire()["data"] == {"sessionId": "s"}
    assert MethodNotFound("m").to_wire()["data"] == {"method": "m"}
    assert UnsupportedVersion(1, (2,)).to_wire()["data"] == {"requested": 1, "supported": [2]}


def test_data_is_omitted_where_there_is_none() -> None:
    """RPC-15."""
    assert InvalidParams("No.").to_wire() == {"code": -32602, "message": "No."}
    assert InvalidParams("No.", []).to_wire()["data"] == []


@pytest.mark.parametrize("code", [*BY_CODE, 5])
def test_any_error_survives_the_wire(code: int) -> None:
    """RPC-16."""
    for data in (None, {"a": 1}, "text"):
        error = AcpError.of(code, "Message.", data)
        copy = AcpError.from_wire(error.to_wire())
        assert type(copy) is type(error) is BY_CODE.get(code, AcpError)
        assert (copy.code, copy.message, copy.data, str(copy)) == (code, "Message.", data, "Message.")


def test_a_whole_number_is_a_code() -> None:
    """MAL-3."""
    assert type(AcpError.from_wire({"code": -32800.0, "message": "m"})) is RequestCancelled
    with pytest.raises(InvalidResult):
        AcpError.from_wire({"code": -32800.5, "message": "m"})


def test_members_can_be_added_to_data() -> None:
    """ERR-5: the mark that a prompt was not inserted."""
    error = ResourceNotFound("s").with_data(inserted=False)
    assert type(error) is ResourceNotFound
    assert error.data == {"sessionId": "s", "inserted": False}
    assert InvalidParams("No.", "text").with_data(inserted=False).data == {"inserted": False}


def test_foreign_exceptions_say_nothing() -> None:
    """RPC-14."""
    error = as_acp_error(ValueError("secret"))
    assert (type(error), error.to_wire()) == (InternalError, {"code": -32603, "message": "Internal error."})


def test_an_error_is_found_in_the_groups_of_task_groups() -> None:
    known = InvalidParams("No.")
    assert (
        as_acp_error(BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [KeyboardInterrupt(), known])]))
        is known
    )
    assert as_acp_error(known) is known
