"""`walk`: the schedule in virtual time, over the very `RankQueue` and `Window` that ranks use.

Deterministic: what happens at the same moment is settled in full before any rank chooses its
next action, and ranks choose in rank order. What is injected comes from a `Source`: a list that
is known from the start (`walk`), or whatever else answers like one (`walk_source`), such as the
`Feeder` that rank 0 runs.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from vpp_ms.plan.placement import Link, Placement
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.queue import RankQueue
from vpp_ms.schedule.window import Window

SAME_MOMENT = 1e-12  # relative: sums of the same costs in another order are the same moment


class Hop(NamedTuple):
    """A message occupies its link for `transfer_s` and lands `latency_s` later."""

    transfer_s: float = 0.0
    latency_s: float = 0.0
    num_bytes: int = 0


class TimedAction(NamedTuple):
    rank: int
    stage: int
    micro_batch: int
    start_s: float
    end_s: float


class Transfer(NamedTuple):
    """From the hand-over to the link until the landing."""

    link: Link
    micro_batch: int
    start_s: float
    end_s: float
    num_bytes: int = 0


@dataclass(frozen=True)
class Walk:
    """`actions` and `transfers` in order of their start; `done_s[i]`: micro-batch i was back."""

    placement: Placement
    actions: tuple[TimedAction, ...]
    transfers: tuple[Transfer, ...]
    done_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        """From the first action's start to the last one's end."""
        if not self.actions:
            return 0.0
        return max(a.end_s for a in self.actions) - min(a.start_s for a in self.actions)

    @property
    def bubble_ratio(self) -> float:
        busy_s = sum(a.end_s - a.start_s for a in self.actions)
        whole_s = self.placement.num_ranks * self.makespan_s
        return 1.0 - busy_s / whole_s if whole_s else 0.0


TimeOf = Callable[[int, MicroBatch], float]
HopOf = Callable[[Link, MicroBatch], Hop]


class Source(Protocol):
    """Where micro-batches come from. Asked again whenever something has arrived or left."""

    def arrive(self, item: Any, time_s: float) -> None:
        """Something that was announced for this moment has become known."""

    def next(self) -> MicroBatch | None:
        """The micro-batch to inject now, numbered in order; None for none now."""

    def leave(self, micro_batch: MicroBatch, time_s: float) -> None:
        """It has come back from the last stage."""


class ListSource:
    """Micro-batches whose future is known, injected in order as the window admits them."""

    def __init__(self, window: Window, cost_of: Callable[[MicroBatch], float]) -> None:
        self._window, self._cost_of = window, cost_of
        self._waiting: deque[MicroBatch] = deque()

    def arrive(self, item: MicroBatch, time_s: float) -> None:
        self._waiting.append(item)

    def next(self) -> MicroBatch | None:
        if not self._waiting:
            return None
        cost_s = self._cost_of(self._waiting[0])
        if not self._window.admits(cost_s):
            return None
        micro_batch = self._waiting.popleft()
        self._window.enter(micro_batch.index, cost_s)
        return micro_batch

    def leave(self, micro_batch: MicroBatch, time_s: float) -> None:
        self._window.leave(micro_batch.index)


def walk(
    placement: Placement,
    micro_batches: Sequence[MicroBatch],
    times_nS: Sequence[Sequence[float]] | np.ndarray,
    *,
    hop_of: HopOf | None = None,
    window: Window | None = None,
    arrivals_s: Sequence[float] | None = None,
) -> Walk:
    """Run all micro-batches, in order of their index, from time 0.

    `arrivals_s[i]`: micro-batch i is not known before. `window` is asked with the sum of a
    micro-batch's times over P, one rank's share.
    """
    table = times_nS.tolist() if isinstance(times_nS, np.ndarray) else times_nS
    num_ranks = placement.num_ranks
    source = ListSource(
        Window() if window is None else window,
        lambda micro_batch: math.fsum(table[micro_batch.index]) / num_ranks,
    )
    moments_s = arrivals_s if arrivals_s is not None else (0.0,) * len(micro_batches)
    arrivals = [(moments_s[mb.index], mb) for mb in micro_batches]
    return walk_source(
        placement, source, lambda stage, mb: table[mb.index][stage], arrivals, hop_of=hop_of
    )


def walk_source(
    placement: Placement,
    source: Source,
    time_of: TimeOf,
    arrivals: Iterable[tuple[float, Any]],
    *,
    hop_of: HopOf | None = None,
) -> Walk:
    """Run what `source` gives until it has nothing more and all that is known has arrived.

    `arrivals` are (time, what the source is told then), in any order.
    """
    walker = _Walker(placement, source, time_of, hop_of)
    for time_s, item in arrivals:
        walker.expect(time_s, item)
    return walker.run()


ARRIVAL = -1  # in place of a stage
# Sorted by time, then by creation: (time_s, serial, stage, is_landing, micro-batch or item)
_Event = tuple[float, int, int, bool, Any]


class _Walker:
    def __init__(
        self, placement: Placement, source: Source, time_of: TimeOf, hop_of: HopOf | None
    ) -> None:
        self.placement, self.source, self.time_of, self.hop_of = placement, source, time_of, hop_of
        stages, ranks = range(placement.num_stages), range(placement.num_ranks)
        self.rank_of = [placement.rank_of(stage) for stage in stages]
        self.link_behind = [placement.link_behind(stage) for stage in stages]
        self.link_free_s = dict.fromkeys(placement.links(), 0.0)
        self.last_landing_s = dict(self.link_free_s)
        self.queues = [RankQueue(placement.stages_of(rank)) for rank in ranks]
        self.is_busy = [False] * placement.num_ranks
        self.events: list[_Event] = []
        self.actions: list[TimedAction] = []
        self.transfers: list[Transfer] = []
        self.done_s: dict[int, float] = {}
        self.serial, self.is_stirred = 0, False

    def expect(self, time_s: float, item: Any) -> None:
        self._push(time_s, ARRIVAL, False, item)

    def run(self) -> Walk:
        events, is_busy = self.events, self.is_busy
        while events:
            now_s = events[0][0]
            end_s = now_s + SAME_MOMENT * abs(now_s)
            touched: set[int] = set()
            while events and events[0][0] <= end_s:
                event = heapq.heappop(events)
                now_s = event[0]
                self._settle(event, touched)
            if self.is_stirred:
                self._inject(touched)
            for rank in sorted(touched) if len(touched) > 1 else touched:
                if not is_busy[rank]:
                    self._choose(rank, now_s)
        assert all(len(queue) == 0 for queue in self.queues)
        self.actions.sort(key=lambda a: (a.start_s, a.rank))
        self.transfers.sort(key=lambda t: (t.start_s, t.link))
        done_s = tuple(self.done_s[index] for index in sorted(self.done_s))
        return Walk(self.placement, tuple(self.actions), tuple(self.transfers), done_s)

    def _push(self, time_s: float, stage: int, is_landing: bool, what: Any) -> None:
        heapq.heappush(self.events, (time_s, self.serial, stage, is_landing, what))
        self.serial += 1

    def _inject(self, touched: set[int]) -> None:
        self.is_stirred = False
        while (micro_batch := self.source.next()) is not None:
            self.queues[0].put(0, micro_batch)
            touched.add(0)

    def _settle(self, event: _Event, touched: set[int]) -> None:
        time_s, _, stage, is_landing, micro_batch = event
        if stage == ARRIVAL:
            self.source.arrive(micro_batch, time_s)
            self.is_stirred = True
            return
        if not is_landing:
            self.is_busy[self.rank_of[stage]] = False
            touched.add(self.rank_of[stage])
            link = self.link_behind[stage]
            if link is not None and self.hop_of is not None:
                self._send(link, micro_batch, time_s, self.hop_of(link, micro_batch))
                return
        if stage + 1 < len(self.rank_of):
            rank = self.rank_of[stage + 1]
            self.queues[rank].put(stage + 1, micro_batch)
            touched.add(rank)
            return
        self.done_s[micro_batch.index] = time_s
        self.source.leave(micro_batch, time_s)
        self.is_stirred = True

    def _send(self, link: Link, micro_batch: MicroBatch, time_s: float, hop: Hop) -> None:
        start_s = max(time_s, self.link_free_s[link])
        self.link_free_s[link] = start_s + hop.transfer_s
        landing_s = start_s + hop.transfer_s + hop.latency_s
        landing_s = max(landing_s, self.last_landing_s[link])  # a link is FIFO
        self.last_landing_s[link] = landing_s
        self.transfers.append(Transfer(link, micro_batch.index, time_s, landing_s, hop.num_bytes))
        self._push(landing_s, link.source_stage, True, micro_batch)

    def _choose(self, rank: int, now_s: float) -> None:
        ready = self.queues[rank].pop()
        if ready is None:
            return
        (stage, index), micro_batch = ready
        end_s = now_s + self.time_of(stage, micro_batch)
        self.is_busy[rank] = True
        self.actions.append(TimedAction(rank, stage, index, now_s, end_s))
        self._push(end_s, stage, False, micro_batch)
