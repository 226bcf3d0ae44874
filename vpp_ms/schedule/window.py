"""The in-flight window: how much rank 0 may have under way, in predicted time and in number."""

from __future__ import annotations

import math


class Window:
    """At most `max_time_s` predicted work and `max_micro_batches` in flight; one always fits."""

    def __init__(self, max_time_s: float = math.inf, max_micro_batches: float = math.inf) -> None:
        self._max_time_s, self._max_micro_batches = max_time_s, max_micro_batches
        self._in_flight: dict[int, float] = {}
        self._time_s = 0.0

    @classmethod
    def of(
        cls, micro_batches: int, time_chunks: float | None = None, dearest_s: float = 0.0
    ) -> Window:
        """A plan's window: `time_chunks` counts in units of the dearest micro-batch's cost."""
        max_time_s = math.inf if time_chunks is None else time_chunks * dearest_s
        return cls(max_time_s, micro_batches)

    def fresh(self) -> Window:
        """The same limits with nothing in flight."""
        return Window(self._max_time_s, self._max_micro_batches)

    def admits(self, cost_s: float) -> bool:
        if not self._in_flight:
            return True
        if len(self._in_flight) >= self._max_micro_batches:
            return False
        return self._time_s + cost_s <= self._max_time_s * (1 + 1e-9)

    def enter(self, index: int, cost_s: float) -> None:
        self._in_flight[index] = cost_s
        self._time_s += cost_s

    def leave(self, index: int) -> None:
        self._time_s -= self._in_flight.pop(index)
        if not self._in_flight:
            self._time_s = 0.0  # drops the rounding errors of the sum

    def __len__(self) -> int:
        return len(self._in_flight)
