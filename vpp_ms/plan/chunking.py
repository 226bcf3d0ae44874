"""`ChunkRule`: how a prompt is cut. Stateless: the next size follows from prefix and remainder.

The idea of dynamic chunks: the next chunk takes as long as the first one did at prefix 0. The
presets reproduce the published choices of smoothing, floor and rounding without their published
defects: size never grows with the prefix, a prefix hit counts with its true length, a prefix
that eats the whole time budget leads to the floor and not back to the full size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from vpp_ms.config.schema import ChunkingConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.latency import Fit, LatencyModel, fit_latency

__all__ = ["PRESETS", "ChunkRule", "Fit", "LatencyModel", "chunk_rule", "fit_latency"]

METHODS = ("fixed", "tail", "dynamic", "dynamic_tail")
DYNAMIC_METHODS = METHODS[2:]


class Preset(NamedTuple):
    """`min_tokens` None: a quarter of the base. `prefix_term`: gamma of the model is used."""

    smoothing: float
    min_tokens: int | None
    round_up: bool
    prefix_term: bool


PRESETS = {
    "sglang": Preset(smoothing=0.75, min_tokens=None, round_up=False, prefix_term=False),
    "vllm_ascend": Preset(smoothing=1.0, min_tokens=4096, round_up=True, prefix_term=False),
    "atom": Preset(smoothing=0.75, min_tokens=4096, round_up=False, prefix_term=True),
}


@dataclass(frozen=True)
class ChunkRule:
    """No chunk is longer than `chunk_tokens`; all but a prompt's last are multiples of
    `alignment`.

    fixed: `chunk_tokens` each. tail: fixed, but of the last two chunks the first is cut in 2 and
    the last in up to 4. dynamic: sized by `latency`, at least `min_tokens` each; a tail under
    half a chunk joins the chunk before it, or shares evenly with it where both together would
    exceed `chunk_tokens`. dynamic_tail: dynamic, with the last two cut as in tail.
    """

    method: str
    chunk_tokens: int
    alignment: int = 1
    latency: LatencyModel | None = None
    smoothing: float = 1.0
    min_tokens: int = 1
    round_up: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise PlanError("chunking.method", repr(self.method), allowed=", ".join(METHODS))
        if self.chunk_tokens < 1:
            raise PlanError("chunking.chunk_tokens", self.chunk_tokens, allowed=">= 1")
        if not 1 <= self.alignment <= self.chunk_tokens:
            raise PlanError(
                "chunking.alignment",
                f"{self.alignment} with chunk_tokens {self.chunk_tokens}",
                allowed=f"1 to {self.chunk_tokens}",
                hint="a smaller alignment or larger chunks",
            )
        if not 1 <= self.min_tokens <= self.chunk_tokens:
            raise PlanError(
                "chunking.min_chunk_tokens",
                f"{self.min_tokens} with chunk_tokens {self.chunk_tokens}",
                allowed=f"1 to {self.chunk_tokens}",
            )
        if self.method in DYNAMIC_METHODS:
            assert self.latency is not None, "a dynamic rule needs a latency model"
            assert self.latency.flaw(self.chunk_tokens) is None, "the fit must be gated"

    def next_size(self, start: int, remaining: int) -> int:
        """Tokens of the next chunk when `start` are cached and `remaining` > 0 are not."""
        assert start >= 0 and remaining > 0
        if self.method == "dynamic":
            return self._dynamic(self.depth_size(start), remaining)
        if self.method != "fixed":
            return self._tail(self.depth_size(start), start, remaining)
        return min(self._aligned(self.chunk_tokens), remaining)

    def cut(self, length: int, start: int = 0) -> tuple[int, ...]:
        """The chunks of `length` tokens behind a prefix of `start`; () for no tokens."""
        return tuple(self._sizes(start, length))

    def depth_size(self, start: int) -> int:
        """The rule's chunk size at a depth, whatever remains; non-increasing in `start`."""
        base = self.chunk_tokens
        if self.method not in DYNAMIC_METHODS:
            return self._aligned(base)
        assert self.latency is not None
        ideal = self.latency.size_for(start, self.latency.time_of(0, base))
        smooth = base + self.smoothing * (min(ideal, base) - base)
        # The tolerance keeps float noise from costing a whole alignment unit.
        size = int(smooth + self.alignment - 1 - 1e-6 if self.round_up else smooth + 1e-6)
        return self._aligned(min(max(size, self.min_tokens), base))

    def _sizes(self, start: int, remaining: int) -> Iterator[int]:
        while remaining > 0:
            size = self.next_size(start, remaining)
            yield size
            start, remaining = start + size, remaining - size

    def _dynamic(self, size: int, remaining: int) -> int:
        tail = remaining - size
        if tail <= 0:
            return remaining
        if 2 * tail >= size:
            return size
        return remaining if remaining <= self.chunk_tokens else self._share(remaining, 2)

    def _tail(self, size: int, start: int, remaining: int) -> int:
        if remaining > 2 * size:
            return size
        if remaining > size:
            return self._share(size, 2)
        if start == 0:
            return remaining
        return self._share(remaining, -(-remaining * 4 // size))

    def _share(self, tokens: int, parts: int) -> int:
        """The first of `parts` about equal shares, rounded to the nearest multiple."""
        units = -(-tokens // parts) / self.alignment
        return min(max(round(units), 1) * self.alignment, tokens)

    def _aligned(self, size: int) -> int:
        return max(size // self.alignment * self.alignment, self.alignment)


def chunk_rule(
    config: ChunkingConfig, method: str, latency: LatencyModel | Fit | None = None
) -> tuple[ChunkRule, str | None]:
    """The rule of a configuration, and why it is fixed where dynamic was asked for (or None).

    A preset's absolute floor that is no smaller than the base would make every chunk the base:
    then a quarter of the base is the floor. Raises PlanError.
    """
    base = config.chunk_tokens
    fixed = ChunkRule("fixed", base, config.alignment)
    if method not in DYNAMIC_METHODS:
        return ChunkRule(method, base, config.alignment), None
    preset = PRESETS[config.preset]
    fit = latency if isinstance(latency, Fit) else Fit(latency, "no latency model")
    if fit.model is None:
        return fixed, fit.reason
    model = fit.model if preset.prefix_term else replace(fit.model, gamma=0.0)
    flaw = model.flaw(base)
    if flaw is not None:
        return fixed, flaw
    floor = config.min_chunk_tokens
    if floor is None:
        floor = preset.min_tokens
        floor = max(base // 4, 1) if floor is None or floor >= base else floor
    rule = ChunkRule(
        method,
        base,
        config.alignment,
        model,
        preset.smoothing if config.smoothing is None else config.smoothing,
        floor,
        preset.round_up,
    )
    return rule, None
