"""Prompts that may be sent again: the duties of a client that uses keys."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.errors import AcpError
from adapters.client.client import Client
from adapters.client.outbox import TRIES, Outbox, OutboxInUseError, Outcome
from adapters.client.record import ConnectionLostError
from adapters_tests.client.fake_agent import FakeAgent, running

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


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
    outbox.close()
    again = Outbox(path)
    assert [(e.key, e.prompt, e.attempts) for e in again.entries()] == [(entry.key, entry.prompt, 1)]
    async with running(agent) as transport, Client(transport) as client:
        assert [(o.entry.key, o.message_id) for o in await again.resend(client, "s1")] == [(entry.key, "m1")]
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
    assert [entry.key for entry in outbox.entries()] == [first.key]
    outbox.close()
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
        (left,) = await outbox.resend(client, "s1")
        assert (left.entry, left.message_id, left.error) == (entry, None, None)
        assert left.left == "The agent refused it, and it is not inserted: log in"
        assert await outbox.deliver(client, entry) == "m1"
    keys = [message["params"]["idempotencyKey"] for message in agent.received]
    assert keys == [entry.key, entry.key]
    assert agent.received[0]["id"] != agent.received[1]["id"]
    assert list(outbox.entries()) == []


async def test_resending_keeps_the_order_and_says_what_became_of_each_entry() -> None:
    """Client duties: what may be in or not is sent, also what a crash kept from being sent at all; old input is shown."""
    agent = FakeAgent()
    outbox = Outbox()
    old, first, unsent, second = (outbox.submit("s1", str(number)) for number in range(4))
    outbox.submit("s2", "of another session")
    old.attempts = first.attempts = second.attempts = 1
    old.submitted_at -= 7200
    agent.errors = [{"code": -32603, "message": "broken"}]
    async with running(agent) as transport, Client(transport) as client:
        outcomes = await outbox.resend(client, "s1")
    assert [outcome.entry for outcome in outcomes] == [old, first, unsent, second]
    assert outcomes[0].left == "It is old: ask the user whether to send it."
    assert isinstance(outcomes[1].error, AcpError)
    assert [outcome.message_id for outcome in outcomes] == [None, None, "m1", "m2"]
    assert [entry.key for entry in outbox.entries("s1")] == [old.key, first.key]


@pytest.mark.parametrize(
    ("error", "goes_again"),
    [
        ({"code": -32603, "message": "m", "data": {"inserted": None}}, True),
        ({"code": -32603, "message": "m", "data": {"inserted": False}}, True),
        ({"code": -32002, "message": "m", "data": {"inserted": False}}, True),
        ({"code": -32000, "message": "m", "data": {"inserted": None}}, True),
        ({"code": -32000, "message": "m", "data": {"inserted": False}}, False),
        ({"code": -32602, "message": "m", "data": {"inserted": False}}, False),
        ({"code": -32800, "message": "m"}, False),
    ],
)
async def test_what_was_refused_goes_again_where_the_reason_may_have_passed(error: Json, goes_again: bool) -> None:
    """KEY-14: unknown fates and passing reasons are tried again by `resend`, the rest waits for the user."""
    agent = FakeAgent()
    agent.errors = [error]
    outbox = Outbox()
    entry = outbox.submit("s1", "x")
    async with running(agent) as transport, Client(transport) as client:
        (refused,) = await outbox.resend(client, "s1")
        assert isinstance(refused.error, AcpError)
        (outcome,) = await outbox.resend(client, "s1")
    assert outcome.entry is entry
    assert (outcome.message_id, outcome.left is None) == (("m1", True) if goes_again else (None, False))


async def test_a_prompt_that_is_refused_again_and_again_is_left_to_the_user() -> None:
    agent = FakeAgent()
    agent.errors = [{"code": -32603, "message": "the disk is full", "data": {"inserted": False}}] * 9
    outbox = Outbox()
    outbox.submit("s1", "x")
    async with running(agent) as transport, Client(transport) as client:
        outcomes = [(await outbox.resend(client, "s1"))[0] for _ in range(TRIES + 1)]
    assert [outcome.left for outcome in outcomes[:-1]] == [None] * TRIES
    assert outcomes[-1].left == f"The agent refused it {TRIES} times, and it is not inserted: the disk is full"
    assert len(agent.received) == TRIES


async def test_a_connection_that_is_lost_while_resending_leaves_the_rest_in_the_outbox() -> None:
    agent = FakeAgent()
    agent.hold = True
    outbox = Outbox()
    entries = [outbox.submit("s1", str(number)) for number in range(3)]
    outcomes: list[Outcome] = []
    async with running(agent) as transport, Client(transport) as client, anyio.create_task_group() as tasks:

        async def resend() -> None:
            outcomes.extend(await outbox.resend(client, "s1"))

        tasks.start_soon(resend)
        await agent.wait_for(lambda message: message["method"] == "session/prompt")
        assert agent.transport is not None
        await agent.transport.aclose()
    assert [outcome.entry for outcome in outcomes] == entries
    assert isinstance(outcomes[0].error, ConnectionLostError)
    assert [outcome.left for outcome in outcomes[1:]] == ["The connection is lost."] * 2
    assert list(outbox.entries()) == entries
    assert [entry.attempts for entry in entries] == [1, 0, 0]


def test_an_outbox_has_one_owner_at_a_time(tmp_path: Path) -> None:
    """Two processes on one file would overwrite each other's prompts."""
    path = tmp_path / "outbox"
    with Outbox(path) as outbox:
        outbox.submit("s1", "mine")
        with pytest.raises(OutboxInUseError, match="one client at a time"):
            Outbox(path)
        code = (
            "import sys; from pathlib import Path; from adapters.client import Outbox\n"
            "try: Outbox(Path(sys.argv[1])).submit('s1', 'theirs')\n"
            "except Exception as error: print(type(error).__name__)"
        )
        ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=60, check=True)
        assert ran.stdout.decode().split() == ["OutboxInUseError"]
    with pytest.raises(ValueError, match="closed"):
        outbox.submit("s1", "late")
    with Outbox(path) as next_owner:
        assert [entry.prompt[0]["text"] for entry in next_owner.entries()] == ["mine"]


