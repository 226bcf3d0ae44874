"""Causes of idle time: by hand, against closed forms, and as laws over walks."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.walk import Hop, walk
from vpp_ms.schedule.window import Window
from vpp_ms.trace.cargo import Cargo, cargo_meta
from vpp_ms.trace.causes import CAUSES, Idle, by_cause, idle_times
from vpp_ms.trace.events import COMPUTE, RECV, WAIT, Event, Trace
from vpp_ms.trace.metrics import measure
from vpp_ms.trace.simulated import trace_of_walk


def compute(stage, rank, micro_batch, start_s, end_s):
    return Event(COMPUTE, rank, stage, micro_batch, start_s, end_s)


def wait(rank, start_s, end_s):
    return Event(WAIT, rank, -1, -1, start_s, end_s)


def recv(rank, stage, micro_batch, start_s, end_s):
    return Event(RECV, rank, stage, micro_batch, start_s, end_s)


def spans(*events, num_ranks=2, **meta):
    """[(rank, cause, start_s, end_s)] of a trace by hand."""
    trace = Trace(num_ranks, tuple(sorted(events, key=lambda e: (e.start_s, e.rank))), meta=meta)
    return [(i.rank, i.cause, i.start_s, i.end_s) for i in idle_times(trace)]


def segment(request, start, length, sample=False):
    return MicroBatch(0, (Segment(request, start, length, sample),), ())


def test_fill_growth_hop_and_drain_by_hand():
    assert spans(
        compute(0, 0, 0, 0.0, 1.0),
        compute(0, 0, 1, 1.0, 4.0),
        recv(1, 0, 0, 1.0, 1.5),
        recv(1, 0, 1, 4.0, 4.5),
        wait(1, 0.0, 1.5),
        wait(1, 2.5, 4.5),
        compute(1, 1, 0, 1.5, 2.5),
        compute(1, 1, 1, 4.5, 7.5),
    ) == [
        (0, "drain", 4.0, 7.5),
        (1, "fill", 0.0, 1.0),
        (1, "hop", 1.0, 1.5),
        (1, "growth", 2.5, 4.0),
        (1, "hop", 4.0, 4.5),
    ]


def test_a_window_of_one_is_to_blame_on_every_rank():
    """Rank 0 waits for micro-batch 0 to come back; without that, 1 would follow at once."""
    assert spans(
        compute(0, 0, 0, 0.0, 1.0),
        compute(1, 1, 0, 1.0, 2.0),
        wait(0, 1.0, 2.0),
        compute(0, 0, 1, 2.0, 3.0),
        wait(1, 0.0, 1.0),
        wait(1, 2.0, 3.0),
        compute(1, 1, 1, 3.0, 4.0),
    ) == [
        (0, "window", 1.0, 2.0),
        (0, "drain", 3.0, 4.0),
        (1, "fill", 0.0, 1.0),
        (1, "window", 2.0, 3.0),
    ]


def test_the_window_is_blamed_for_no_more_than_it_delayed():
    """Micro-batch 1 is 1 s late and takes 3 s: 1 s of rank 1's wait would be gone."""
    events = (
        compute(0, 0, 0, 0.0, 1.0),
        wait(0, 1.0, 2.0),
        compute(0, 0, 1, 2.0, 5.0),
        compute(1, 1, 0, 1.0, 2.0),
        wait(1, 2.0, 5.0),
        compute(1, 1, 1, 5.0, 6.0),
    )
    assert spans(*events)[-2:] == [(1, "growth", 2.0, 4.0), (1, "window", 4.0, 5.0)]


def test_until_the_request_comes_it_is_its_arrival_that_is_missing():
    meta = cargo_meta([segment(0, 0, 8, True), segment(1, 0, 8, True)], ["a", "b"], [0.0, 1.75])
    events = (
        compute(0, 0, 0, 0.0, 1.0),
        wait(0, 1.0, 2.0),
        compute(0, 0, 1, 2.0, 3.0),
    )
    assert spans(*events, num_ranks=1, **meta) == [
        (0, "arrival", 1.0, 1.75),
        (0, "window", 1.75, 2.0),
    ]


def test_behind_all_prefill_tokens_are_waited_for():
    """Folded stages 1 and 2 on rank 1; micro-batch 1 is the token sampled from 0."""
    meta = cargo_meta([segment(0, 0, 8, True), segment(0, 8, 1, True)])
    events = (
        compute(0, 0, 0, 0.0, 1.0),
        wait(0, 1.0, 3.0),
        compute(1, 1, 0, 1.0, 2.0),
        compute(2, 1, 0, 2.0, 3.0),
        recv(0, 2, 0, 3.0, 3.0),
        compute(3, 0, 0, 3.0, 4.0),  # the last prefill
        compute(0, 0, 1, 4.5, 5.0),
        wait(1, 3.0, 5.0),
        compute(1, 1, 1, 5.0, 6.0),
    )
    assert spans(*events, **meta) == [
        (0, "drain", 1.0, 3.0),
        (0, "host", 4.0, 4.5),
        (0, "decode", 5.0, 6.0),
        (1, "fill", 0.0, 1.0),
        (1, "drain", 3.0, 4.0),
        (1, "decode", 4.0, 5.0),
    ]


