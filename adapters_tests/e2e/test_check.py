"""`acp-adapters check` on our own agents with the real runtimes: a few rules that need everything that it brings up."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from adapters.check.command import Request, run_check
from adapters.plugins import load
from adapters_tests.e2e.runtimes import RuntimeUnderTest

pytestmark = pytest.mark.anyio

CHOSEN = frozenset({"INIT-10", "TRACE-1", "TRACE-3", "TRACE-4", "PERM-1", "PERM-2", "STDIO-11b", "UPD-7", "KEY-30"})


class _Runtime:
    """The runtime in an environment of the tests' own."""

    def __init__(self, runtime: RuntimeUnderTest) -> None:
        self._environment = runtime.environment
        plugin = load(runtime.name)
        self.model, self.asking = plugin.model, plugin.asking

    def isolated(self, home: Path, base_url: str) -> Mapping[str, str]:
        return self._environment(home, base_url)


async def test_our_agents_hold_what_is_checked_with_a_scripted_model(runtime: RuntimeUnderTest) -> None:
    out, progress = io.StringIO(), io.StringIO()
    request = Request(runtime.command, scripted=_Runtime(runtime), bound=60, chosen=CHOSEN, as_json=True)
    assert await run_check(request, out, progress.write) == 0, progress.getvalue()
    result = json.loads(out.getvalue())
    assert {row["id"]: row["standing"] for row in result["rules"]} == dict.fromkeys(CHOSEN, "held")
    assert result["modelCallsCounted"] is True
    assert result["agent"]["name"] == "acp-adapters"