def test_a_key_of_the_caller_and_the_roots_of_the_session_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    with Outbox(path) as outbox:
        outbox.submit("s1", "x", key="my-key", cwd="/w", additional_directories=["/a", "/b"])
    with Outbox(path) as again:
        (entry,) = again.entries()
        assert (entry.key, entry.cwd, entry.additional_directories) == ("my-key", "/w", ["/a", "/b"])
        with pytest.raises(ValueError, match="has this key"):
            again.submit("s1", "y", key="my-key")
        again.move(entry, "s2")
    with Outbox(path) as last:
        assert [(entry.session_id, entry.key) for entry in last.entries()] == [("s2", "my-key")]


@pytest.mark.parametrize("key", ["", "k" * 256, "\ud800"])
def test_a_key_that_the_protocol_does_not_allow_is_refused(key: str) -> None:
    """KEY-3, E16."""
    with pytest.raises(ValueError, match="1 to 255"):
        Outbox().submit("s1", "x", key=key)


def test_a_file_of_another_version_is_read_and_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    line = {"key": "k", "session_id": "s", "prompt": [], "submitted_at": 1.0}
    path.write_text(json.dumps({**line, "of_a_later_version": 1}) + "\n")
    with Outbox(path) as outbox:
        assert [(entry.key, entry.attempts, entry.cwd) for entry in outbox.entries()] == [("k", 0, None)]
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match="line 1: this is not an entry of an outbox"):
        Outbox(path)
    assert path.read_text() == "[1]\n"


def test_discarded_input_is_forgotten_and_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Stored atomically: the file is the old one or the new one."""
    path = tmp_path / "outbox"
    outbox = Outbox(path)
    kept, gone = outbox.submit("s1", "kept"), outbox.submit("s1", "gone")
    outbox.discard(gone)
    outbox.close()
    outbox = Outbox(path)
    assert [entry.key for entry in outbox.entries()] == [kept.key]
    before = path.read_bytes()
    with pytest.raises(TypeError):
        outbox.submit("s1", [{"type": "text", "text": object()}])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
