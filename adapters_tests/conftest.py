"""What every test shares."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: starts a real runtime against a scripted model on loopback")


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio only."""
    return "asyncio"
