"""The user of a test who is asked for permissions: notes the questions and answers as the test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from adapters.acp.errors import AcpError
from adapters.client import permissions
from adapters.client.permissions import Policy, Question


class Asked:
    """A policy that a test steers: it notes the questions and answers as `answer` says, once `released` is set."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.answer: Policy = permissions.allow
        self.released = anyio.Event()
        self.released.set()
        self._came = anyio.Event()

    def reset(self) -> None:
        """Nothing was asked, and everything is allowed at once."""
        self.questions.clear()
        self.answer = permissions.allow
        self.released.set()

    async def __call__(self, question: Question) -> str | Mapping[str, Any] | AcpError | None:
        self.questions.append(question)
        self._came.set()
        self._came = anyio.Event()
        await self.released.wait()
        return await self.answer(question)

    async def wait(self, count: int = 1) -> None:
        """Wait until so many questions were asked."""
        with anyio.fail_after(20):
            while len(self.questions) < count:
                await self._came.wait()


def choosing(option_id: str) -> Policy:
    """Answer with this option."""

    async def choose(_: Question) -> str:
        return option_id

    return choose


def refusing(word: str) -> Policy:
    """Refuse what names this word, and allow everything else."""

    async def choose(question: Question) -> str | None:
        return await (permissions.reject if word in str(question.params) else permissions.allow)(question)

    return choose
