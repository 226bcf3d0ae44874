"""`ModelSpec`: what plan, KV and stages need to know of a decoder, whatever its family."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding. `kind` is "default", "linear", "dynamic", "yarn" or "llama3"."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original_max_position: int = 0
    params: tuple[tuple[str, float], ...] = ()  # what else the kind needs, sorted by name


@dataclass(frozen=True)
class MoESpec:
    """Routed experts. `norm_topk`: the chosen experts' probabilities are scaled to sum 1."""

    num_experts: int
    top_k: int
    intermediate_size: int
    norm_topk: bool = True


@dataclass(frozen=True)
class ModelSpec:
    """One decoder-only model.

    `moe` is None for a dense model; `dense_layers` lists the layers of an MoE model whose FFN
    is dense (their width is `intermediate_size`).
    """

    family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int
    max_position: int
    rms_eps: float = 1e-6
    rope: RopeSpec = field(default_factory=RopeSpec)
    moe: MoESpec | None = None
    dense_layers: tuple[int, ...] = ()
    qk_norm: bool = False
    attention_bias: bool = False
    sliding_window: int | None = None
    tied_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()
    dtype: str = "float32"

    def layer_kind(self, layer: int) -> str:
        """ "moe" or "dense"."""
        return "dense" if self.moe is None or layer in self.dense_layers else "moe"
