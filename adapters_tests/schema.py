"""The schema judge of `adapters.check.wire` under the name that the tests use."""

from adapters.check.wire import (
    DRAFT,
    Wire,
    WireError,
    methods,
    schema,
    validate,
    validate_agent_message,
    validate_client_message,
    validator,
)

__all__ = [
    "DRAFT",
    "Wire",
    "WireError",
    "methods",
    "schema",
    "validate",
    "validate_agent_message",
    "validate_client_message",
    "validator",
]
