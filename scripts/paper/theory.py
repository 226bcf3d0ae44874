"""Tables of schedule theory: orders against bounds, the common-order trap, composition."""

from __future__ import annotations

import numpy as np

from scripts.paper.shaped import ASSUMED, K, fixed_sum, shaped_problem, table
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.replay import replay
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import Walk, walk
from vpp_ms.sim.bounds import lower_bounds
from vpp_ms.sim.choice import describe
from vpp_ms.sim.planner import choose
from vpp_ms.sim.problem import Prediction

PLACEMENTS = {
    "plain": ("plain", 1),
    "V2": ("v", 2),
    "loop2": ("loop", 2),
    "zigzag4": ("v", 4),
    "loop4": ("loop", 4),
}
CASES = ((2, 16, 1), (2, 16, 10), (4, 16, 1), (4, 16, 10), (4, 32, 10), (8, 32, 1), (8, 32, 10))
KNOWN = {  # the best combination that was known before this planner
    (512, 2): 1.0155,
    (512, 4): 1.0353,
    (512, 8): 1.0600,
    (1024, 2): 1.0105,
    (1024, 4): 1.0177,
    (1024, 8): 1.0301,
}


def orders() -> str:
    """Bubble of one request whose chunks grow linearly, and the bound."""
    rows = []
    for num_ranks, n, growth in CASES:
        times_n = np.linspace(1.0, growth, n)
        cells = [f"{num_ranks}, {n}, {growth}"]
        for kind, v in PLACEMENTS.values():
            run, bound_s = _walked(kind, v, num_ranks, times_n)
            cells.append(f"{run.bubble_ratio:.1%} ({1 - times_n.sum() / bound_s:.1%})")
        if num_ranks > 2:
            common = replay(_common_order(num_ranks, n), _costs("v", 2, num_ranks, times_n))
            cells.append(f"{common.bubble_ratio:.0%}")
        else:
            cells.append("-")
        rows.append(cells)
    headings = ["P, n, r", *(f"{name} (bound)" for name in PLACEMENTS)]
    return table([*headings, "V2, one common order"], rows)


def composition() -> str:
    """Makespans of one request over the sum of fixed chunks, c = 10 %."""
    rows = []
    for (length, num_ranks), known in KNOWN.items():
        four, free = (_auto(num_ranks, length * K, layers) for layers in (4, 24))
        unit = fixed_sum(length * K)
        given = [
            _given(num_ranks, length * K, kind, v, how) / unit
            for kind, v, how in (
                ("plain", 1, "fixed"),
                ("v", 2, "fixed"),
                ("v", 2, "tail"),
                ("v", 4, "tail"),
                ("loop", 4, "fixed"),
            )
        ]
        swept = choose(
            shaped_problem(
                num_ranks,
                length * K,
                vpp={"placement": "plain"},
                chunking={"method": "dynamic"},
            )
        ).best
        rows.append(
            [
                f"{length}K, {num_ranks}",
                f"{given[0]:.3f}",
                f"{swept.makespan_s / unit:.3f}",
                *(f"{value:.3f}" for value in given[1:]),
                f"{known:.4f}",
                f"{four.makespan_s / unit:.4f}",
                f"**{free.makespan_s / unit:.4f}**",
                describe(free),
            ]
        )
    return table(
        [
            "request, P",
            "plain fixed",
            "dcpp swept",
            "V2 fixed",
            "V2 + tail",
            "zigzag4 + tail",
            "loop4 fixed",
            "best known",
            "auto, v <= 4",
            "auto",
            "its plan",
        ],
        rows,
    )


def assumptions() -> str:
    return ASSUMED


def _auto(num_ranks: int, tokens: int, layers_per_rank: int) -> Prediction:
    return choose(shaped_problem(num_ranks, tokens, num_layers=layers_per_rank * num_ranks)).best


def _given(num_ranks: int, tokens: int, kind: str, v: int, how: str) -> float:
    problem = shaped_problem(
        num_ranks,
        tokens,
        vpp={"placement": kind, "virtual_stages": v, "order": "best"},
        chunking={"method": how, "chunk_tokens": 32 * K},
    )
    return problem.predict(problem.sketch(problem.config)).makespan_s


def _costs(kind: str, v: int, num_ranks: int, times_n: np.ndarray) -> np.ndarray:
    stages = Placement(kind, num_ranks, v).num_stages
    return np.repeat(times_n[:, None] / v, stages, axis=1)


def _walked(kind: str, v: int, num_ranks: int, times_n: np.ndarray) -> tuple[Walk, float]:
    placement, costs_nS = Placement(kind, num_ranks, v), _costs(kind, v, num_ranks, times_n)
    batches = prioritize(placement, [()] * len(times_n), costs_nS, "best")
    bound_s = lower_bounds(placement, costs_nS).machine_s
    return walk(placement, batches, costs_nS), bound_s


def _common_order(num_ranks: int, n: int) -> Schedule:
    """F_0 .. F_P, then B_0, F_(P+1), B_1, ... on every rank: first and second halves under V."""
    warm_up = min(num_ranks + 1, n)
    halves = [(0, i) for i in range(warm_up)]
    for i in range(n):
        halves += [(1, i), *([(0, warm_up + i)] if warm_up + i < n else [])]
    lists = (
        tuple(Action(2 * num_ranks - 1 - rank if late else rank, i) for late, i in halves)
        for rank in range(num_ranks)
    )
    return Schedule(Placement("v", num_ranks, 2), tuple(lists))
