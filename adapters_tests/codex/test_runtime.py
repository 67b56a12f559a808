"""The one app-server and its sessions: started, shared, refused, listed, deleted, ended. With a fake one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.acp.errors import InternalError, InvalidParams, ResourceNotFound
from adapters.acp.schema import EnvVariable, HttpHeader, McpServerHttp, McpServerStdio
from adapters.codex.mcp_servers import choose_keys
from adapters.codex.runtime import CodexRuntime
from adapters.codex.server.program import TESTED
from adapters.codex.thread import lock_holder
from adapters.codex.thread.requests import is_thread_id, start_params
from adapters.core.port import PromptInserted, SessionSetup
from adapters_tests.codex.driving import (
    BOUND,
    Fake,
    RefusedError,
    Sink,
    began,
    closed,
    opened,
    over,
    rig,
    said,
    text,
    user,
)

pytestmark = pytest.mark.anyio

T = "0" * 8 + "-0000-4000-8000-" + "0" * 12


def refusing(words: str, times: int | None = None) -> Any:
    """A handler that refuses with these words, so often, then answers as usual."""
    left = [times]

    def handler(_fake: Fake, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if left[0] is None or left[0] > 0:
            left[0] = None if left[0] is None else left[0] - 1
            raise RefusedError(words)
        return {"thread": {"id": params["threadId"], "historyMode": "paginated"}}

    return handler


def lives(fake: Fake) -> bool:
    """Whether the process is there, as a zombie or not."""
    try:
        os.kill(fake.pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- starting ------------------------------------------------------------------------------------------------------------


async def test_the_handshake_and_what_codex_is_started_with(tmp_path: Path) -> None:
    """Section 2: `initialize`, `initialized`; arguments hold no secret; the environment is the user's."""
    async with rig(tmp_path) as made:
        _, fake, _ = await made.new()
        assert fake.argv == ["app-server", "-c", "thread_unload_delay_secs=0"]
        initialize = await fake.hears("initialize")
        assert initialize["params"]["clientInfo"]["name"] == "acp-adapters"
        assert initialize["params"]["capabilities"]["experimentalApi"] is True
        assert "jsonrpc" not in initialize
        methods = [message.get("method") for message in fake.heard]
        assert methods[:3] == ["initialize", "initialized", "thread/start"]


async def test_the_app_server_starts_before_it_is_needed(tmp_path: Path) -> None:
    """D10: while the client reads the answer of its `initialize`."""
    async with rig(tmp_path) as made:
        await (await made.fake()).hears("initialized")


async def test_codex_is_not_installed() -> None:
    """The error names the command to run."""
    async with anyio.create_task_group() as tasks:
        runtime = CodexRuntime(tasks, {"CODEX_PATH": "/nothing/here", "PATH": ""})
        with pytest.raises(InternalError, match="CODEX_PATH does not name a program"):
            await runtime.new_session(SessionSetup("/"), Sink())
        await runtime.aclose()


@pytest.mark.parametrize("program", ["#!/bin/sh\necho 'unknown field: x' >&2\nexit 1\n", "#!/nothing/here\n"])
async def test_codex_does_not_start(tmp_path: Path, program: str) -> None:
    """D7: its last words say why; nothing hangs."""
    path = tmp_path / "codex"
    path.write_text(program)
    path.chmod(0o755)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            runtime = CodexRuntime(tasks, {"CODEX_PATH": str(path), "PATH": os.environ["PATH"]})
            with pytest.raises(InternalError, match=r"Codex could not be started: (unknown field: x|No such file)"):
                await runtime.new_session(SessionSetup("/"), Sink())
            await runtime.aclose()


async def test_a_thread_that_codex_does_not_start(tmp_path: Path) -> None:
    """An error names the cause, and the next try is a new one."""
    handler = refusing("config is broken", times=1)
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/start": handler})) as made:
        with pytest.raises(InternalError, match="config is broken"):
            await made.new()


async def test_a_codex_that_does_not_know_a_method_is_named_with_its_version(tmp_path: Path) -> None:
    """And the tested one; the list of all methods that it knows is not repeated."""
    handler = refusing(
        "Invalid request: unknown variant `thread/start`, expected one of `newConversation`, ...", times=1
    )

    def prepare(fake: Fake) -> None:
        old = {"userAgent": "acp-adapters/0.50.1 (fake)"}
        fake.answers.update({"initialize": lambda _fake, _params: old, "thread/start": handler})

    async with rig(tmp_path, prepare) as made:
        with pytest.raises(InternalError) as caught:
            await made.new()
    lacks = "Codex 0.50.1 lacks what this agent needs (it does not know thread/start)"
    step = f"update it; the agent is tested with Codex {TESTED}."
    assert caught.value.message == f"Codex cannot start a session: {lacks}: {step}"


