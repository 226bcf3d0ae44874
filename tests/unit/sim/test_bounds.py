"""Lower bounds: the closed forms of schedule theory, and that nothing ever beats them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedule.schedule_problems import problems, solve
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.walk import Hop
from vpp_ms.sim.bounds import lower_bounds


def equal_stages(placement, times_n):
    return np.repeat(
        np.asarray(times_n)[:, None] / placement.virtual_stages, placement.num_stages, axis=1
    )


@pytest.mark.parametrize("kind", ["plain", "v", "loop"])
@pytest.mark.parametrize("num_ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize("growth", [1.0, 10.0])
def test_the_closed_form_of_each_placement(kind, num_ranks, v, growth):
    v = 1 if kind == "plain" else v
    times_n = np.linspace(1.0, growth, 16)
    first = times_n[0] if kind == "v" else 0.0
    expected = times_n.sum() + (num_ranks - 1) * (first + times_n[-1]) / v
    bounds = lower_bounds(
        Placement(kind, num_ranks, v), equal_stages(Placement(kind, num_ranks, v), times_n)
    )
    assert bounds.machine_s == pytest.approx(expected)
    assert bounds.work_s == pytest.approx(times_n.sum())


def test_one_huge_chunk_makes_the_path_the_bound():
    placement = Placement("v", 4, 2)
    bounds = lower_bounds(placement, equal_stages(placement, [1.0, 100.0, 1.0]))
    assert bounds.makespan_s == bounds.path_s == pytest.approx(0.5 + 400.0 + 0.5)


@settings(max_examples=150)
@given(
    problem=problems(),
    order=st.sampled_from(["best", "longest_path", "late_sweep", "early_sweep"]),
    hop_s=st.sampled_from([0.0, 0.3]),
)
def test_no_walk_beats_a_bound(problem, order, hop_s):
    placement, costs_nS = problem
    last = placement.num_stages - 1
    is_message = [s < last and placement.link_behind(s) is not None for s in range(last + 1)]
    hops_nS = np.full(costs_nS.shape, hop_s) * np.array(is_message, float)
    bounds = lower_bounds(placement, costs_nS, hops_nS)
    run = solve(placement, costs_nS, order, hop_of=lambda link, mb: Hop(0.0, hop_s))
    end_s = max((a.end_s for a in run.actions), default=0.0)
    assert end_s >= bounds.makespan_s * (1 - 1e-9)
    free = lower_bounds(placement, costs_nS)
    assert bounds.work_s <= free.makespan_s * (1 + 1e-9)
    assert free.makespan_s <= bounds.makespan_s * (1 + 1e-9)


def test_nothing_to_do_takes_no_time():
    bounds = lower_bounds(Placement("v", 2, 2), np.zeros((0, 4)))
    assert bounds.makespan_s == bounds.work_s == 0.0
