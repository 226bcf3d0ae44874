"""Workloads: what is asked of a pipeline, and when.

long: one prompt. stream: equal long prompts back to back, all known from the start. mixed:
lengths drawn log-uniformly from 1K to 256K tokens with a seed. short: prompts of 0.5K to 4K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vpp_ms.errors import ConfigError, nearest

K = 1024


@dataclass(frozen=True)
class Ask:
    """One request. `new_tokens` 0 or 1: the first token comes with the prefill."""

    prompt_tokens: int
    new_tokens: int = 1
    arrival_s: float = 0.0
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise ConfigError(
                "workload", f"a prompt of {self.prompt_tokens} tokens", allowed=">= 1"
            )
        if not 0 <= self.cached_tokens < self.prompt_tokens:
            raise ConfigError(
                "workload",
                f"{self.cached_tokens} of {self.prompt_tokens} prompt tokens cached",
                allowed=f"0 to {self.prompt_tokens - 1}",
            )
        if self.new_tokens < 0 or not self.arrival_s >= 0.0:
            raise ConfigError(
                "workload",
                f"{self.new_tokens} new tokens at {self.arrival_s} s",
                allowed="neither below 0",
            )

    @property
    def total_tokens(self) -> int:
        """The tokens whose KV the request may need: the last sampled one is never run."""
        return self.prompt_tokens + max(self.new_tokens - 1, 0)


def long(prompt_tokens: int = 512 * K, count: int = 1, seed: int = 0) -> tuple[Ask, ...]:
    """One prompt after another would be a stream: `count` must be 1."""
    if count != 1:
        raise ConfigError(
            "workload.count", count, allowed="1 for long", hint="workload.kind: stream"
        )
    return (Ask(prompt_tokens),)


def stream(prompt_tokens: int = 512 * K, count: int = 16, seed: int = 0) -> tuple[Ask, ...]:
    """Equal prompts, all waiting from the start."""
    return (Ask(prompt_tokens),) * count


def mixed(prompt_tokens: int = 256 * K, count: int = 64, seed: int = 0) -> tuple[Ask, ...]:
    """Log-uniform from 1K to `prompt_tokens`, all waiting from the start, in drawn order."""
    return _log_uniform(K, prompt_tokens, count, seed)


def short(prompt_tokens: int = 4 * K, count: int = 64, seed: int = 0) -> tuple[Ask, ...]:
    """Log-uniform from an eighth of `prompt_tokens` up, all waiting from the start."""
    return _log_uniform(max(prompt_tokens // 8, 1), prompt_tokens, count, seed)


def _log_uniform(least: int, most: int, count: int, seed: int) -> tuple[Ask, ...]:
    if most < least:
        raise ConfigError("workload.prompt_tokens", most, allowed=f"at least {least}")
    lengths = np.exp(np.random.default_rng(seed).uniform(np.log(least), np.log(most), count))
    return tuple(Ask(int(length)) for length in lengths)


KINDS: dict[str, Callable[..., tuple[Ask, ...]]] = {
    "long": long,
    "stream": stream,
    "mixed": mixed,
    "short": short,
}


def make_workload(kind: str, **keys: int) -> tuple[Ask, ...]:
    """Raises ConfigError for an unknown kind, an empty workload or an impossible length."""
    if kind not in KINDS:
        raise ConfigError(
            "workload.kind", repr(kind), allowed=", ".join(KINDS), hint=nearest(kind, KINDS)
        )
    for name, value in keys.items():
        if name != "seed" and value < 1:
            raise ConfigError(f"workload.{name}", value, allowed=">= 1")
    return KINDS[kind](**keys)
