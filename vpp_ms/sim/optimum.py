"""The true optimum of small cases, by OR-tools CP-SAT (extra `optimum`).

It may leave a rank idle on purpose, which the orders of this project never do: so it tells how
far they are from the best that any order could reach.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from vpp_ms.errors import VppError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.sim.bounds import lower_bounds


@dataclass(frozen=True)
class Optimum:
    """`bound` is proven: no schedule is shorter. `makespan` is that of `schedule`."""

    makespan: int
    bound: int
    schedule: Schedule

    @property
    def is_proven(self) -> bool:
        return self.bound == self.makespan


def optimum(placement: Placement, costs_nS: np.ndarray, time_limit_s: float = 20.0) -> Optimum:
    """The shortest schedule with free hops. Costs are whole numbers, [n, S], n >= 1.

    Raises VppError when OR-tools is not installed or finds nothing within the limit.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise VppError(
            "optimum", "OR-tools is missing", hint="pip install 'vpp-ms[optimum]'"
        ) from None
    costs = np.asarray(costs_nS).astype(int).tolist()
    model = cp_model.CpModel()
    horizon = sum(map(sum, costs))
    start, on_rank = {}, defaultdict(list)
    for i, row in enumerate(costs):
        for stage, cost in enumerate(row):
            start[i, stage] = model.new_int_var(0, horizon, "")
            interval = model.new_fixed_size_interval_var(start[i, stage], cost, "")
            on_rank[placement.rank_of(stage)].append(interval)
            if stage > 0:
                model.add(start[i, stage] >= start[i, stage - 1] + row[stage - 1])
            if i > 0:
                model.add(start[i, stage] >= start[i - 1, stage] + costs[i - 1][stage])
    for intervals in on_rank.values():
        model.add_no_overlap(intervals)
    least = int(lower_bounds(placement, np.array(costs, float)).makespan_s + 0.5)
    makespan = model.new_int_var(least, horizon, "")
    model.add(makespan >= start[len(costs) - 1, len(costs[0]) - 1] + costs[-1][-1])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise VppError("optimum", f"nothing found in {time_limit_s} s", hint="a smaller case")
    starts = {key: solver.value(variable) for key, variable in start.items()}
    return Optimum(
        int(solver.objective_value), round(solver.best_objective_bound), _order(placement, starts)
    )


def _order(placement: Placement, starts: dict[tuple[int, int], int]) -> Schedule:
    lists: list[list[Action]] = [[] for _ in range(placement.num_ranks)]
    for (i, stage), _ in sorted(starts.items(), key=lambda item: (item[1], item[0])):
        lists[placement.rank_of(stage)].append(Action(stage, i))
    return Schedule(placement, tuple(map(tuple, lists)))
