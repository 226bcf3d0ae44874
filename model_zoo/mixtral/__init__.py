"""Mixtral: every layer routes to `num_local_experts` experts, the chosen scaled to sum 1."""

from __future__ import annotations

from vpp_ms.model.family import Family
from vpp_ms.model_zoo.mixtral.config import read_spec
from vpp_ms.model_zoo.mixtral.weights import WEIGHT_NAMES

FAMILY = Family("mixtral", read_spec, WEIGHT_NAMES)

__all__ = ["FAMILY"]
