"""Terminals of the agent's own, which v1 does not have (V1-UPD-3): what is known of one, as bytes and as an end.

Owns the bytes until they are shown, in one of two ways: piece by piece for a client that draws such terminals, or once, as
readable text, for every other.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Mapping
from typing import Any, Final, cast

from adapters.acp.fences import fenced
from adapters.acp.v1.closed import Wire
from adapters.acp.v1.terminal_text import readable

LONGEST: Final = 1024 * 1024
"""Bytes of output that are kept for one text: the end counts."""
_CUT: Final = "(The output before this is left out.)\n"


class Terminal:
    """One terminal. With `live`, its output is handed on as it comes and not kept."""

    def __init__(self, terminal_id: str, *, live: bool) -> None:
        self.terminal_id = terminal_id
        self.call_id: str | None = None
        """The tool call whose content shows it."""
        self.shown_id = terminal_id
        """Its name on the wire."""
        self.cwd: str | None = None
        self.exit: Wire | None = None
        self.exit_told = False
        self._live = live
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = bytearray()
        self._received = 0
        self._cut = False

    def update(self, fields: Mapping[str, Any]) -> None:
        """A patch of the terminal: what its output is as a whole may only continue what was sent."""
        if isinstance(cwd := fields.get("cwd"), str):
            self.cwd = cwd
        output: Any = fields.get("output")
        if isinstance(output, dict):
            whole = _decoded(cast(Wire, output).get("data"))
            if not self._live:
                self._bytes, self._received, self._cut = bytearray(), 0, False
            self._append(whole[self._received :])
        status: Any = fields.get("exitStatus")
        if isinstance(status, dict):
            known = cast(Wire, status)
            self.exit = {"exit_code": known.get("exitCode"), "signal": known.get("signal")}

    def append(self, data: Any) -> None:
        """A piece of output, in base64."""
        self._append(_decoded(data))

    def _append(self, data: bytes) -> None:
        self._received += len(data)
        self._bytes += data
        if not self._live and len(self._bytes) > 2 * LONGEST:
            self._shorten()

    def _shorten(self) -> None:
        if len(self._bytes) > LONGEST:
            del self._bytes[:-LONGEST]
            self._cut = True

    def news(self) -> Wire:
        """What was not told yet, as `_meta` of an update of its call; empty when that is nothing."""
        text = self._decoder.decode(bytes(self._bytes), self.exit is not None)
        self._bytes.clear()
        meta: Wire = {}
        if text:
            meta["terminal_output"] = {"terminal_id": self.shown_id, "data": text}
        if self.exit is not None and not self.exit_told:
            self.exit_told = True
            meta["terminal_exit"] = {"terminal_id": self.shown_id, **self.exit}
        return meta

    def info(self) -> Wire:
        """That the terminal exists, as `_meta`."""
        named = {"terminal_id": self.shown_id}
        return {"terminal_info": named if self.cwd is None else {**named, "cwd": self.cwd}}

    def release(self) -> None:
        """Its text is sent and not kept any more."""
        self._bytes.clear()

    def text(self) -> str:
        """All of it as Markdown; empty when nothing was printed and the end says nothing."""
        self._shorten()
        raw = self._bytes
        if self._cut and (line := raw.find(b"\n")) >= 0:
            raw = raw[line + 1 :]
        printed = readable(raw.decode("utf-8", "replace"))
        parts = [fenced((_CUT if self._cut else "") + printed)] if printed.strip() else []
        if self.exit is not None and (signal := self.exit["signal"]):
            parts.append(f"Ended by signal {signal}.")
        elif self.exit is not None and self.exit["exit_code"]:
            parts.append(f"Exit code {self.exit['exit_code']}.")
        return "\n\n".join(parts)


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""
