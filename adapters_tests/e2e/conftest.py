"""Fixtures of the end-to-end suite. One model per module; a fresh home per test, or one agent for the tests that can share it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.scripted.server import ScriptedServer
from adapters_tests.e2e.asked import Asked
from adapters_tests.e2e.rig import Link, Rig, open_rig
from adapters_tests.e2e.runtimes import RuntimeUnderTest


@pytest.fixture(scope="module")
async def shared_rig(
    runtime: RuntimeUnderTest, model: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Rig]:
    async with open_rig(runtime, model, tmp_path_factory.mktemp("shared") / "h") as fresh:
        yield fresh


@pytest.fixture(scope="module")
async def shared(shared_rig: Rig) -> AsyncIterator[Link]:
    """An agent that the tests of a module share; each makes its own session and texts."""
    async with shared_rig.agent() as link:
        yield link


@pytest.fixture(scope="module")
def user() -> Asked:
    """Who is asked by the agent of `link`."""
    return Asked()


@pytest.fixture(scope="module")
async def link(shared_rig: Rig, user: Asked) -> AsyncIterator[Link]:
    """Like `shared`, for tests that answer its questions: see `asked`."""
    async with shared_rig.agent(user) as link:
        yield link


@pytest.fixture
def asked(user: Asked) -> Asked:
    """Who is asked by the agent of `link`, for this test."""
    user.reset()
    return user


@pytest.fixture
def text(request: pytest.FixtureRequest) -> str:
    """A prompt text that no other test uses."""
    return f"Prompt of {request.node.name}"
