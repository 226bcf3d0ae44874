"""The abstract problem of the tables: equal layers with costs shaped like DeepSeek-V3.1's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.latency import LatencyModel
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim.costs import Costs, LinkCosts
from vpp_ms.sim.problem import Problem
from vpp_ms.sim.workload import Ask

K = 1024
BASE = 32 * K
VARIABLE = LatencyModel(a=2.5e-6, b=0.074)  # one rank's share, in TFLOP
ASSUMED = (
    "t(L, x) = 0.074 x + 5e-6 (L x + x^2 / 2) + c per rank (TFLOP), c in percent of the first 32K "
    "chunk's variable part; equal layers, free hops, free stage launches, no cap on what is in "
    "flight"
)


def shaped_problem(
    num_ranks: int,
    tokens: int,
    fixed: float = 0.1,
    num_layers: int = 64,
    vpp: Mapping[str, Any] | None = None,
    chunking: Mapping[str, Any] | None = None,
) -> Problem:
    """One prompt; `fixed` is c as a share. Without a chunk size the planner is free."""
    share = num_ranks / num_layers
    part = PartCost(
        launch_s=fixed * VARIABLE.time_of(0, BASE) * share,
        token_s=VARIABLE.b * share,
        pair_s=2 * VARIABLE.a * share,
    )
    costs = Costs(CostModel({"x": part}, ("x",) * num_layers), LinkCosts(), "shaped")
    config = RunConfig(
        pretrained_model_dir="shaped",
        parallel_config={"pipeline_stage": num_ranks},
        vpp={"method": "auto", "window": {"micro_batches": 100_000}, **(vpp or {})},
        chunking={"alignment": 64, **(chunking or {})},
    )
    spec = ModelSpec("shaped", num_layers, 1, 1, 1, 1, 1, 1, 1 << 30)
    return Problem(config, spec, costs, Footprint(4, 4), (Ask(tokens),))


def fixed_sum(tokens: int, fixed: float = 0.1) -> float:
    """One rank's times of fixed 32K chunks, summed: what makespans are measured in."""
    per_chunk = fixed * VARIABLE.time_of(0, BASE)
    return VARIABLE.time_of(0, tokens) + per_chunk * -(-tokens // BASE)


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
