"""stdio.py: every kind of descriptor a process may be started with."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import anyio
import pytest

from adapters.acp.stdio import StdioTransport
from adapters_tests.acp.wire import SECONDS

pytestmark = pytest.mark.anyio


async def read_all(transport: StdioTransport) -> bytes:
    data = b""
    with anyio.fail_after(SECONDS):
        while piece := await transport.receive():
            data += piece
    return data


def null() -> int:
    return os.open(os.devnull, os.O_RDWR)


class Slow(threading.Thread):
    """Reads a descriptor to its end, outside the event loop."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self.descriptor = descriptor
        self.size = 0
        self.start()

    def run(self) -> None:
        while data := os.read(self.descriptor, 1 << 20):
            self.size += len(data)


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "null", "tty"])
async def test_every_kind_of_input_is_read_to_its_end(kind: str, tmp_path: Path) -> None:
    """STDIO-11: an empty input just ends; files and /dev/null, which the selector refuses, as well."""
    text = b"x" * 3000 + b"\n" if kind == "tty" else b"x" * 300_000
    writer = -1
    if kind == "pipe":
        reader, writer = os.pipe()
    elif kind == "socket":
        reader, writer = (side.detach() for side in socket.socketpair())
    elif kind == "file":
        (tmp_path / "input").write_bytes(text)
        reader = os.open(tmp_path / "input", os.O_RDONLY)
    elif kind == "null":
        reader, text = null(), b""
    else:
        writer, reader = pty.openpty()
        text += b"\x04"
    transport = StdioTransport(reader, null(), owned=True)
    if writer >= 0:
        thread = threading.Thread(
            target=lambda: (os.write(writer, text), kind == "tty" or os.close(writer)), daemon=True
        )
        thread.start()
    assert await read_all(transport) == text.replace(b"\x04", b"")
    await transport.aclose()


@pytest.mark.parametrize("kind", ["closed", "directory", "write only"])
async def test_input_that_cannot_be_read_is_at_its_end(kind: str) -> None:
    """STDIO-11."""
    reader, writer = os.pipe()
    if kind == "directory":
        os.dup2(directory := os.open("/", os.O_RDONLY), reader)
        os.close(directory)
    elif kind == "write only":
        os.dup2(writer, reader)
    else:
        os.close(reader)
    with anyio.fail_after(SECONDS):
        assert await StdioTransport(reader, writer).receive() == b""


