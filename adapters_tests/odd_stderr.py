"""Kinds of stderr that somebody may give a program: closed, full, or read by nobody."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

CLOSED: Final = "closed"

_MAKE: Final = {
    CLOSED: "os.close(2)",
    "a full disk": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
    "read-only": "os.dup2(os.open('/dev/null', os.O_RDONLY), 2)",
    "a broken pipe": "r, w = os.pipe(); os.dup2(w, 2); os.close(r)",
    "a full pipe": "r, w = os.pipe(); keep(r); fill(w); os.dup2(w, 2)",
    "a full socket": "r, w = socket.socketpair(); keep(r.detach()); fill(w.fileno()); os.dup2(w.fileno(), 2)",
    "a stopped terminal": "r, w = os.openpty(); keep(r); fill(w); os.read(r, 300); os.dup2(w, 2)",
}

_CODE: Final = """
import os, socket, sys

def keep(reader):
    # Whoever reads is there, and reads nothing.
    os.set_inheritable(reader, True)

def fill(descriptor):
    os.set_blocking(descriptor, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(descriptor, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(descriptor, True)

{make}
os.execvp(sys.argv[1], sys.argv[1:])
"""

KINDS: Final = tuple(_MAKE)


def with_stderr(kind: str, command: Sequence[str]) -> list[str]:
    """The command that runs `command` with this kind of stderr."""
    return [sys.executable, "-c", _CODE.replace("{make}", _MAKE[kind]), *command]
