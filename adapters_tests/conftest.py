"""What every test shares."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from adapters import log

settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")
"""How long an example takes says more about the machine than about us."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: starts a real runtime against a scripted model on loopback")


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _log_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of log lines counts anew."""
    monkeypatch.setattr(log, "_counts", {})


@pytest.fixture(autouse=True)
def _loop_of_this_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """A plain test may run a loop of its own, whatever async fixture of a wider scope is alive.

    For such a fixture anyio notes in this thread that a loop runs, also while none does, and then refuses to run another.
    """
    if inspect.iscoroutinefunction(request.function) or find_spec("sniffio") is None:
        yield
        return
    import sniffio  # noqa: PLC0415 - anyio works without it, too

    token = sniffio.current_async_library_cvar.set(None)
    yield
    sniffio.current_async_library_cvar.reset(token)
