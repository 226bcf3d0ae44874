"""Memory per rank: weights and KV counted exactly, activations estimated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.plan.cost import HasLayers

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class RankMemory:
    """One rank's bytes. `activation_bytes` is an estimate of the peak beside the others."""

    rank: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def layer_parameters(spec: ModelSpec, layer: int) -> int:
    """Weights of one decoder layer: attention, FFN or experts, two norms."""
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention = spec.hidden_size * (2 * q_width + 2 * kv_width)
    if spec.attention_bias:
        attention += q_width + 2 * kv_width
    if spec.qk_norm:
        attention += 2 * spec.head_dim
    if spec.layer_kind(layer) == "dense" or spec.moe is None:
        ffn = 3 * spec.hidden_size * spec.intermediate_size
    else:
        expert = 3 * spec.hidden_size * spec.moe.intermediate_size
        ffn = spec.moe.num_experts * (expert + spec.hidden_size)
    return attention + ffn + 2 * spec.hidden_size


def weight_bytes(spec: ModelSpec, stages: Iterable[HasLayers], item_bytes: int) -> int:
    """Weights of these stages; tied embeddings on one rank are held once."""
    total, tables = 0, 0
    for stage in stages:
        layers = range(stage.first_layer, stage.end_layer)
        total += sum(layer_parameters(spec, layer) for layer in layers)
        tables += stage.is_first + stage.is_last
        total += spec.hidden_size if stage.is_last else 0
    if spec.tied_embeddings:
        tables = min(tables, 1)
    return (total + tables * spec.vocab_size * spec.hidden_size) * item_bytes


def block_bytes(spec: ModelSpec, num_layers: int, block_size: int, item_bytes: int) -> int:
    """One KV block of `block_size` tokens over `num_layers` layers, keys and values."""
    return 2 * num_layers * block_size * spec.num_kv_heads * spec.head_dim * item_bytes


def activation_bytes(
    spec: ModelSpec, chunk_tokens: int, in_flight: int, item_bytes: int, has_head: bool
) -> int:
    """Estimate: one layer's live tensors, and a hidden state per micro-batch that waits."""
    widths = 4 * spec.hidden_size
    widths += (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    ffn = 3 * spec.intermediate_size
    if spec.moe is not None:
        ffn = max(ffn, spec.moe.top_k * (2 * spec.hidden_size + 3 * spec.moe.intermediate_size))
    live = chunk_tokens * (widths + ffn) + in_flight * chunk_tokens * spec.hidden_size
    return live * item_bytes + (4 * spec.vocab_size if has_head else 0)
