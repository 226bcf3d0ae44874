"""`make_plan`: what the methods stand for, what is refused, and the hash that all ranks share."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import PlanError, RequestError
from vpp_ms.plan import CostModel, Fit, LatencyModel, make_plan
from vpp_ms.plan.cost import PartCost
from vpp_ms.plan.memory import Footprint

SPEC = ModelSpec("toy", 5, 32, 4, 2, 8, 97, 64, 128, moe=MoESpec(8, 2, 16))
ROOT = Path(__file__).parents[3]


def config(**sections):
    sections.setdefault("chunking", {})
    sections["chunking"] = {"chunk_tokens": 16, **sections["chunking"]}
    return RunConfig(pretrained_model_dir="model", **sections)


@pytest.mark.parametrize(
    ("method", "kind", "virtual_stages", "chunking"),
    [("cpp", "plain", 1, "fixed"), ("dcpp", "plain", 1, "dynamic"), ("vpp", "v", 2, "fixed")],
)
def test_a_method_stands_for(method, kind, virtual_stages, chunking):
    plan = make_plan(config(vpp={"method": method}), SPEC)
    assert plan.placement.kind == kind
    assert plan.placement.virtual_stages == virtual_stages
    assert plan.chunking.method == chunking
    assert plan.window.micro_batches == 8
    assert [(s.first_layer, s.is_first) for s in plan.stages if s.is_first] == [(0, True)]
    assert [(s.end_layer, s.is_last) for s in plan.stages if s.is_last] == [(5, True)]


def test_keys_given_explicitly_win():
    plan = make_plan(
        config(
            vpp={"method": "cpp", "placement": "loop", "virtual_stages": 2},
            chunking={"method": "tail"},
        ),
        SPEC,
    )
    assert (plan.placement.kind, plan.placement.virtual_stages) == ("loop", 2)
    assert plan.chunking.method == "tail"


def test_a_plain_placement_has_one_stage_per_rank_whatever_the_method():
    plan = make_plan(config(vpp={"method": "vpp", "placement": "plain"}), SPEC)
    assert plan.placement.num_stages == 2


def test_six_stages_for_five_layers():
    wanted = config(vpp={"method": "cpp"}, parallel_config={"pipeline_stage": 6})
    with pytest.raises(PlanError, match=r"6 stages.*5 layers"):
        make_plan(wanted, SPEC)


@pytest.mark.parametrize("key", ["model_parallel", "expert_parallel"])
def test_other_parallelism_is_refused_by_name(key):
    with pytest.raises(PlanError, match=rf"parallel_config\.{key}: 2; allowed: 1"):
        make_plan(config(parallel_config={key: 2}), SPEC)


def test_all_ranks_have_the_same_number_of_kv_blocks_and_only_their_layers():
    plan = make_plan(
        config(vpp={"method": "cpp", "layer_split": (1, 4)}, kv={"block_size": 4}), SPEC, (61, 23)
    )
    assert plan.num_blocks == -(-(61 + 32) // 4) - (-(23 + 32) // 4)
    one, four = (memory.kv_bytes for memory in plan.memory)
    assert four == 4 * one == plan.num_blocks * 4 * (2 * 4 * 2 * 8 * 4)


def test_kv_memory_is_divided_by_the_fullest_rank():
    split = {"method": "cpp", "layer_split": (1, 4)}
    block = 4 * 2 * 4 * 2 * 8 * 4  # layers, K and V, tokens, heads, width, bytes
    kv = {"block_size": 4, "memory_bytes": 10 * block + 1}
    assert make_plan(config(vpp=split, kv=kv), SPEC, (128,)).num_blocks == 10
    with pytest.raises(PlanError, match=f"memory_bytes.*{block} bytes"):
        make_plan(config(vpp=split, kv={"block_size": 4, "memory_bytes": block - 1}), SPEC)


def test_weights_are_counted_in_full():
    plan = make_plan(config(vpp={"method": "cpp"}), SPEC)
    attention = 32 * (32 + 16 + 16) + 32 * 32
    layer = attention + 8 * (3 * 32 * 16) + 8 * 32 + 2 * 32
    assert sum(m.weight_bytes for m in plan.memory) == 4 * (5 * layer + 2 * 97 * 32 + 32)


def test_the_pool_takes_what_a_device_has_left():
    footprint = Footprint(item_bytes=4, weight_item_bytes=4)
    keys = {"kv": {"block_size": 4}}
    roomy = make_plan(config(**keys), SPEC, (128,) * 50)
    assert roomy.num_blocks == 50 * (128 + 32) // 4
    limit = max(m.weight_bytes + m.activation_bytes for m in roomy.memory) + 400_000
    tight = make_plan(
        config(**keys), SPEC, (128,) * 50, footprint=replace(footprint, memory_bytes=limit)
    )
    assert 40 <= tight.num_blocks < roomy.num_blocks
    fullest = max(m.total_bytes for m in tight.memory)
    one_more = max(m.kv_bytes for m in tight.memory) // tight.num_blocks
    assert fullest <= limit < fullest + one_more


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_plan_that_does_not_fit_into_a_device_is_one_clear_line(share):
    needed = max(m.total_bytes for m in make_plan(config(), SPEC, (128,)).memory)
    footprint = Footprint(4, 4, memory_bytes=int(share * needed) - 1)
    with pytest.raises(PlanError, match=r"memory of rank \d: .*KV.*on one device; try: more ranks"):
        make_plan(config(), SPEC, (128,), footprint=footprint)


def test_layers_are_balanced_by_the_costs_that_are_handed_in():
    """Layer 0 as dear as the other four together."""
    dear = CostModel({"x": PartCost(token_s=4.0), "y": PartCost(token_s=1.0)}, tuple("xyyyy"))
    plan = make_plan(config(vpp={"method": "cpp"}), SPEC, (128,), cost=dear)
    assert [stage.num_layers for stage in plan.stages] == [1, 4]


def test_activation_memory_does_not_depend_on_the_prompt():
    short, long = (make_plan(config(), SPEC, (n,)).memory[0].activation_bytes for n in (20, 96))
    assert short == long


def test_a_request_that_is_too_long_is_told_both_limits():
    plan = make_plan(config(model={"max_seq_len": 100}), SPEC)
    plan.check_request("request a", 100)
    plan.check_request("request a", 99, 1)
    with pytest.raises(RequestError, match=r"max_seq_len = 100.*max_position = 128"):
        plan.check_request("request a", 100, 1)
    with pytest.raises(RequestError, match=r"empty prompt"):
        plan.check_request("request a", 0)


def test_the_model_bounds_the_length_too():
    assert make_plan(config(), SPEC).max_tokens == 128
    with pytest.raises(PlanError, match=r"max_seq_len: 200.*128"):
        make_plan(config(model={"max_seq_len": 200}), SPEC)


def test_dynamic_chunks_want_a_profile_first():
    dynamic = config(vpp={"method": "dcpp"})
    assert make_plan(dynamic, SPEC).needs_latency
    profiled = make_plan(dynamic, SPEC, latency=LatencyModel(1e-3, 0.01, 0.1))
    assert profiled.latency_source == "profiled"
    assert not profiled.needs_latency
    given = config(vpp={"method": "dcpp"}, chunking={"latency": (1e-3, 0.01, 0.1)})
    assert make_plan(given, SPEC).latency_source == "given"
    assert make_plan(given, SPEC).hash == profiled.hash


def test_a_failed_profile_leads_to_fixed_chunks_and_one_note():
    plan = make_plan(
        config(vpp={"method": "dcpp"}), SPEC, latency=Fit(None, "rank 0 could not be profiled")
    )
    assert plan.chunking.method == "fixed"
    assert not plan.needs_latency
    assert plan.notes == ("fixed chunks instead of dynamic ones: rank 0 could not be profiled",)


def test_a_latency_that_cannot_be_leads_to_fixed_chunks():
    wanted = config(vpp={"method": "dcpp"}, chunking={"latency": (-1.0, 0.01, 0.1)})
    plan = make_plan(wanted, SPEC)
    assert plan.chunking.method == "fixed"
    assert len(plan.notes) == 1


def test_auto_must_be_filled_in_first():
    with pytest.raises(PlanError, match=r"vpp\.placement"):
        make_plan(config(vpp={"method": "auto"}), SPEC)


def test_the_hash_tells_plans_apart():
    plans = [
        make_plan(config(), SPEC),
        make_plan(config(chunking={"chunk_tokens": 17}), SPEC),
        make_plan(config(vpp={"order": "late_sweep"}), SPEC),
        make_plan(config(vpp={"layer_split": (1, 1, 1, 2)}), SPEC),
        make_plan(config(kv={"num_blocks": 5}), SPEC),
        make_plan(config(model={"compute_dtype": "float16"}), SPEC),
    ]
    assert len({plan.hash for plan in plans}) == len(plans)
    assert all(len(plan.hash) == 16 for plan in plans)


def test_every_process_finds_the_same_hash():
    code = (
        "from vpp_ms.config.model_spec import ModelSpec, MoESpec\n"
        "from vpp_ms.config.schema import RunConfig\n"
        "from vpp_ms.plan import make_plan\n"
        "spec = ModelSpec('toy', 5, 32, 4, 2, 8, 97, 64, 128, moe=MoESpec(8, 2, 16))\n"
        "config = RunConfig(pretrained_model_dir='m', vpp={'method': 'dcpp'},"
        " chunking={'chunk_tokens': 16})\n"
        "print(make_plan(config, spec, (61,)).hash)\n"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert hashes == {make_plan(config(vpp={"method": "dcpp"}), SPEC, (61,)).hash}