def test_a_rank_that_does_not_wait_is_held_up_by_its_host():
    events = (
        compute(0, 0, 0, 0.0, 1.0),
        compute(0, 0, 1, 1.25, 2.0),
        wait(0, 2.0, 3.0),
        recv(1, 0, 0, 1.0, 1.125),
        wait(1, 0.0, 1.125),
        compute(1, 1, 0, 1.125, 2.25),
        recv(1, 0, 1, 2.0, 2.125),  # landed before rank 1 was free
        compute(1, 1, 1, 2.5, 3.0),
    )
    assert spans(*events) == [
        (0, "host", 1.0, 1.25),
        (0, "drain", 2.0, 3.0),
        (1, "fill", 0.0, 1.0),
        (1, "hop", 1.0, 1.125),
        (1, "host", 2.25, 2.5),
    ]


def test_ranks_that_did_nothing():
    assert spans() == []
    assert spans(compute(0, 0, 0, 1.0, 2.0)) == [(1, "fill", 1.0, 2.0)]


def test_what_decode_is():
    cargo = Cargo.of(
        Trace(
            1,
            (),
            meta=cargo_meta(
                [
                    segment(0, 0, 8),
                    segment(0, 8, 1, True),  # a remainder of one token is prefill
                    segment(0, 9, 1, True),
                    MicroBatch(3, (Segment(0, 10, 1, True), Segment(1, 0, 3, True)), ()),
                    MicroBatch(4, (Segment(0, 11, 1, True), Segment(1, 3, 1, True)), ()),
                    MicroBatch(5, (), ()),
                ]
            ),
        )
    )
    assert cargo.decode == {2, 4}
    assert Cargo.of(Trace(1, ())) == Cargo()


def simulate(kind, num_ranks, sweeps, times_n, hop_s=0.0, window=None):
    """Chunk i costs times_n[i] on every rank, shared evenly by the rank's stages."""
    placement = Placement(kind, num_ranks, sweeps)
    costs_nS = np.repeat(np.asarray(times_n)[:, None] / sweeps, placement.num_stages, axis=1)
    batches = prioritize(placement, [()] * len(costs_nS), costs_nS, "best")
    hop_of = (lambda link, mb: Hop(latency_s=hop_s)) if hop_s else None
    limit = None if window is None else Window(max_micro_batches=window)
    return trace_of_walk(walk(placement, batches, costs_nS, hop_of=hop_of, window=limit))


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_closed_form_of_a_plain_pipeline(num_ranks):
    """Rank r fills for r t_first, grows for r (t_last - t_first), drains for (P-1-r) t_last."""
    times_n = np.linspace(1.0, 10.0, 16)
    idles = idle_times(simulate("plain", num_ranks, 1, times_n))
    for rank in range(num_ranks):
        found = by_cause(idle for idle in idles if idle.rank == rank)
        assert found.pop("fill") == pytest.approx(rank * 1.0)
        assert found.pop("growth") == pytest.approx(rank * 9.0)
        assert found.pop("drain") == pytest.approx((num_ranks - 1 - rank) * 10.0)
        assert set(found.values()) == {0.0}


@pytest.mark.parametrize("kind", ["v", "loop"])
def test_equal_chunks_do_not_grow(kind):
    found = by_cause(idle_times(simulate(kind, 4, 2, np.ones(16))))
    assert found["growth"] == found["window"] == found["hop"] == found["host"] == 0.0
    assert found["fill"] == pytest.approx(0.5 * (0 + 1 + 2 + 3))


def test_a_small_window_is_seen_and_a_large_one_is_not():
    small = by_cause(idle_times(simulate("plain", 4, 1, np.ones(16), window=2)))
    assert small["window"] > 4 * (small["fill"] + small["drain"])
    large = by_cause(idle_times(simulate("plain", 4, 1, np.ones(16), window=16)))
    assert large["window"] == 0.0


def test_slow_links_show_as_hops():
    fast, slow = (
        by_cause(idle_times(simulate("v", 4, 2, np.linspace(1, 10, 16), hop_s, window=8)))
        for hop_s in (0.0, 0.5)
    )
    assert fast["hop"] == 0.0 and slow["hop"] > 1.0


@settings(max_examples=80)
@given(
    kind=st.sampled_from(["plain", "loop", "v"]),
    num_ranks=st.integers(1, 5),
    sweeps=st.integers(1, 3),
    times_n=st.lists(st.floats(0.1, 10.0), max_size=10),
    hop_s=st.sampled_from([0.0, 0.3]),
    window=st.sampled_from([None, 1, 3]),
)
def test_causes_fill_the_idle_time_exactly(kind, num_ranks, sweeps, times_n, hop_s, window):
    sweeps = 1 if kind == "plain" else sweeps
    trace = simulate(kind, num_ranks, sweeps, np.asarray(times_n, float), hop_s, window)
    idles, metrics = idle_times(trace), measure(trace)
    whole_s = num_ranks * metrics.makespan_s
    assert math.fsum(by_cause(idles).values()) == pytest.approx(
        whole_s - math.fsum(metrics.busy_s), rel=1e-9, abs=1e-9
    )
    for rank in range(num_ranks):
        mine = [(e.start_s, e.end_s) for e in trace.of(COMPUTE, rank)]
        mine += [(i.start_s, i.end_s) for i in idles if i.rank == rank]
        mine.sort()
        assert all(before[1] == after[0] for before, after in pairwise(mine)), "no hole, no overlap"
    assert {idle.cause for idle in idles} <= set(CAUSES)
    causes = by_cause(idles)
    assert causes["decode"] == causes["arrival"] == 0.0
    assert hop_s or causes["hop"] == 0.0
    assert window or causes["window"] == 0.0
    again = idle_times(trace)
    assert again == idles and all(isinstance(idle, Idle) for idle in idles)
