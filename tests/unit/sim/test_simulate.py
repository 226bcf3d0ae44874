"""The simulator: the same objects as the ranks, deterministic, and every cost is paid once."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import serve

from tests.unit.sim.sim_problems import MOE, K, run_config, shaped_problem
from vpp_ms.engine.prompts import Prompt
from vpp_ms.errors import ConfigError, RequestError
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import make_plan
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.sim.costs import Costs, LinkCosts, derive
from vpp_ms.sim.device import load_card
from vpp_ms.sim.simulate import run, simulate, walk_prefill
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.events import COMPUTE, RECV, SEND, SIMULATED
from vpp_ms.trace.meta import read_meta
from vpp_ms.trace.metrics import measure

COSTS = derive(MOE, load_card("cpu_core"), Footprint(4, 4))
FREE = replace(COSTS, link=LinkCosts())


def plan_for(lengths, num_ranks=2, method="vpp", new_tokens=1, **sections):
    config = run_config(num_ranks, method, **sections)
    return make_plan(config, MOE, lengths, new_tokens=(new_tokens,) * len(lengths))


def test_a_simulated_trace_is_labelled_and_complete():
    plan = plan_for((3000, 700))
    trace = simulate(plan, COSTS, (Ask(3000), Ask(700)))
    meta = read_meta(trace)
    assert trace.origin == SIMULATED
    assert (meta.plan_hash, meta.placement, meta.stages) == (plan.hash, plan.placement, plan.stages)
    assert sum(s.length for row in meta.cargo.segments for s in row) == 3700
    assert trace.meta["costs"] == "derived from device card card"
    Schedule.of_walk(run(plan, COSTS, (Ask(3000), Ask(700))).walk).check()


def test_ranks_are_busy_with_exactly_what_the_cost_model_says():
    plan = plan_for((3000,))
    asks = (Ask(3000),)
    metrics = measure(simulate(plan, COSTS, asks))
    stage_costs = COSTS.model.for_stages(plan.stages)
    table_nS = stage_costs.table([mb.segments for mb in run(plan, COSTS, asks).micro_batches])
    for rank, busy_s in enumerate(metrics.busy_s):
        mine = list(plan.placement.stages_of(rank))
        assert busy_s == pytest.approx(table_nS[:, mine].sum())


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    method=st.sampled_from(["cpp", "vpp"]),
    chunk=st.integers(5, 60),
)
def test_it_injects_what_the_engine_injects(lengths, method, chunk):
    """Prefill only and with a window wide enough that nothing depends on the clock."""
    sections = {"chunking": {"chunk_tokens": chunk}, "kv": {"block_size": 4}}
    sections["vpp"] = {"window": {"micro_batches": 1000}}
    spec = replace(MOE, num_layers=4)
    plan = make_plan(
        run_config(2, method, **sections), spec, lengths, new_tokens=(0,) * len(lengths)
    )
    prompts = [Prompt(str(i), (1,) * length, 0) for i, length in enumerate(lengths)]
    _, recorders, engine = serve(plan, prompts)
    costs = CostModel({"toy": PartCost(1e-3, 1e-3, 1e-4)}, ("toy",) * 4)
    asks = [Ask(length, 0) for length in lengths]
    found = run(plan, Costs(costs, LinkCosts(), "toy"), asks)
    bare = [[replace(s, blocks=()) for s in mb.segments] for mb in engine.injected]
    assert [list(mb.segments) for mb in found.micro_batches] == bare
    assert [mb.priority for mb in found.micro_batches] == [mb.priority for mb in engine.injected]
    done = {(e.stage, e.micro_batch) for r in recorders for e in r.events if e.kind == COMPUTE}
    assert done == {(a.stage, a.micro_batch) for a in found.walk.actions}


def test_jitter_is_drawn_from_the_seed_and_scatters_around_what_is_expected():
    plan, asks = plan_for((4000,)), (Ask(4000),)
    first = simulate(plan, COSTS, asks, jitter=0.2, seed=7)
    assert first == simulate(plan, COSTS, asks, jitter=0.2, seed=7)
    assert first != simulate(plan, COSTS, asks, jitter=0.2, seed=8)
    exact = measure(simulate(plan, COSTS, asks)).busy_s[0]
    busy_s = [
        measure(simulate(plan, COSTS, asks, jitter=0.2, seed=seed)).busy_s[0] for seed in range(60)
    ]
    assert np.mean(busy_s) == pytest.approx(exact, rel=0.02)
    assert np.std(busy_s) > 0.01 * exact


def test_jitter_does_not_depend_on_the_order():
    """The same micro-batch takes the same time on the same stage under any order."""
    asks = (Ask(4000),)
    times = []
    for order in ("late_sweep", "early_sweep"):
        plan = plan_for((4000,), vpp={"order": order, "placement": "loop"})
        trace = simulate(plan, COSTS, asks, jitter=0.3, seed=1)
        times.append(
            {(e.stage, e.micro_batch): pytest.approx(e.duration_s) for e in trace.of(COMPUTE)}
        )
    assert times[0] == times[1]


def test_what_rank_0_believes_orders_and_what_is_true_takes_time():
    plan, asks = plan_for((4000,), vpp={"placement": "loop", "order": "best"}), (Ask(4000),)
    wrong = replace(COSTS.model, layers={"moe": PartCost(launch_s=1.0)})
    believing = run(plan, COSTS, asks, believed=Costs(wrong, COSTS.link, "wrong"))
    true = run(plan, COSTS, asks)
    assert [mb.priority for mb in believing.micro_batches] != [
        mb.priority for mb in true.micro_batches
    ]
    durations = [
        {
            (action.stage, action.micro_batch): pytest.approx(action.end_s - action.start_s)
            for action in found.walk.actions
        }
        for found in (believing, true)
    ]
    assert durations[0] == durations[1]


def test_hops_take_time_and_carry_bytes():
    plan, asks = plan_for((4000,)), (Ask(4000),)
    slow = replace(COSTS, link=replace(COSTS.link, latency_s=0.5))
    free, hop = (simulate(plan, costs, asks) for costs in (FREE, slow))
    assert measure(hop).makespan_s > measure(free).makespan_s + 1.0
    sent = sum(e.num_bytes for e in hop.of(SEND))
    links = [link.source_stage for link in plan.placement.links()]
    assert sent == len(links) * 4000 * MOE.hidden_size * 4
    assert sum(e.num_bytes for e in hop.of(RECV)) == sent


def test_decode_tokens_follow_one_another_through_the_same_stages():
    plan, asks = plan_for((500, 900), new_tokens=5), (Ask(500, 5), Ask(900, 5))
    found = run(plan, COSTS, asks)
    sampled = [0, 0]
    for micro_batch in found.micro_batches:
        for segment in micro_batch.segments:
            sampled[segment.request] += segment.sample
    assert sampled == [5, 5]
    last = max(one.done_s for one in found.served)
    assert last == pytest.approx(found.walk.done_s[-1])
    for one in found.served:
        assert 0.0 < one.first_token_s < one.done_s


def test_arrivals_hold_requests_back():
    plan = plan_for((500, 500))
    found = run(plan, COSTS, (Ask(500), Ask(500, arrival_s=1e3)))
    assert found.served[0].done_s < 1e3 < found.served[1].first_token_s


def test_requests_wait_for_kv_blocks():
    kv = {"block_size": 64, "num_blocks": 16}
    plan = plan_for((1000, 1000), kv=kv)
    tight = run(plan, COSTS, (Ask(1000),) * 2)
    roomy = run(plan_for((1000, 1000)), COSTS, (Ask(1000),) * 2)
    assert tight.served[1].first_token_s > roomy.served[1].first_token_s
    with pytest.raises(RequestError, match=r"request 1: 1100 tokens.*16 blocks of 64"):
        run(plan, COSTS, (Ask(1000), Ask(1100)))
    assert len(walk_prefill(plan, COSTS, (1000, 1100)).done_s) == 2, "one is left out"


def test_a_drain_is_the_next_ones_fill_where_the_pool_holds_little_more_than_one():
    """Six prompts of 4K: a pool for 1.5 of them costs little against one for all."""
    asks, busy = (Ask(4096),) * 6, {}
    for blocks in (64, 96, 400):
        kv = {"block_size": 64, "num_blocks": blocks}
        metrics = measure(simulate(plan_for((4096,) * 6, 4, "cpp", kv=kv), COSTS, asks))
        busy[blocks] = 1.0 - metrics.bubble_ratio
    assert busy[64] < 0.75 * busy[400], "one after the other"
    assert busy[96] > 0.9 * busy[400]


def test_ranks_take_turns_at_layers_that_do_not_divide():
    """25 layers on 2 ranks: the lighter rank idles 4 % of a stream, unless they take turns."""
    spec = replace(MOE, num_layers=25)
    costs = derive(spec, load_card("cpu_core"), Footprint(4, 4))
    asks, found = (Ask(4096),) * 8, {}
    for split in ("auto", "turns"):
        config = run_config(2, "vpp", vpp={"layer_split": split})
        plan = make_plan(config, spec, (4096,) * 8, new_tokens=(1,) * 8, cost=costs.model)
        trace = simulate(plan, costs, asks)
        found[split] = measure(trace)
        meta = read_meta(trace)
        assert meta.stages == plan.stages
        table_nS = costs.model.for_stages(plan.stages).table(meta.cargo.segments)
        busy = [table_nS[:, list(plan.placement.stages_of(rank))].sum() for rank in range(2)]
        assert found[split].busy_s == pytest.approx(busy)
    first, second = found["turns"].busy_s
    assert first == pytest.approx(second, rel=0.005)
    assert found["turns"].bubble_ratio < found["auto"].bubble_ratio - 0.01


def test_the_window_bounds_what_is_in_flight():
    narrow = plan_for((4000,), vpp={"window": {"micro_batches": 1}})
    alone = run(narrow, FREE, (Ask(4000),)).walk
    assert alone.bubble_ratio == pytest.approx(0.5, abs=0.05)
    in_time = plan_for((4000,), vpp={"window": {"time_chunks": 1.0}})
    assert run(in_time, FREE, (Ask(4000),)).walk.makespan_s > 0.9 * alone.makespan_s


@pytest.mark.parametrize(
    ("asks", "keys", "says"),
    [
        ((), {}, "no requests; allowed: at least one prompt"),
        ((Ask(5),), {"jitter": -1.0}, "jitter: -1.0"),
        ((Ask(5),), {"jitter": float("nan")}, "jitter: nan"),
    ],
)
def test_what_cannot_be_simulated(asks, keys, says):
    with pytest.raises(ConfigError, match=says):
        simulate(plan_for((5,)), COSTS, asks, **keys)


def test_a_million_tokens_on_64_ranks_take_seconds():
    problem = shaped_problem(64, (K * K,), vpp={"placement": "v", "virtual_stages": 4})
    config = problem.config.model_copy(
        update={
            "vpp": problem.config.vpp.model_copy(update={"order": "longest_path"}),
            "chunking": problem.config.chunking.model_copy(update={"chunk_tokens": 1024}),
        }
    )
    plan = problem.plan(config)
    start_s = time.process_time()
    trace = simulate(plan, problem.costs, problem.asks)
    assert len(trace.of(COMPUTE)) == 1024 * 256
    assert time.process_time() - start_s < 20.0
