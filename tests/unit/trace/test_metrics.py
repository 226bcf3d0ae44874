"""Busy shares and bubbles, from a trace by hand and from walks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.walk import Hop, walk
from vpp_ms.trace.events import COMPUTE, RECV, SEND, SIMULATED, WAIT, Event, Trace
from vpp_ms.trace.metrics import measure
from vpp_ms.trace.simulated import trace_of_walk


def compute(rank, start_s, end_s, micro_batch=0):
    return Event(COMPUTE, rank, rank, micro_batch, start_s, end_s)


def trace(*events, num_ranks=2):
    return Trace(num_ranks, tuple(sorted(events, key=lambda e: (e.start_s, e.rank))))


def test_by_hand():
    metrics = measure(
        trace(
            compute(0, 1.0, 3.0),
            compute(0, 3.0, 5.0),
            Event(SEND, 0, 0, 0, 3.0, 3.25, 64, 1),
            Event(RECV, 1, 0, 0, 3.0, 4.0, 64, 0),
            Event(WAIT, 1, -1, -1, 0.5, 4.0),
            compute(1, 4.0, 6.0),
            compute(1, 7.0, 9.0),
        )
    )
    assert metrics.makespan_s == 8.0
    assert metrics.busy_s == (4.0, 4.0)
    assert metrics.wait_recv_s == (0.0, 3.5)
    assert metrics.wait_send_s == (0.25, 0.0)
    assert metrics.bubble_ratio == pytest.approx(1 - 8 / 16)
    # steady: from 4, when rank 1 starts, to 5, when rank 0 has ended
    assert metrics.bubble_ratio_steady == pytest.approx(0.0)


def test_a_slow_clock_of_one_rank_changes_only_its_own_busy_time():
    """Each rank's durations come from its own clock; an offset between clocks leaves them."""
    events = [compute(rank, rank + i, rank + i + 0.5, i) for rank in range(4) for i in range(5)]
    moved = [
        e if e.rank != 2 else e._replace(start_s=e.start_s + 7.0, end_s=e.end_s + 7.0)
        for e in events
    ]
    before, after = (measure(trace(*e, num_ranks=4)) for e in (events, moved))
    assert after.busy_s == before.busy_s
    slowed = [e if e.rank != 2 else e._replace(end_s=e.end_s + 0.25) for e in events]
    assert measure(trace(*slowed, num_ranks=4)).busy_s == pytest.approx((2.5, 2.5, 3.75, 2.5))


def test_steady_counts_idling_between_fill_and_drain():
    metrics = measure(
        trace(
            compute(0, 0.0, 4.0), compute(0, 6.0, 8.0), compute(1, 2.0, 5.0), compute(1, 5.0, 9.0)
        )
    )
    assert metrics.bubble_ratio_steady == pytest.approx(1 - (4 + 6) / 12)


def test_without_overlap_there_is_no_steady_state():
    assert measure(trace(compute(0, 0.0, 1.0), compute(1, 1.0, 2.0))).bubble_ratio_steady is None
    assert measure(trace(compute(0, 0.0, 1.0))).bubble_ratio_steady is None


def test_a_run_without_compute_is_all_zeros():
    metrics = measure(trace())
    assert (metrics.makespan_s, metrics.bubble_ratio, metrics.busy_s) == (0.0, 0.0, (0.0, 0.0))


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["loop", "v"]),
    num_ranks=st.integers(1, 4),
    sweeps=st.integers(1, 3),
    n=st.integers(1, 8),
    hop_s=st.sampled_from([0.0, 0.2]),
)
def test_a_simulated_trace_tells_what_the_walk_did(kind, num_ranks, sweeps, n, hop_s):
    placement = Placement(kind, num_ranks, sweeps)
    costs_nS = np.arange(1.0, 1 + n * placement.num_stages).reshape(n, -1)
    batches = prioritize(placement, [()] * n, costs_nS, "longest_path")
    run = walk(placement, batches, costs_nS, hop_of=lambda link, mb: Hop(hop_s))
    found = trace_of_walk(run)
    metrics = measure(found)
    assert found.origin == SIMULATED
    assert list(found.events) == sorted(found.events, key=lambda e: (e.start_s, e.rank))
    assert metrics.makespan_s == pytest.approx(run.makespan_s)
    assert metrics.bubble_ratio == pytest.approx(run.bubble_ratio)
    for rank in range(num_ranks):
        stages = placement.stages_of(rank)
        assert metrics.busy_s[rank] == pytest.approx(costs_nS[:, list(stages)].sum())
        # a simulated rank either computes or waits
        whole_s = metrics.busy_s[rank] + metrics.wait_recv_s[rank]
        assert whole_s == pytest.approx(run.makespan_s)
    if metrics.bubble_ratio_steady is not None:
        assert -1e-9 <= metrics.bubble_ratio_steady <= 1.0
    assert len(found.of(SEND)) == len(found.of(RECV)) == n * len(placement.links())
