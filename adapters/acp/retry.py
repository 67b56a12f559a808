"""What may be sent again after a lost answer: the method audit of the idempotency-key proposal as data.

Owns one row for each method of the v2 schema, stable and unstable, and of the proposal (stability "rfd"). Knows no client. A
client that resends looks here first. A method that is not in the table is not retried (`retry_class`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

RetryClass = Literal["idempotent", "keyed", "duplicating", "not_retried", "out_of_scope", "as_carried"]
"""idempotent: resend as it is. keyed: resend with the same key. duplicating: may be resent, leftovers are harmless.
not_retried: never resend. out_of_scope: depends on what it carries to others. as_carried: the class of the carried message."""

Kind = Literal["request", "notification"]
Sender = Literal["client", "agent", "proxy", "both"]
Stability = Literal["stable", "unstable", "rfd"]


@dataclass(frozen=True, slots=True)
class Row:
    """One method in one direction."""

    method: str
    kind: Kind
    sender: Sender
    retry: RetryClass
    stability: Stability
    repeat: str
    """What a repeat does."""
    key: str | None = None
    """The param that makes a repeat safe."""


RETRY_CLASSES: Final[tuple[Row, ...]] = (
    Row(
        "session/prompt",
        "request",
        "client",
        "keyed",
        "stable",
        "second user message and possibly second run without a key",
        "idempotencyKey",
    ),
    Row(
        "session/new",
        "request",
        "client",
        "duplicating",
        "stable",
        "second session; the unknown first one is never prompted",
    ),
    Row(
        "session/fork",
        "request",
        "client",
        "duplicating",
        "unstable",
        "second copy; find by session/list, remove by session/delete",
    ),
    Row(
        "session/resume",
        "request",
        "client",
        "idempotent",
        "stable",
        "synchronizes again; servers and roots replaced by the same ones",
    ),
    Row("session/close", "request", "client", "idempotent", "stable", "succeeds"),
    Row("session/delete", "request", "client", "idempotent", "stable", "succeeds"),
    Row("session/list", "request", "client", "idempotent", "stable", "read-only"),
    Row(
        "session/set_config_option",
        "request",
        "client",
        "idempotent",
        "stable",
        "same value, full options; retry before later changes of the same option",
    ),
    Row("tool_call/cancel", "request", "client", "idempotent", "stable", "no second effect; -32602 once final"),
    Row("terminal/cancel", "request", "client", "idempotent", "stable", "no second effect; -32602 once exited"),
    Row("auth/login", "request", "client", "idempotent", "stable", "same state; a second login flow may be shown"),
    Row("auth/logout", "request", "client", "idempotent", "stable", "already logged out"),
    Row(
        "initialize",
        "request",
        "client",
        "not_retried",
        "stable",
        "allowed only before the first other request; afterwards -32600",
    ),
    Row("session/archive", "request", "client", "idempotent", "unstable", "succeeds"),
    Row("session/unarchive", "request", "client", "idempotent", "unstable", "succeeds"),
    Row("session/set_title", "request", "client", "idempotent", "unstable", "same value again"),
    Row("providers/set", "request", "client", "idempotent", "unstable", "same value again"),
    Row("providers/disable", "request", "client", "idempotent", "unstable", "same value again"),
    Row("session/status", "request", "client", "idempotent", "unstable", "read-only"),
    Row("session/options", "request", "client", "idempotent", "rfd", "read-only"),
    Row("providers/list", "request", "client", "idempotent", "unstable", "read-only"),
    Row("auth/status", "request", "client", "idempotent", "unstable", "read-only"),
    Row(
        "mcp/message",
        "request",
        "client",
        "out_of_scope",
        "rfd",
        "depends on the MCP message; 2.4.0 has it client-to-agent as a notification",
    ),
    Row("proxy/initialize", "request", "proxy", "as_carried", "unstable", "class of the carried message"),
    Row(
        "proxy/successor",
        "request",
        "proxy",
        "as_carried",
        "unstable",
        "class of the carried message; idempotencyKey passed on unchanged",
    ),
    Row(
        "session/request_permission",
        "request",
        "agent",
        "idempotent",
        "stable",
        "shown again; the action stays with the agent",
    ),
    Row("elicitation/create", "request", "agent", "idempotent", "stable", "shown again"),
    Row("mcp/message", "request", "agent", "out_of_scope", "unstable", "depends on the MCP message"),
    Row(
        "session/cancel",
        "notification",
        "client",
        "not_retried",
        "stable",
        "no effect when idle; a late copy cancels new work",
    ),
    Row("$/cancel_request", "notification", "both", "not_retried", "stable", "ignored when unknown or answered"),
    Row("session/update", "notification", "agent", "not_retried", "stable", "chunks append; recover by session/resume"),
    Row("elicitation/complete", "notification", "agent", "not_retried", "stable", "same state again"),
    Row("auth/status_update", "notification", "agent", "not_retried", "unstable", "same state again"),
    Row("mcp/message", "notification", "client", "not_retried", "unstable", "nothing is answered, so nothing is lost"),
    Row(
        "proxy/successor", "notification", "proxy", "not_retried", "unstable", "nothing is answered, so nothing is lost"
    ),
)
"""One row per method, kind and sender."""

_BY_METHOD: Final[Mapping[tuple[str, str, str], RetryClass]] = {
    (row.method, row.kind, row.sender): row.retry for row in RETRY_CLASSES
}


def retry_class(method: str, sender: Sender = "client", kind: Kind = "request") -> RetryClass:
    """How `method`, sent by `sender`, may be repeated; "not_retried" for methods of which nothing is known, `_x` included."""
    known = _BY_METHOD.get((method, kind, sender)) or _BY_METHOD.get((method, kind, "both"))
    return known or "not_retried"
