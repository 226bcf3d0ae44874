"""Rotary position embedding on the host: exact frequencies, rounded once to float32.

Letters: T tokens, D head dim. Formulas: RoFormer (arXiv 2104.09864), linear position
interpolation (2306.15595), YaRN (2309.00071), Llama 3 as in its reference implementation.
"""

from __future__ import annotations

import math

import numpy as np

from vpp_ms.config.model_spec import ModelSpec, RopeSpec
from vpp_ms.errors import ConfigError, RequestError


class RotaryTable:
    """cos and sin for any positions of one model, in the half-split ("neox") layout."""

    def __init__(self, spec: ModelSpec) -> None:
        rope = spec.rope
        self._max_position = spec.max_position
        if rope.kind == "dynamic":
            # Up to the original length the frequencies are the default ones; beyond it they
            # would depend on the whole prompt's length, which no chunk knows.
            self._max_position = min(spec.max_position, rope.original_max_position)
        frequencies, self._scale = _frequencies(rope, spec.head_dim)
        self._frequencies = frequencies.astype(np.float32)

    def __call__(self, positions_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cos [T, D], sin [T, D]); sin carries the sign of the rotated half.

        With x' = concat(x2, x1) of x = concat(x1, x2): rope(x) = x * cos + x' * sin.
        Raises RequestError for a position the model was not made for.
        """
        self.check(int(positions_T.max()))
        angles = positions_T.astype(np.float32)[:, None] * self._frequencies
        cos, sin = np.cos(angles) * self._scale, np.sin(angles) * self._scale
        return np.concatenate([cos, cos], 1), np.concatenate([-sin, sin], 1)

    def check(self, position: int) -> None:
        """Raises RequestError when `position` is out of the model's range."""
        if position >= self._max_position:
            raise RequestError(
                "position", position, allowed=f"< {self._max_position}", hint="a shorter prompt"
            )


def _frequencies(rope: RopeSpec, dim: int) -> tuple[np.ndarray, np.float32]:
    """(angle per position [D/2] in float64, factor on cos and sin)."""
    if dim % 2:
        raise ConfigError("head_dim", dim, allowed="an even number")
    base = rope.theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    params = dict(rope.params)
    if rope.kind in ("default", "dynamic"):
        return base, np.float32(1)
    if rope.kind == "linear":
        return base / rope.factor, np.float32(1)
    if rope.kind == "llama3":
        return _llama3(base, rope, params), np.float32(1)
    if rope.kind == "yarn":
        return _yarn(base, rope, params, dim), np.float32(_yarn_scale(rope.factor, params))
    raise ConfigError(
        "rope kind", repr(rope.kind), allowed="default, linear, dynamic, llama3, yarn"
    )


def _llama3(base: np.ndarray, rope: RopeSpec, params: dict[str, float]) -> np.ndarray:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    low, high = params["low_freq_factor"], params["high_freq_factor"]
    turns = rope.original_max_position * base / (2 * math.pi)
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return keep * base + (1 - keep) * base / rope.factor


def _yarn(base: np.ndarray, rope: RopeSpec, params: dict[str, float], dim: int) -> np.ndarray:
    """Dimensions that turn often within the original length are kept, slow ones stretched."""

    def dimension_of(turns: float) -> float:
        wavelength = rope.original_max_position / (turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(rope.theta))

    first = dimension_of(params.get("beta_fast", 32))
    last = dimension_of(params.get("beta_slow", 1))
    if params.get("truncate", 1):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    span = last - first if last != first else 0.001
    stretch = np.clip((np.arange(dim // 2) - first) / span, 0, 1)
    return base * (1 - stretch) + base / rope.factor * stretch


def _yarn_scale(factor: float, params: dict[str, float]) -> float:
    """The attention temperature: `attention_factor` if given, else by `factor` and mscale."""

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if "attention_factor" in params:
        return params["attention_factor"]
    if params.get("mscale") and params.get("mscale_all_dim"):
        return mscale(params["mscale"]) / mscale(params["mscale_all_dim"])
    return mscale(1.0)
