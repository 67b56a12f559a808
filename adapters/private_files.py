"""Files that their owner alone may read, written whole or not at all. Knows nothing of what is in them."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacement(path: Path) -> Generator[int]:
    """A descriptor of a new, empty file, which takes the place of `path` at the end of the block. Raises `OSError`.

    If the block fails, `path` stays as it was. The block calls `os.fsync` where the content must outlive a crash of the
    machine; a crash of the process alone loses nothing that was written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write it all, at once and past any buffer. Raises `OSError`."""
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
