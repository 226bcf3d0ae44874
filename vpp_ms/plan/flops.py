"""What the parts of a model compute, counted from its spec: 2 FLOPs per multiply-add.

Norms, softmax and activations are left out: they are few, and a device's efficiency covers them.
"""

from __future__ import annotations

from typing import NamedTuple

from vpp_ms.config.model_spec import ModelSpec


class LayerFlops(NamedTuple):
    """Per token, per attended (query, key) pair, and per cached token of each micro-batch."""

    token: float
    pair: float
    prefix_token: float


def layer_flops(spec: ModelSpec, kind: str) -> LayerFlops:
    """One decoder layer of a kind, "moe" or "dense"."""
    attention = attention_parameters(spec)
    ffn = active_ffn_parameters(spec, kind)
    if spec.mla is None:
        return LayerFlops(2.0 * (attention + ffn), 4.0 * spec.num_heads * spec.head_dim, 0.0)
    mla = spec.mla
    pair = 2.0 * spec.num_heads * (mla.nope_dim + mla.rope_dim + mla.value_dim)
    # Keys and values of the whole prefix are made anew from the cached latents.
    prefix = 2.0 * mla.kv_rank * spec.num_heads * (mla.nope_dim + mla.value_dim)
    return LayerFlops(2.0 * (attention + ffn), pair, prefix)


def head_flops(spec: ModelSpec) -> float:
    """One row of logits."""
    return 2.0 * spec.hidden_size * spec.vocab_size


def attention_parameters(spec: ModelSpec) -> int:
    """Weights of the projections around attention, biases and norms left out."""
    hidden, heads = spec.hidden_size, spec.num_heads
    if spec.mla is None:
        q_width, kv_width = heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        return hidden * (2 * q_width + 2 * kv_width)
    mla = spec.mla
    query = mla.query_rank * (hidden + heads * (mla.nope_dim + mla.rope_dim))
    latent = hidden * (mla.kv_rank + mla.rope_dim)
    key_value = mla.kv_rank * heads * (mla.nope_dim + mla.value_dim)
    return query + latent + key_value + heads * mla.value_dim * hidden


def active_ffn_parameters(spec: ModelSpec, kind: str) -> int:
    """Weights that one token meets: gate, up and down; for MoE the chosen and the shared experts
    and the router."""
    if kind == "dense" or spec.moe is None:
        return 3 * spec.hidden_size * spec.intermediate_size
    moe = spec.moe
    experts = 3 * (moe.top_k + moe.num_shared) * moe.intermediate_size
    return spec.hidden_size * (experts + moe.num_experts)


def ffn_parameters(spec: ModelSpec, kind: str) -> int:
    """All weights of the FFN: for MoE every expert and the router."""
    if kind == "dense" or spec.moe is None:
        return active_ffn_parameters(spec, kind)
    moe = spec.moe
    experts = 3 * (moe.num_experts + moe.num_shared) * moe.intermediate_size
    return spec.hidden_size * (experts + moe.num_experts)