async def test_a_death_while_a_session_is_made(tmp_path: Path) -> None:
    """D7: once more, with another process."""
    async with rig(tmp_path, lambda fake: fake.answers.pop("thread/start", None) if not made.fakes else None) as made:

        async def dies() -> None:
            first = await made.fake()
            await first.hears("thread/start")
            first.kill()

        made.tasks.start_soon(dies)
        active, fake, _ = await made.new()
        assert len(made.fakes) == 2
        assert fake.requests("thread/start")
        assert active.ready


async def test_one_process_for_all_sessions(tmp_path: Path) -> None:
    """Made at the same time, too."""
    async with rig(tmp_path) as made:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(made.new)
        assert len(made.fakes) == 1
        assert len(made.fakes[0].requests("thread/start")) == 20


# --- opening -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session_id", ["not-a-uuid", "../../etc/passwd", T.upper().replace("0", "A"), "urn:uuid:" + T, ""]
)
async def test_ids_that_are_no_thread_ids(tmp_path: Path, session_id: str) -> None:
    """RESUME-6, ADP-11: other spellings of a UUID would be a second session on one thread."""
    assert not is_thread_id(session_id)
    async with rig(tmp_path) as made:
        with pytest.raises(ResourceNotFound):
            await made.open(session_id)
        await made.runtime.delete_session(session_id)
        assert made.fakes == [] or made.fakes[0].requests("thread/resume") == []


async def test_an_unknown_thread(tmp_path: Path) -> None:
    """RESUME-6, RESUME-7: nothing is left active."""
    async with rig(tmp_path) as made:
        with pytest.raises(ResourceNotFound):
            await made.open(T)
        made.store.items[T] = []
        active, _, _ = await made.open(T)
        assert active.ready


async def test_another_holder_that_goes_away(tmp_path: Path) -> None:
    """D6: a crashed agent frees its thread within a moment: waited for."""
    handler = refusing(f"thread {T} already has an active writer", times=3)
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/resume": handler})) as made:
        active, fake, _ = await made.open(T)
        assert len(fake.requests("thread/resume")) == 4
        assert active.ready


async def test_another_holder_that_stays(tmp_path: Path) -> None:
    """D6: bounded, then an error that says so and what to do."""
    handler = refusing(f"thread {T} already has an active writer")
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/resume": handler}), held=0.2) as made:
        with pytest.raises(InternalError, match="Another Codex has this session open") as caught:
            await made.open(T)
        assert caught.value.data["category"] == "held"


async def test_an_archived_thread_is_taken_out_of_the_archive(tmp_path: Path) -> None:
    """Whoever resumes it wants to work on it."""
    answers: dict[str, Any] = {
        "thread/resume": refusing(f"session {T} is archived. Run `codex unarchive {T}`", times=1),
        "thread/unarchive": lambda _fake, _params: {},
    }
    async with rig(tmp_path, lambda fake: fake.answers.update(answers)) as made:
        active, fake, _ = await made.open(T)
        assert len(fake.requests("thread/unarchive")) == 1
        assert active.ready


@pytest.mark.parametrize("again", [False, True])
async def test_a_session_that_nobody_waits_for_any_more_is_given_back(tmp_path: Path, again: bool) -> None:
    """RESUME-7, D6: its request was cancelled, and Codex loads the thread all the same; unless somebody has opened it again."""
    async with rig(tmp_path) as made:
        _, fake, _ = await made.new()
        made.store.add(T, user("known"))
        resumed = fake.answers.pop("thread/resume")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.open, T)
            request = await fake.hears("thread/resume")
            tasks.cancel_scope.cancel()
        fake.answers["thread/resume"] = resumed
        if again:
            active, _, _ = await made.open(T)
            await fake.answer(request, thread={"id": T, "historyMode": "paginated"})
            assert await active.is_recorded("known")
            await active.close()
        else:
            await fake.answer(request, thread={"id": T, "historyMode": "paginated"})
        await fake.hears("thread/unsubscribe")
        assert [heard["params"]["threadId"] for heard in fake.requests("thread/unsubscribe")] == [T]
        active, _, _ = await made.open(T)
        assert await active.is_recorded("known")


async def test_a_new_session_that_nobody_waits_for_any_more_is_removed(tmp_path: Path) -> None:
    """RESUME-7, SETUP-13: its request was cancelled; nobody knows its id."""
    async with rig(tmp_path) as made:
        await made.new()
        fake = await made.fake(1)
        fake.answers.pop("thread/start")
        await fake.hears("thread/start")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.new)
            request = await fake.hears("thread/start")
            tasks.cancel_scope.cancel()
        await fake.answer(request, thread={"id": T, "historyMode": "paginated"})
        assert (await fake.hears("thread/delete"))["params"]["threadId"] == T


