"""Qwen3-MoE: normalised queries and keys, narrow experts, dense layers where the config says."""

from __future__ import annotations

from vpp_ms.model.family import Family
from vpp_ms.model_zoo.qwen3_moe.config import read_spec
from vpp_ms.model_zoo.qwen3_moe.weights import WEIGHT_NAMES

FAMILY = Family("qwen3_moe", read_spec, WEIGHT_NAMES)

__all__ = ["FAMILY"]
