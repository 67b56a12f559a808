"""procfs.py: what is told of locks and environments. The rest of it is tested with the orphans that it finds."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from adapters.driver import procfs


def test_the_holder_of_a_lock_is_found_by_the_file(tmp_path: Path) -> None:
    with (tmp_path / "held").open("wb") as held, (tmp_path / "free").open("wb") as free:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert procfs.lock_holders(os.fstat(held.fileno()).st_ino) == [os.getpid()]
        assert procfs.lock_holders(os.fstat(free.fileno()).st_ino) == []


def test_a_variable_with_any_bytes_is_told_as_python_tells_it() -> None:
    value = os.fsdecode(b"/home/\xff\xc3\xa9")
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={"HOME": value}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"\n"
        assert procfs.has_variable(child.pid, "HOME", value)
        assert procfs.variable(child.pid, "OTHER") is None
