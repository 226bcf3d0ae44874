"""Order policies: what they prefer, and that micro-batches known later fit the scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.schedule.schedule_problems import problems
from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.policy import LEANS, ORDERS, Prioritizer, longest_paths, prioritize
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import walk
from vpp_ms.schedule.window import Window


def test_longest_paths_by_hand():
    np.testing.assert_array_equal(
        longest_paths(np.array([[1.0, 2.0], [3.0, 4.0]])), [[8, 6], [7, 4]]
    )


@given(problems(max_n=6))
def test_longest_paths_follow_their_recursion(problem):
    _, costs_nS = problem
    paths_nS = longest_paths(costs_nS)
    n, num_stages = costs_nS.shape
    for i in range(n):
        for s in range(num_stages):
            below = paths_nS[i, s + 1] if s + 1 < num_stages else 0.0
            right = paths_nS[i + 1, s] if i + 1 < n else 0.0
            assert paths_nS[i, s] == pytest.approx(costs_nS[i, s] + max(below, right))


@given(problem=problems(), width=st.sampled_from([None, 2, 4]))
def test_best_is_the_shortest_of_all_orders(problem, width):
    placement, costs_nS = problem

    def makespan(order):
        window = None if width is None else Window(max_micro_batches=width)
        batches = prioritize(placement, [()] * len(costs_nS), costs_nS, order, window)
        return walk(placement, batches, costs_nS, window=window).makespan_s

    assert makespan("best") <= min(makespan(lean) for lean in LEANS) * (1 + 1e-9)


@given(problems(max_n=6))
def test_a_large_lean_is_the_order_of_sweeps(problem):
    placement, costs_nS = problem
    for lean, order in ((1e6, "late_sweep"), (-1e6, "early_sweep")):
        leaning, named = (
            prioritize(placement, [()] * len(costs_nS), costs_nS, how) for how in (lean, order)
        )
        for mine, theirs in zip(leaning, named, strict=True):
            by_stage = sorted(range(placement.num_stages), key=lambda s: (mine.priority[s], s))
            sweeps = [theirs.priority[s] for s in by_stage]
            assert costs_nS.sum() == 0.0 or sweeps == sorted(sweeps)


def test_sweep_orders_prefer_their_sweep():
    costs = [[1.0] * 4] * 2
    late = prioritize(Placement("v", 2, 2), [()] * 2, costs, "late_sweep")
    early = prioritize(Placement("v", 2, 2), [()] * 2, costs, "early_sweep")
    assert late[0].priority[3] > late[1].priority[0]
    assert early[0].priority[3] < early[1].priority[0]


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_added_later_gets_the_priorities_it_would_have_had(order):
    """For equal micro-batches the order of execution is that of a known future."""
    placement, costs_nS = Placement("v", 4, 2), np.ones((16, 8))
    together = Prioritizer(placement, order).add([()] * 16, costs_nS)
    apart = Prioritizer(placement, order)
    pieces = [mb for _ in range(4) for mb in apart.add([()] * 4, costs_nS[:4])]
    assert [mb.index for mb in pieces] == list(range(16))
    assert Schedule.of_walk(walk(placement, pieces, costs_nS)) == Schedule.of_walk(
        walk(placement, together, costs_nS)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_a_stream_added_request_by_request_loses_little(order):
    placement = Placement("v", 4, 2)
    one_nS = np.repeat(np.linspace(1, 10, 16)[:, None] / 2, 8, axis=1)
    costs_nS = np.tile(one_nS, (8, 1))
    together = Prioritizer(placement, order).add([()] * 128, costs_nS)
    apart = Prioritizer(placement, order)
    pieces = [mb for _ in range(8) for mb in apart.add([()] * 16, one_nS)]
    window = Window(max_micro_batches=8)
    known = walk(placement, together, costs_nS, window=window.fresh()).makespan_s
    assert walk(placement, pieces, costs_nS, window=window.fresh()).makespan_s <= 1.02 * known


def test_overtaking_is_as_urgent_as_what_it_overtakes():
    policy = Prioritizer(Placement("v", 2, 2), "longest_path")
    line = policy.add([()] * 2, [[1.0] * 4] * 2)
    token = policy.overtake((), line[1])
    assert token.priority == line[1].priority


def test_best_is_decided_once():
    policy = Prioritizer(Placement("v", 2, 2), "best")
    policy.add([()], [[1.0] * 4])
    decided = policy.lean
    assert decided in LEANS
    policy.add([()] * 9, np.linspace(1, 9, 36).reshape(9, 4))
    assert policy.lean == decided


def test_nothing_added_is_nothing():
    policy = Prioritizer(Placement("v", 2, 2), "best")
    assert policy.add([], []) == []
    assert policy.lean is None


def test_an_unknown_order_is_refused():
    with pytest.raises(PlanError, match=r"vpp\.order: 'random'.*late_sweep"):
        prioritize(Placement("plain", 2), [], [], "random")
