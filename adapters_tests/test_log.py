"""log.py: one line per event, no forged lines, and no harm by a flood or by a reader who does not read."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from adapters import log as module
from adapters.log import LogEvent, StderrHandler
from adapters_tests.odd_stderr import KINDS, with_stderr

LOG = """
import logging
from adapters.log import LogEvent, log_to_stderr, write_stderr
log_to_stderr()
def log(event, **fields):
    logging.getLogger("adapters.some.module").warning(LogEvent(event, **fields))
"""


def log(event: str, **fields: object) -> None:
    logging.getLogger("adapters.some.module").warning(LogEvent(event, **fields))


def test_a_value_cannot_forge_a_line_or_fill_one(capsys: pytest.CaptureFixture[str]) -> None:
    """STDIO-15."""
    log(
        "event",
        plain="a",
        odd="two\nlines\x1b[2J",
        empty="",
        long="x" * 10_000,
        **{f"f{n}": "é" * 300 for n in range(9)},
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith('acp-adapters: event plain=a odd="two\\nlines\\u001b[2J" empty="" long=xxx')
    assert len(lines[0]) <= 4000


def test_a_flood_of_one_event_is_bounded_and_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    for number in range(500):
        log("flood", number=number)
    log("other")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "acp-adapters: other"
    assert len(lines) == 51
    now += 61
    log("flood")
    log("flood")
    assert capsys.readouterr().err.splitlines() == ["acp-adapters: flood left_out=450", "acp-adapters: flood"]


def test_events_without_end_do_not_fill_memory() -> None:
    handler = StderrHandler()
    for number in range(3000):
        handler._count(f"event {number}")
    assert len(handler._counts) <= 1000


def test_a_reader_who_does_not_read_holds_nobody_up() -> None:
    """A client may take our stderr and forget it: the pipe is full after 64 KiB, and work goes on."""
    reader, writer = os.pipe()
    try:
        code = LOG + "for n in range(5000): log(f'event {n}', text='x' * 200)\nprint('done')"
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, timeout=30, check=True
        )
        assert done.stdout == b"done\n"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("kind", KINDS)
def test_no_stderr_holds_up_or_fails_whoever_logs(kind: str) -> None:
    """Also lines longer than what is left of the room, and the end of the process, which flushes what streams have kept."""
    code = LOG + "for n in range(200): log(f'event {n}', text='x' * 250)\nprint('done')"
    command = with_stderr(kind, [sys.executable, "-c", code])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=30, check=True)
    assert done.stdout == b"done\n"


@pytest.mark.parametrize("make", [os.pipe, os.openpty, lambda: [end.detach() for end in socket.socketpair()]])
def test_whoever_reads_gets_whole_lines(make: Callable[[], Sequence[int]]) -> None:
    reader, writer = make()
    try:
        code = LOG + "log('event', a=1)\nwrite_stderr('\\u00e9' * 700 + '\\n')"
        subprocess.run([sys.executable, "-c", code], stderr=writer, timeout=30, check=True)
        expected = "acp-adapters: event a=1\n" + "\u00e9" * 700 + "\n"
        read = b""
        while len(read.decode("utf-8", "ignore").replace("\r", "")) < len(expected):
            read += os.read(reader, 65536)
        assert read.decode().replace("\r\n", "\n") == expected
        assert os.get_blocking(writer), "the mode is everybody's"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_program_that_uses_a_part_of_the_package_logs_as_it_likes(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of ours is installed by an import: the records are ordinary ones, in one line and without a bound."""
    ours = logging.getLogger("adapters")
    monkeypatch.setattr(ours, "handlers", [])
    monkeypatch.setattr(ours, "propagate", True)
    for _ in range(60):
        log("event", odd="two\nlines")
    assert caplog.messages == ['event odd="two\\nlines"'] * 60
    assert capsys.readouterr().err == ""


def test_what_is_no_event_of_ours_is_written_without_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """STDIO-15."""
    logging.getLogger("adapters.some.module").warning("cannot read %s", "sk-secret")
    assert capsys.readouterr().err == "acp-adapters: cannot read %s\n"
