"""Abstract problems: equal layers whose costs on one rank are those of schedule theory."""

from __future__ import annotations

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.latency import LatencyModel
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim.costs import Costs, LinkCosts
from vpp_ms.sim.problem import Problem
from vpp_ms.sim.workload import Ask

K = 1024
BASE = 32 * K
VARIABLE = LatencyModel(a=2.5e-6, b=0.074)  # of one rank, TFLOP: DeepSeek-V3.1's shape
MOE = ModelSpec("toy", 24, 512, 8, 2, 64, 1000, 768, 65536, moe=MoESpec(16, 4, 256))


def run_config(num_ranks=2, method="auto", **sections):
    sections["vpp"] = {"method": method, **sections.get("vpp", {})}
    return RunConfig(
        pretrained_model_dir="model", parallel_config={"pipeline_stage": num_ranks}, **sections
    )


def shaped_costs(num_ranks, fixed=0.1, link=None, layers_per_rank=24):
    """`fixed` is the fixed cost as a share of the first 32K chunk's variable one."""
    num_layers = num_ranks * layers_per_rank
    share = num_ranks / num_layers
    part = PartCost(
        launch_s=fixed * VARIABLE.time_of(0, BASE) * share,
        token_s=VARIABLE.b * share,
        pair_s=2 * VARIABLE.a * share,
    )
    model = CostModel({"x": part}, ("x",) * num_layers)
    return Costs(model, link or LinkCosts(), "shaped like DeepSeek-V3.1")


def shaped_problem(num_ranks, lengths, fixed=0.1, link=None, **sections):
    costs = shaped_costs(num_ranks, fixed, link)
    spec = ModelSpec("shaped", len(costs.model.layer_kinds), 1, 1, 1, 1, 1, 1, 1 << 30)
    sections["chunking"] = {"alignment": 64, **sections.get("chunking", {})}
    config = run_config(num_ranks, **sections)
    return Problem(config, spec, costs, Footprint(4, 4), tuple(Ask(n) for n in lengths))


def fixed_sum(length, fixed=0.1):
    """Sum of one rank's times for fixed chunks of 32K: what makespans are measured in."""
    per_chunk = fixed * VARIABLE.time_of(0, BASE)
    return VARIABLE.time_of(0, length) + per_chunk * -(-length // BASE)
