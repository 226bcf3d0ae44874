"""Order policies: what makes one ready action more urgent than another.

Every policy only writes `MicroBatch.priority`; `RankQueue` chooses by it on every rank alike.
So an order is work-conserving and per rank. One common order for all ranks would idle most of
the time for more than two ranks.

All orders are one family: the longest path to the end, plus `lean` times the sweep (in units of
one rank's mean time for a micro-batch). Lean 0 is `longest_path`, +inf `late_sweep`, -inf
`early_sweep`.

Shapes: n micro-batches, S stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.schedule.walk import walk
from vpp_ms.schedule.window import Window

NAMED_LEANS = {"longest_path": 0.0, "late_sweep": math.inf, "early_sweep": -math.inf}
ORDERS = tuple(NAMED_LEANS)
BEST = "best"
# What `best` tries: the named orders first, so that they win ties, then what lies between them.
LEANS = (*NAMED_LEANS.values(), -0.5, 0.5, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0)
MANY_ACTIONS = 20_000  # from here on `best` tries the named orders only: a walk takes 5 us each
FEW_ACTIONS, NUM_SCATTERED = 1_000, 32  # so few have room for luck: `best` also draws priorities
Costs = Sequence[Sequence[float]] | np.ndarray


class Prioritizer:
    """Micro-batches with priorities, handed out as they become known.

    `order` is a name or a lean. What is added later continues the same scale. best: at the first
    `add` the leans are tried in an ideal walk under `window`, and the shortest stays; for few
    actions also priorities scattered at random around them, always the same. `lean` is the one
    in use.
    """

    def __init__(
        self, placement: Placement, order: str | float, window: Window | None = None
    ) -> None:
        if isinstance(order, str) and order not in (*ORDERS, BEST):
            raise PlanError("vpp.order", repr(order), allowed=", ".join((*ORDERS, BEST)))
        self.lean = NAMED_LEANS.get(order) if isinstance(order, str) else order
        self._placement, self._window = placement, window
        self._unit_s = 0.0
        self._elapsed_s = 0.0
        self._next_index = 0

    def add(self, segment_lists: Sequence[Sequence[Segment]], costs_nS: Costs) -> list[MicroBatch]:
        """Micro-batches behind all that were added before, with predicted costs [n, S]."""
        costs_nS = np.asarray(costs_nS, float).reshape(-1, self._placement.num_stages)
        assert len(segment_lists) == len(costs_nS)
        if not segment_lists:
            return []
        if self._unit_s == 0.0:
            self._unit_s = float(costs_nS.sum(axis=1).mean()) / self._placement.num_ranks
        if self.lean is None:
            self.lean, priorities_nS = self._best(costs_nS)
        else:
            priorities_nS = self._priorities(self.lean, costs_nS)
        if math.isfinite(self.lean):
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

    def _priorities(self, lean: float, costs_nS: np.ndarray) -> np.ndarray:
        sweeps_S = np.arange(costs_nS.shape[1]) // self._placement.num_ranks
        if math.isinf(lean):
            return np.broadcast_to(math.copysign(1.0, lean) * sweeps_S, costs_nS.shape)
        return longest_paths(costs_nS) + lean * self._unit_s * sweeps_S

    def _best(self, costs_nS: np.ndarray) -> tuple[float, np.ndarray]:
        if self._placement.virtual_stages == 1:  # one stage per rank: there is nothing to choose
            return math.inf, self._priorities(math.inf, costs_nS)
        return min(
            self._candidates(costs_nS), key=lambda found: self._makespan_s(found[1], costs_nS)
        )

    def _candidates(self, costs_nS: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
        leans = LEANS if costs_nS.size < MANY_ACTIONS else LEANS[: len(NAMED_LEANS)]
        for lean in leans:
            yield lean, self._priorities(lean, costs_nS)
        if costs_nS.size < FEW_ACTIONS:
            draw = np.random.default_rng(0)
            for _ in range(NUM_SCATTERED):
                lean = float(draw.choice((-2.0, -1.0, 0.0, 1.0, 2.0)))
                width_s = self._unit_s * draw.choice((0.5, 1.0, 2.0))
                scatter_nS = draw.normal(0.0, width_s, costs_nS.shape)
                yield lean, self._priorities(lean, costs_nS) + scatter_nS

    def _makespan_s(self, priorities_nS: np.ndarray, costs_nS: np.ndarray) -> float:
        rows = priorities_nS.tolist()
        batches = [MicroBatch(i, (), tuple(row)) for i, row in enumerate(rows)]
        window = None if self._window is None else self._window.fresh()
        return walk(self._placement, batches, costs_nS, window=window).makespan_s


def prioritize(
    placement: Placement,
    segment_lists: Sequence[Sequence[Segment]],
    costs_nS: Costs,
    order: str | float,
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
