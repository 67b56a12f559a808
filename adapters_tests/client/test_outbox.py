"""Prompts that may be sent again: the duties of a client that uses keys."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.client.client import Client
from adapters.client.outbox import Outbox
from adapters.client.record import ConnectionLostError
from adapters_tests.client.fake_agent import FakeAgent, running

pytestmark = pytest.mark.anyio


async def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_a_new_id(tmp_path: Path) -> None:
    """KEY-12, KEY-46: one insertion whatever happens to the answer, over a restart of the client too."""
    agent = FakeAgent()
    path = tmp_path / "outbox"
    outbox = Outbox(path)
    entry = outbox.submit("s1", "once")
    agent.hold = True
    async with running(agent) as transport, Client(transport) as client, anyio.create_task_group() as tasks:

        async def lose() -> None:
            with pytest.raises(ConnectionLostError):
                await outbox.deliver(client, entry)

        tasks.start_soon(lose)
        await agent.wait_for(lambda message: message["method"] == "session/prompt")
        assert agent.transport is not None
        await agent.transport.aclose()
    agent.hold = False
    again = Outbox(path)
    assert [(e.key, e.prompt, e.attempts) for e in again.entries()] == [(entry.key, entry.prompt, 1)]
    async with running(agent) as transport, Client(transport) as client:
        assert await again.resend(client, "s1") == {entry.key: "m1"}
    assert agent.submissions == 1
    assert list(again.entries()) == []
    assert path.read_bytes() == b""


def test_the_key_is_stored_before_anything_is_sent(tmp_path: Path) -> None:
    """Client duties: made at submit, stored with the input."""
    path = tmp_path / "outbox"
    entry = Outbox(path).submit("s1", "\ud800 line\u2028break")
    stored = json.loads(path.read_bytes())
    assert (stored["key"], stored["prompt"]) == (entry.key, [{"type": "text", "text": "\ud800 line\u2028break"}])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert [e.prompt for e in Outbox(path).entries()] == [entry.prompt]


def test_a_store_that_cannot_be_written_keeps_what_it_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not cost the prompts that were stored before; nothing is left beside the file."""
    path = tmp_path / "outbox"
    outbox = Outbox(path)
    first = outbox.submit("s1", "first")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        outbox.submit("s1", "second")
    assert [entry.key for entry in Outbox(path).entries()] == [first.key]
    assert list(tmp_path.iterdir()) == [path]


def test_equal_text_submitted_twice_has_two_keys() -> None:
    """Client duties: a new key for a new submission, 1..255 characters (KEY-3)."""
    outbox = Outbox()
    first, second = outbox.submit("s1", "same"), outbox.submit("s1", "same")
    assert first.key != second.key
    assert 1 <= len(first.key) <= 255
    assert [entry.key for entry in outbox.entries("s1")] == [first.key, second.key]
    assert list(outbox.entries("s2")) == []


async def test_an_error_means_not_inserted_and_the_same_entry_may_be_delivered_again() -> None:
    """KEY-14, ERR-5: refused entries wait for the user, `resend` leaves them alone."""
    agent = FakeAgent()
    agent.errors = [{"code": -32000, "message": "log in", "data": {"inserted": False}}]
    outbox = Outbox()
    entry = outbox.submit("s1", "x")
    async with running(agent) as transport, Client(transport) as client:
        with pytest.raises(AcpError):
            await outbox.deliver(client, entry)
        assert entry.refused is not None
        assert entry.refused["code"] == -32000
        assert await outbox.resend(client, "s1") == {}
        assert await outbox.deliver(client, entry) == "m1"
    keys = [message["params"]["idempotencyKey"] for message in agent.received]
    assert keys == [entry.key, entry.key]
    assert agent.received[0]["id"] != agent.received[1]["id"]
    assert list(outbox.entries()) == []


async def test_resending_keeps_the_order_and_leaves_old_and_unsent_input_to_the_user() -> None:
    """Client duties: very old input is shown, not sent again."""
    agent = FakeAgent()
    outbox = Outbox()
    old, first, unsent, second = (outbox.submit("s1", str(number)) for number in range(4))
    old.attempts = first.attempts = second.attempts = 1
    old.submitted_at -= 7200
    agent.errors = [{"code": -32603, "message": "broken"}]
    async with running(agent) as transport, Client(transport) as client:
        outcomes = await outbox.resend(client, "s1")
    assert list(outcomes) == [first.key, second.key]
    assert isinstance(outcomes[first.key], AcpError)
    assert outcomes[second.key] == "m1"
    assert [entry.key for entry in outbox.entries()] == [old.key, first.key, unsent.key]


def test_discarded_input_is_forgotten_and_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Stored atomically: the file is the old one or the new one."""
    path = tmp_path / "outbox"
    outbox = Outbox(path)
    kept, gone = outbox.submit("s1", "kept"), outbox.submit("s1", "gone")
    outbox.discard(gone)
    assert [entry.key for entry in Outbox(path).entries()] == [kept.key]
    before = path.read_bytes()
    with pytest.raises(TypeError):
        outbox.submit("s1", [{"type": "text", "text": object()}])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
