"""How full the model's context is, and what the session has cost so far (USAGE-1, USAGE-2). Sums; no clock, no files."""

from collections.abc import Mapping
from typing import Any

from adapters.acp.schema import Cost, UsageUpdate
from adapters.acp.shapes import as_count, as_mapping, as_text

_IN_CONTEXT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
"""Of one model call: everything that is in the context after it. A turn's result only has the sum of its calls."""


class Usage:
    """The figures of one session. The context's size is known only once the runtime has reported it."""

    def __init__(self) -> None:
        self._call: dict[str, int] = {}
        self._model = ""
        self._streamed: str | None = None
        self._size = 0
        self._cost: float | None = None
        self._sent: UsageUpdate | None = None

    @property
    def latest(self) -> UsageUpdate | None:
        """The usage for a client that joins now; None while used tokens or context size are unknown."""
        used = sum(self._call.values())
        if not used or not self._size:
            return None
        if self._cost is None:
            return UsageUpdate(used=used, size=self._size)
        return UsageUpdate(used=used, size=self._size, cost=Cost(amount=self._cost, currency="USD"))

    def news(self) -> list[UsageUpdate]:
        """The latest figures, if they are others than at the last call."""
        latest = self.latest
        if latest is None or latest == self._sent:
            return []
        self._sent = latest
        return [latest]

    def call_began(self, message: Mapping[str, Any]) -> None:
        """`message_start`."""
        self._streamed = as_text(message.get("id"))
        self._take(message)

    def whole_message(self, message: Mapping[str, Any]) -> None:
        """An `assistant` frame; its counts are those of the beginning, so they count only when it was not streamed."""
        if as_text(message.get("id")) != self._streamed:
            self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        self._model = as_text(message.get("model")) or self._model
        usage = as_mapping(message.get("usage"))
        counts = {name: as_count(usage.get(name)) for name in _IN_CONTEXT}
        if any(counts.values()):
            self._call = counts

    def call_went_on(self, usage: Mapping[str, Any]) -> None:
        """`message_delta`: final counts, some of them."""
        self._call.update({name: as_count(usage[name]) for name in _IN_CONTEXT if as_count(usage.get(name))})

    def compacted(self, tokens: Any) -> None:
        """A compaction left so many tokens."""
        if as_count(tokens):
            self._call = {"input_tokens": as_count(tokens)}

    def turn_ended(self, result: Mapping[str, Any]) -> None:
        """A `result` frame: the context's size per model, and the session's cost."""
        models = as_mapping(result.get("modelUsage"))
        sizes = {name: as_count(as_mapping(entry).get("contextWindow")) for name, entry in models.items()}
        size = sizes.get(self._model)
        if not size:
            alike = [size for name, size in sizes.items() if self._model and name.startswith(self._model)]
            size = alike[0] if alike else next(iter(sizes.values())) if len(sizes) == 1 else 0
        self._size = size or self._size
        cost = result.get("total_cost_usd")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf"):
            self._cost = round(float(cost), 10)  # sums of the CLI end in 0.00000000000000003
