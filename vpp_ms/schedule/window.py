"""The in-flight window: how much rank 0 may have under way, in predicted time and in number."""

from __future__ import annotations


class Window:
    """At most `max_time_s` predicted work and `max_micro_batches` in flight; one always fits."""

    def __init__(self, max_time_s: float, max_micro_batches: int) -> None:
        self._max_time_s, self._max_micro_batches = max_time_s, max_micro_batches
        self._in_flight: dict[int, float] = {}

    def admits(self, cost_s: float) -> bool:
        if not self._in_flight:
            return True
        if len(self._in_flight) >= self._max_micro_batches:
            return False
        return sum(self._in_flight.values()) + cost_s <= self._max_time_s

    def enter(self, index: int, cost_s: float) -> None:
        self._in_flight[index] = cost_s

    def leave(self, index: int) -> None:
        del self._in_flight[index]

    def __len__(self) -> int:
        return len(self._in_flight)