async def test_a_read_takes_what_is_there() -> None:
    """At least 64 KiB at once: a prompt with an image must not take thousands of rounds."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(writer, b"x" * 200_000)
    assert len(await StdioTransport(reader, writer).receive()) == 200_000


async def test_waiting_for_input_does_not_block_the_loop() -> None:
    """STDIO-10."""
    reader, writer = os.pipe()
    transport = StdioTransport(reader, writer)
    got: list[bytes] = []

    async def read() -> None:
        got.append(await transport.receive())

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            os.write(writer, b"late")
    assert got == [b"late"]


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "null", "tty"])
async def test_every_kind_of_output_takes_everything(kind: str, tmp_path: Path) -> None:
    """STDIO-9: partial writes are continued."""
    text = b"x" * (100_000 if kind == "tty" else 2_000_000)
    reader: int | None = None
    if kind == "pipe":
        reader, writer = os.pipe()
    elif kind == "socket":
        reader, writer = (side.detach() for side in socket.socketpair())
    elif kind == "file":
        writer = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    elif kind == "null":
        writer = null()
    else:
        reader, writer = pty.openpty()
    transport = StdioTransport(null(), writer, owned=True)
    slow = None if reader is None or kind == "tty" else Slow(reader)
    if kind == "tty" and reader is not None:
        master = StdioTransport(reader, null())
        got = 0
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.send, text)
                while got < len(text):
                    got += len(await master.receive())
    else:
        with anyio.fail_after(SECONDS):
            await transport.send(text)
    await transport.aclose()
    if slow is not None:
        slow.join(SECONDS)
        assert slow.size == len(text)
    if kind == "file":
        assert (tmp_path / "output").read_bytes() == text


async def test_a_40_mib_write_to_a_slow_reader_does_not_block_the_loop() -> None:
    """STDIO-9, STDIO-10: others run between the partial writes."""
    reader, writer = os.pipe()
    transport = StdioTransport(null(), writer, owned=True)
    rounds = 0

    with anyio.fail_after(6 * SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, b"x" * (40 << 20))
            await anyio.wait_all_tasks_blocked()  # the pipe is full, and nobody reads
            slow = Slow(reader)
            while slow.size < 39 << 20:
                rounds += 1
                await anyio.lowlevel.checkpoint()
    await transport.aclose()
    slow.join(SECONDS)
    assert slow.size == 40 << 20
    assert rounds > 20


@pytest.mark.parametrize("kind", ["pipe", "socket", "closed"])
async def test_a_reader_that_is_gone_is_an_os_error(kind: str) -> None:
    """STDIO-12: EPIPE, ECONNRESET, EBADF."""
    reader, writer = os.pipe() if kind != "socket" else tuple(side.detach() for side in socket.socketpair())
    os.close(reader)
    if kind == "closed":
        os.close(writer)
    with pytest.raises(OSError, match=r"Broken pipe|Connection reset|Bad file"):
        await StdioTransport(null(), writer).send(b"x" * 100_000)


async def test_a_reader_that_goes_during_a_write_is_an_os_error() -> None:
    """STDIO-12."""
    reader, writer = os.pipe()
    transport = StdioTransport(null(), writer)

    async def send() -> None:
        with pytest.raises(BrokenPipeError):
            await transport.send(b"x" * 1_000_000)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            os.close(reader)


async def test_sending_after_the_end_is_refused() -> None:
    reader, writer = os.pipe()
    transport = StdioTransport(reader, writer)
    await transport.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await transport.send(b"x")
    assert await transport.receive() == b""


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_blocking_mode_is_put_back(blocking: bool) -> None:
    """A shell that shares the terminal must find it as it was."""
    reader, writer = os.pipe()
    os.set_blocking(writer, blocking)
    transport = StdioTransport(reader, writer)
    await transport.send(b"x")
    assert not os.get_blocking(writer)
    await transport.aclose()
    await transport.aclose()
    assert os.get_blocking(writer) is blocking
    assert os.get_blocking(reader)
    os.fstat(reader)
    os.fstat(writer)


# --- as a process ------------------------------------------------------------------------------------------------------

ECHO = """
    import anyio
    from adapters.acp.rpc import Connection
    from adapters.acp.stdio import StdioTransport, claim_stdio

    class Handler:
        def handle_request(self, request):
            if request.method == "print":
                import subprocess, sys
                print("stray")
                sys.stdout.flush()
                subprocess.run(["sh", "-c", "echo child; cat"], check=True)
            if request.method == "fds":
                import os
                request.respond({n: os.readlink(f"/proc/self/fd/{n}") for n in "012"})
            else:
                request.respond(request.params)

        def handle_notification(self, method, params, connection):
            pass

        def handle_close(self, connection):
            pass

    anyio.run(Connection({transport}, Handler()).run)
