"""What the error of a prompt says to programs. Owns `data.inserted`. Imports no models (D10)."""

from __future__ import annotations

import logging

from adapters.acp.errors import AcpError, as_acp_error
from adapters.log import LogEvent

_log = logging.getLogger(__name__)


def fate_unknown(error: Exception) -> AcpError:
    """The error of an attempt whose look-up failed: it has inserted nothing, but an earlier one with its key may have (ADP-6)."""
    known = not_inserted(error)
    return known.with_data(inserted=None)


def not_inserted(error: Exception) -> AcpError:
    """The error of a prompt, marked for machines: `data.inserted` is false, so the same key may be sent again (ERR-5).

    A driver that could not find out says `inserted: null` itself; that stays.
    """
    if not isinstance(error, AcpError):
        _log.warning(LogEvent("prompt failed", error=type(error).__name__))
    known = as_acp_error(error)
    data: object = known.data
    marked = isinstance(data, dict) and "inserted" in data
    return known if marked else known.with_data(inserted=False)