async def test_what_codex_says_behind_its_answer_is_not_lost(tmp_path: Path) -> None:
    """REPLAY-11, PROMPT-25: the thread's usage, a turn of the user's own queue: heard from the first line on."""

    async def resumed(fake: Fake) -> None:
        request = await fake.hears("thread/resume")
        usage = {"last": {"totalTokens": 5}, "modelContextWindow": 10}
        params = {"threadId": T}
        await fake.say(
            {"id": request["id"], "result": {"thread": {"id": T, "historyMode": "paginated"}}},
            {"method": "thread/tokenUsage/updated", "params": {**params, "tokenUsage": usage}},
            {"method": "turn/started", "params": {**params, "turn": {"id": "Q"}}},
            {"method": "item/started", "params": {**params, "turnId": "Q", "item": user("queued")}},
            {"method": "item/completed", "params": {**params, "turnId": "Q", "item": user("queued")}},
        )

    async with rig(tmp_path, lambda fake: fake.answers.pop("thread/resume")) as made:
        made.tasks.start_soon(resumed, await made.fake())
        active, fake, sink = await made.open(T)
        assert [update["sessionUpdate"] for update in sink.updates] == ["usage_update"]
        await fake.tell(T, over("Q"))
        await sink.until(object, 4)  # type: ignore[type-abstract]
        kinds = [type(event).__name__ for event in sink.events]
        assert kinds[:4] == ["Output", "WorkStarted", "Output", "WorkEnded"]
        assert sink.updates[1]["messageId"] == "queued"
        assert active.ready


# --- the setup -----------------------------------------------------------------------------------------------------------


def test_roots_and_servers() -> None:
    """SETUP-6, SETUP-7, SETUP-8: the complete lists; names as Codex allows them, no two alike."""
    servers = (
        McpServerStdio(name="My Server", command="/bin/x", args=["a"], env=[EnvVariable(name="KEY", value="s3")]),
        McpServerStdio(name="My_Server", command="/bin/y", args=[], env=[]),
        McpServerHttp(name="h.b/c", url="http://x", headers=[HttpHeader(name="Authorization", value="s3")]),
    )
    params = start_params(SessionSetup("/w", ("/x", "/y"), servers), keys=choose_keys(servers, {}))
    assert params["cwd"] == "/w"
    assert params["runtimeWorkspaceRoots"] == ["/w", "/x", "/y"]
    assert params["config"]["mcp_servers"] == {
        "My-Server-0x20": {"command": "/bin/x", "args": ["a"], "env": {"KEY": "s3"}},
        "My_Server": {"command": "/bin/y", "args": [], "env": {}},
        "h-b-c-0x2e2f": {"url": "http://x", "http_headers": {"Authorization": "s3"}},
    }
    assert start_params(SessionSetup("/w"))["config"] == {"mcp_servers": {}}, "without it the servers of before stay"


async def test_what_codex_would_drop_without_a_word_is_refused(tmp_path: Path) -> None:
    """Trap 8: half a surrogate pair anywhere in a request; it never reaches Codex, and nobody waits for an answer."""
    servers = [
        McpServerStdio(name="x", command="/bin/x", args=["\ud800"], env=[]),
        McpServerStdio(name="x", command="/bin/x", args=[], env=[EnvVariable(name="\udfff", value="")]),
        McpServerHttp(name="x", url="http://x/\udc00", headers=[]),
    ]
    async with rig(tmp_path) as made:
        for server in servers:
            with pytest.raises(InvalidParams, match="half of a surrogate pair"):
                await made.new(server)
        with pytest.raises(InvalidParams):
            await made.runtime.list_sessions("/\ud800", None)
        active, fake, _ = await made.new(McpServerStdio(name="x", command="/bin/\u00e9\U0001f600", args=[], env=[]))
        assert active.ready
        assert len(fake.requests("thread/start")) == 1


# --- listing and deleting ------------------------------------------------------------------------------------------------


async def test_the_list(tmp_path: Path) -> None:
    """LIST-2, LIST-3: Codex filters, pages and orders; rows of any shape cost at most themselves."""
    rows: list[Any] = [
        {"id": T, "cwd": "/w", "name": None, "preview": "first\nprompt", "updatedAt": 1796024657},
        {"id": "b", "cwd": "/w", "name": "A name", "preview": "x", "updatedAt": "soon"},
        {"id": "c", "cwd": "/w", "ephemeral": True},
        {"id": "d", "preview": "no folder"},
        7,
    ]
    answer = {"data": rows, "nextCursor": "next"}
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/list": lambda _f, _p: answer})) as made:
        page = await made.runtime.list_sessions("/w", "mine")
        params = (await made.fakes[0].hears("thread/list"))["params"]
        assert (params["cwd"], params["cursor"], params["modelProviders"]) == ("/w", "mine", [])
        assert {"cli", "vscode", "exec", "appServer"} <= set(params["sourceKinds"])
        assert page.next_cursor == "next"
        assert [(row.session_id, row.title, row.updated_at) for row in page.sessions] == [
            (T, "first prompt", "2026-11-30T07:44:17Z"),
            ("b", "A name", None),
        ]


