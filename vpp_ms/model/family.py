"""`Family`: what differs between model families; one instance per folder of the model zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.model.hf_config import HFConfig


@dataclass(frozen=True)
class ExpertNames:
    """One spelling of a layer's experts in a checkpoint: `gate`, `up`, `down`, or a fused pair.

    A template with {expert} names one matrix per expert, [F, H] or [H, F]; one without names
    all of them, [E, F, H] or [E, H, F]; `gate_up` is gate above up, [E, 2F, H].
    """

    router: str
    weights: Mapping[str, str]


@dataclass(frozen=True)
class WeightNames:
    """Canonical weight name -> name in the checkpoint, with {layer} and {expert} to fill in.

    `experts` lists the known spellings, the usual one first.
    """

    embedding: str
    final_norm: str
    head: str
    attention: Mapping[str, str]
    dense: Mapping[str, str]
    experts: tuple[ExpertNames, ...]


@dataclass(frozen=True)
class Family:
    """A family of decoders: how its config is read and how its weights are called."""

    name: str
    read_spec: Callable[[HFConfig, Path], ModelSpec]
    weight_names: WeightNames
