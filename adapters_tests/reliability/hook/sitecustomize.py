"""Makes one operation of an agent fail, from outside. Python loads this file by itself when its folder is on PYTHONPATH.

It counts what an agent does with the world, and does something bad at the operation that it is told. Operations:

    open stat scan read write lock remove ...   on files below the root (the home of the test)
    spawn signal                                of the runtime
    frame-in frame-out                          one line from, one to the runtime
    client-in client-out                        one read from, one write to the client

Environment: `FAULT_ROOT` the folder; `FAULT_LOG` a file that gets a line per operation, "HIT ..." for the one that fails;
`FAULT_ARM` counting starts behind the first input of the client that contains this text; `FAULT_AT` the number of the
operation, 0 for none; `FAULT_KIND`:

    kill-agent kill-runtime   SIGKILL, just before the operation
    torn                      half of what is to be written, then SIGKILL of the agent
    eio enospc                the file operation fails so; spawn with EAGAIN
    eio-on enospc-on          the same, and all file operations after it
    closed                    the pipe of the frame is closed
    delay lost doubled        the frame comes late (and all behind it), never, twice
    stall                     the agent stands still before the operation

Only the standard library, and nothing of the product: it knows no name in it.
"""

from __future__ import annotations

import asyncio.subprocess
import asyncio.unix_events
import builtins
import errno
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import PurePath
from typing import Any

LATE = 2.0
"""Seconds that a frame is late, and that a stalled agent stands still."""

_WRITES = ("write", "create", "replace", "mkdir", "truncate")


