"""How far the greedy orders are from the best that any order could reach.

Cases as they arise: P 2 to 4, up to 8 micro-batches, up to 4 stages a rank. A micro-batch costs
about the same on every stage (stages differ by 0, 5 or 15 %), and micro-batches cost what one
long prompt's chunks do (linear growth up to tenfold), those of several prompts back to back, of
dynamic chunks with a split tail, or of prompts of any length. Whole numbers, hundredths.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.schedule.schedule_problems import solve
from vpp_ms.errors import VppError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.replay import replay
from vpp_ms.sim.bounds import lower_bounds
from vpp_ms.sim.optimum import optimum

pytest.importorskip("ortools.sat.python.cp_model", reason="extra 'optimum'", exc_type=ImportError)

NUM_CASES, MEAN_GAP, WORST_GAP = 320, 0.02, 0.05


def micro_batch_costs(rng, n):
    growth = rng.uniform(1.0, 10.0)
    kind = rng.integers(4)
    if kind == 0:
        return np.linspace(1.0, growth, n)
    if kind == 1:
        parts = np.array_split(np.arange(n), rng.integers(1, n + 1))
        return np.concatenate([np.linspace(1.0, growth, len(part)) for part in parts])
    if kind == 2:
        times_n = np.full(n, growth)
        times_n[-2:] = growth / 2
        times_n[-1] = growth / 4
        return times_n
    return rng.uniform(1.0, growth, n)


def case(rng):
    kind = str(rng.choice(["loop", "v", "plain"], p=[0.4, 0.5, 0.1]))
    v = 1 if kind == "plain" else int(rng.integers(2, 5))
    placement = Placement(kind, int(rng.integers(2, 5)), v)
    times_n = micro_batch_costs(rng, int(rng.integers(1, 9)))
    uneven = rng.choice([0.0, 0.05, 0.15]) * rng.uniform(-1.0, 1.0, placement.num_stages)
    costs_nS = 100.0 * times_n[:, None] / v * (1.0 + uneven)
    return placement, np.maximum(np.round(costs_nS), 1.0)


@pytest.mark.slow
def test_the_orders_are_near_the_optimum():
    rng = np.random.default_rng(20)
    gaps, proven = [], 0
    for _ in range(NUM_CASES):
        placement, costs_nS = case(rng)
        found = solve(placement, costs_nS).makespan_s
        best = lower_bounds(placement, costs_nS).makespan_s
        if found > best * (1 + 1e-9):
            solved = optimum(placement, costs_nS, time_limit_s=5.0)
            best, proven = solved.bound, proven + solved.is_proven
            assert best <= found * (1 + 1e-9)
        else:
            proven += 1
        gaps.append(found / best - 1.0)
    assert proven >= 0.97 * NUM_CASES, "the others are measured against a bound"
    assert np.mean(gaps) <= MEAN_GAP, f"mean {np.mean(gaps):.3%}"
    assert np.max(gaps) <= WORST_GAP, f"worst {np.max(gaps):.3%}"


def test_the_optimum_is_a_schedule_that_replays_to_its_makespan():
    rng = np.random.default_rng(1)
    for _ in range(12):
        placement, costs_nS = case(rng)
        solved = optimum(placement, costs_nS)
        assert replay(solved.schedule, costs_nS).makespan_s == pytest.approx(solved.makespan)
        assert solved.makespan >= lower_bounds(placement, costs_nS).makespan_s - 1e-9
        assert solved.makespan <= solve(placement, costs_nS).makespan_s + 1e-9


def test_idling_on_purpose_can_pay():
    """Two orders of the same work: the optimum may beat every work-conserving one."""
    rng = np.random.default_rng(20)
    better = 0
    for _ in range(40):
        placement, costs_nS = case(rng)
        better += optimum(placement, costs_nS).makespan < solve(placement, costs_nS).makespan_s
    assert better > 0


def test_without_the_solver_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ortools.sat.python", None)
    with pytest.raises(VppError, match=r"OR-tools is missing; try: pip install"):
        optimum(Placement("plain", 2), np.ones((2, 2)))
