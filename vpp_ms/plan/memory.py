"""Memory per rank: weights and KV counted exactly, activations estimated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.plan.cost import HasLayers
from vpp_ms.plan.flops import attention_parameters, ffn_parameters

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Footprint:
    """How numbers are stored, on each of the `tensor_parallel` devices of a rank.

    Weights and heads are split over the devices; hidden states and MLA's latents are not, and no
    key/value head is split. `memory_bytes` is what one device holds, None for no limit.
    """

    item_bytes: int
    weight_item_bytes: int
    tensor_parallel: int = 1
    memory_bytes: int | None = None

    @classmethod
    def of(cls, dtype: str) -> Footprint:
        """Everything in one number format, one device per rank."""
        return cls(ITEM_BYTES[dtype], ITEM_BYTES[dtype])

    @classmethod
    def of_config(cls, config: RunConfig) -> Footprint:
        """A run's number format, on the devices of one rank."""
        whole = cls.of(config.model.compute_dtype)
        return replace(whole, tensor_parallel=config.parallel_config.model_parallel)


@dataclass(frozen=True)
class RankMemory:
    """Bytes on a rank's device. `activation_bytes` is an estimate of the peak beside the others."""

    rank: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def layer_parameters(spec: ModelSpec, layer: int) -> int:
    """Weights of one decoder layer: attention, FFN or experts, norms."""
    attention = attention_parameters(spec)
    if spec.attention_bias:
        attention += (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    if spec.qk_norm:
        attention += 2 * spec.head_dim
    if spec.mla is not None:
        attention += spec.mla.query_rank + spec.mla.kv_rank
    return attention + ffn_parameters(spec, spec.layer_kind(layer)) + 2 * spec.hidden_size


def weight_bytes(spec: ModelSpec, stages: Iterable[HasLayers], footprint: Footprint) -> int:
    """Weights of these stages; tied embeddings on one rank are held once."""
    total, tables = 0, 0
    for stage in stages:
        layers = range(stage.first_layer, stage.end_layer)
        total += sum(layer_parameters(spec, layer) for layer in layers)
        tables += stage.is_first + stage.is_last
        total += spec.hidden_size if stage.is_last else 0
    if spec.tied_embeddings:
        tables = min(tables, 1)
    parameters = total + tables * spec.vocab_size * spec.hidden_size
    return -(-parameters * footprint.weight_item_bytes // footprint.tensor_parallel)


def kv_token_bytes(spec: ModelSpec, footprint: Footprint) -> int:
    """One token's cache in one layer."""
    if spec.mla is not None:
        return (spec.mla.kv_rank + spec.mla.rope_dim) * footprint.item_bytes
    heads = -(-spec.num_kv_heads // footprint.tensor_parallel)
    return 2 * heads * spec.head_dim * footprint.item_bytes


def block_bytes(spec: ModelSpec, num_layers: int, block_size: int, footprint: Footprint) -> int:
    """One KV block of `block_size` tokens over `num_layers` layers."""
    return num_layers * block_size * kv_token_bytes(spec, footprint)


def activation_bytes(
    spec: ModelSpec, chunk_tokens: int, in_flight: int, footprint: Footprint, has_head: bool
) -> int:
    """Estimate: one layer's live tensors, and a hidden state for each of `in_flight` that wait."""
    widths = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    ffn = 3 * spec.intermediate_size
    if spec.moe is not None:
        routed = spec.moe.top_k * (2 * spec.hidden_size + 3 * spec.moe.intermediate_size)
        ffn = max(ffn, routed)
    split = -(-chunk_tokens * (widths + ffn) // footprint.tensor_parallel)
    whole = (4 + in_flight) * chunk_tokens * spec.hidden_size
    return (split + whole) * footprint.item_bytes + (4 * spec.vocab_size if has_head else 0)