class Fault:
    def __init__(self) -> None:
        self.root = os.environ["FAULT_ROOT"]
        self.kind = os.environ.get("FAULT_KIND", "")
        self.at = int(os.environ.get("FAULT_AT", "0"))
        self.arm = os.environ["FAULT_ARM"].encode()
        self.armed = False
        self.count = 0
        self.sticky = False
        self.runtimes: list[int] = []
        self._log = _os_open(os.environ["FAULT_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()

    def hit(self, label: str) -> str:
        """Count an operation; the kind of fault where it is the one, else nothing. Kills and stalls happen here."""
        if not self.armed:
            return ""
        with self._lock:
            self.count += 1
            hit = self.count == self.at
        _os_write(self._log, f"{'HIT ' if hit else ''}{self.count} {label}\n".encode())
        if not hit:
            return ""
        if self.kind == "kill-agent":
            _os_kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)
        elif self.kind == "kill-runtime":
            for pid in self.runtimes:
                try:
                    _os_kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        elif self.kind == "stall":
            time.sleep(LATE)
        return self.kind

    def file(self, operation: str, name: object) -> str:
        """An operation on a file below the root. Raises the error it is told to."""
        kind = self.hit(f"{operation} {_short(name, self.root)}")
        wanted = self.kind.removesuffix("-on")
        if kind in ("eio-on", "enospc-on"):
            self.sticky = True
        if (kind or self.sticky) and wanted == "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(name))
        if (kind or self.sticky) and wanted == "enospc" and operation in _WRITES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(name))
        return kind

    def die_torn(self, write: Any, data: Any) -> None:
        write(bytes(data)[: len(data) // 2])
        _os_kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)


def _short(name: object, root: str) -> str:
    return PurePath(str(name)).name.replace("\n", "?") or root


_os_open, _os_read, _os_write, _os_kill, _os_dup, _os_close = os.open, os.read, os.write, os.kill, os.dup, os.close
_io_open = io.open
_files: dict[int, str] = {}
"""Descriptors of files below the root, by name."""
_client: dict[int, str] = {}
"""The agent's own copies of stdin and stdout."""


def _below(fault: Fault, path: object) -> bool:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return isinstance(path, str | os.PathLike) and str(os.fspath(path)).startswith(fault.root)


# --- files -----------------------------------------------------------------------------------------------------------


class _Raw(io.FileIO):
    """A file whose reads and writes are operations."""

    fault: Fault
    label: str

    def readinto(self, buffer: Any) -> int | None:
        self.fault.file("read", self.label)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self.fault.file("read", self.label)
        return super().readall()

    def read(self, size: int | None = -1) -> bytes | None:
        self.fault.file("read", self.label)
        return super().read(-1 if size is None else size)

    def write(self, data: Any) -> int | None:
        if self.fault.file("write", self.label) == "torn":
            self.fault.die_torn(super().write, data)
        return super().write(data)


def _patch_files(fault: Fault) -> None:
    def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
        name = _files.get(file) if isinstance(file, int) else (file if _below(fault, file) else None)
        if name is None:
            return _io_open(file, mode, buffering, *rest, **more)
        if not isinstance(file, int):
            fault.file("create" if set(mode) & set("wxa+") else "open", name)
        if mode not in ("rb", "wb", "ab"):
            return _io_open(file, mode, buffering, *rest, **more)
        raw = _Raw(file, mode.replace("b", ""), closefd=more.get("closefd", True))
        raw.fault, raw.label = fault, _short(name, fault.root)
        if buffering == 0:
            return raw
        size = buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE
        return io.BufferedReader(raw, size) if mode == "rb" else io.BufferedWriter(raw, size)

    io.open = builtins.open = opened  # type: ignore[assignment]

    def os_open(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if not _below(fault, path):
            return _os_open(path, flags, *rest, **more)
        fault.file("create" if flags & os.O_CREAT else "open", path)
        descriptor = _os_open(path, flags, *rest, **more)
        _files[descriptor] = str(path)
        return descriptor

    def os_close(descriptor: int) -> None:
        _files.pop(descriptor, None)
        _client.pop(descriptor, None)
        _os_close(descriptor)

    os.open, os.close = os_open, os_close

    def by_path(name: str, operation: str, module: Any = os) -> None:
        original = getattr(module, name)

        def call(path: Any, *args: Any, **more: Any) -> Any:
            if _below(fault, path):
                fault.file(operation, path)
            return original(path, *args, **more)

        setattr(module, name, call)

    for name, operation in (
        ("stat", "stat"), ("lstat", "stat"), ("scandir", "scan"), ("listdir", "scan"), ("unlink", "remove"),
        ("remove", "remove"), ("rmdir", "remove"), ("mkdir", "mkdir"), ("chmod", "chmod"), ("replace", "replace"),
        ("rename", "replace"), ("link", "create"), ("access", "stat"),
    ):  # fmt: skip
        by_path(name, operation)

    def by_descriptor(name: str, operation: str, module: Any = os) -> None:
        original = getattr(module, name)

        def call(descriptor: Any, *args: Any, **more: Any) -> Any:
            if isinstance(descriptor, int) and descriptor in _files:
                kind = fault.file(operation, _files[descriptor])
                if kind == "torn" and name == "pwrite":
                    fault.die_torn(lambda data: original(descriptor, data, *args[1:]), args[0])
            return original(descriptor, *args, **more)

        setattr(module, name, call)

    for name, operation in (
        ("fstat", "stat"), ("pread", "read"), ("pwrite", "write"), ("truncate", "truncate"), ("ftruncate", "truncate"),
        ("fchmod", "chmod"), ("fsync", "write"),
    ):  # fmt: skip
        by_descriptor(name, operation)
    by_descriptor("flock", "lock", fcntl)


# --- the client ------------------------------------------------------------------------------------------------------


def _patch_client(fault: Fault) -> None:
    gone: set[int] = set()
    plain_control = fcntl.fcntl

    def dup(descriptor: int, *rest: Any) -> int:
        return copied(descriptor, _os_dup(descriptor, *rest))

    def control(descriptor: Any, command: int, *rest: Any) -> Any:
        result = plain_control(descriptor, command, *rest)
        return copied(descriptor, result) if command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC) else result

    def copied(descriptor: int, copy: int) -> int:
        if descriptor in (0, 1):
            _client[copy] = "client-out" if descriptor else "client-in"
        return copy

    def read(descriptor: int, size: int) -> bytes:
        if descriptor in _files:
            fault.file("read", _files[descriptor])
        if _client.get(descriptor) != "client-in":
            return _os_read(descriptor, size)
        if fault.hit("client-in") == "closed":
            gone.add(descriptor)
        if descriptor in gone:
            return b""
        data = _os_read(descriptor, size)
        fault.armed = fault.armed or fault.arm in data
        return data

    def write(descriptor: int, data: Any) -> int:
        if descriptor in _files and fault.file("write", _files[descriptor]) == "torn":
            fault.die_torn(lambda half: _os_write(descriptor, half), data)
        if _client.get(descriptor) != "client-out":
            return _os_write(descriptor, data)
        kind = fault.hit(f"client-out {_name(bytes(data))}")
        if kind == "torn":
            fault.die_torn(lambda half: _os_write(descriptor, half), data)
        elif kind == "closed":
            gone.add(descriptor)
        if descriptor in gone:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return _os_write(descriptor, data)

    os.dup, os.read, os.write, fcntl.fcntl = dup, read, write, control


# --- the runtime -----------------------------------------------------------------------------------------------------


def _patch_runtime(fault: Fault) -> None:
    popen = subprocess.Popen.__init__

    def spawn(self: Any, args: Any, *rest: Any, **more: Any) -> None:
        kind = fault.hit("spawn")
        if kind.startswith(("eio", "enospc")):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        popen(self, args, *rest, **more)
        if not any("reaper" in str(word) for word in args):  # the agent's own helper
            fault.runtimes.append(self.pid)

    subprocess.Popen.__init__ = spawn  # type: ignore[method-assign]

    def signaller(name: str) -> None:
        original = getattr(os, name)

        def call(target: int, number: int) -> None:
            if number:
                fault.hit(f"signal {name} {signal.Signals(number).name}")
            original(target, number)

        setattr(os, name, call)

    signaller("kill")
    signaller("killpg")
    _patch_incoming(fault)
    _patch_outgoing(fault)


def _patch_incoming(fault: Fault) -> None:
    protocol = asyncio.subprocess.SubprocessStreamProtocol
    receive, lost = protocol.pipe_data_received, protocol.pipe_connection_lost

    class Line:
        """What came from a runtime and was not handed on yet."""

        def __init__(self) -> None:
            self.rest = b""
            self.late: list[bytes] = []
            self.waiting = False
            self.end: Any = None

    lines: dict[Any, Line] = {}

    def data_received(self: Any, fd: int, data: bytes) -> None:
        if fd != 1:
            receive(self, fd, data)
            return
        line = lines.setdefault(self, Line())
        *whole, line.rest = (line.rest + data).split(b"\n")
        for frame in whole:
            kind = fault.hit(f"frame-in {_name(frame)}")
            copies = {"lost": 0, "doubled": 2}.get(kind, 1)
            if kind == "delay" and not line.waiting:
                line.waiting = True
                self._loop.call_later(LATE, release, self, line)
            if kind == "closed":
                self._transport.get_pipe_transport(1).close()
                copies = 0
            line.late.extend([frame + b"\n"] * copies)
        if not line.waiting:
            hand_on(self, line)

    def hand_on(self: Any, line: Line) -> None:
        data, line.late = b"".join(line.late), []
        if data:
            receive(self, 1, data)

    def release(self: Any, line: Line) -> None:
        line.waiting = False
        hand_on(self, line)
        if line.end:
            lost(self, *line.end)

    def connection_lost(self: Any, fd: int, error: Any) -> None:
        line = lines.get(self)
        if fd == 1 and line and line.waiting:
            line.end = (fd, error)
        else:
            lost(self, fd, error)

    protocol.pipe_data_received = data_received  # type: ignore[method-assign]
    protocol.pipe_connection_lost = connection_lost  # type: ignore[method-assign]


def _patch_outgoing(fault: Fault) -> None:
    transport = asyncio.unix_events._UnixWritePipeTransport
    original = transport.write
    late: dict[Any, list[bytes]] = {}

    def write(self: Any, data: Any) -> None:
        kind = fault.hit(f"frame-out {_name(bytes(data))}")
        if kind == "torn":
            fault.die_torn(lambda half: original(self, half), data)
        if kind == "delay":
            late[self] = [bytes(data)]
            self._loop.call_later(LATE, release, self)
        elif self in late:
            late[self].append(bytes(data))
        elif kind == "closed":
            self.abort()
        elif kind != "lost":
            for _ in range(2 if kind == "doubled" else 1):
                original(self, data)

    def release(self: Any) -> None:
        for data in late.pop(self):
            original(self, data)

    transport.write = write


def _name(line: bytes) -> str:
    """What a message is, in a word or two."""
    try:
        value = json.loads(line)
    except ValueError:
        return "?"
    if not isinstance(value, dict):
        return "?"
    inner: Any = value
    for name in ("request", "response", "update", "event", "params"):
        inner = inner.get(name) if isinstance(inner.get(name), dict) else inner
    item = inner.get("item")
    words = (
        value.get("method") or value.get("type") or ("error" if "error" in value else "answer"),
        value.get("subtype") or value.get("state") or inner.get("sessionUpdate") or inner.get("subtype"),
        inner.get("state") or inner.get("status"),
        item.get("type") if isinstance(item, dict) else None,
    )
    return "/".join(dict.fromkeys(str(word) for word in words if word and not isinstance(word, dict | list)))


if "FAULT_LOG" in os.environ and "adapters" in sys.orig_argv:
    _fault = Fault()
    _patch_files(_fault)
    _patch_client(_fault)
    _patch_runtime(_fault)
