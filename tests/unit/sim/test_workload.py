"""Workloads: the same seed gives the same requests; what cannot be asked is one clear line."""

from __future__ import annotations

import numpy as np
import pytest

from vpp_ms.errors import ConfigError
from vpp_ms.sim.workload import KINDS, Ask, make_workload

K = 1024


def test_long_is_one_prompt_and_a_stream_is_many_equal_ones():
    assert make_workload("long", prompt_tokens=128 * K) == (Ask(128 * K),)
    assert make_workload("stream", prompt_tokens=512 * K, count=16) == (Ask(512 * K),) * 16


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_requests(kind):
    assert make_workload(kind, seed=3) == make_workload(kind, seed=3)


def test_mixed_lengths_are_log_uniform_between_1k_and_the_longest():
    lengths = np.array([ask.prompt_tokens for ask in make_workload("mixed", count=4000)])
    assert lengths.min() >= K and lengths.max() <= 256 * K
    octaves = np.histogram(np.log2(lengths / K), bins=8, range=(0, 8))[0]
    assert octaves == pytest.approx(np.full(8, 500), rel=0.2)
    assert make_workload("mixed", seed=1) != make_workload("mixed", seed=2)


def test_short_prompts_are_short():
    lengths = [ask.prompt_tokens for ask in make_workload("short", prompt_tokens=4 * K)]
    assert min(lengths) >= K // 2 and max(lengths) <= 4 * K


@pytest.mark.parametrize(
    ("kind", "keys", "says"),
    [
        ("strem", {}, r"workload.kind: 'strem'.*try: stream"),
        ("stream", {"count": 0}, r"workload.count: 0; allowed: >= 1"),
        ("stream", {"prompt_tokens": -5}, r"workload.prompt_tokens: -5"),
        ("long", {"count": 2}, r"1 for long; try: workload.kind: stream"),
        ("mixed", {"prompt_tokens": 100}, r"at least 1024"),
    ],
)
def test_what_cannot_be_asked(kind, keys, says):
    with pytest.raises(ConfigError, match=says):
        make_workload(kind, **keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"prompt_tokens": 0},
        {"prompt_tokens": 5, "cached_tokens": 5},
        {"prompt_tokens": 5, "cached_tokens": -1},
        {"prompt_tokens": 5, "new_tokens": -1},
        {"prompt_tokens": 5, "arrival_s": -1.0},
        {"prompt_tokens": 5, "arrival_s": float("nan")},
    ],
)
def test_an_impossible_request(keys):
    with pytest.raises(ConfigError, match="workload"):
        Ask(**keys)
