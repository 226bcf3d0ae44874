"""The reference values of schedule theory: closed forms exactly, greedy orders within slack.

Costs rise linearly from 1 to r over n chunks (one rank's time in plain placement); hops are
free. Bubbles are in percent.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpp_ms.plan.chunking import ChunkRule, LatencyModel
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.replay import replay
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import walk
from vpp_ms.schedule.window import Window

PLACEMENTS = {
    "plain": ("plain", 1),
    "v2": ("v", 2),
    "loop2": ("loop", 2),
    "v4": ("v", 4),
    "loop4": ("loop", 4),
}
# (P, n, r): what the better of two greedy orders reaches
GREEDY = {
    (2, 16, 1): {"plain": 5.9, "v2": 5.9, "loop2": 3.0, "v4": 3.0, "loop4": 1.5},
    (2, 16, 10): {"plain": 10.2, "v2": 5.9, "loop2": 5.4, "v4": 3.0, "loop4": 2.8},
    (4, 16, 1): {"plain": 15.8, "v2": 15.8, "loop2": 8.6, "v4": 8.6, "loop4": 4.5},
    (4, 16, 10): {"plain": 25.4, "v2": 16.2, "loop2": 14.6, "v4": 8.8, "loop4": 7.9},
    (4, 32, 10): {"plain": 14.6, "v2": 8.6, "loop2": 7.9, "v4": 4.5, "loop4": 4.1},
    (8, 32, 1): {"plain": 17.9, "v2": 17.9, "loop2": 9.9, "v4": 9.9, "loop4": 5.2},
    (8, 32, 10): {"plain": 28.5, "v2": 18.4, "loop2": 16.6, "v4": 10.1, "loop4": 9.0},
}
# Eight requests back to back, n = 16, r = 10: bubble for W = P, P + 1, 2 P, 4 P
WINDOWED = {
    ("plain", 2): (9.4, 8.1, 6.2, 1.4),
    ("v2", 2): (5.7, 5.3, 4.5, 0.8),
    ("plain", 4): (22.7, 21.0, 12.7, 4.1),
    ("v2", 4): (17.0, 14.9, 11.9, 2.4),
}
SLACK = 0.2


def rank_times(n, r):
    return np.linspace(1.0, r, n)


def run(name, num_ranks, times_n, order="best", window=None):
    kind, virtual_stages = PLACEMENTS[name]
    placement = Placement(kind, num_ranks, virtual_stages)
    costs_nS = np.repeat(times_n[:, None] / virtual_stages, placement.num_stages, axis=1)
    batches = prioritize(placement, [()] * len(times_n), costs_nS, order, window)
    return walk(placement, batches, costs_nS, window=None if window is None else window.fresh())


def bound(name, num_ranks, times_n):
    """Least makespan of one request on any order; exact for plain."""
    kind, v = PLACEMENTS[name]
    first = times_n[0] if kind == "v" and v > 1 else 0.0
    return times_n.sum() + (num_ranks - 1) * (first + times_n[-1]) / v


def percent(makespan, num_ranks, times_n):
    return 100.0 * (1.0 - times_n.sum() / makespan)


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("case", GREEDY)
def test_greedy_orders_reach_the_reference_and_never_beat_the_bound(case, name):
    num_ranks, n, r = case
    times_n = rank_times(n, r)
    found = run(name, num_ranks, times_n)
    assert 100.0 * found.bubble_ratio <= GREEDY[case][name] + SLACK
    assert found.makespan_s >= bound(name, num_ranks, times_n) - 1e-9


@given(
    num_ranks=st.integers(1, 6),
    times=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20),
)
def test_plain_is_the_proportionate_flow_shop_exactly(num_ranks, times):
    times_n = np.array(sorted(times))
    found = run("plain", num_ranks, times_n)
    expected = times_n.sum() + (num_ranks - 1) * times_n[-1]
    assert found.makespan_s == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(PLACEMENTS)),
    num_ranks=st.integers(1, 5),
    times=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=14),
    order=st.sampled_from(["best", "longest_path", "late_sweep", "early_sweep"]),
)
def test_no_order_beats_the_bound(name, num_ranks, times, order):
    times_n = np.array(sorted(times))
    found = run(name, num_ranks, times_n, order)
    assert found.makespan_s >= bound(name, num_ranks, times_n) * (1.0 - 1e-9)


@pytest.mark.parametrize(("name", "num_ranks"), WINDOWED)
def test_eight_requests_back_to_back_under_a_window(name, num_ranks):
    times_n = np.tile(rank_times(16, 10), 8)
    windows = (num_ranks, num_ranks + 1, 2 * num_ranks, 4 * num_ranks)
    for width, reference in zip(windows, WINDOWED[name, num_ranks], strict=True):
        window = Window(max_micro_batches=width)
        plain_rule = run(name, num_ranks, times_n, "late_sweep", window)
        assert 100.0 * plain_rule.bubble_ratio == pytest.approx(reference, abs=SLACK)
        best = run(name, num_ranks, times_n, "best", window)
        assert best.makespan_s <= plain_rule.makespan_s * (1.0 + 1e-9)


def common_order(num_ranks, n):
    """F_0 .. F_P, then B_0, F_(P+1), B_1, ... on every rank: first and second halves under V."""
    warm_up = min(num_ranks + 1, n)
    halves = [("F", i) for i in range(warm_up)]
    for i in range(n):
        halves.append(("B", i))
        if warm_up + i < n:
            halves.append(("F", warm_up + i))
    lists = [
        tuple(Action(rank if half == "F" else 2 * num_ranks - 1 - rank, i) for half, i in halves)
        for rank in range(num_ranks)
    ]
    return Schedule(Placement("v", num_ranks, 2), tuple(lists))


@pytest.mark.parametrize(("num_ranks", "n"), [(4, 16), (4, 32), (8, 32)])
def test_one_common_order_is_a_trap_and_ours_does_not_fall_into_it(num_ranks, n):
    times_n = rank_times(n, 10)
    costs_nS = np.repeat(times_n[:, None] / 2, 2 * num_ranks, axis=1)
    common = replay(common_order(num_ranks, n), costs_nS)
    assert common.bubble_ratio > 0.60
    ours = run("v2", num_ranks, times_n)
    assert 100.0 * ours.bubble_ratio <= GREEDY[num_ranks, n, 10]["v2"] + SLACK


# A DeepSeek-V3.1-like cost per rank: 32K chunks, fixed cost 10 % of the first chunk's, makespan
# over the fixed plan's sum of times. The dynamic column is the best of a sweep of bases.
BASE = 32768
VARIABLE = LatencyModel(a=2.5e-6, b=0.074)
MODEL = replace(VARIABLE, c=0.1 * VARIABLE.time_of(0, BASE))
ZIGZAG_TAIL = {  # (request, P): zigzag4 + tail, where leaning orders do better than it was known
    (512, 2): 1.012,
    (512, 4): 1.050,
    (512, 8): 1.253,
    (1024, 2): 1.005,
    (1024, 4): 1.026,
    (1024, 8): 1.109,
}
COMPOSED = {  # (request, P): plain fixed, plain dynamic, V2 fixed, V2 + tail, loop4 fixed
    (512, 2): (1.117, 1.042, 1.062, 1.022, 1.029),
    (512, 4): (1.352, 1.083, 1.198, 1.071, 1.088),
    (512, 8): (1.821, 1.134, 1.517, 1.355, 1.205),
    (1024, 2): (1.061, 1.021, 1.031, 1.009, 1.015),
    (1024, 4): (1.182, 1.042, 1.096, 1.032, 1.045),
    (1024, 8): (1.424, 1.067, 1.239, 1.167, 1.106),
}


def chunk_times(rule, length):
    chunks = rule.cut(length)
    starts = [0, *accumulate(chunks)][:-1]
    times = (MODEL.time_of(start, size) for start, size in zip(starts, chunks, strict=True))
    return np.array(list(times))


def dynamic_rule(first_chunk_times):
    target = MODEL.time_of(0, BASE) * first_chunk_times
    base = int(MODEL.size_for(0, target))
    return ChunkRule("dynamic", base, alignment=64, latency=MODEL, min_tokens=2048)


@pytest.mark.parametrize("case", COMPOSED)
def test_placement_and_chunking_compose(case):
    length, num_ranks = case[0] * 1024, case[1]
    fixed, tail = (chunk_times(ChunkRule(m, BASE), length) for m in ("fixed", "tail"))
    targets = np.geomspace(0.5, 8.0, 25)
    sweep = [chunk_times(dynamic_rule(target), length) for target in targets]
    found = (
        run("plain", num_ranks, fixed).makespan_s,
        min(run("plain", num_ranks, times_n).makespan_s for times_n in sweep),
        run("v2", num_ranks, fixed).makespan_s,
        run("v2", num_ranks, tail).makespan_s,
        run("loop4", num_ranks, fixed).makespan_s,
    )
    assert np.array(found) / fixed.sum() == pytest.approx(COMPOSED[case], abs=0.002)
    zigzag = run("v4", num_ranks, tail).makespan_s
    assert bound("v4", num_ranks, tail) * (1 - 1e-9) <= zigzag
    assert zigzag / fixed.sum() <= ZIGZAG_TAIL[case] + 0.002


def test_a_million_tokens_on_64_ranks_take_seconds():
    start_s = time.process_time()
    times_n = rank_times(1024, 15)  # chunks of 1,024 tokens
    found = run("v4", 64, times_n, "longest_path")
    assert len(found.actions) == 1024 * 256
    assert time.process_time() - start_s < 20.0
