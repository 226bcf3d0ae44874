"""The costs that a run's configuration stands for: a calibration, a card, or the device's card."""

from __future__ import annotations

from pathlib import Path

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim.costs import Costs, derive
from vpp_ms.sim.device import load_card

CARD_OF = {"CPU": "cpu_core", "Ascend": "ascend_910c", "Emulated": "ascend_910c"}


def costs_of(config: RunConfig, spec: ModelSpec) -> Costs:
    """`vpp.costs`, or derived from the card of the device. Raises VppError."""
    given = config.vpp.costs
    if given is not None and given.suffix == ".json":
        costs = Costs.load(given)
        costs.check_model(spec, f"vpp.costs: {given}")
        return costs
    name = CARD_OF[config.context.device_target] if given is None else str(given)
    card = load_card(name)
    return derive(spec, card, Footprint.of_config(config), Path(name).stem)


def are_known(config: RunConfig) -> bool:
    """Whether they are this device's own: calibrated or chosen by the user, or emulated. Else
    they are a guess, good enough to order by, that a profile is to replace where sizes hang on it.
    """
    return config.vpp.costs is not None or config.is_emulated


def known_model(config: RunConfig, spec: ModelSpec) -> CostModel | None:
    """The cost model to plan by, where it is known. Raises VppError."""
    return costs_of(config, spec).model if are_known(config) else None