"""

CALL = b'{"jsonrpc":"2.0","id":1,"method":"%s","params":{"a":1}}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n'


def process(transport: str, **options: object) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(ECHO).replace("{transport}", transport)
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code], **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("transport", ["StdioTransport()", "claim_stdio()"])
def test_a_process_serves_its_stdin_and_ends_with_it(transport: str) -> None:
    """STDIO-1, STDIO-11: exit status 0, nothing on stderr."""
    agent = process(transport)
    out, err = agent.communicate(CALL % b"echo", timeout=SECONDS)
    assert (out, err, agent.returncode) == (ANSWER, b"", 0)


def test_claimed_stdio_is_for_the_protocol_alone() -> None:
    """STDIO-2: prints and children end up on stderr; a child that reads gets nothing of the protocol."""
    agent = process("claim_stdio()")
    out, err = agent.communicate(CALL % b"print" + CALL % b"echo", timeout=SECONDS)
    assert (out, err, agent.returncode) == (ANSWER * 2, b"stray\nchild\n", 0)


def test_claimed_stdio_without_stderr_prints_nowhere() -> None:
    """STDIO-2: neither we nor a child; no descriptor of the protocol, nor any other file, gets the number of stderr."""
    agent = process("claim_stdio()", stderr=None, preexec_fn=lambda: os.close(2))
    out, _ = agent.communicate(CALL % b"print" + CALL % b"fds", timeout=SECONDS)
    assert agent.returncode == 0
    first, second = out.splitlines(keepends=True)
    assert first == ANSWER
    assert json.loads(second)["result"] == {"0": "/dev/null", "1": "/dev/null", "2": "/dev/null"}


@pytest.mark.parametrize("closed", [0, 1])
def test_stdio_that_is_not_open_is_not_mixed_up(closed: int) -> None:
    """STDIO-2: an error, and the other descriptors stay what they are."""
    code = """
        import os, sys
        from adapters.acp.stdio import claim_stdio
        before = os.listdir("/proc/self/fd")
        try:
            claim_stdio()
        except OSError as error:
            os.write(2, str((error.strerror, before == os.listdir("/proc/self/fd"))).encode())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=None if closed == 0 else subprocess.DEVNULL,
        stdout=None if closed == 1 else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.close(closed),
        timeout=SECONDS,
        check=True,
    )
    assert done.stderr == b"('Bad file descriptor', True)"


@pytest.mark.parametrize("transport", ["StdioTransport()", "claim_stdio()"])
def test_a_process_on_dev_null_just_ends(transport: str) -> None:
    """STDIO-11."""
    agent = process(transport, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert agent.communicate(timeout=SECONDS) == (None, b"")
    assert agent.returncode == 0


def test_a_process_serves_files(tmp_path: Path) -> None:
    """Recorded sessions can be played with shell redirection."""
    (tmp_path / "in").write_bytes(CALL % b"echo")
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        agent = process("StdioTransport()", stdin=stdin, stdout=stdout)
        assert agent.communicate(timeout=SECONDS) == (None, b"")
    assert (tmp_path / "out").read_bytes() == ANSWER


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="elsewhere the next write finds out")
@pytest.mark.parametrize("transport", ["StdioTransport()", "claim_stdio()"])
def test_a_client_that_is_gone_ends_the_process_although_stdin_stays_open(transport: str) -> None:
    """STDIO-11, STDIO-12: a child of the client may have inherited our input; what the client had said is still answered to."""
    agent = process(transport)
    assert agent.stdin
    assert agent.stdout
    agent.stdin.write(CALL % b"echo")
    agent.stdin.flush()
    assert agent.stdout.readline() == ANSWER
    agent.stdout.close()
    assert agent.wait(timeout=SECONDS) == 0
    agent.stdin.close()
    assert agent.stderr
    assert agent.stderr.read() == b""
    agent.stderr.close()


async def test_what_a_client_said_before_it_went_is_read() -> None:
    """STDIO-11."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    transport = StdioTransport(our_in, our_out, owned=True)
    os.write(their_out, b"x" * 1000)
    os.close(their_in)
    assert await read_all(transport) == b"x" * 1000
    await transport.aclose()
    os.close(their_out)


def test_a_client_that_only_stops_reading_ends_the_process() -> None:
    """STDIO-12: EPIPE, without a traceback, and although stdin stays open."""
    agent = process("StdioTransport()")
    assert agent.stdin
    assert agent.stdout
    assert agent.stderr
    agent.stdout.close()
    agent.stdin.write(CALL % b"echo")
    agent.stdin.flush()
    assert agent.wait(timeout=SECONDS) == 0
    assert b"Traceback" not in agent.stderr.read()
    agent.stdin.close()
    agent.stderr.close()
