"""Lower bounds on the makespan of micro-batches on a placement, whatever the order and window.

Shapes: n micro-batches, S stages. `hops_nS[i, s]`: from the end of stage s to the start of s + 1.

machine: a rank's first action is micro-batch 0 on its first stage and its last one micro-batch
n - 1 on its last stage, because stages are FIFO. So it is done no earlier than the way of the
first there, all its work, and the way of the last from there to the end. For equal stages and
one request this is the closed form of each placement (plain: sum t + (P - 1) t_last; even V: sum t
+ (P - 1) (t_first + t_last) / v; loop: sum t + (P - 1) t_last / v).

path: before micro-batch i come all others before it on the first stage, then it crosses all
stages, and all behind it cross the last one; the dearest i counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vpp_ms.plan.placement import Placement


@dataclass(frozen=True)
class Bounds:
    """`work_s` is the busiest rank's work, `machine_s` and `path_s` as above."""

    work_s: float
    machine_s: float
    path_s: float

    @property
    def makespan_s(self) -> float:
        """No schedule of these micro-batches on this placement ends earlier."""
        return max(self.machine_s, self.path_s)


def lower_bounds(
    placement: Placement, costs_nS: np.ndarray, hops_nS: np.ndarray | None = None
) -> Bounds:
    """Bounds for micro-batches that are all known at time 0; zeros for none."""
    if not len(costs_nS):
        return Bounds(0.0, 0.0, 0.0)
    behind_nS = costs_nS if hops_nS is None else costs_nS + hops_nS
    before_S = np.concatenate([[0.0], np.cumsum(behind_nS[0])])
    after_S = np.cumsum((costs_nS[-1] + _into(hops_nS, -1))[::-1])[::-1]
    work_S = costs_nS.sum(axis=0)
    work, machine = [], []
    for rank in range(placement.num_ranks):
        stages = placement.stages_of(rank)
        work.append(float(work_S[list(stages)].sum()))
        tail_s = float(after_S[stages[-1] + 1]) if stages[-1] + 1 < len(after_S) else 0.0
        machine.append(float(before_S[stages[0]]) + work[-1] + tail_s)
    return Bounds(max(work), max(machine), _path_s(costs_nS, behind_nS))


def _into(hops_nS: np.ndarray | None, row: int) -> np.ndarray | float:
    """The hop in front of each stage, [S]."""
    if hops_nS is None:
        return 0.0
    return np.concatenate([[0.0], hops_nS[row, :-1]])


def _path_s(costs_nS: np.ndarray, behind_nS: np.ndarray) -> float:
    first_n, last_n = costs_nS[:, 0], costs_nS[:, -1]
    crossing_n = behind_nS[:, :-1].sum(axis=1) + last_n
    before_n = np.cumsum(first_n) - first_n
    after_n = np.cumsum(last_n[::-1])[::-1] - last_n
    return float((before_n + crossing_n + after_n).max())
