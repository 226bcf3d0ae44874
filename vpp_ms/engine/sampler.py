"""`Sampler`: one row of logits becomes one token; greedy, or drawn by temperature."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from vpp_ms.config.schema import InputConfig
from vpp_ms.errors import RequestError


@dataclass(frozen=True)
class Sampler:
    """temperature 0 is greedy; top_k 0 and top_p 1 keep every token.

    A draw depends on seed, request and position alone, never on batch mates or earlier draws.
    Ties go to the lowest token id, when taking the greatest and when cutting to top-k or top-p.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    @classmethod
    def of(cls, config: InputConfig, seed: int) -> Sampler:
        return cls(config.temperature, config.top_k, config.top_p, seed)

    def sample(self, logits_V: np.ndarray, request: str | int, position: int) -> int:
        """The token behind a row of logits; `position` counts the request's sampled tokens.

        Raises RequestError when any logit is NaN or infinite.
        """
        if not np.isfinite(logits_V).all():
            raise RequestError(
                f"request {request}",
                f"logits are not finite at output token {position}",
                hint="model.compute_dtype: float32",
            )
        if self.temperature == 0:
            return int(np.argmax(logits_V))
        kept, weights = self._kept(logits_V)
        cumulative = np.cumsum(weights)
        drawn = self._uniform(request, position) * cumulative[-1]
        index = int(np.searchsorted(cumulative, drawn, side="right"))
        return int(kept[min(index, len(kept) - 1)])

    def _kept(self, logits_V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids that may be drawn, likeliest first, and their unnormalised weights."""
        order = np.argsort(-logits_V, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        ordered = logits_V[order].astype(np.float64)
        with np.errstate(over="ignore"):  # a tiny temperature sends the rest to weight 0
            weights = np.exp((ordered - ordered[0]) / self.temperature)
        cumulative = np.cumsum(weights)
        count = int(np.searchsorted(cumulative, self.top_p * cumulative[-1])) + 1
        return order[:count], weights[:count]

    def _uniform(self, request: str | int, position: int) -> float:
        key = f"{self.seed}/{position}/{request}".encode()
        entropy = int.from_bytes(blake2b(key, digest_size=16).digest(), "little")
        return float(np.random.default_rng(entropy).random())
