"""The planner: what the tables of schedule theory ask for, and that it keeps every promise."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.unit.sim.sim_problems import (
    MOE,
    K,
    fixed_sum,
    run_config,
    shaped_problem,
)
from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import ConfigError, PlanError
from vpp_ms.plan.cost import PartCost
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import make_plan
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.sim.choice import describe
from vpp_ms.sim.costs import LinkCosts, derive
from vpp_ms.sim.device import load_card
from vpp_ms.sim.planner import choose, resolve_auto
from vpp_ms.sim.problem import Problem
from vpp_ms.sim.simulate import run
from vpp_ms.sim.workload import Ask

COSTS = derive(MOE, load_card("cpu_core"), Footprint(4, 4))

# (request in K, P): the best combination that was known, as makespan over the fixed plan's sum
COMPOSED = {
    (512, 2): 1.0155,
    (512, 4): 1.0353,
    (512, 8): 1.0600,
    (1024, 2): 1.0105,
    (1024, 4): 1.0177,
    (1024, 8): 1.0301,
}


@pytest.mark.parametrize("case", COMPOSED)
def test_the_composed_search_is_no_worse_than_the_best_that_was_known(case):
    length, num_ranks = case[0] * K, case[1]
    choice = choose(shaped_problem(num_ranks, (length,)))
    found = choice.best.makespan_s / fixed_sum(length)
    assert found <= COMPOSED[case]
    assert choice.best.makespan_s >= choice.best.sketch.bounds.makespan_s * (1 - 1e-9)
    assert choice.best.sketch.bounds.makespan_s >= choice.problem.floor_s


def test_with_a_larger_fixed_cost_too():
    choice = choose(shaped_problem(8, (512 * K,), fixed=0.2))
    assert choice.best.makespan_s / fixed_sum(512 * K, fixed=0.2) <= 1.078


def test_a_million_tokens_on_16_ranks_take_seconds():
    start_s = time.process_time()
    choice = choose(shaped_problem(16, (K * K,)))
    assert time.process_time() - start_s < 30.0
    assert choice.best.gap < 0.01


def moe_problem(lengths, num_ranks=2, link=COSTS.link, **sections):
    costs = COSTS if link is COSTS.link else type(COSTS)(COSTS.model, link, "test")
    config = run_config(num_ranks, **sections)
    return Problem(config, MOE, costs, Footprint(4, 4), tuple(Ask(n) for n in lengths))


WORKLOADS = {
    "long": (8192,),
    "odd": (3001,),
    "short": (300,),
    "stream": (4096,) * 4,
    "many short": (200,) * 10,
    "mixed": (6000, 100, 3000, 50, 900),
}


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_never_behind_a_named_method(num_ranks, name):
    problem = moe_problem(WORKLOADS[name], num_ranks)
    choice = choose(problem)
    named = [a for a in choice.alternatives if a.prediction and not a.name.startswith("auto")]
    assert {a.name.split()[0] for a in named} == {"cpp", "dcpp", "vpp"}
    for alternative in named:
        assert choice.best.makespan_s <= alternative.prediction.makespan_s * (1 + 1e-12)
    assert choice.best.makespan_s >= problem.floor_s


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_choice_is_a_plan_like_any_other(name):
    """Its configuration, read back and planned anew, walks as predicted."""
    problem = moe_problem(WORKLOADS[name])
    choice = choose(problem)
    config = RunConfig.model_validate_json(choice.config.model_dump_json())
    plan = problem.plan(config)
    assert plan == choice.best.sketch.plan
    walked = run(plan, problem.costs, problem.asks).walk
    assert walked.makespan_s == pytest.approx(choice.best.makespan_s)
    Schedule.of_walk(walked).check()
    assert plan.method == "auto"


def test_the_same_problem_has_the_same_answer():
    assert choose(moe_problem((8192,))).config == choose(moe_problem((8192,))).config


def test_one_short_prompt_stays_plain_and_a_long_one_does_not():
    assert resolve_auto(run_config(), MOE, (16,)).vpp.placement == "plain"
    assert resolve_auto(run_config(), MOE, (8192,)).vpp.placement != "plain"


def test_dear_hops_and_launches_keep_it_from_cutting_ever_finer():
    wide = {"window": {"micro_batches": 1000}}
    near = choose(moe_problem((8192,), vpp=wide)).best.sketch
    far = choose(moe_problem((8192,), vpp=wide, link=LinkCosts(5.0, 0.0, 1, 1))).best.sketch
    assert far.plan.placement.num_stages < near.plan.placement.num_stages
    assert far.bounds.makespan_s > near.bounds.makespan_s + 5.0
    costs = type(COSTS)(
        replace(COSTS.model, stage=PartCost(launch_s=0.5)), COSTS.link, "dear launches"
    )
    dear = choose(replace(moe_problem((8192,)), costs=costs)).best.sketch
    assert dear.num_actions < near.num_actions / 2


def test_keys_given_explicitly_win():
    chosen = resolve_auto(
        run_config(
            vpp={
                "placement": "loop",
                "virtual_stages": 3,
                "order": "late_sweep",
                "window": {"micro_batches": 5},
            },
            chunking={"method": "tail", "chunk_tokens": 300},
        ),
        MOE,
        (8192,),
    )
    assert (chosen.vpp.placement, chosen.vpp.virtual_stages) == ("loop", 3)
    assert (chosen.vpp.order, chosen.vpp.window.micro_batches) == ("late_sweep", 5)
    assert chosen.chunking.method == "tail"
    assert chosen.chunking.chunk_tokens <= 300, "the largest chunk that may be tried"


def test_an_explicit_layer_split_leaves_the_placements_it_fits():
    chosen = resolve_auto(run_config(vpp={"layer_split": (6, 6, 6, 6)}), MOE, (8192,))
    assert chosen.vpp.layer_split == (6, 6, 6, 6)
    assert chosen.vpp.virtual_stages == 2


def test_other_methods_are_left_alone():
    config = run_config(method="cpp")
    assert resolve_auto(config, MOE) is config


def test_dynamic_chunks_need_no_profile_where_the_costs_are_the_ranks_own(tmp_path):
    COSTS.save(tmp_path / "costs.json")
    given = {"chunking": {"method": "dynamic"}}
    for vpp, needs in (({}, True), ({"costs": tmp_path / "costs.json"}, False)):
        chosen = resolve_auto(run_config(2, vpp=vpp, **given), MOE, (8192,))
        assert make_plan(chosen, MOE, (8192,)).needs_latency == needs
        assert (chosen.chunking.latency is None) == needs


def test_few_layers_leave_few_candidates():
    small = ModelSpec("toy", 5, 32, 4, 2, 8, 97, 64, 128)
    assert resolve_auto(run_config(4), small, (100,)).vpp.placement == "plain"
    with pytest.raises(PlanError, match=r"6 stages.*5 layers"):
        resolve_auto(run_config(6), small, (100,))


def test_memory_decides_too():
    """What does not fit is not chosen; when nothing fits there is one clear line."""
    lengths = (60_000,)
    roomy = make_plan(run_config(2, "cpp"), MOE, lengths, new_tokens=(1,))
    fixed = max(m.weight_bytes + m.kv_bytes for m in roomy.memory)
    config = run_config(2)
    asks = tuple(Ask(n) for n in lengths)

    def problem(limit):
        return Problem(config, MOE, COSTS, Footprint(4, 4, memory_bytes=limit), asks)

    tight = choose(problem(int(1.2 * fixed))).best.sketch.plan
    assert max(m.total_bytes for m in tight.memory) <= 1.2 * fixed
    with pytest.raises(PlanError, match=r"memory of rank \d.*on one device; try: more ranks"):
        choose(problem(fixed // 2))


def test_a_stream_over_layers_that_do_not_divide_takes_turns():
    spec = replace(MOE, num_layers=13)
    costs = derive(spec, load_card("cpu_core"), Footprint(4, 4))
    asks = tuple(Ask(8192) for _ in range(8))
    best = choose(Problem(run_config(), spec, costs, Footprint(4, 4), asks)).best
    assert best.sketch.plan.num_turns > 1 and best.config.vpp.layer_split == "turns"
    assert best.bubble_ratio < 0.02, "whole layers alone would cost 3.8 %"
    alone = choose(Problem(run_config(), spec, costs, Footprint(4, 4), asks[:1])).best
    assert alone.sketch.plan.num_turns == 1


def test_an_empty_workload_is_one_clear_line():
    with pytest.raises(ConfigError, match="workload: no requests; allowed: at least one prompt"):
        moe_problem(())


def test_the_explanation_names_the_methods_and_the_best_of_each_placement():
    choice = choose(moe_problem((8192,)))
    names = [a.name for a in choice.alternatives]
    assert names[:5] == ["cpp", "dcpp sglang", "dcpp vllm_ascend", "dcpp atom", "vpp"]
    assert len(names) > 5 and all(name.startswith("auto, ") for name in names[5:])
    assert describe(choice.best).split(",")[0] in " ".join(names)
    assert choice.num_walks < choice.num_candidates
