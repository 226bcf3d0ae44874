"""`walk`: the schedule in virtual time, over the very `RankQueue` and `Window` that ranks use.

Deterministic: what happens at the same moment is settled in full before any rank chooses its
next action, and ranks choose in rank order.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
# What a finished micro-batch gives rise to, such as the next token's.
Followers = Callable[[MicroBatch, float], Sequence[MicroBatch]]


def walk(
    placement: Placement,
    micro_batches: Sequence[MicroBatch],
    times_nS: Sequence[Sequence[float]] | np.ndarray | TimeOf,
    *,
    hop_of: HopOf | None = None,
    window: Window | None = None,
    arrivals_s: Sequence[float] | None = None,
    followers: Followers | None = None,
) -> Walk:
    """Run all micro-batches, in order of their index, from time 0.

    `times_nS` is a table or a function of (stage, micro-batch). `arrivals_s[i]`: micro-batch i
    is not known before. `window` is asked with the sum of a micro-batch's times over P, one
    rank's share.
    """
    time_of = times_nS if callable(times_nS) else _lookup(times_nS)
    walker = _Walker(placement, time_of, hop_of, Window() if window is None else window, followers)
    for micro_batch in micro_batches:
        arrival_s = 0.0 if arrivals_s is None else arrivals_s[micro_batch.index]
        walker.expect(micro_batch, arrival_s)
    return walker.run()


def _lookup(times_nS: Sequence[Sequence[float]] | np.ndarray) -> TimeOf:
    table = times_nS.tolist() if isinstance(times_nS, np.ndarray) else times_nS
    return lambda stage, micro_batch: table[micro_batch.index][stage]


class _Event(NamedTuple):
    """Sorted by time, then by creation. `stage` -1: a micro-batch becomes known."""

    time_s: float
    serial: int
    stage: int
    is_landing: bool
    micro_batch: MicroBatch


@dataclass
class _Walker:
    placement: Placement
    time_of: TimeOf
    hop_of: HopOf | None
    window: Window
    followers: Followers | None
    events: list[_Event] = field(default_factory=list)
    waiting: deque[MicroBatch] = field(default_factory=deque)
    actions: list[TimedAction] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    done_s: dict[int, float] = field(default_factory=dict)
    serial: int = 0

    def __post_init__(self) -> None:
        stages = range(self.placement.num_stages)
        self.rank_of = [self.placement.rank_of(stage) for stage in stages]
        self.link_behind = [self.placement.link_behind(stage) for stage in stages]
        self.link_free_s = dict.fromkeys(self.placement.links(), 0.0)
        self.last_landing_s = dict(self.link_free_s)
        self.queues = [
            RankQueue(self.placement.stages_of(rank)) for rank in range(self.placement.num_ranks)
        ]
        self.is_busy = [False] * self.placement.num_ranks

    def expect(self, micro_batch: MicroBatch, time_s: float) -> None:
        self._push(time_s, -1, False, micro_batch)

    def run(self) -> Walk:
        while self.events:
            now_s = self.events[0].time_s
            end_s = now_s + SAME_MOMENT * abs(now_s)
            touched = {0}
            while self.events and self.events[0].time_s <= end_s:
                event = heapq.heappop(self.events)
                now_s = event.time_s
                self._settle(event, touched)
            self._inject()
            for rank in sorted(touched):
                self._choose(rank, now_s)
        assert not self.waiting and all(len(queue) == 0 for queue in self.queues)
        self.actions.sort(key=lambda a: (a.start_s, a.rank))
        self.transfers.sort(key=lambda t: (t.start_s, t.link))
        done_s = tuple(self.done_s[index] for index in sorted(self.done_s))
        return Walk(self.placement, tuple(self.actions), tuple(self.transfers), done_s)

    def _push(self, time_s: float, stage: int, is_landing: bool, mb: MicroBatch) -> None:
        heapq.heappush(self.events, _Event(time_s, self.serial, stage, is_landing, mb))
        self.serial += 1

    def _settle(self, event: _Event, touched: set[int]) -> None:
        time_s, _, stage, is_landing, micro_batch = event
        if stage < 0:
            self.waiting.append(micro_batch)
            return
        if not is_landing:
            self.is_busy[self.rank_of[stage]] = False
            touched.add(self.rank_of[stage])
            link = self.link_behind[stage]
            if link is not None and self._send(link, micro_batch, time_s):
                return
        if stage + 1 < len(self.rank_of):
            self.queues[self.rank_of[stage + 1]].put(stage + 1, micro_batch)
            touched.add(self.rank_of[stage + 1])
            return
        self.window.leave(micro_batch.index)
        self.done_s[micro_batch.index] = time_s
        if self.followers is not None:
            self.waiting.extend(self.followers(micro_batch, time_s))

    def _send(self, link: Link, micro_batch: MicroBatch, time_s: float) -> bool:
        """False for a free hop, which lands at once."""
        if self.hop_of is None:
            return False
        hop = self.hop_of(link, micro_batch)
        start_s = max(time_s, self.link_free_s[link])
        self.link_free_s[link] = start_s + hop.transfer_s
        landing_s = start_s + hop.transfer_s + hop.latency_s
        landing_s = max(landing_s, self.last_landing_s[link])  # a link is FIFO
        self.last_landing_s[link] = landing_s
        self.transfers.append(Transfer(link, micro_batch.index, time_s, landing_s))
        self._push(landing_s, link.source_stage, True, micro_batch)
        return True

    def _inject(self) -> None:
        while self.waiting:
            micro_batch = self.waiting[0]
            stages = range(self.placement.num_stages)
            cost_s = math.fsum(self.time_of(s, micro_batch) for s in stages)
            cost_s /= self.placement.num_ranks
            if not self.window.admits(cost_s):
                return
            self.window.enter(micro_batch.index, cost_s)
            self.waiting.popleft()
            self.queues[0].put(0, micro_batch)

    def _choose(self, rank: int, now_s: float) -> None:
        if self.is_busy[rank]:
            return
        ready = self.queues[rank].pop()
        if ready is None:
            return
        action, micro_batch = ready
        end_s = now_s + self.time_of(action.stage, micro_batch)
        self.is_busy[rank] = True
        self.actions.append(TimedAction(rank, *action, now_s, end_s))
        self._push(end_s, action.stage, False, micro_batch)
