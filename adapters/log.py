"""One line per event on stderr. Owns the log format; knows nothing of the protocol.

Values are for diagnosis only: method names, codes, sizes, process ids. Never pass a prompt, a key or a secret (STDIO-15, KEY-30).
"""

import json
import sys

_LONGEST_VALUE = 300  # characters; a log line stays readable whatever a runtime prints


def log(event: str, **fields: object) -> None:
    """Write ``acp-adapters: EVENT name=value ...`` to stderr as one line.

    Values are written as JSON strings where they hold anything but plain characters, so a newline or a control
    character in a value cannot forge a second line. A closed stderr is ignored.
    """
    parts = [f"acp-adapters: {event}"]
    for name, value in fields.items():
        text = str(value)[:_LONGEST_VALUE]
        plain = text.isascii() and text.isprintable() and " " not in text and text
        parts.append(f"{name}={text if plain else json.dumps(text)}")
    try:
        sys.stderr.write(" ".join(parts) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
