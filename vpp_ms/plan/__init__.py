"""Plan: placement, layer partition, chunk rule, cost model, memory: one frozen, hashed `Plan`."""

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.latency import Fit, LatencyModel, fit_latency
from vpp_ms.plan.placement import Link, Placement
from vpp_ms.plan.plan import Plan, StageSpec, make_plan

__all__ = [
    "ChunkRule",
    "CostModel",
    "Fit",
    "LatencyModel",
    "Link",
    "Placement",
    "Plan",
    "StageSpec",
    "fit_latency",
    "make_plan",
]
