"""`WeightSource`: where a model's weights come from, one layer at a time, whatever the format.

Letters: H hidden, N query heads, K KV heads, D head dim, F FFN width, E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from vpp_ms.config.model_spec import ModelSpec

Array = np.ndarray


class WeightSource(Protocol):
    """Numpy float32 arrays in the orientation of Hugging Face ([out, in]).

    `layer(i)` has the keys and shapes of `layer_shapes(spec, i)`. A tied head equals the
    embedding (the same array where possible, so that memory is shared).
    """

    def layer(self, layer: int) -> Mapping[str, Array]: ...

    def embedding(self) -> Array:
        """[V, H]"""

    def final_norm(self) -> Array:
        """[H]"""

    def head(self) -> Array:
        """[V, H]"""


def layer_shapes(spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of all weights of one layer."""
    hidden, dim = spec.hidden_size, spec.head_dim
    q_size, kv_size = spec.num_heads * dim, spec.num_kv_heads * dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (q_size, hidden),
        "k": (kv_size, hidden),
        "v": (kv_size, hidden),
        "o": (hidden, q_size),
        "ffn_norm": (hidden,),
    }
    if spec.attention_bias:
        shapes |= {"q_bias": (q_size,), "k_bias": (kv_size,), "v_bias": (kv_size,)}
    if spec.qk_norm:
        shapes |= {"q_norm": (dim,), "k_norm": (dim,)}
    if spec.moe is not None and spec.layer_kind(layer) == "moe":
        experts, width = spec.moe.num_experts, spec.moe.intermediate_size
        shapes |= {
            "router": (experts, hidden),
            "gate": (experts, width, hidden),
            "up": (experts, width, hidden),
            "down": (experts, hidden, width),
        }
    else:
        width = spec.intermediate_size
        shapes |= {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    return shapes


class RandomWeights:
    """Normal weights, scaled by 1/sqrt(fan-in); layer i depends on (seed, i) alone."""

    def __init__(self, spec: ModelSpec, seed: int = 0) -> None:
        self._spec, self._seed = spec, seed

    def layer(self, layer: int) -> dict[str, Array]:
        rng = self._rng(layer + 1)
        return {n: _draw(rng, n, shape) for n, shape in layer_shapes(self._spec, layer).items()}

    def embedding(self) -> Array:
        table = self._rng(0).standard_normal(self._vocab_shape, np.float32)
        table *= np.float32(self._spec.hidden_size**-0.5 if self._spec.tied_embeddings else 1)
        return table

    def final_norm(self) -> Array:
        rng = self._rng(self._spec.num_layers + 1)
        return _draw(rng, "final_norm", (self._spec.hidden_size,))

    def head(self) -> Array:
        if self._spec.tied_embeddings:
            return self.embedding()
        return _draw(self._rng(self._spec.num_layers + 2), "head", self._vocab_shape)

    @property
    def _vocab_shape(self) -> tuple[int, int]:
        return self._spec.vocab_size, self._spec.hidden_size

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, stream))


def random_weights(spec: ModelSpec, seed: int = 0) -> WeightSource:
    """A source for tests and benchmarks."""
    return RandomWeights(spec, seed)


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape, np.float32)
    if name.endswith("norm"):
        return 1 + np.float32(0.1) * values
    if name.endswith("bias"):
        return np.float32(0.1) * values
    values *= np.float32(shape[-1] ** -0.5)
    return values
