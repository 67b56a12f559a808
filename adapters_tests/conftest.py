"""What every test shares."""

import pytest

from adapters import log


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
