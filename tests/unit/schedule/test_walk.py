"""The walk: rules, hops, window, arrivals, sources; the same objects that ranks use."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedule.schedule_problems import problems, solve
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.replay import replay
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import Hop, walk_source
from vpp_ms.schedule.window import Window

ORDERS = ("best", "longest_path", "late_sweep", "early_sweep")


def test_two_ranks_by_hand():
    run = solve(Placement("v", 2, 2), [[1, 1, 1, 1], [1, 1, 1, 1]], "late_sweep")
    assert Schedule.of_walk(run).to_text().splitlines()[1:] == [
        "rank 0: 0.0 0.1 3.0 3.1",
        "rank 1: 1.0 2.0 1.1 2.1",
    ]
    assert run.makespan_s == 6
    assert run.done_s == (4, 6)
    assert run.bubble_ratio == pytest.approx(1 - 8 / 12)


@settings(max_examples=150)
@given(
    problem=problems(),
    order=st.sampled_from(ORDERS),
    width=st.sampled_from([None, 1, 2, 5]),
    hop_s=st.sampled_from([0.0, 0.3]),
)
def test_every_walk_is_a_valid_schedule(problem, order, width, hop_s):
    placement, costs_nS = problem
    run = solve(
        placement,
        costs_nS,
        order,
        hop_of=lambda link, mb: Hop(hop_s, hop_s),
        window=None if width is None else Window(max_micro_batches=width),
    )
    Schedule.of_walk(run).check(len(costs_nS))
    assert len(run.done_s) == len(costs_nS)
    for rank in range(placement.num_ranks):
        mine = [a for a in run.actions if a.rank == rank]
        assert all(a.end_s <= b.start_s for a, b in pairwise(mine))
    end_s = {(a.stage, a.micro_batch): a.end_s for a in run.actions}
    for action in run.actions:
        before = end_s.get((action.stage - 1, action.micro_batch), 0.0)
        crosses = action.stage > 0 and placement.link_behind(action.stage - 1) is not None
        assert action.start_s >= before + (2 * hop_s if crosses else 0.0) - 1e-9


@settings(max_examples=100)
@given(problem=problems(), order=st.sampled_from(ORDERS))
def test_a_rank_never_idles_while_an_action_is_ready(problem, order):
    placement, costs_nS = problem
    run = solve(placement, costs_nS, order)
    end_s = {(a.stage, a.micro_batch): a.end_s for a in run.actions}
    free_s = [0.0] * placement.num_ranks
    for action in run.actions:
        ready_s = max(
            end_s.get((action.stage - 1, action.micro_batch), 0.0),
            end_s.get((action.stage, action.micro_batch - 1), 0.0),
        )
        assert action.start_s == pytest.approx(max(ready_s, free_s[action.rank])) or (
            action.start_s == free_s[action.rank]
        )
        free_s[action.rank] = action.end_s


@given(problem=problems(), order=st.sampled_from(ORDERS))
def test_the_replay_of_a_walk_is_the_walk(problem, order):
    placement, costs_nS = problem
    run = solve(placement, costs_nS, order)
    again = replay(Schedule.of_walk(run), costs_nS)
    assert again.makespan_s == pytest.approx(run.makespan_s)
    assert again.done_s == pytest.approx(run.done_s)


def test_the_same_walk_twice():
    rng = random.Random(3)
    costs_nS = [[rng.random() for _ in range(12)] for _ in range(20)]
    first, second = (solve(Placement("v", 3, 4), costs_nS) for _ in range(2))
    assert first == second


def test_rounding_does_not_change_the_order():
    """0.1 + 0.2 and 0.3 are the same moment."""
    placement = Placement("v", 4, 2)
    exact = solve(placement, np.full((16, 8), 1.0), "longest_path")
    rounded = solve(placement, np.full((16, 8), 0.1), "longest_path")
    assert Schedule.of_walk(exact) == Schedule.of_walk(rounded)


def test_the_window_bounds_what_is_in_flight():
    placement, costs_nS = Placement("v", 4, 2), np.ones((12, 8))
    for width in (1, 3, 5):
        run = solve(placement, costs_nS, window=Window(max_micro_batches=width))
        entered = sorted(a.start_s for a in run.actions if a.stage == 0)
        for position, moment in enumerate(entered):
            returned = sum(done_s <= moment for done_s in run.done_s)
            assert position - returned < width
    alone = solve(placement, costs_nS, window=Window(max_micro_batches=1))
    assert alone.makespan_s == 12 * 8


def test_the_window_in_time_counts_one_ranks_share():
    placement, costs_nS = Placement("plain", 2), np.full((6, 2), 2.0)
    tight = solve(placement, costs_nS, window=Window(max_time_s=2.0))
    assert tight.makespan_s == 6 * 4  # one micro-batch is 2 s of one rank: one at a time
    assert solve(placement, costs_nS, window=Window(max_time_s=4.0)).makespan_s == 14


def test_a_link_carries_one_message_at_a_time_and_keeps_its_order():
    placement = Placement("plain", 2)
    costs_nS = [[1.0, 0.1], [0.0, 0.1], [0.0, 0.1]]
    run = solve(placement, costs_nS, hop_of=lambda link, mb: Hop(transfer_s=5.0))
    there = [t for t in run.transfers if t.link.source == 0]
    assert [t.end_s for t in there] == [6.0, 11.0, 16.0]
    late_first = solve(
        placement, costs_nS, hop_of=lambda link, mb: Hop(latency_s=9.0 - 4 * mb.index)
    )
    Schedule.of_walk(late_first).check(3)


def test_the_fold_hands_over_without_a_message():
    run = solve(Placement("v", 2, 2), np.ones((3, 4)), hop_of=lambda link, mb: Hop(0.5))
    assert {t.link.source_stage for t in run.transfers} == {0, 2}


def test_arrivals_hold_back_and_ranks_wait():
    run = solve(Placement("plain", 2), np.ones((2, 2)), arrivals_s=[0.0, 10.0])
    assert [a.start_s for a in run.actions if a.stage == 0] == [0.0, 10.0]
    assert run.done_s == (2.0, 12.0)


def test_a_source_is_told_of_arrivals_and_returns():
    """One token at a time, each made when the one before has come back."""

    class Tokens:
        count, waiting, told = 0, 0, ()

        def arrive(self, item, time_s):
            self.waiting, self.told = item, (*self.told, time_s)

        def next(self):
            if not self.waiting:
                return None
            self.waiting, self.count = self.waiting - 1, self.count + 1
            return MicroBatch(self.count - 1, (), (0.0,) * 4)

        def leave(self, micro_batch, time_s):
            self.waiting += micro_batch.index < 3

    source = Tokens()
    run = walk_source(Placement("v", 2, 2), source, lambda stage, mb: 1.0, [(5.0, 1)])
    assert source.told == (5.0,)
    assert run.done_s == (9.0, 13.0, 17.0, 21.0)


def test_nothing_to_do_takes_no_time():
    run = solve(Placement("v", 2, 2), np.zeros((0, 4)))
    assert (run.makespan_s, run.bubble_ratio, run.actions) == (0.0, 0.0, ())
