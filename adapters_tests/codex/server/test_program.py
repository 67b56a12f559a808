"""Which Codex is started, with what."""

from __future__ import annotations

import pytest

from adapters.codex.server.program import child_environment, find_codex


def test_the_environment_is_the_users_without_what_another_codex_left() -> None:
    """Where a Codex runs around us, ours must not be taken for its child."""
    environ = {"A": "1", "CODEX_HOME": "/c", "CODEX_CI": "1", "OPENAI_API_KEY": "k"}
    assert child_environment(environ) == environ
    inside = {**environ, "CODEX_THREAD_ID": "t", "CODEX_SANDBOX": "seatbelt"}
    assert child_environment(inside) == {"A": "1", "CODEX_HOME": "/c", "OPENAI_API_KEY": "k"}


def test_the_real_package_is_found() -> None:
    """What pip installs is what is started."""
    pytest.importorskip("codex_cli_bin")
    found = find_codex({"PATH": ""})
    assert found is not None
    assert found.source == "openai-codex-cli-bin"
    assert found.path.is_file()
