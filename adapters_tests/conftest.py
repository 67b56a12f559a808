"""What every test shares."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from adapters.log import log_to_stderr
from adapters.scripted.server import ScriptedServer
from adapters_tests import real
from adapters_tests.e2e.rig import Rig, open_rig
from adapters_tests.e2e.runtimes import RUNTIMES, RuntimeUnderTest
from adapters_tests.untouched import REPOSITORY, listing, naming

settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")
"""How long an example takes says more about the machine than about us."""


HAS_SNIFFIO = find_spec("sniffio") is not None
"""anyio works without it, too."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: starts a real runtime against a scripted model on loopback")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    real.mark(items)
    items.sort(key=real.place)


@pytest.fixture(autouse=True)
def _no_runtime_without_the_mark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `-m "not real"` needs none, and leaves nothing out by mistake."""
    if request.node.get_closest_marker("real") is None:
        real.refuse(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _nothing_outside_is_touched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's, nothing of the repository, and nothing around the temporary folder is written by any test."""
    temporary, real_home = tmp_path_factory.getbasetemp(), Path.home()
    home = tmp_path_factory.mktemp("nobodys-home")
    before = listing(REPOSITORY, real_home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))  # a program that is given no home of a test's own shows itself
        yield
    assert list(home.rglob("*")) == []
    assert listing(REPOSITORY, real_home) == before
    assert naming(temporary) == []


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The product runs on asyncio only; the model and the shared agents of the suites outlive single tests."""
    return "asyncio"


@pytest.fixture(scope="session", params=RUNTIMES, ids=lambda runtime: runtime.name)
def runtime(request: pytest.FixtureRequest) -> RuntimeUnderTest:
    return request.param


@pytest.fixture(scope="session")
async def model(runtime: RuntimeUnderTest) -> AsyncIterator[ScriptedServer]:
    """One for all suites: two that are open at once would have to be closed in order."""
    async with runtime.model() as server:
        yield server


@pytest.fixture
async def rig(runtime: RuntimeUnderTest, model: ScriptedServer, tmp_path: Path) -> AsyncIterator[Rig]:
    """A home of this test's own."""
    async with open_rig(runtime, model, tmp_path / "h") as fresh:
        yield fresh


@pytest.fixture(autouse=True)
def _log_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines go to stderr as in the command, and their bound counts anew."""
    ours = logging.getLogger("adapters")
    monkeypatch.setattr(ours, "handlers", ours.handlers)
    monkeypatch.setattr(ours, "propagate", ours.propagate)
    log_to_stderr()


@pytest.fixture(autouse=True)
def _loop_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """A plain test may run a loop of its own, whatever async fixture of a wider scope is alive.

    For such a fixture anyio notes in this thread that a loop runs, also while none does, and then refuses to run another.
    """
    if inspect.iscoroutinefunction(request.function) or not HAS_SNIFFIO:
        yield
        return
    import sniffio  # noqa: PLC0415

    token = sniffio.current_async_library_cvar.set(None)
    yield
    sniffio.current_async_library_cvar.reset(token)
