"""Answers to `session/request_permission`: the policies a client can be given.

Owns what a policy may say. Knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from adapters.client.record import as_object

if TYPE_CHECKING:
    from adapters.acp.errors import AcpError

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}
"""The answer when nothing was chosen, and to a request that the agent took back (PERM-6)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A permission request as it came."""

    request_id: int | str
    params: Mapping[str, Any]

    @property
    def session_id(self) -> str:
        """The session that asks."""
        return self.params["sessionId"]

    @property
    def options(self) -> Sequence[Mapping[str, Any]]:
        """The choices: `optionId`, `name`, `kind`."""
        return self.params["options"]

    def option(self, *kinds: str) -> str | None:
        """The id of the first option of these kinds, in the order of the kinds; None when none is offered."""
        by_kind = {option["kind"]: option["optionId"] for option in reversed(self.options)}
        return next((by_kind[kind] for kind in kinds if kind in by_kind), None)


def question_of(request_id: int | str, params: Any) -> Question | None:
    """The question that these params ask; None when they lack what every policy needs."""
    asked = as_object(params)
    options: Any = asked.get("options")
    if not isinstance(asked.get("sessionId"), str) or not isinstance(options, list):
        return None
    members = [as_object(option) for option in cast("list[Any]", options)]
    whole = all(isinstance(option.get(name), str) for option in members for name in ("optionId", "kind"))
    return Question(request_id, asked) if whole else None


Policy = Callable[[Question], "Awaitable[str | Mapping[str, Any] | AcpError | None]"]
"""Gives an option id, None for "cancelled", or a result or an error that is sent as it is, whatever the schema says."""


async def reject(question: Question) -> str | None:
    """Refuse once: the default, because no user was asked."""
    return question.option("reject_once", "reject_always")


async def allow(question: Question) -> str | None:
    """Allow once, always if that is all that is offered."""
    return question.option("allow_once", "allow_always")


async def allow_always(question: Question) -> str | None:
    """Allow and let the agent remember it."""
    return question.option("allow_always", "allow_once")


def as_result(answer: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The wire result of a policy's answer."""
    if answer is None:
        return CANCELLED
    if isinstance(answer, str):
        return {"outcome": {"outcome": "selected", "optionId": answer}}
    return answer
