"""`config.json` of a Mixtral checkpoint -> `ModelSpec`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.model.hf_config import HFConfig, read_decoder, read_experts

DEFAULT_ROPE_THETA = 1_000_000.0
DEFAULT_RMS_EPS = 1e-5


def read_spec(config: HFConfig, model_dir: Path) -> ModelSpec:
    """Raises CheckpointError for a setting that no stage implements."""
    decoder = read_decoder(
        config, model_dir, family="mixtral", rope_theta=DEFAULT_ROPE_THETA, rms_eps=DEFAULT_RMS_EPS
    )
    return replace(
        decoder,
        moe=read_experts(config, decoder.intermediate_size, norm_topk=True),
        sliding_window=config.optional_integer("sliding_window"),
    )
