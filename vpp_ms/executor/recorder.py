"""What one rank did and when, on its own clock."""

from __future__ import annotations

import time

from vpp_ms.trace.events import COMPUTE, RECV, SEND, WAIT, Event


class Recorder:
    """Collects a rank's events; times are perf_counter seconds since `start()`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._zero_s = time.perf_counter()
        self._busy_s = 0.0
        self.events: list[Event] = []

    def start(self) -> None:
        """The run's common start: call it right behind a barrier of all ranks."""
        self._zero_s = time.perf_counter()
        self._busy_s = 0.0
        self.events.clear()

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._zero_s

    @property
    def busy_share(self) -> float:
        """Computing time over time since the start, so far."""
        return self._busy_s / max(self.elapsed_s, 1e-9)

    def compute(self, stage: int, micro_batch: int, start_s: float, end_s: float) -> None:
        self._busy_s += end_s - start_s
        self._add(COMPUTE, stage, micro_batch, start_s, end_s)

    def wait(self, start_s: float, end_s: float) -> None:
        self._add(WAIT, -1, -1, start_s, end_s)

    def send(
        self, stage: int, micro_batch: int, start_s: float, end_s: float, num_bytes: int, peer: int
    ) -> None:
        self._add(SEND, stage, micro_batch, start_s, end_s, num_bytes, peer)

    def recv(
        self, stage: int, micro_batch: int, start_s: float, end_s: float, num_bytes: int, peer: int
    ) -> None:
        self._add(RECV, stage, micro_batch, start_s, end_s, num_bytes, peer)

    def _add(
        self,
        kind: str,
        stage: int,
        micro_batch: int,
        start_s: float,
        end_s: float,
        num_bytes: int = 0,
        peer: int = -1,
    ) -> None:
        zero = self._zero_s
        self.events.append(
            Event(
                kind, self._rank, stage, micro_batch, start_s - zero, end_s - zero, num_bytes, peer
            )
        )
