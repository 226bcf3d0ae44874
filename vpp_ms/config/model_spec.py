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
    """Routed experts. `norm_topk`: the chosen experts' probabilities are scaled to sum 1.

    `num_shared` experts of the same width see every token.
    """

    num_experts: int
    top_k: int
    intermediate_size: int
    norm_topk: bool = True
    num_shared: int = 0


@dataclass(frozen=True)
class MLASpec:
    """Latent attention: a token's keys and values are read from one cached latent.

    The cache holds `kv_rank + rope_dim` numbers per token and layer. A head's query and key have
    `nope_dim + rope_dim` numbers, its value `value_dim`. Queries come through `query_rank`.
    """

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


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
    mla: MLASpec | None = None
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
