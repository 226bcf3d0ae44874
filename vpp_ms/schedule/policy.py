"""Order policies: what makes one ready action more urgent than another.

Every policy only writes `MicroBatch.priority`; `RankQueue` chooses by it on every rank alike.
So an order is work-conserving and per rank. One common order for all ranks would idle most of
the time for more than two ranks.

Shapes: n micro-batches, S stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.schedule.walk import walk
from vpp_ms.schedule.window import Window

ORDERS = ("longest_path", "late_sweep", "early_sweep")
BEST = "best"
Costs = Sequence[Sequence[float]] | np.ndarray


class Prioritizer:
    """Micro-batches with priorities, handed out as they become known.

    late_sweep, early_sweep: the later (earlier) sweep first, the oldest first within it.
    longest_path: the action with most predicted time between its start and the end of all that
    is known; what is added later continues the same scale. best: at the first `add` the orders
    are tried in an ideal walk under `window`, and the shortest stays; `order` then names it.
    """

    def __init__(self, placement: Placement, order: str, window: Window | None = None) -> None:
        if order not in (*ORDERS, BEST):
            raise PlanError("vpp.order", repr(order), allowed=", ".join((*ORDERS, BEST)))
        self.order = order
        self._placement, self._window = placement, window
        self._elapsed_s = 0.0
        self._next_index = 0

    def add(self, segment_lists: Sequence[Sequence[Segment]], costs_nS: Costs) -> list[MicroBatch]:
        """Micro-batches behind all that were added before, with predicted costs [n, S]."""
        costs_nS = np.asarray(costs_nS, float).reshape(-1, self._placement.num_stages)
        assert len(segment_lists) == len(costs_nS)
        if not segment_lists:
            return []
        if self.order == BEST:
            self.order = self._find_best(costs_nS)
        priorities_nS = self._priorities(self.order, costs_nS)
        if self.order == "longest_path":
            # What is added next starts later by one pass of this through its dearest stage.
            self._elapsed_s += float(costs_nS.max(axis=1).sum())
            priorities_nS = priorities_nS - self._elapsed_s
        first, self._next_index = self._next_index, self._next_index + len(segment_lists)
        return [
            MicroBatch(first + i, tuple(segments), tuple(priority))
            for i, (segments, priority) in enumerate(
                zip(segment_lists, priorities_nS.tolist(), strict=True)
            )
        ]

    def overtake(self, segments: Sequence[Segment], next_in_line: MicroBatch) -> MicroBatch:
        """A micro-batch to run right before `next_in_line`, as urgent as it on every stage.

        Its `index` is that of `next_in_line`: whoever injects renumbers. Being the older of the
        two then, it wins their ties.
        """
        return MicroBatch(next_in_line.index, tuple(segments), next_in_line.priority)

    def _priorities(self, order: str, costs_nS: np.ndarray) -> np.ndarray:
        if order == "longest_path":
            return longest_paths(costs_nS)
        sweeps_S = np.arange(costs_nS.shape[1]) // self._placement.num_ranks
        sign = 1.0 if order == "late_sweep" else -1.0
        return np.broadcast_to(sign * sweeps_S, costs_nS.shape)

    def _find_best(self, costs_nS: np.ndarray) -> str:
        if self._placement.virtual_stages == 1:
            return "late_sweep"  # one stage per rank: there is nothing to choose
        return min(ORDERS, key=lambda order: self._makespan_s(order, costs_nS))

    def _makespan_s(self, order: str, costs_nS: np.ndarray) -> float:
        rows = self._priorities(order, costs_nS).tolist()
        batches = [MicroBatch(i, (), tuple(row)) for i, row in enumerate(rows)]
        window = None if self._window is None else self._window.fresh()
        return walk(self._placement, batches, costs_nS, window=window).makespan_s


def prioritize(
    placement: Placement,
    segment_lists: Sequence[Sequence[Segment]],
    costs_nS: Costs,
    order: str,
    window: Window | None = None,
) -> list[MicroBatch]:
    """All micro-batches of a run whose future is known. Raises PlanError for no such order."""
    return Prioritizer(placement, order, window).add(segment_lists, costs_nS)


def longest_paths(costs_nS: np.ndarray) -> np.ndarray:
    """Longest chain of dependent actions from each action's start to the end, [n, S].

    path(i, s) = cost(i, s) + max(path(i, s + 1), path(i + 1, s)).
    """
    paths_nS = np.zeros_like(costs_nS)
    behind = [0.0] * costs_nS.shape[1]
    for i in range(len(costs_nS) - 1, -1, -1):
        after = 0.0
        row = costs_nS[i].tolist()
        for stage in range(len(row) - 1, -1, -1):
            after = row[stage] + max(after, behind[stage])
            behind[stage] = after
        paths_nS[i] = behind
    return paths_nS
