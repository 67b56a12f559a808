"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio only."""
    return "asyncio"
