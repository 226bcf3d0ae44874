"""A rerun makes the decisions of the run it is given, and only with the run's own plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sim.sim_problems import MOE, run_config
from vpp_ms.errors import VppError
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import make_plan
from vpp_ms.schedule.walk import Walk
from vpp_ms.sim.costs import derive
from vpp_ms.sim.device import load_card
from vpp_ms.sim.rerun import rerun
from vpp_ms.sim.simulate import simulate
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.events import COMPUTE, Trace

COSTS = derive(MOE, load_card("cpu_core"), Footprint(4, 4))
ASKS = (Ask(3000, 3), Ask(100, 2), Ask(1700, 1))


def plan_for(placement="v", v=2, ranks=3, window=6, order="best"):
    vpp = {"placement": placement, "virtual_stages": v, "order": order}
    vpp["window"] = {"micro_batches": window}
    config = run_config(ranks, "vpp", vpp=vpp, chunking={"chunk_tokens": 256})
    return make_plan(config, MOE, [ask.prompt_tokens for ask in ASKS], new_tokens=(3, 2, 1))


def executed(trace: Trace) -> list[tuple[int, int, int, float, float]]:
    return [
        (e.rank, e.stage, e.micro_batch, e.start_s, e.end_s)
        for rank in range(trace.num_ranks)
        for e in trace.of(COMPUTE, rank)
    ]


def walked(walk: Walk) -> list[tuple[int, int, int, float, float]]:
    return sorted(walk.actions, key=lambda a: a.rank)


def only_order(actions):
    return [action[:3] for action in actions]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([("plain", 1), ("loop", 2), ("loop", 3), ("v", 2), ("v", 4)]),
    st.integers(2, 4),
    st.integers(2, 9),
    st.sampled_from(["best", "late_sweep", "longest_path"]),
    st.integers(0, 1000),
)
def test_it_decides_as_the_run_did(layout, ranks, window, order, seed):
    plan = plan_for(*layout, ranks, window, order)
    trace = simulate(plan, COSTS, ASKS, jitter=0.4, seed=seed)
    again = walked(rerun(trace, plan, COSTS))
    first = executed(trace)
    assert only_order(again) == only_order(first)
    for a, b in zip(again, first, strict=True):
        assert a[3:] == pytest.approx(b[3:], rel=1e-9, abs=1e-9)


def test_another_order_shows():
    plan = plan_for(order="late_sweep")
    trace = simulate(plan, COSTS, ASKS, jitter=0.4)
    other = rerun(trace, plan_for(order="early_sweep"), COSTS)
    assert only_order(walked(other)) != only_order(executed(trace))


def test_another_window_shows():
    plan = plan_for(window=6)
    trace = simulate(plan, COSTS, ASKS, jitter=0.4)
    other = rerun(trace, plan_for(window=5), COSTS)
    assert only_order(walked(other)) != only_order(executed(trace))


def test_a_trace_with_other_actions_is_refused():
    plan = plan_for()
    trace = simulate(plan, COSTS, ASKS)
    last = max(e.micro_batch for e in trace.of(COMPUTE))
    short = replace(trace, events=tuple(e for e in trace.events if e.micro_batch != last))
    with pytest.raises(VppError, match="was not executed"):
        rerun(short, plan, COSTS)
    unserved = replace(trace, meta={**trace.meta, "requests": ["0", "1", "2", "3"]})
    with pytest.raises(VppError, match="request 3 was not served"):
        rerun(unserved, plan, COSTS)
