"""Keys of MCP servers: a runtime's name for a server that a client has named, and the client's name back from the key.

A runtime shortens server names into the names of tools, and reserves some. Then two servers can have one name, and a rule for one
covers the other. So a name that a runtime would shorten is spelled out, and every key belongs to one name. Pure.

    plain    letters, digits, `-`, and `_` between two of them: the key is the name
    spelled  every character but letters and digits becomes `-`; behind `-0x` stand those characters as hexadecimal UTF-8:
             `my server` is `my-server-0x20`. Also for a plain name whose own key cannot be had: `ide` is `ide-0x`
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 96  # characters
"""Of a key. The name of a tool holds it, and models take 128 for that."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_OTHER: Final = re.compile(r"[^A-Za-z0-9]")
_SPELLED: Final = re.compile(r"([A-Za-z0-9-]*)-0x((?:[0-9a-f]{2})*)")


def is_plain(name: str) -> bool:
    """Whether the name can be its own key."""
    return _PLAIN.fullmatch(name) is not None and _SPELLED.fullmatch(name) is None


def spelled(name: str) -> str:
    """The key of a name that cannot be its own, or must not."""
    others = "".join(_OTHER.findall(name)).encode("utf-8", "surrogatepass")
    return f"{_OTHER.sub('-', name)}-0x{others.hex()}"


def name_of(key: str) -> str:
    """The client's name of this key; a key that is no server's of a client is its own name."""
    found = _SPELLED.fullmatch(key)
    try:
        others = bytes.fromhex(found[2]).decode("utf-8", "surrogatepass") if found else ""
    except UnicodeDecodeError:
        return key
    if found is None or found[1].count("-") != len(others):
        return key
    rest = iter(others)
    name = "".join(next(rest) if character == "-" else character for character in found[1])
    return name if spelled(name) == key else key


def named(text: str, key: str) -> str:
    """A text of the runtime with the client's name of a server in place of its key."""
    return text.replace(key, name_of(key)) if key else text
