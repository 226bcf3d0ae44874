"""`config.json` of a Qwen3-MoE checkpoint -> `ModelSpec`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.model.hf_config import HFConfig, read_decoder, read_experts

DEFAULT_ROPE_THETA = 10_000.0
DEFAULT_RMS_EPS = 1e-6


def read_spec(config: HFConfig, model_dir: Path) -> ModelSpec:
    """Raises CheckpointError for a setting that no stage implements."""
    decoder = read_decoder(
        config,
        model_dir,
        family="qwen3_moe",
        rope_theta=DEFAULT_ROPE_THETA,
        rms_eps=DEFAULT_RMS_EPS,
    )
    config.only("attention_bias", False)
    sliding = config.flag("use_sliding_window", default=False)
    if sliding:  # versions of Transformers differ on which layers it then holds for
        config.only("max_window_layers", 0)
    return replace(
        decoder,
        moe=read_experts(
            config,
            config.integer("moe_intermediate_size"),
            norm_topk=config.flag("norm_topk_prob", default=False),
        ),
        dense_layers=_dense_layers(config, decoder.num_layers),
        qk_norm=True,
        sliding_window=config.optional_integer("sliding_window") if sliding else None,
    )


def _dense_layers(config: HFConfig, num_layers: int) -> tuple[int, ...]:
    """Named in `mlp_only_layers`, or not a `decoder_sparse_step`-th layer, counted from 1."""
    step = config.integer("decoder_sparse_step", default=1)
    named = config.integers("mlp_only_layers")
    return tuple(i for i in range(num_layers) if i in named or (i + 1) % step != 0)
