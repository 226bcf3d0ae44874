"""`Trace`: what every rank did and when; the same type for real, emulated and simulated runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

COMPUTE, SEND, RECV, WAIT = "compute", "send", "recv", "wait"
MEASURED, EMULATED, SIMULATED = "measured", "emulated", "simulated"


class Event(NamedTuple):
    """`start_s` and `end_s` count from the run's common start, on the rank's own clock.

    compute: stage and micro-batch that ran. send / recv: a payload on its way behind `stage`
    (`peer` is the other rank). wait: the rank had nothing ready.
    """

    kind: str
    rank: int
    stage: int
    micro_batch: int
    start_s: float
    end_s: float
    num_bytes: int = 0
    peer: int = -1

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Trace:
    """Events of all ranks, sorted by (start_s, rank). `origin` labels every figure made of it."""

    num_ranks: int
    events: tuple[Event, ...]
    origin: str = MEASURED
    meta: Mapping[str, object] = field(default_factory=dict)

    def scaled(self, factor: float) -> Trace:
        """The same trace on a clock that runs `factor` times as fast."""
        events = tuple(
            e._replace(start_s=factor * e.start_s, end_s=factor * e.end_s) for e in self.events
        )
        return replace(self, events=events)

    def of(self, kind: str, rank: int | None = None) -> tuple[Event, ...]:
        """In the order of `events`."""
        if rank is None:
            return tuple(e for e in self.events if e.kind == kind)
        return tuple(self._by_rank.get((kind, rank), ()))

    @cached_property
    def _by_rank(self) -> dict[tuple[str, int], list[Event]]:
        found: dict[tuple[str, int], list[Event]] = {}
        for event in self.events:
            found.setdefault((event.kind, event.rank), []).append(event)
        return found
