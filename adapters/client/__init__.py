"""An ACP v2 client: keys, an outbox that resends safely, and a view of each session. Uses `adapters.acp` only.

    from adapters.client import Client, Outbox, start_agent

The names in `__all__` are public (docs/api.md); the modules behind them may change. docs/own-client.md shows their use.
"""

from adapters.acp.errors import AcpError
from adapters.client.calls import Call, MalformedAnswerError, PromptCall
from adapters.client.client import Client
from adapters.client.outbox import Entry, Outbox, OutboxInUseError, Outcome
from adapters.client.permissions import Policy, Question, allow, allow_always, reject
from adapters.client.process import AgentProcess, start_agent
from adapters.client.record import ConnectionLostError
from adapters.client.view import SessionView

__all__ = [
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
]
