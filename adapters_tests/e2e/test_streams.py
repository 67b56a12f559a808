"""Standard streams that an agent is given in any state: no work depends on its stderr, and without the others it says so."""

from __future__ import annotations

import pytest

from adapters_tests.e2e.rig import Rig, unanswered
from adapters_tests.odd_stderr import KINDS, with_stderr

pytestmark = pytest.mark.anyio


async def test_no_work_depends_on_stderr(rig: Rig, text: str) -> None:
    """STDIO-15: lines that are no JSON are logged, each; prompts are answered before and after, and the end is clean."""
    session, first = "", ""
    for kind in KINDS:  # each agent goes on where the one before it has ended
        async with rig.agent(command=with_stderr(kind, rig.runtime.command)) as link:
            if session:
                await link.resume(session)
            else:
                session = await link.new()
            for number in range(60):
                await link.process.transport.send(b"no JSON %d \xff\n" % number)
            first = first or await link.turn(session, text, "key-before-the-restart")
            again = await link.prompt(session, text, "key-before-the-restart")
            assert await again.message_id() == first, kind
            await link.turn(session, f"{text} with {kind}", f"key-with-{kind}")
            assert unanswered(link) == [], kind
            await link.process.transport.aclose()
            assert await link.process.wait() == 0, kind
        await rig.all_gone()
    assert rig.stored_ids(session).count(first) == 1
    assert len(rig.stored(session)) == 1 + len(KINDS)
