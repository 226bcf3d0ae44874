"""Simulator: costs of a model on a device, runs in virtual time over the very objects that ranks
walk, workloads, lower bounds and optima, and the planner that chooses among them."""

from vpp_ms.sim.bounds import Bounds, lower_bounds
from vpp_ms.sim.costs import Costs, LinkCosts, derive
from vpp_ms.sim.device import DeviceCard, load_card
from vpp_ms.sim.simulate import simulate
from vpp_ms.sim.workload import Ask, make_workload

__all__ = [
    "Ask",
    "Bounds",
    "Costs",
    "DeviceCard",
    "LinkCosts",
    "derive",
    "load_card",
    "lower_bounds",
    "make_workload",
    "simulate",
]