async def test_a_list_that_fails(tmp_path: Path) -> None:
    """LIST-3: a cursor that is not ours is the client's mistake; everything else is not."""
    handler = refusing("invalid cursor: bogus")
    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/list": handler})) as made:
        with pytest.raises(InvalidParams):
            await made.runtime.list_sessions(None, "bogus")
        with pytest.raises(InternalError):
            await made.runtime.list_sessions(None, None)


async def test_deleting(tmp_path: Path) -> None:
    """DEL-2: a missing one is success; one that is held elsewhere is not."""
    words = [""]

    def delete(_fake: Fake, _params: Mapping[str, Any]) -> dict[str, Any]:
        if words[0]:
            raise RefusedError(words[0])
        return {}

    async with rig(tmp_path, lambda fake: fake.answers.update({"thread/delete": delete})) as made:
        await made.runtime.delete_session(T)
        words[0] = f"no rollout found for thread id {T}"
        await made.runtime.delete_session(T)
        words[0] = f"thread {T} already has an active writer"
        with pytest.raises(InternalError, match="open"):
            await made.runtime.delete_session(T)
        words[0] = "disk full"
        with pytest.raises(InternalError, match="disk full"):
            await made.runtime.delete_session(T)


# --- holders -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
async def test_the_holder_is_named(tmp_path: Path) -> None:
    """D6: the process with the lock, and the one that started it."""
    folder = tmp_path / "thread-writer-locks"
    folder.mkdir()
    lock = folder / f"{T}.lock"
    lock.touch()
    assert lock_holder.holder_of(tmp_path, T) is None
    assert lock_holder.holder_of(tmp_path, "another") is None
    take = f"f = open({str(lock)!r}); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    program = f"import fcntl, sys; {take}"
    async with await anyio.open_process(["python3", "-c", program]) as process:
        assert process.stdout is not None
        await process.stdout.receive()
        holder = lock_holder.holder_of(tmp_path, T)
        assert holder is not None
        assert (holder.pid, holder.parent) == (process.pid, os.getpid())
        process.kill()


# --- ending --------------------------------------------------------------------------------------------------------------


async def test_the_last_session_ends_the_process_and_the_next_one_starts_another(tmp_path: Path) -> None:
    """CLOSE-6, D6: it holds every thread that was loaded, and would keep others from them."""
    async with rig(tmp_path) as made:
        first, fake, sink = await made.new()
        second, _, _ = await made.new()
        await first.submit("k", text())
        await fake.take()
        await sink.until(PromptInserted)
        await fake.tell(first.session_id, over())
        await second.close()
        assert fake.requests("eof") == []
        await first.close()
        await fake.hears("eof")
        made.store.items[first.session_id] = []
        again, other, _ = await made.open(first.session_id)
        assert other is not fake
        assert again.ready


async def test_opening_and_closing_at_once(tmp_path: Path) -> None:
    """Known faults: 200 sessions opened and closed concurrently; nothing hangs, nothing is left."""
    async with rig(tmp_path) as made:

        async def one() -> None:
            active, _, _ = await made.new()
            await active.close()

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(one)
        active, _, _ = await made.new()
        assert active.ready
    assert not any(lives(fake) for fake in made.fakes)


async def test_a_process_that_does_not_want_to_end(tmp_path: Path) -> None:
    """Known faults: deaf to the end of its input and to TERM: killed, within a bound."""

    def stubborn(fake: Fake) -> None:
        fake.polite = False

    async with rig(tmp_path, stubborn, eof=0.1, term=0.1) as made:
        _, fake, _ = await made.new()
        await fake.order(deaf=True)
        await fake.hears("deaf")
        with anyio.fail_after(3):
            await made.runtime.aclose()
        assert not lives(fake)


async def test_a_long_line(tmp_path: Path) -> None:
    """Known faults: a screenshot is enough to break a bounded reader."""
    async with rig(tmp_path) as made:
        active, fake, sink = await made.new()
        big = "x" * (3 * 1024 * 1024)
        await fake.tell(active.session_id, began(), opened(said("")), closed(said(big)), over())
        await sink.until(object, 4)  # type: ignore[type-abstract]
        assert sink.updates[0]["content"][0]["text"] == big
